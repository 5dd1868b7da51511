"""A layer of the model goes through NumPy on the host."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

CAUSE = "python"
DEVICE = "cuda"
ALSO = ("cpu_fallback", "host_copies", "sync")


def train(device: str) -> Iterator[None]:
    """Evaluate a model that filters its activations on the host."""
    first, second = nn.Linear(1024, 1024).to(device), nn.Linear(1024, 10).to(device)
    x = torch.randn(16384, 1024, device=device)
    with torch.inference_mode():
        while True:
            h = first(x).cpu().numpy()
            h = np.where(h > np.median(h), h, 0.0)
            second(torch.from_numpy(h).to(device)).sum()
            yield

"""torch.compile(dynamic=False) compiles again for each new sequence length."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch._dynamo
from torch import nn

CAUSE = "changing_shapes"
ALSO = ("compile", "cold_start", "python")


def train(device: str) -> Iterator[None]:
    """Evaluate sequences, each longer than the last one."""
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 64
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).to(device)
    compiled = torch.compile(model, dynamic=False, backend="inductor" if device == "cuda" else "aot_eager")
    length = 32
    with torch.no_grad():
        while True:
            length += 3
            compiled(torch.randn(8, length, 64, device=device))
            yield

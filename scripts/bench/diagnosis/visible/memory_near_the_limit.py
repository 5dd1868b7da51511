"""The allocator runs out of memory in each step, frees its cache and tries again."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "memory"
DEVICE = "cuda"
ALSO = ("sync", "pointwise", "changing_shapes")


def train(device: str) -> Iterator[None]:
    """Evaluate two inputs whose activations do not fit beside each other."""
    limit_bytes, gib = 4 << 30, 1 << 28  # float32 values in one GiB
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(limit_bytes / torch.cuda.get_device_properties(0).total_memory)
    head = nn.Linear(1024, 16).to(device)
    with torch.inference_mode():
        while True:
            for size in (gib * 5 // 2, gib * 3):
                features = torch.empty(size // 1024, 1024, device=device)
                head(features[:4096])
                del features
            yield

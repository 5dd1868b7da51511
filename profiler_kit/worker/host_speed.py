"""How fast the host runs eager PyTorch: the time of a training step so small that only calls take time."""

from __future__ import annotations

import statistics
import time
from typing import Final

import torch
from torch import nn

# What `host_step_ns` gave, in the median, while the steps were timed to which the host's times were fitted: Intel Xeon beside an
# H100, Python 3.12, torch 2.11, 2026-11-28. Eight rounds gave 2.9 to 4.8 ms.
REFERENCE_NS: Final = 4_450_000
_WIDTH: Final = 8
_LAYERS: Final = 12
_WARMUP: Final = 20
_STEPS: Final = 30
_ROUNDS: Final = 9


def host_factor() -> float:
    """How many times as long as on the reference host eager PyTorch takes per op on this host. Takes about two seconds."""
    return host_step_ns() / REFERENCE_NS


def host_step_ns() -> float:
    """The time of the step in ns, on one thread: the median of rounds. Needs a quiet machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step = _Step()
        for _ in range(_WARMUP):
            step()
        return statistics.median(_round_ns(step) for _ in range(_ROUNDS))
    finally:
        torch.set_num_threads(threads)


class _Step:
    """A training step of small linear layers, norms and activations."""

    def __init__(self) -> None:
        with torch.random.fork_rng(devices=()):
            layers = [
                layer for _ in range(_LAYERS) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.LayerNorm(_WIDTH), nn.GELU())
            ]
            self.model = nn.Sequential(*layers)
            self.x = torch.randn(2, _WIDTH)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=True)

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.x).square().mean().backward()
        self.optimizer.step()


def _round_ns(step: _Step) -> float:
    start = time.perf_counter_ns()
    for _ in range(_STEPS):
        step()
    return (time.perf_counter_ns() - start) / _STEPS

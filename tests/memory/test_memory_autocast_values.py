"""Autocast in a model that needs values of small tensors, so its moves between devices are redirected."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from profiler_kit.loading import from_model
from profiler_kit.memory import simulate
from profiler_kit.records.counts import MemoryEstimate


class Masked(nn.Module):
    """A linear layer behind a decision on the values of a small tensor."""

    def __init__(self, *, reads_values: bool) -> None:
        super().__init__()
        self.layer, self.reads_values = nn.Linear(64, 128), reads_values

    def forward(self, x: Tensor) -> Tensor:
        """The layer's result, twice."""
        positions = torch.arange(4, device=x.device)
        if self.reads_values and (positions < 0).all():
            return x
        y: Tensor = self.layer(x)
        return y * y


def simulated(*, reads_values: bool) -> MemoryEstimate:
    with torch.device("meta"):
        model, x = Masked(reads_values=reads_values), torch.empty(32, 64)
    return simulate(from_model(model, (x,), loss="sum", amp="bfloat16", device="meta"))


def test_autocast_is_simulated_although_moves_are_redirected() -> None:
    plain, redirected = (simulated(reads_values=reads) for reads in (False, True))
    assert any("known values" in note for note in redirected.notes)
    assert not plain.notes
    # the layer saves the bfloat16 copy of its input, the square its bfloat16 input
    assert plain.saved_bytes == redirected.saved_bytes == 2 * 32 * 64 + 2 * 32 * 128

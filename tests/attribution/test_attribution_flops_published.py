"""FLOP/s over time against a network whose arithmetic is known."""

from __future__ import annotations

from itertools import pairwise

import pytest
from published_traces import PUBLISHED, published

from profiler_kit.attribution.annotation_counters import flop_rate
from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import PHASE_NUMBERS
from profiler_kit.traces.reader import read

TRACE = PUBLISHED / "h100" / "convnet_v0.json.gz"

BATCH = 8
FORWARD_FLOPS = 2 * BATCH * 25_327_125_920  # multiply-accumulates of one image
FIRST_LAYER_FLOPS = 2 * BATCH * 30 * 257**2 * 3 * 4 * 4  # its input needs no gradient


@published
@pytest.mark.parametrize(
    ("phase", "expected"), [("forward", FORWARD_FLOPS), ("backward", 2 * FORWARD_FLOPS - FIRST_LAYER_FLOPS)]
)
def test_what_goes_by_in_a_step_is_what_the_network_computes(phase: str, expected: int) -> None:
    attribution = attribute(read(TRACE))
    for step in range(3):
        of_phase = (attribution.device.step == step) & (attribution.device.phase == PHASE_NUMBERS[phase])
        track, note = flop_rate(attribution, of_phase)
        assert track is not None
        assert note is None
        teraflops_ns = sum(value * (after - at) for (at, value), (after, _) in pairwise(track.points))
        assert teraflops_ns * 1e3 == pytest.approx(expected, rel=1e-6)

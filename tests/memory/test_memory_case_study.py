"""The case study's two networks: the peak of a step and what is kept for backward, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_kit.devices.registry import architecture_names, devices, find_device
from profiler_kit.loading import load
from profiler_kit.memory import simulate
from profiler_kit.records.counts import LOSS_PATH, MemoryEstimate
from profiler_kit.records.target import TargetSpec

MODELS = Path(__file__).resolve().parents[2] / "models"
BATCH, SIZE, CLASSES = 8, 256, 2


def simulated(name: str, device: str = "sm90", **options: str) -> MemoryEstimate:
    spec = TargetSpec(spec=str(MODELS / f"convnet_{name}.py"), batch=BATCH, loss="cross_entropy", **options)  # type: ignore[arg-type]
    return simulate(load(spec), find_device(device, "--gpu", devices()))


def test_the_peak_of_v0() -> None:
    """The gradient of conv2's relu is made while its output, its gradient and the first relu are held."""
    memory = simulated("v0", optimizer="sgd_momentum")
    momentum = parameters = 4 * 389_702
    inputs, labels = 4 * BATCH * 3 * SIZE**2, 8 * BATCH * 64**2
    relu1, wide = 4 * BATCH * 30 * 257**2, 4 * BATCH * 50 * 256**2
    output, loss = 4 * BATCH * CLASSES * 64**2, 4
    late_gradients = 4 * (50 * 20 * 4 + 20 + 20 * 2 * 4 + 2)
    expected = parameters + momentum + inputs + labels + relu1 + 3 * wide + output + loss + late_gradients
    assert memory.peak_bytes == pytest.approx(expected, abs=8)
    assert memory.peak_bytes == 387_929_936
    assert (memory.peak_phase, memory.peak_path, memory.peak_op) == ("backward", "", "aten.threshold_backward")
    assert memory.categories.parameters == parameters
    assert memory.categories.optimizer_state == momentum
    assert memory.categories.gradients == late_gradients


@pytest.mark.parametrize("device", ["cpu", *architecture_names().split(", ")])
@pytest.mark.parametrize(("name", "saved"), [("v0", 179_012_548), ("v1", 65_798_148)])
def test_what_is_kept_for_backward(name: str, saved: int, device: str) -> None:
    memory = simulated(name, device)
    assert memory.saved_bytes == saved
    assert sum(module.created_bytes for module in memory.modules) == saved
    assert sum(module.saved_bytes for module in memory.modules) == saved


def test_who_makes_and_who_keeps_in_v0() -> None:
    """The root's own relus make what the convolutions after them keep; the relus keep it too, for their own backward."""
    modules = {module.path: module for module in simulated("v0").modules}
    relus = 4 * BATCH * (30 * 257**2 + 50 * 256**2 + 20 * 128**2)
    assert modules[""].created_bytes == modules[""].held_bytes == relus
    assert modules["conv2"].held_bytes == 4 * BATCH * 30 * 257**2
    assert modules["conv3"].held_bytes == 4 * BATCH * 50 * 256**2
    assert modules["conv2"].created_bytes == modules["conv2"].saved_bytes == 0
    assert "conv1" not in modules  # it keeps the input, which exists anyway
    assert modules[LOSS_PATH].created_bytes == 4 * BATCH * CLASSES * 64**2 + 4

"""The case study's two networks against their closed form, layer by layer."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_kit.counting import count_target
from profiler_kit.loading import load
from profiler_kit.records.counts import LOSS_PATH, Cost, ModuleNode, StaticCount
from profiler_kit.records.target import TargetSpec

MODELS = Path(__file__).resolve().parents[2] / "models"
BATCH, SIZE, CLASSES = 8, 256, 2

# name: (in, out, kernel, output side, input needs a gradient)
V0 = {
    "conv1": (3, 30, 4, 257, False),
    "conv2": (30, 50, 16, 256, True),
    "conv3": (50, 20, 2, 128, True),
    "conv4": (20, 2, 2, 64, True),
}
V1 = {
    "conv0": (3, 50, 4, 128, False),
    "conv_r1": (50, 40, 15, 128, True),
    "conv_r2": (40, 25, 3, 128, True),
    "conv_r3": (25, 25, 2, 64, True),
    "conv_b1": (50, 15, 4, 64, True),
    "conv1": (40, 2, 1, 64, True),
}
# what the root's own ops save: the outputs of its relus; and what V1's last layer saves: the concatenation
SAVED = {
    "v0": {"": 4 * BATCH * (30 * 257**2 + 50 * 256**2 + 20 * 128**2)},
    "v1": {"": 4 * BATCH * (50 + 40 + 25) * 128**2, "conv1": 4 * BATCH * 40 * 64**2},
}
# cross-entropy saves the log-probabilities and one number, the total weight
LOSS_SAVED = 4 * BATCH * CLASSES * 64**2 + 4


def static(name: str) -> StaticCount:
    spec = TargetSpec(spec=str(MODELS / f"convnet_{name}.py"), batch=BATCH, loss="cross_entropy")
    return count_target(load(spec))


@pytest.fixture(scope="module")
def v0() -> StaticCount:
    return static("v0")


@pytest.fixture(scope="module")
def v1() -> StaticCount:
    return static("v1")


@pytest.mark.parametrize(("name", "layers"), [("v0", V0), ("v1", V1)])
def test_every_layer(
    name: str, layers: dict[str, tuple[int, int, int, int, bool]], request: pytest.FixtureRequest
) -> None:
    found: StaticCount = request.getfixturevalue(name)
    nodes: dict[str, ModuleNode] = {node.path: node for node in found.modules}
    assert list(nodes) == ["", *layers, LOSS_PATH]
    total = 0
    for path, (inputs, outputs, kernel, side, needs_grad) in layers.items():
        macs = BATCH * side**2 * inputs * outputs * kernel**2
        node = nodes[path]
        assert node.forward.macs == macs, path
        assert node.forward.flops == 2 * macs, path
        assert node.backward.macs == (2 if needs_grad else 1) * macs, path
        assert node.params == inputs * outputs * kernel**2 + outputs, path
        assert node.output_shape == (BATCH, outputs, side, side)
        assert node.output_bytes == 4 * BATCH * outputs * side**2
        assert node.saved_bytes == SAVED[name].get(path, 0), path
        total += macs
    assert found.forward.macs == total
    assert nodes[""].saved_bytes == SAVED[name][""]
    assert nodes[LOSS_PATH].saved_bytes == LOSS_SAVED
    assert found.uncounted == ()
    assert found.notes == ()


def test_published_totals(v0: StaticCount, v1: StaticCount) -> None:
    assert (v0.params, v0.forward.macs) == (389_702, BATCH * 25_327_125_920)
    assert (v1.params, v1.forward.macs) == (476_137, BATCH * 7_619_297_280)
    assert (v0.saved_bytes, v1.saved_bytes) == (179_012_548, 65_798_148)


def test_traffic_of_a_layer(v0: StaticCount) -> None:
    conv3 = next(node for node in v0.modules if node.path == "conv3")
    x, w, b, y = 4 * BATCH * 50 * 256**2, 4 * 50 * 20 * 4, 4 * 20, 4 * BATCH * 20 * 128**2
    assert (conv3.forward.read_bytes, conv3.forward.write_bytes) == (x + w + b, y)
    assert (conv3.backward.read_bytes, conv3.backward.write_bytes) == (y + x + w, x + w + b)


def test_relus_are_the_roots(v0: StaticCount) -> None:
    elements = BATCH * (30 * 257**2 + 50 * 256**2 + 20 * 128**2)
    root = v0.modules[0]
    assert root.forward == Cost(flops=elements, read_bytes=4 * elements, write_bytes=4 * elements)
    assert root.backward.flops == elements


def test_held_bytes_count_a_storage_at_every_keeper(v0: StaticCount) -> None:
    nodes = {node.path: node for node in v0.modules}
    assert nodes["conv2"].held_bytes == 4 * BATCH * 30 * 257**2
    assert nodes["conv3"].held_bytes == 4 * BATCH * 50 * 256**2
    assert nodes["conv1"].held_bytes == 0  # it keeps the input, which exists anyway


def test_descriptions(v0: StaticCount) -> None:
    configs = {node.path: node.config for node in v0.modules}
    assert configs["conv1"] == "3->30, k4, p2"
    assert configs["conv3"] == "50->20, k2, s2"

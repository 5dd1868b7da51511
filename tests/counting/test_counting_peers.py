"""Against other counters, where they are right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from profiler_kit.counting import count_target
from profiler_kit.loading import Target, from_model, load
from profiler_kit.records.target import TargetSpec

MODELS = Path(__file__).resolve().parents[2] / "models"
# no grouped convolution among them: torch's counter does not divide their weight gradient by the groups
NETWORKS = ("convnet_v0.py", "convnet_v1.py", "mnist_cnn.py", "resnet.py:resnet18", "transformer.py", "unet.py")


def meta_target(name: str) -> Target:
    return load(TargetSpec(spec=str(MODELS / name), batch=2))


@pytest.mark.parametrize("name", NETWORKS)
def test_torchs_own_counter_agrees_on_contractions(name: str) -> None:
    target = meta_target(name)
    static = count_target(target)
    with FlopCounterMode(display=False) as peer:
        output = target.model(*target.batch.args, **target.batch.kwargs)
        forward = peer.get_total_flops()
        target.loss(output, target.batch, target.labels_for(output)).backward()  # type: ignore[no-untyped-call]
    assert 2 * (static.forward.macs + static.loss.macs) == forward
    assert 2 * static.step.macs == peer.get_total_flops()


@pytest.mark.parametrize("name", NETWORKS)
def test_torchs_own_counter_agrees_per_module(name: str) -> None:
    target = meta_target(name)
    static = count_target(target)
    with FlopCounterMode(display=False) as peer:
        target.model(*target.batch.args, **target.batch.kwargs)
    root = type(target.model).__name__
    counts = {path: sum(flops.values()) for path, flops in peer.get_flop_counts().items()}
    for node in static.modules:
        below = [n for n in static.modules if n.path == node.path or n.path.startswith(f"{node.path}.")]
        if node.path and node.path[0] != "(" and node.calls:
            assert counts.get(f"{root}.{node.path}", 0) == 2 * sum(n.forward.macs for n in below), node.path


def test_depthwise_backward_where_torchs_counter_is_wrong() -> None:
    model = nn.Conv2d(8, 8, 3, groups=8, bias=False, device="meta")
    x = torch.zeros(2, 8, 10, 10, device="meta")
    static = count_target(from_model(model, (x,), loss="sum"))
    assert static.backward.macs == static.forward.macs == 2 * 64 * 8 * 9


@pytest.mark.parametrize("name", ["convnet_v0.py", "convnet_v1.py", "mnist_cnn.py", "resnet.py:resnet18"])
def test_fvcore_agrees_on_convolutions_and_linear_layers(name: str) -> None:
    fvcore = pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    target = load(TargetSpec(spec=str(MODELS / name), batch=1, mode="infer"), device="cpu")
    with torch.no_grad():
        peer = fvcore.FlopCountAnalysis(target.model, target.batch.args)
        peer.unsupported_ops_warnings(False)
        macs = sum(peer.by_operator()[op] for op in ("conv", "linear"))
    static = count_target(load(TargetSpec(spec=str(MODELS / name), batch=1, mode="infer")))
    assert static.forward.macs == macs

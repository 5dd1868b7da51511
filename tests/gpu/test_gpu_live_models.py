"""GPU tests of live models, and of model code that moves to the GPU by itself."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from torch import nn  # noqa: E402

import profiler_kit  # noqa: E402
from profiler_kit.counting import count_target  # noqa: E402
from profiler_kit.loading import load  # noqa: E402
from profiler_kit.loading.live.live_models import live_model, read_model, written_model  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402

MOVING = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 64).cuda()
        self.table = torch.cuda.FloatTensor(64).fill_(1)

    def forward(self, x):
        with torch.autocast(x.device.type, enabled=False):
            return self.fc(x.cuda()) + self.table + torch.ones(64, device="cuda")

example_inputs = (torch.zeros(8, 64),)
"""


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 30 * 30, 10)
    ).cuda()


def test_a_model_on_a_gpu_travels_through_the_host() -> None:
    net, images = network(), torch.randn(4, 3, 32, 32, device="cuda")
    before = torch.cuda.memory_allocated()
    with written_model(live_model(net, images, optimizer=torch.optim.SGD(net.parameters(), lr=1.0))) as file:
        live = read_model(file, lazily=False)
    assert {tensor.device.type for tensor in (*live.model.state_dict().values(), live.batch.args[0])} == {"cpu"}
    assert torch.equal(live.model[0].weight, net[0].weight.cpu())
    assert torch.cuda.memory_allocated() == before


def test_a_model_on_a_gpu_is_measured_and_not_changed() -> None:
    net, images = network().eval(), torch.randn(4, 3, 32, 32, device="cuda")
    values = copy.deepcopy(net.state_dict())
    report = profiler_kit.analyze(
        net, images, optimizer=torch.optim.AdamW(net.parameters(), fused=True), configs=["default"], budget_s=4, steps=3
    )
    assert [(run.config.name, run.failure) for run in report.runs] == [("default", None)]
    assert report.runs[0].modules
    assert report.target.optimizer == "AdamW"
    assert not net.training
    assert all(torch.equal(a, b) for a, b in zip(values.values(), net.state_dict().values(), strict=True))


@pytest.mark.parametrize("device", ["meta", "cpu", "cuda"])
def test_code_that_moves_to_the_gpu_is_counted_on_every_device(tmp_path: Path, device: str) -> None:
    (tmp_path / "net.py").write_text(MOVING)
    target = load(TargetSpec(spec=str(tmp_path / "net.py")), device=device)
    before = torch.cuda.memory_allocated()
    static = count_target(target)
    assert static.device == device
    assert static.forward.macs == 8 * 64 * 64
    if device != "cuda":
        assert target.requested_devices == {"cuda"}
        assert torch.cuda.memory_allocated() == before

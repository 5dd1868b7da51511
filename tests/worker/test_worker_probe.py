"""The memory probe beside a scripted allocator: what each op took, and that its calls are those that are simulated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from measure_models import job, net

torch = pytest.importorskip("torch")

from profiler_kit.devices.cards.data_center import H100  # noqa: E402
from profiler_kit.loading import load  # noqa: E402
from profiler_kit.memory.steps import Setup, record_steps  # noqa: E402
from profiler_kit.meta.call_signatures import op_name  # noqa: E402
from profiler_kit.records.runs import PeakMemory  # noqa: E402
from profiler_kit.worker import probe  # noqa: E402
from profiler_kit.worker.steps import Runner  # noqa: E402

GROWTH, WORKSPACE = 1000, 50


@dataclass
class Allocator:
    """Stands for CUDA's: each op grows what is allocated by `GROWTH`, with `WORKSPACE` more while it runs."""

    allocated: int = 0
    asked: int = 0

    def memory_allocated(self, device: object) -> int:
        self.asked += 1
        if self.asked % 2 == 0:  # before and after each op
            self.allocated += GROWTH
        return self.allocated

    def max_memory_allocated(self, device: object) -> int:
        return self.allocated + GROWTH + WORKSPACE


CONVOLUTIONS = net(
    result="self.out(self.fc(self.conv(x[None, None]).relu()[0, 0]).relu())",
    after="example_inputs = torch.linspace(-1, 1, 8).reshape(2, 4)\n",
).replace("self.calls = nn.Linear(4, 8)", "self.conv, self.calls = nn.Linear(4, 8)")
CONVOLUTIONS = CONVOLUTIONS.replace("nn.Linear(8, 3), 0\n", "nn.Linear(8, 3), nn.Conv2d(1, 1, 3, padding=1), 0\n")


@pytest.fixture
def probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PeakMemory:
    allocator = Allocator()
    monkeypatch.setattr(torch.cuda, "memory_allocated", allocator.memory_allocated)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", allocator.max_memory_allocated)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    found = probe.measure_peak_memory(Runner(load(job(tmp_path, CONVOLUTIONS).spec, device="cpu")))
    assert found is not None
    return found


def test_each_op_is_recorded_with_its_workspace(probed: PeakMemory) -> None:
    assert {op.workspace_bytes for op in probed.calls} == {WORKSPACE}
    assert {op.growth_bytes for op in probed.calls} == {GROWTH}
    assert [op.before_bytes for op in probed.calls] == sorted(op.before_bytes for op in probed.calls)
    assert len(probed.ops) == probe.LISTED_OPS < len(probed.calls)
    assert all(
        op.call == "" for op in probed.ops
    )  # only the calls, which a report does not keep, say what they were given


def test_the_calls_of_every_layer_are_simulated_with_the_same_words(probed: PeakMemory, tmp_path: Path) -> None:
    target = load(job(tmp_path, CONVOLUTIONS).spec, device="meta")
    log = record_steps(target, H100, Setup(watched=frozenset(op_name(op.op) for op in probed.calls)))
    simulated = {(use.op, use.path, use.phase, use.call) for use in log.uses if use.handle is None}
    products = ("convolution", "addmm", "mm")
    real = {
        (op_name(op.op), op.path, op.phase, op.call) for op in probed.calls if op_name(op.op)[5:].startswith(products)
    }
    assert len(real) >= 5  # two products, a convolution, and what backward makes of them
    assert real <= simulated


def test_pointwise_ops_without_workspace_are_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probed: PeakMemory
) -> None:
    assert any(op.op.startswith("aten.relu") for op in probed.calls)  # it is scripted to take something there
    monkeypatch.setattr(Allocator, "max_memory_allocated", lambda self, device: self.allocated + GROWTH)
    allocator = Allocator()
    monkeypatch.setattr(torch.cuda, "memory_allocated", allocator.memory_allocated)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", allocator.max_memory_allocated)
    found = probe.measure_peak_memory(Runner(load(job(tmp_path, CONVOLUTIONS).spec, device="cpu")))
    assert found is not None
    names = {op_name(op.op) for op in found.calls}
    assert "aten.convolution" in names  # that it takes nothing is worth knowing
    assert "aten.relu" not in names

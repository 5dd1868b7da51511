"""Workspace that was measured in place of rules: matched by call and by place, and told in figures that still sum up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.devices.cards.data_center import H100
from profiler_kit.loading import Target, from_model, load
from profiler_kit.memory import LibraryConfig, Setup, simulate, simulate_measured
from profiler_kit.memory.measured_workspace import MEASURED, MeasuredWorkspace, with_measured_workspace
from profiler_kit.memory.steps import record_steps
from profiler_kit.meta.call_signatures import call_signature, op_name
from profiler_kit.records.counts import DeviceMemory, Phase
from profiler_kit.records.runs import OpMemory, PeakMemory
from profiler_kit.records.serde import read_report
from profiler_kit.records.target import TargetSpec

MIB = 1 << 20
WITH, WITHOUT = LibraryConfig(cudnn=True), LibraryConfig(cudnn=False)
FORWARD, BACKWARD = "aten.convolution.default", "aten.convolution_backward.default"


class Twins(nn.Module):
    """Two like convolutions and one that is not like them."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(16, 16, 3, padding=1)
        self.two = nn.Conv2d(16, 16, 3, padding=1)
        self.wide = nn.Conv2d(16, 64, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.wide(self.two(self.one(x).relu()).relu())
        return out


def twins() -> Target:
    return from_model(Twins(), (torch.zeros(4, 16, 64, 64),), loss="sum", optimizer="sgd", device="meta")


def op(name: str, path: str, phase: Phase, nbytes: int, call: str = "") -> OpMemory:
    return OpMemory(
        path=path, phase=phase, op=name, before_bytes=0, growth_bytes=0, workspace_bytes=nbytes, call=call
    )  # fmt: skip


def probe(*calls: OpMemory) -> PeakMemory:
    return PeakMemory(
        peak_path="", peak_phase="forward", peak_op="", peak_bytes=0, parameters=0, gradients=0, optimizer_state=0,
        inputs=0, saved_activations=0, workspace=0, rest=0, calls=calls,
    )  # fmt: skip


class Seen(TorchDispatchMode):
    """What a probe notes of a step, run on the CPU: every call, with nothing taken."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[OpMemory] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.calls.append(op(str(func), "?", "other", 0, call_signature(args, kwargs or {})))
        return func(*args, **(kwargs or {}))


def real_calls() -> list[OpMemory]:
    model, seen = Twins(), Seen()
    with seen:
        model(torch.zeros(4, 16, 64, 64)).sum().backward()
    return seen.calls


def device_of(*calls: OpMemory) -> DeviceMemory:
    (found,) = simulate_measured(twins(), H100, [(probe(*calls), WITH)])
    return found


def test_a_call_on_a_device_reads_as_its_like_without_data() -> None:
    log = record_steps(twins(), H100, Setup(watched=frozenset((op_name(FORWARD), op_name(BACKWARD)))))
    simulated = {(use.op, use.call) for use in log.uses if "convolution" in use.op}
    real = {(op_name(each.op), each.call) for each in real_calls() if "convolution" in each.op}
    assert (
        len(real) == 5
    )  # three calls and three backwards, of which the twins' forward is one; the first needs no input's
    assert simulated == real


def test_without_a_measured_call_the_rules_hold() -> None:
    by_rules = simulate(twins(), H100).device
    assert device_of() == by_rules
    assert device_of(op("aten.cholesky.default", "", "forward", MIB, "float32[3]")) == by_rules


def test_measured_workspace_takes_the_place_of_the_rule_wherever_the_call_is_made() -> None:
    calls = [replace(each, workspace_bytes=0) for each in real_calls() if "convolution" in each.op]
    free = device_of(*calls)
    assert free.uncertain == ()
    below, above = free.allocated_bytes - free.allocated_low_bytes, free.allocated_high_bytes - free.allocated_bytes
    assert 0 < below == above < MIB  # only what no workspace explains
    assert free.categories.workspace == 0
    assert free.kept_bytes == 0
    first = next(each for each in calls if each.op == BACKWARD)  # of `wide`, which comes first in backward
    taken = device_of(*[replace(each, workspace_bytes=300 * MIB) if each is first else each for each in calls])
    assert taken.categories.workspace == 300 * MIB
    assert (taken.peak_phase, taken.peak_path, taken.peak_op) == ("backward", "wide", "aten.convolution_backward")
    assert taken.allocated_bytes > free.allocated_bytes + 290 * MIB


def test_the_parts_sum_to_the_peak() -> None:
    calls = [replace(each, workspace_bytes=7 * MIB + 5) for each in real_calls()]
    found = device_of(*calls)
    parts = found.categories
    assert found.allocated_bytes == found.rounding_bytes + sum(
        getattr(parts, name) or 0
        for name in (
            "parameters", "gradients", "optimizer_state", "inputs", "saved_activations", "temporaries", "workspace",
        )
    )  # fmt: skip


def test_an_op_without_a_rule_counts_once_it_is_seen_to_take_something() -> None:
    relus = [replace(each, workspace_bytes=900 * MIB) for each in real_calls() if each.op == "aten.relu.default"]
    assert relus
    found = device_of(*relus)
    assert found.peak_op == "aten.relu"
    assert found.categories.workspace == 900 * MIB


@pytest.mark.parametrize("seen", [1, 2, 3])
def test_a_call_told_otherwise_is_known_by_its_place_where_as_many_were_seen(seen: int) -> None:
    model = from_model(nn.LSTM(8, 8), (torch.zeros(5, 2, 8),), loss="sum", optimizer="sgd", device="meta")
    (ruled,) = simulate_measured(model, H100, [(probe(), WITH)])
    calls = [op("aten._cudnn_rnn_backward.default", "", "backward", 50 * MIB, "told otherwise")] * seen
    (found,) = simulate_measured(model, H100, [(probe(*calls), WITH)])
    if seen == 1:
        assert found.categories.workspace == 50 * MIB
        assert found.peak_op == "aten._cudnn_rnn_backward"
    else:
        assert found == ruled


def test_each_configuration_has_its_own_workspace() -> None:
    backward = next(each for each in real_calls() if each.op == BACKWARD)
    sizes = (10, 400, 90)
    found = simulate_measured(
        twins(), H100, [(probe(replace(backward, workspace_bytes=size * MIB)), WITH) for size in sizes]
    )  # fmt: skip
    peaks = [one.allocated_bytes for one in found]
    assert peaks[0] < peaks[2] < peaks[1]
    assert found[1] == device_of(replace(backward, workspace_bytes=400 * MIB))


def test_what_a_library_keeps_stays_beside_measured_workspace() -> None:
    model = from_model(nn.Linear(8, 8), (torch.zeros(4, 8),), loss="sum", optimizer="sgd", device="meta")
    log = record_steps(model, H100, Setup(watched=frozenset(("aten.addmm",))))
    made = with_measured_workspace(log, MeasuredWorkspace([op("aten.addmm.default", "", "forward", MIB)]))
    kept = [use for use in made.uses if use.handle is not None]
    assert kept == [use for use in log.uses if use.handle is not None] != []
    taken = [use for use in made.uses if use.op == "aten.addmm" and use.handle is None]
    assert [use.workspace.likely for use in taken] == [MIB, MIB]  # once in each of the two steps
    assert all(use.workspace.source == MEASURED for use in taken)


def test_recomputed_calls_are_those_of_backward() -> None:
    part = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    model = nn.Sequential(part, nn.Conv2d(4, 4, 3))
    target = from_model(model, (torch.zeros(2, 3, 16, 16),), loss="sum", optimizer="sgd", device="meta")
    log = record_steps(target, H100, Setup(checkpoint=("0",), watched=frozenset(("aten.convolution",))))
    again = [use for use in log.uses if use.phase == "recompute" and use.op == "aten.convolution"]
    assert [use.path for use in again] == ["0.0", "0.0"]  # in each of the two steps
    made = with_measured_workspace(log, MeasuredWorkspace([op(FORWARD, "0.0", "backward", 3 * MIB)]))
    assert [use.workspace.likely for use in made.uses if use.phase == "recompute"] == [3 * MIB, 3 * MIB]


def test_signatures_tell_strides_and_leave_places_out() -> None:
    x = torch.zeros(2, 3, 4, 4)
    assert call_signature((x, [1, 1], None, 0.5), {"dtype": torch.float16, "device": torch.device("cpu")}) == (
        "float32[2,3,4,4], [1,1], None, 0.5, dtype=torch.float16"
    )
    last = x.contiguous(memory_format=torch.channels_last)
    assert call_signature((last,), {}) == "float32[2,3,4,4]/(48,1,12,3)"
    assert call_signature((x.to("meta"),), {"pin_memory": False}) == call_signature((x,), {})
    storages = (x.untyped_storage(), x.to("meta").untyped_storage())
    assert [call_signature((each,), {}) for each in storages] == ["-", "-"]


def test_convolutions_without_cudnn_take_the_workspaces_of_products() -> None:
    with_it, without = simulate_measured(twins(), H100, [(probe(), WITH), (probe(), WITHOUT)])
    assert with_it.kept_bytes == 0
    assert (
        without.kept_bytes == 2 * H100.architecture.blas_workspace.value
    )  # one for each thread: of forward, and of backward


MODELS = Path(__file__).resolve().parents[2] / "models"
REPORTS = Path(__file__).resolve().parents[2] / "docs" / "measured"


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_peaks_of_every_configuration_on_an_h100_are_met_with_the_workspace_it_measured(version: str) -> None:
    """The saved reports' largest workspaces, which in these small networks are all there are, against their peaks."""
    report = read_report(REPORTS / f"convnet_{version}_h100.json")
    target = load(TargetSpec(spec=str(MODELS / f"convnet_{version}.py")), device="meta")
    runs = [run for run in report.runs if run.memory is not None]
    assert len(runs) == 10
    probes = [
        (replace(run.memory, calls=run.memory.ops), LibraryConfig(cudnn=bool(run.config.enabled)))
        for run in runs
        if run.memory is not None
    ]
    for run, found in zip(runs, simulate_measured(target, H100, probes), strict=True):
        assert run.memory is not None
        assert found.allocated_bytes == pytest.approx(run.peak_allocated_bytes, rel=0.006), run.config.name
        assert (found.peak_phase, found.peak_path) == (run.memory.peak_phase, run.memory.peak_path)
        assert op_name(run.memory.peak_op) == found.peak_op

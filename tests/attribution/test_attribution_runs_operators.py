"""Operator time on the host: hand-written traces, then one that torch.profiler records here."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import examples
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from marked_traces import (
    ENGINE,
    MAIN,
    TraceText,
    assert_busy_and_idle_are_the_span,
    assert_sums_hold,
    attribute,
    attribution,
    by_owner,
    covered_ns,
)
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

from profiler_kit.attribution.summary import summarize
from profiler_kit.records import marks
from profiler_kit.traces.table import Kind


def test_an_operators_self_time_is_what_no_operator_inside_covers(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 1000)
    t.phase("forward", 0, 400)
    t.module("", 10, 390)
    t.op("aten::linear", 20, 120, sequence=1)
    t.op("aten::t", 30, 40)
    t.op("aten::addmm", 50, 110, sequence=2)
    t.op("aten::copy_", 60, 70)
    t.op("aten::relu", 200, 230, sequence=3)
    result = t.attribute(tmp_path)
    assert (result.clock, result.device_ns) == ("operator", 130)  # not the 400 ns of the phase: the rest is Python
    assert {k.name: k.kernel_ns for k in result.kernels} == {
        "aten::linear": 30, "aten::t": 10, "aten::addmm": 50, "aten::copy_": 10, "aten::relu": 30,
    }  # fmt: skip


def test_backward_on_the_calling_thread(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 1000)
    t.phase("forward", 0, 100)
    t.module("a", 10, 90)
    t.op("aten::mul", 20, 40, sequence=1)
    t.phase("loss", 100, 200)
    t.op("aten::mse_loss", 110, 130, sequence=2)
    t.phase("backward", 200, 600)
    t.op("aten::ones_like", 210, 220)
    t.node("MseLossBackward0", 230, 260, 2, tid=MAIN)
    t.node("MulBackward0", 300, 360, 1, tid=MAIN)
    t.op("aten::mul", 310, 350)
    t.node("torch::autograd::AccumulateGrad", 370, 380, tid=MAIN)
    assert by_owner(t.attribute(tmp_path)) == {
        ("a", "forward"): 20,
        ("(loss)", "loss"): 20,
        ("(loss)", "backward"): 40,
        ("a", "backward"): 70,
    }


def test_the_time_around_redone_forward_work_is_the_recomputing_modules(tmp_path: Path) -> None:
    """A node that redoes forward work holds the interpreter's time too, which is none of the node's module's backward."""
    t = TraceText()
    t.step(0, 0, 1000)
    t.phase("forward", 0, 100)
    t.module("", 0, 100)
    t.module("block", 10, 90)
    t.module("block.a", 20, 80)
    t.op("aten::mul", 30, 60, sequence=1)
    t.phase("backward", 200, 900)
    t.node("MulBackward0", 300, 700, 1, tid=MAIN)
    t.module("block", 320, 500)
    t.module("block.a", 340, 480)
    t.op("aten::mul", 350, 390, sequence=2)
    t.op("aten::mul", 600, 650)
    owners = by_owner(t.attribute(tmp_path))
    assert owners == {
        ("block.a", "forward"): 30,
        ("", "recompute"): 20 + 100,  # before the block is called again, and from its return to the node's own work
        ("block", "recompute"): 20 + 20,
        ("block.a", "recompute"): 140,  # 40 of them in its operator
        ("block.a", "backward"): 50 + 50,
    }
    phases = {timing.phase: timing.kernel_ns for timing in summarize(attribution(tmp_path / "trace.json.gz")).phases}
    assert (phases["recompute"], phases["backward"]) == (300, 100)  # for `inspect` as for `analyze`


def test_a_reentrant_checkpoint_is_a_node_with_a_forward_and_a_backward_pass_inside(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 1000)
    t.phase("forward", 0, 100)
    t.module("block", 10, 90)
    t.op("CheckpointFunction", 20, 80, sequence=1)
    t.op("aten::mul", 30, 60)
    t.phase("backward", 200, 900)
    t.node("CheckpointFunctionBackward", 300, 800, 1, tid=MAIN)
    t.module("block.a", 350, 400)
    t.op("aten::mul", 360, 390, sequence=2)
    t.node("MulBackward0", 450, 550, 2, tid=MAIN)
    owners = by_owner(t.attribute(tmp_path))
    assert owners == {
        ("block", "forward"): 60,
        ("block", "recompute"): 50 + 50,
        ("block.a", "recompute"): 50,
        ("block.a", "backward"): 100,
        ("block", "backward"): 250,
    }


def test_what_no_forward_op_explains_is_the_roots_not_the_losses(tmp_path: Path) -> None:
    """Numbers count on over the steps: one that no op of this step carries may be the last of the step before."""
    t = TraceText()
    for step, start in enumerate((0, 1000)):
        number = 10 * (step + 1)
        t.step(step, start, start + 900)
        t.phase("forward", start, start + 100)
        t.module("", start + 10, start + 90)
        t.module("a", start + 20, start + 80)
        t.op("aten::detach", start + 30, start + 40, sequence=number + 1)
        t.phase("loss", start + 100, start + 200)
        t.op("aten::mse_loss", start + 110, start + 130, sequence=number + 2)
        t.op("aten::item", start + 140, start + 150, sequence=number + 10)
        t.phase("backward", start + 200, start + 600)
        t.node("MseLossBackward0", start + 210, start + 230, number + 2, tid=MAIN)
        t.node("Unheard", start + 240, start + 260, number, tid=MAIN)
        t.node(
            "torch::jit::(anonymous namespace)::DifferentiableGraphBackward", start + 300, start + 340, number, tid=MAIN
        )
        t.op("aten::mm", start + 310, start + 330)
        t.node("torch::autograd::AccumulateGrad", start + 350, start + 360, tid=MAIN)
    assert by_owner(t.attribute(tmp_path)) == {
        ("a", "forward"): 10,
        ("(loss)", "loss"): 30,
        ("(loss)", "backward"): 20,
        ("", "backward"): 20,
        ("a", "backward"): 50,
    }


def test_foreign_threads_do_no_work_of_the_step(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 1000)
    t.phase("forward", 0, 100)
    t.op("aten::mul", 20, 40)
    t.op("aten::stack", 0, 1000, tid=777)  # a loader's thread
    assert t.attribute(tmp_path).device_ns == 20


def test_the_operator_clock_can_be_asked_for_where_there_is_a_device(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 1000)
    t.phase("forward", 0, 100)
    t.module("a", 0, 100)
    t.op("aten::mul", 20, 40, sequence=1)
    t.kernel("k", 500, 900, launched=30)
    t.phase("backward", 200, 400)
    t.node("MulBackward0", 250, 300, 1, tid=ENGINE)
    result = t.attribute(tmp_path, clock="operator")
    assert by_owner(result) == {("a", "forward"): 20, ("a", "backward"): 50}
    assert t.attribute(tmp_path).device_ns == 400


spans = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 200), st.sampled_from([MAIN, ENGINE])), max_size=12)


@settings(max_examples=examples.count(60))
@given(spans)
def test_parts_sum_to_the_union_of_operator_time(drawn: list[tuple[int, int, int]]) -> None:
    import tempfile

    t = TraceText()
    t.step(0, 0, 2000)
    t.phase("backward", 0, 2000)
    t.node("MulBackward0", 1500, 1510, 1)
    covered = [(1500, 1510)]
    open_until: dict[int, list[int]] = {MAIN: [], ENGINE: []}
    for start, duration, thread in sorted(drawn):
        ends = open_until[thread]
        while ends and ends[-1] <= start:
            ends.pop()
        end = min([start + duration, *ends])  # operators of a thread nest
        ends.append(end)
        t.op(f"aten::op{start % 3}", start, end, tid=thread)
        covered.append((start, end))
    with tempfile.TemporaryDirectory() as folder:
        result = t.attribute(Path(folder))
    assert result.device_ns == covered_ns(covered)
    assert_busy_and_idle_are_the_span(result)
    assert result.span_ns == max(end for _, end in covered)


class Net(nn.Module):
    """Every layer has a width of its own, so that its operators can be told by their work."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.stem = nn.Conv2d(3, 5, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(5, 7, 3, padding=1), nn.BatchNorm2d(7), nn.ReLU())
        self.twice = nn.Conv2d(7, 7, 1)
        self.head = nn.Linear(7, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.stem(x))
        x = self.block(x) if self.reentrant is None else checkpoint(self.block, x, use_reentrant=self.reentrant)
        x = self.twice(self.twice(x))
        out: torch.Tensor = self.head(x.mean((2, 3)))
        return out


def record(model: nn.Module, path: Path, steps: int) -> None:
    """Traces `steps` training steps of `model` with marks around steps, phases and module calls."""
    paths = {id(module): name for name, module in model.named_modules()}
    x, labels = torch.randn(2, 3, 8, 8), torch.tensor([1, 2])
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    original = nn.Module.__call__

    def marked(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if id(module) not in paths:
            return original(module, *args, **kwargs)
        with record_function(marks.module(paths[id(module)])):
            return original(module, *args, **kwargs)

    def step(index: int) -> None:
        with record_function(marks.step(index)):
            with record_function(marks.phase("forward")):
                out = model(x)
            with record_function(marks.phase("loss")):
                loss = F.cross_entropy(out, labels)
                loss.item()
            with record_function(marks.phase("backward")):
                loss.backward()  # type: ignore[no-untyped-call]
            with record_function(marks.phase("optimizer")):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    nn.Module.__call__ = marked  # type: ignore[method-assign]
    try:
        step(0)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for index in range(1, steps + 1):
                step(index)
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]
    profiler.export_chrome_trace(str(path))


@pytest.mark.filterwarnings("ignore")  # torch's own, about scripting
@pytest.mark.parametrize("whole", [True, False])
def test_a_recorded_trace_of_a_scripted_model(tmp_path: Path, whole: bool) -> None:
    """TorchScript runs its backward as one node: it is the scripted module's, and none of it the loss's."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4), nn.ReLU())
    script = torch.jit.script(plain)  # type: ignore[no-untyped-call]
    model = script if whole else nn.Sequential(nn.Conv2d(3, 3, 1), script, nn.Linear(4, 4))
    for _ in range(3):  # the profiling executor settles
        model(torch.randn(2, 3, 8, 8)).sum().backward()
    record(model, tmp_path / "trace.json", steps=2)
    result = attribute(tmp_path / "trace.json")
    assert_sums_hold(result)
    owner = "" if whole else "1"
    backward = {
        path: names
        for path, phase, names in (
            (module.path, module.phase, {k.name for k in module.kernels}) for module in result.modules
        )
        if phase == "backward"
    }
    assert any("convolution_backward" in name for name in backward[owner])
    assert not any("convolution" in name or "mm" in name for name in backward["(loss)"])
    assert set(backward) == ({"", "(loss)"} if whole else {"0", "1", "2", "(loss)"})


@pytest.mark.parametrize("reentrant", [None, False, True], ids=["plain", "checkpoint", "reentrant checkpoint"])
def test_a_recorded_trace(tmp_path: Path, reentrant: bool | None) -> None:
    torch.manual_seed(0)
    path = tmp_path / "trace.json.gz"
    record(Net(reentrant), path, steps=2)
    result = attribute(path)
    assert_sums_hold(result)
    assert (result.clock, result.traced_steps, result.unattributed_ns, result.notes) == ("operator", 2, 0, ())

    owners = by_owner(result)
    layers = ["stem", "block.0", "block.1", "block.2", "twice", "head"]
    for path_ in layers:
        assert owners[path_, "forward"] > 0, path_
        assert owners[path_, "backward"] > 0, path_
    assert {("(loss)", "loss"), ("(loss)", "backward"), ("(optimizer)", "optimizer"), ("", "forward")} <= set(owners)
    redone = {path_ for path_, phase in owners if phase == "recompute"}
    assert redone == ({"", "block", "block.0", "block.1", "block.2"} if reentrant is not None else set())

    ran = {(layer.path, layer.phase): {k.name: k.calls for k in layer.kernels} for layer in result.modules}
    for path_, calls in (("stem", 1), ("block.0", 1), ("twice", 2)):
        assert ran[path_, "forward"]["aten::convolution"] == calls
        assert ran[path_, "backward"]["aten::convolution_backward"] == calls
    assert ran["block.1", "backward"]["aten::native_batch_norm_backward"] == 1
    assert ran["head", "backward"]["aten::mm"] == 2
    assert sum("aten::convolution_backward" in names for names in ran.values()) == 3
    accumulated = {
        owner: names["torch::autograd::AccumulateGrad"]
        for owner, names in ran.items()
        if "torch::autograd::AccumulateGrad" in names
    }
    assert accumulated[("stem", "backward")] == 2
    assert accumulated[("block.1", "backward")] == 2
    assert accumulated[("head", "backward")] == 2
    if reentrant is not None:
        assert ran["block.0", "recompute"]["aten::convolution"] == 1

    table = attribution(path).table
    rows = table.of(Kind.OPERATOR)
    operators = zip(table.start_ns[rows].tolist(), table.end_ns[rows].tolist(), strict=True)
    assert result.device_ns == (covered_ns(operators) + 1) // 2


def test_a_phases_operators_lie_within_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    record(Net(), path, steps=1)
    result = attribute(path)
    written = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    for phase in ("forward", "loss", "backward", "optimizer"):
        whole = sum(float(e["dur"]) * 1000 for e in written if e.get("name") == marks.phase(phase))
        assert 0 < sum(layer.kernel_ns for layer in result.modules if layer.phase == phase) <= whole

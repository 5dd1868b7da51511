"""Traces in the dialect of torch-tb-profiler: its own parser finds our device times, steps, modules, links and stacks."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from published_traces import PUBLISHED, published

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.plugin_trace import plugin_trace
from profiler_kit.attribution.result import Attribution
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import NONE, Kind

pytest.importorskip("torch_tb_profiler", reason="the plugin's parser is missing: pip install torch-tb-profiler")

TRACES = Path(__file__).parents[1] / "fixtures" / "traces"
TRAINING = [
    "train.cuda",
    "checkpoint.cuda",
    "checkpoint_reentrant.cuda",
    "strangers/eager.cuda",
    "strangers/compiled.cuda",
]
ROUNDING_US = 0.0005  # of each event: half of 1/1024 µs, and half a ns


class Parsed:
    """A trace of ours as the plugin reads it, with the file's events."""

    def __init__(self, file: Path) -> None:
        from torch_tb_profiler.profiler.data import RunProfileData
        from torch_tb_profiler.profiler.run_generator import RunGenerator

        logging.getLogger("pytorch_profiler").setLevel(logging.ERROR)
        self.attribution: Attribution = attribute(read(file))
        self.text = "".join(plugin_trace(self.attribution))
        self.json: dict[str, Any] = json.loads(self.text)
        self.data = RunProfileData.from_json("worker_0", None, json.loads(self.text))
        self.views = RunGenerator("worker_0", None, self.data).generate_run_profile()

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.json["traceEvents"] if event["name"] == name]


@pytest.fixture(scope="module")
def parsed() -> Any:
    cache: dict[str, Parsed] = {}

    def of(name: str) -> Parsed:
        if name not in cache:
            cache[name] = Parsed(TRACES / f"{name}.json.gz")
        return cache[name]

    return of


def device_us(attribution: Attribution) -> tuple[Counter[str], Counter[str], Counter[str], float]:
    """The device time by operator, that of kernels by name, the number of events by operator, and the time without one."""
    table, device, host = attribution.table, attribution.device, attribution.host
    operators: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    events: Counter[str] = Counter()
    outside = 0.0
    for row, operator, start, end in zip(device.rows, device.operator, device.start_ns, device.end_ns, strict=True):
        us = float(end - start) / 1e3
        if operator != NONE:
            name = table.names[table.name[host.rows[operator]]]
            operators[name] += us
            events[name] += 1
        else:
            outside += us
        if table.kind[row] == Kind.KERNEL:
            kernels[table.names[table.name[row]]] += us
    return operators, kernels, events, outside


def check_device_times(parsed: Parsed) -> None:
    operators, kernels, events, outside = device_us(parsed.attribution)
    theirs = {entry.name: entry.self_device_duration for entry in parsed.data.op_list_groupby_name}
    for name, us in operators.items():
        assert theirs[name] == pytest.approx(us, abs=2 * ROUNDING_US * events[name]), name
    others = sum(us for name, us in theirs.items() if name not in operators)
    assert others <= outside + 1e-4 * sum(operators.values()), "ranges have only the launches without an operator"
    by_kernel = parsed.data.kernel_stat
    assert set(by_kernel["sum"].index) == set(kernels)
    for name, us in kernels.items():
        assert by_kernel["sum"][name] == pytest.approx(us, abs=2 * ROUNDING_US * by_kernel["count"][name]), name
    in_tree = sum(kernel.total_duration for kernel in parsed.data.kernel_list_groupby_name_op)
    assert in_tree == pytest.approx(sum(kernels.values()), rel=1e-4), "no kernel is lost with its node"


@pytest.mark.parametrize("name", [*TRAINING, "infer.cuda", "ranks_cuda_small/rank0"])
def test_operators_and_kernels_have_our_device_times(name: str, parsed: Any) -> None:
    check_device_times(parsed(name))


@published
@pytest.mark.parametrize(
    "name",
    [
        "tracelens/mi210_gpu_only.json.gz",
        "tracelens/sglang_decode_graph.json.gz",
        "hta/sampled_rank-0of128.json.gz",
        "tracelens/h100_gaunernst_bert-small-uncased__1016001.json.gz",
    ],
)
def test_published_traces_have_our_device_times(name: str) -> None:
    check_device_times(Parsed(PUBLISHED / name))


@pytest.mark.parametrize("name", TRAINING)
def test_steps_count_once(name: str, parsed: Any) -> None:
    assert parsed(name).data.steps_names == ["1", "2"]


def test_the_data_loader_has_its_time(parsed: Any) -> None:
    from torch_tb_profiler.profiler.event_parser import ProfileRole

    eager = parsed("strangers/eager.cuda")
    loaders = [event for event in eager.json["traceEvents"] if event["name"].startswith("enumerate(DataLoader)")]
    assert len(loaders) == 2
    costs = eager.data.avg_costs.costs[ProfileRole.DataLoader]
    assert 0 < costs <= sum(event["dur"] for event in loaders) / 2
    assert costs > 0.5 * sum(event["dur"] for event in loaders) / 2, "launches inside it count as such"


def module_times(stats: Any, above: str = "") -> dict[str, Any]:
    found = {}
    for entry in stats or []:
        found[entry.name] = entry
        found |= module_times(entry.children)
    return found


def test_modules_have_the_device_time_of_their_forward(parsed: Any) -> None:
    train = parsed("train.cuda")
    attribution = train.attribution
    table, device, host = attribution.table, attribution.device, attribution.host
    own: Counter[str] = Counter()
    for launch, start, end in zip(device.launch, device.start_ns, device.end_ns, strict=True):
        inside = int(host.parent[launch])
        while inside != NONE and not table.names[table.name[host.rows[inside]]].startswith("pk:module:"):
            inside = int(host.parent[inside])
        if inside != NONE:
            own[table.names[table.name[host.rows[inside]]].removeprefix("pk:module:") or "(root)"] += (
                float(end - start) / 1e3
            )
    modules = module_times(train.views.module_stats)
    assert {name: entry.self_device_duration for name, entry in modules.items() if entry.self_device_duration} == (
        pytest.approx(dict(own), abs=0.02)
    )
    assert [entry.name for entry in train.views.module_stats] == ["(root)"]
    assert {child.name for child in modules["block"].children} == {"block.0", "block.1", "block.2"}
    assert all(entry.occurences == 2 for entry in modules.values())


@pytest.mark.parametrize("name", TRAINING)
def test_the_module_view_has_every_module_with_operators(name: str, parsed: Any) -> None:
    trace = parsed(name)
    host, table = trace.attribution.host, trace.attribution.table
    called = {
        table.names[number].removeprefix("nn.Module: ").removeprefix("pk:module:") or "(root)"
        for number, node in zip(table.name[host.rows], host.node, strict=True)
        if node == NONE and table.names[number].startswith(("nn.Module: ", "pk:module:"))
    }
    assert set(module_times(trace.views.module_stats)) == called


def test_forward_operators_are_linked_with_backward(parsed: Any) -> None:
    linked = parsed("strangers/eager.cuda")
    assert len(linked.data.forward_backward_events) == 48
    tree = json.dumps(linked.views.get_operator_tree())
    assert '"nn.Module: Conv2d_3.backward"' in tree
    # A module without backward would make the plugin fail, so the links are arrows of the timeline only.
    arrows = parsed("strangers/checkpoint_reentrant.cuda")
    assert arrows.data.forward_backward_events == {}
    assert arrows.named("fwdbwd")


def test_operators_have_call_stacks(parsed: Any) -> None:
    stacks = parsed("strangers/eager.cuda").views.operation_stack_by_name["aten::cudnn_convolution"]["data"]
    assert any("nn.Module: Conv2d_0" in row["call_stack"] for row in stacks)
    by_module = parsed("train.cuda").views.operation_stack_by_name["aten::cudnn_convolution"]["data"]
    assert {row["call_stack"] for row in by_module} == {"stem", "block.0"}


def test_the_memory_view(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 1, "tid": 1, "ts": 10, "dur": 30, "args": {"External id": 1}},
        *(
            {
                "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": at,
                "args": {"Total Allocated": total, "Bytes": size, "Addr": 64, "Device Id": -1, "Device Type": 0},
            }
            for at, size, total in ((12, 2048, 2048), (35, -2048, 0))
        ),
    ]  # fmt: skip
    file = tmp_path / "memory.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    trace = Parsed(file)
    assert "memory" in [view.name for view in trace.views.views]
    rows = trace.views.get_memory_stats(memory_metric="B")["rows"]["CPU"]
    assert next(row for row in rows if row[0] == "aten::empty")[6] == 2048
    assert trace.data.steps_names == ["0"], "a trace without steps is one step"


def test_events_of_a_rounding_profiler_nest(tmp_path: Path) -> None:
    """An operator that ends after its successor's start by a rounding error is cut, with the operators in it."""
    spans = [("a", 100, 10.5), ("b", 101, 9.5), ("c", 110, 5)]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": n, "pid": 1, "tid": 1, "ts": t, "dur": d, "args": {}} for n, t, d in spans
    ]
    file = tmp_path / "rounded.json"
    file.write_text(json.dumps({"traceEvents": events}))
    trace = Parsed(file)
    assert {entry.name: entry.calls for entry in trace.data.op_list_groupby_name} == {"a": 1, "b": 1, "c": 1}
    times = {event["name"]: (event["ts"], event["dur"]) for event in trace.json["traceEvents"] if event["ph"] == "X"}
    assert times["a"] == (0, 10)
    assert times["b"] == (1, 9)


def test_the_same_trace_gives_the_same_text(parsed: Any) -> None:
    train = parsed("train.cuda")
    assert "".join(plugin_trace(attribute(read(TRACES / "train.cuda.json.gz")))) == train.text
    assert train.text.rstrip().endswith("]}"), "the plugin adds its own events there"

"""The events of a trace with marks of profiler_kit that count."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from marked_traces import TraceText, attribute, attribution, by_owner, figures

from profiler_kit.errors import TraceError
from profiler_kit.traces.table import Kind


def one_kernel(at: int = 0) -> TraceText:
    trace = TraceText()
    trace.step(0, at, at + 100)
    trace.phase("forward", at, at + 90)
    trace.kernel("k", at + 20, at + 30, launched=at + 10)
    return trace


def test_enclosing_events_come_first_whatever_their_order_in_the_file(tmp_path: Path) -> None:
    at = 2_000_000_000_000_000
    trace = one_kernel(at)
    trace.op("aten::inner", at + 12, at + 14)
    trace.op("aten::outer", at + 12, at + 16, sequence=7)
    result = attribution(trace.save(tmp_path))
    table, host = result.table, result.host
    operators = [row for row in host.rows.tolist() if table.kind[row] == Kind.OPERATOR]
    assert [table.names[table.name[row]] for row in operators] == ["aten::outer", "aten::inner"]
    assert [int(table.start_ns[row]) for row in operators] == [at + 12, at + 12]
    assert [int(table.sequence[row]) for row in operators] == [7, -1]
    assert table.correlation[result.device.rows[0]] == table.correlation[host.rows[result.device.launch[0]]]


def test_mirrored_annotations_flows_and_metadata_are_no_work(tmp_path: Path) -> None:
    trace = one_kernel()
    plain = attribute(trace.save(tmp_path))
    trace.events += [
        {"ph": "X", "cat": "gpu_user_annotation", "name": "pk:phase:loss", "pid": 0, "tid": 7, "ts": 1, "dur": 90},
        {"ph": "s", "cat": "ac2g", "id": 1, "pid": 1, "tid": 1, "ts": 1, "dur": 0, "name": "ac2g"},
        {"ph": "M", "name": "process_name", "pid": 1, "ts": 0, "dur": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": 0, "dur": 9},
    ]
    assert figures(attribute(trace.save(tmp_path))) == figures(plain)
    assert by_owner(plain) == {("", "forward"): 10}


def test_a_trace_that_mirrors_our_marks_without_having_them_is_not_ours(tmp_path: Path) -> None:
    trace = TraceText()
    trace.kernel("k", 20, 30, launched=10)
    mirror = {"cat": "gpu_user_annotation", "name": "pk:step:1", "pid": 0, "tid": 7}
    trace.events.append({"ph": "X", **mirror, "ts": 0, "dur": 90})
    with pytest.raises(TraceError, match="pk:step:"):
        attribute(trace.save(tmp_path))


def test_numbers_may_be_quoted(tmp_path: Path) -> None:
    trace = one_kernel()
    plain = attribute(trace.save(tmp_path))
    for event in trace.events:
        event["args"] = {key: str(value) for key, value in event["args"].items()}
    assert attribute(trace.save(tmp_path)) == plain


def test_old_names_of_categories_read_alike(tmp_path: Path) -> None:
    trace = one_kernel()
    trace.op("aten::relu", 5, 15)
    plain = attribute(trace.save(tmp_path))
    old = {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel"}
    for event in trace.events:
        event["cat"] = old.get(event["cat"], event["cat"])
    assert attribute(trace.save(tmp_path)) == plain


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_a_trace_that_is_cut_off_is_refused(tmp_path: Path, kept: float) -> None:
    trace = one_kernel()
    for i in range(100):
        trace.kernel(f"kernel {i}", 10 * i, 10 * i + 5, launched=i)
    plain = trace.text().encode()
    for data in (plain[: int(kept * len(plain))], gzip.compress(plain)[: int(kept * len(gzip.compress(plain)))]):
        path = tmp_path / "cut.json"
        path.write_bytes(data)
        with pytest.raises(TraceError, match="cut off"):
            attribute(path)

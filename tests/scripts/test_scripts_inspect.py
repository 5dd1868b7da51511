"""Tests of the scripts behind docs/inspect_evidence.md: scaled traces, tables of readers, exact figures, anonymized traces."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.bench import compare_inspect_peers
from scripts.bench import inspect_speed as bench_inspect
from scripts.bench.inspect_readers import READERS
from scripts.bench.scaled_trace import scale
from scripts.lab import record_traces

pytestmark = pytest.mark.jobs

RECORDED = Path(__file__).parents[1] / "fixtures" / "traces" / "train.cuda.json.gz"
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")


def events_of(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    events: list[dict[str, Any]] = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)["traceEvents"]
    return events


def linked(events: list[dict[str, Any]]) -> int:
    launches = {e["args"]["correlation"] for e in events if e.get("cat") == "cuda_runtime"}
    return sum(e["args"]["correlation"] in launches for e in events if e.get("cat") in KERNELS)


def test_a_scaled_trace_repeats_the_short_one(tmp_path: Path) -> None:
    short, target = events_of(RECORDED), tmp_path / "long.json"
    once = [e for e in short if e["ph"] != "M"]
    size = len(gzip.decompress(RECORDED.read_bytes()))
    events = scale(RECORDED, target, 5 * size)
    long = events_of(target)
    assert events == len(long)
    timed = [e for e in long if e["ph"] != "M"]
    assert timed[: len(once)] == once
    assert 4.5 * size < target.stat().st_size < 5.5 * size
    times = len(timed) // len(once)
    assert times >= 4
    assert sum(e["ph"] == "M" for e in long) == sum(e["ph"] == "M" for e in short)
    repeats = timed[: times * len(once)]
    assert linked(repeats) == times * linked(once)
    kernels = [e for e in repeats if e.get("cat") in KERNELS]
    assert len({e["args"]["correlation"] for e in kernels}) == len(kernels)
    second = [e for e in repeats[len(once) : 2 * len(once)] if "dur" in e]
    assert min(e["ts"] for e in second) > max(e["ts"] + e["dur"] for e in once if "dur" in e)
    assert [e["dur"] for e in second] == [e["dur"] for e in once if "dur" in e]


def test_a_trace_in_another_layout_keeps_its_events(tmp_path: Path) -> None:
    document = json.loads(gzip.decompress(RECORDED.read_bytes()))
    flat, target = tmp_path / "flat.json", tmp_path / "long.json"
    flat.write_text(json.dumps(document))
    scale(flat, target, 3 * flat.stat().st_size)
    first = [e for e in events_of(target) if e["ph"] != "M"][: len(document["traceEvents"])]
    untimed = [e for e in document["traceEvents"] if e["ph"] != "M"]
    assert [(e["name"], e.get("args")) for e in first[: len(untimed)]] == [(e["name"], e.get("args")) for e in untimed]


def test_a_small_trace_has_the_first_events_in_time(tmp_path: Path) -> None:
    target = tmp_path / "cut.json"
    scale(RECORDED, target, len(gzip.decompress(RECORDED.read_bytes())) // 2)
    written_ts = [e["ts"] for e in events_of(target) if e["ph"] != "M"]
    omitted_ts = sorted(e["ts"] for e in events_of(RECORDED) if e["ph"] != "M")[len(written_ts) :]
    assert written_ts
    assert max(written_ts) <= omitted_ts[0]


def test_heavy_readers_of_large_files_run_once_and_last() -> None:
    names = [*READERS]
    heavy = [name for name in names if READERS[name].heavy]
    runs = bench_inspect.schedule(names, 3, large=True)
    assert [name for _, name in runs[-len(heavy) :]] == heavy
    assert len(runs) == 3 * (len(names) - len(heavy)) + len(heavy)
    assert len(bench_inspect.schedule(names, 3, large=False)) == 3 * len(names)


def test_missing_readers_get_a_line() -> None:
    answer = {"seconds": 2.0, "peak_bytes": 5_000_000, "version": "3", "result": "", "parts": {"parse": 1.0}}
    failed = {"TraceLens": "not installed"}
    text = bench_inspect.format_table(10.0, ["orjson", "TraceLens"], {"orjson": [answer], "TraceLens": []}, failed)
    assert "| orjson 3 " in text
    assert "(parse 1.00)" in text
    assert "not installed" in text


def test_readers_answer_over_a_recorded_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_bytes(gzip.decompress(RECORDED.read_bytes()))
    count = f"{len(events_of(RECORDED)):,} events"
    for name in ("json", "msgspec", "profiler-kit read"):
        answer = bench_inspect.run_reader(name, trace, sys.executable)
        assert isinstance(answer, dict), answer
        assert answer["result"] == count
        assert answer["peak_bytes"] > 1_000_000
    answer = bench_inspect.run_reader("profiler-kit inspect", trace, sys.executable)
    assert isinstance(answer, dict), answer
    assert answer["result"].startswith("A step takes ")


def test_exact_figures_are_unions_in_whole_ns(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    runtime = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "dur": 1}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7}
    annotation = {"ph": "X", "cat": "user_annotation", "name": "## backward ##", "pid": 1, "tid": 1, "ts": 9, "dur": 5}
    trace.write_text(
        json.dumps(
            {
                "traceEvents": [
                    annotation,
                    {**runtime, "ts": 10, "args": {"correlation": 1}},
                    {**runtime, "ts": 30, "args": {"correlation": 2}},
                    {**kernel, "ts": 12.001, "dur": 3, "args": {"correlation": 1}},
                    {**kernel, "ts": 14.0, "dur": 2.5, "args": {"correlation": 2}},
                ]
            }
        )
    )
    exact = compare_inspect_peers.read_exact(trace)
    assert exact.busy_ns == 4499
    assert exact.annotated_ns == {"backward": 3000}
    assert exact.operators_ns == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/home/somebody/env/lib/python3.11/site-packages/torch/x.py(3): f", "torch/x.py(3): f"),
        ("/tmp/torchinductor_somebody/ab/cdef.py(7): call", "ab/cdef.py(7): call"),
        ("nn.Module: Linear_0", "nn.Module: Linear_0"),
        ("void at::native::f<float>(int)", "void at::native::f<float>(int)"),
    ],
)
def test_recorded_traces_name_no_folder(name: str, expected: str) -> None:
    assert record_traces.anonymous(f'"name": "{name}"') == f'"name": "{expected}"'
    assert record_traces.anonymous('"host_name": "somebody"') == '"host_name": ""'
    assert record_traces.anonymous('"kernel_file": "/tmp/somebody/k.py"') == '"kernel_file": "k.py"'

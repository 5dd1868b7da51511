from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inspection_traces import Event, call, kernel, launch, mark, op, write

from profiler_kit.attribution.cutting import Cut, Period, StepPeriod, cut, step_periods
from profiler_kit.attribution.engine import attribute
from profiler_kit.errors import UsageError
from profiler_kit.traces.entries import Entries, scan_entries
from profiler_kit.traces.reader import read
from profiler_kit.traces.splitting import rewrite_trace

STEPS = 6
LAG = 250  # the device is two and a half steps behind


def flow(ph: str, number: int, at: float, *, pid: int, tid: int) -> Event:
    return {"ph": ph, "id": number, "cat": "ac2g", "name": "ac2g", "pid": pid, "tid": tid, "ts": at, "bp": "e"}


def steps() -> list[Event]:
    events: list[Event] = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}}]
    for n in range(STEPS):
        at = n * 100.0
        events += [
            mark(f"ProfilerStep#{n}", at, at + 99),
            call(f"train.py(1): step {n}", at + 1, at + 98),
            call(f"short {n}", at + 1, at + 3),
            op(f"long {n}", at + 10, at + 60),
            op(f"brief {n}", at + 12, at + 14),
            launch(n + 1, at + 20, at + 22),
            flow("s", n + 1, at + 20, pid=1, tid=100),
            kernel(f"kernel {n}", at + LAG, at + LAG + 80, n + 1),
            flow("f", n + 1, at + LAG, pid=0, tid=7),
        ]
    return events


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "steps.json", steps())


@pytest.fixture
def entries(trace: Path) -> Entries:
    return scan_entries(trace)


@pytest.fixture
def periods(trace: Path) -> tuple[StepPeriod, ...]:
    return step_periods(attribute(read(trace)))


def names(trace: Path, found: Cut) -> list[str]:
    out = io.BytesIO()
    rewrite_trace(trace, out, [], found.keep)
    assert len(out.getvalue()) <= found.size
    events: list[dict[str, Any]] = json.loads(out.getvalue())["traceEvents"]
    return [event["name"] if event["ph"] not in "sf" else f"{event['ph']}{event['id']}" for event in events]


def test_a_step_has_a_period_on_the_host_and_one_on_the_device(periods: tuple[StepPeriod, ...]) -> None:
    assert periods[2] == StepPeriod(2, Period(200_000, 299_000, 450_000, 530_000))


def test_nothing_asked_for_keeps_all(trace: Path, entries: Entries, periods: tuple[StepPeriod, ...]) -> None:
    result = cut(entries, periods)
    assert result.keep.all()
    assert result.notes == ()
    assert result.size >= trace.stat().st_size


def test_steps_keep_their_own_work_wherever_it_ran(
    trace: Path, entries: Entries, periods: tuple[StepPeriod, ...]
) -> None:
    result = cut(entries, periods, step_range=(2, 2))
    assert names(trace, result) == [
        "process_name", "ProfilerStep#2", "train.py(1): step 2", "short 2", "long 2", "brief 2", "cudaLaunchKernel", "s3",
        "kernel 2", "f3",
    ]  # fmt: skip
    assert "Cut to step 2." in result.notes


def test_several_steps_and_the_last_one_included(
    trace: Path, entries: Entries, periods: tuple[StepPeriod, ...]
) -> None:
    kept_names = names(trace, cut(entries, periods, step_range=(3, 5)))
    assert [name for name in kept_names if name.startswith("kernel")] == ["kernel 3", "kernel 4", "kernel 5"]


def test_launches_of_kept_kernels_are_kept(tmp_path: Path) -> None:
    # kernel 1 still runs when that of step 2 begins
    events = [e if e["name"] != "kernel 1" else {**e, "dur": 110} for e in steps()]
    trace = write(tmp_path / "long.json", events)
    kept_names = names(trace, cut(scan_entries(trace), step_periods(attribute(read(trace))), step_range=(2, 2)))
    assert {"kernel 1", "kernel 2"} <= set(kept_names)
    assert kept_names.count("cudaLaunchKernel") == 2
    assert {"s2", "f2", "s3", "f3"} <= set(kept_names)
    assert "long 1" not in kept_names


def test_steps_that_are_not_there_are_told(entries: Entries, periods: tuple[StepPeriod, ...]) -> None:
    with pytest.raises(UsageError, match="no step 9: the trace has steps 0 to 5"):
        cut(entries, periods, step_range=(9, 9))
    with pytest.raises(UsageError, match="no marked steps"):
        cut(entries, (), step_range=(1, 2))


@pytest.mark.parametrize("steady", [(), (0,), (2, 3, 4), (5,)])
def test_as_many_whole_steps_as_fit_steady_ones_first(
    trace: Path, entries: Entries, periods: tuple[StepPeriod, ...], steady: tuple[int, ...]
) -> None:
    uncut = cut(entries, periods).size
    kept_before = 0
    for part in (0.25, 0.5, 0.75, 1.0):
        limit = int(uncut * part)
        result = cut(entries, periods, steady=steady, limit_bytes=limit)
        kept_names = [n for n in range(STEPS) if f"kernel {n}" in names(trace, result)]
        assert result.size <= limit
        assert kept_names == list(range(kept_names[0], kept_names[-1] + 1))
        assert not steady or steady[0] in kept_names
        assert len(kept_names) >= kept_before
        kept_before = len(kept_names)
    assert kept_before == STEPS


def test_what_is_added_counts_too(entries: Entries, periods: tuple[StepPeriod, ...]) -> None:
    uncut = cut(entries, periods).size
    result = cut(
        entries, periods, limit_bytes=uncut, annotation_bytes=lambda period: 10 if period is not None else 1000
    )
    assert result.period is not None
    assert result.size + 10 <= uncut


def test_one_step_too_large_loses_its_python_calls_first_the_shortest_first(
    trace: Path, entries: Entries, periods: tuple[StepPeriod, ...]
) -> None:
    single = cut(entries, periods, step_range=(2, 2))
    result = cut(entries, periods, step_range=(2, 2), limit_bytes=single.size - 1)
    assert set(names(trace, single)) - set(names(trace, result)) == {"short 2"}
    assert any("the 1 shortest of 2 Python calls" in note for note in result.notes)
    calls = sum(len(json.dumps(e)) for e in steps() if e.get("cat") == "python_function" and e["name"].endswith("2"))
    result = cut(entries, periods, step_range=(2, 2), limit_bytes=single.size - calls - 10)
    gone = set(names(trace, single)) - set(names(trace, result))
    assert gone == {"short 2", "train.py(1): step 2", "brief 2"}
    assert result.size <= single.size - calls - 10


def test_a_limit_too_small_for_anything_is_told(entries: Entries, periods: tuple[StepPeriod, ...]) -> None:
    with pytest.raises(UsageError, match=r"\d MB"):
        cut(entries, periods, limit_bytes=100)


def test_a_trace_without_steps_is_thinned(trace: Path, entries: Entries) -> None:
    uncut = cut(entries, ())
    result = cut(entries, (), limit_bytes=uncut.size - 10)
    assert 0 < int((~result.keep).sum()) < 3
    assert np.count_nonzero(result.keep) < len(entries)
    assert result.period is None
    assert len(names(trace, result)) == int(result.keep.sum())

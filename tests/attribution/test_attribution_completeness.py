"""Gaps in the numbers of host events show that a file was filtered."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from published_traces import PUBLISHED, TRACES, published

from profiler_kit.attribution.completeness import missing_host_events
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import Table


def table(folder: Path, numbers: Iterable[tuple[int, int]]) -> Table:
    """Return a trace of operators with `numbers`: thread and ``External id``."""
    events = [
        {
            "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": thread, "ts": number, "dur": 1,
            "args": {"External id": number},
        }
        for thread, number in numbers
    ]  # fmt: skip
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return read(path)


def test_whole_blocks_of_two_threads_lack_nothing(tmp_path: Path) -> None:
    main = [(1, number) for number in (*range(100, 513), *range(1025, 1200))]
    autograd = [(2, number) for number in range(513, 600)]
    assert missing_host_events(table(tmp_path, main + autograd)) == 0


def test_one_counter_for_all_threads_lacks_nothing(tmp_path: Path) -> None:
    numbers = [(1 if number < 700 or number > 1500 else 2, number) for number in range(1, 2200)]
    assert missing_host_events(table(tmp_path, numbers)) == 0


def test_every_tenth_event_of_a_thread(tmp_path: Path) -> None:
    numbers = range(1, 2000, 10)
    assert missing_host_events(table(tmp_path, ((1, number) for number in numbers))) == 1991 - len(numbers)


def test_events_without_a_number_lack_nothing(tmp_path: Path) -> None:
    assert missing_host_events(table(tmp_path, ((1, 0), (1, 0)))) == 0


@published
@pytest.mark.parametrize("name", TRACES)
def test_published_traces_are_whole_but_for_the_filtered_ones(name: str) -> None:
    is_filtered = "sampled" in name or "gloo" in name
    assert (missing_host_events(read(PUBLISHED / name)) > 0) is is_filtered

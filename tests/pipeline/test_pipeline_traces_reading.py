"""Many traces at once: the same answers from processes as from this one, and a bad file spoils no other."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from inspection_traces import op, write

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.rank_extract import extract_rank
from profiler_kit.errors import KitError, TraceError
from profiler_kit.pipeline import trace_reading as reading
from profiler_kit.pipeline.inspect import inspect
from profiler_kit.pipeline.trace_reading import read_all
from profiler_kit.records.serde import dumps
from profiler_kit.simulation.replayed_trace import replayed
from profiler_kit.traces import parts
from profiler_kit.traces.reader import read
from profiler_kit.traces.rows import Rows

FIXTURES = Path(__file__).parents[1] / "fixtures" / "traces"
RANKS = sorted((FIXTURES / "ranks").glob("rank*.json.gz"))


def quiet(_: str) -> None:
    pass


def in_processes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has small files read in processes as well."""
    monkeypatch.setattr(reading, "MIN_PARALLEL_BYTES", 0)
    monkeypatch.setattr(reading, "workers_for", lambda items, *_, **__: min(items, 2))


def test_processes_give_what_this_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    here = read_all(RANKS, quiet)
    in_processes_too(monkeypatch)
    assert read_all(RANKS, quiet) == here
    assert here.ranks is not None
    assert [row.rank for row in here.ranks.ranks] == [0, 1]
    assert here.notes == ()


def test_parts_of_one_file_give_what_the_whole_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(gzip.decompress((FIXTURES / "train.cuda.json.gz").read_bytes()))
    here = read_all([file], quiet)
    in_processes_too(monkeypatch)
    monkeypatch.setattr(parts, "PART_BYTES", file.stat().st_size // 4)
    monkeypatch.setattr(parts, "_WINDOW_BYTES", 2000)
    events: list[int] = []
    extend = Rows.extend

    def counted(self: Rows, later: Rows) -> None:
        events.append(later.events)
        extend(self, later)

    monkeypatch.setattr(Rows, "extend", counted)
    assert read_all([file], quiet) == here
    assert len(events) == 3


@pytest.mark.parametrize("processes", [False, True])
def test_a_bad_file_among_good_ones_is_an_error_of_its_own(
    processes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    if processes:
        in_processes_too(monkeypatch)
    read = read_all([RANKS[0], bad, RANKS[1]], quiet)
    assert read.files == tuple(RANKS)
    (error,) = read.errors
    assert error.where == str(bad)
    assert read.ranks is not None
    with pytest.raises(TraceError):
        read_all([bad, bad], quiet)


def test_a_process_that_dies_loses_its_file_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    in_processes_too(monkeypatch)
    good = reading.extract_trace(RANKS[0])
    lost = KitError("the process that read it was ended by SIGKILL", hint="read it alone")
    monkeypatch.setattr(reading, "in_processes", lambda *_, **__: iter([good, lost]))
    read = read_all(RANKS, quiet)
    assert read.files == (RANKS[0],)
    (error,) = read.errors
    assert (error.where, error.message) == (str(RANKS[1]), lost.message)
    assert read.ranks is None


def test_ctrl_c_keeps_what_was_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = reading.extract_trace
    seen: list[Path] = []

    def interrupted(file: Path, **_: bool) -> object:
        seen.append(file)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return whole(file)

    monkeypatch.setattr(reading, "extract_trace", interrupted)
    read = read_all(RANKS, quiet)
    assert read.interrupted
    assert read.files == (RANKS[0],)


def test_no_more_processes_than_memory_allows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[int, int]] = []

    def one(items: int, item_bytes: int) -> int:
        asked.append((items, item_bytes))
        return 1

    monkeypatch.setattr(reading, "workers_for", one)
    large = tmp_path / "large.json.gz"
    large.touch()
    os.truncate(large, 100_000_000)  # a hole: takes no place
    read = read_all([RANKS[0], RANKS[1], large], quiet)
    assert len(read.traces) == 2
    ((items, item_bytes),) = asked
    assert items == 3
    assert item_bytes > 10 * 100_000_000


def test_traces_of_two_jobs_are_summed_up_one_by_one_and_said_to_be_so(tmp_path: Path) -> None:
    import gzip

    text = gzip.decompress(RANKS[1].read_bytes()).decode().replace('"world_size": 2', '"world_size": 3')
    other = tmp_path / "rank1.json"
    other.write_text(text)
    read = read_all([RANKS[0], other], quiet)
    assert len(read.traces) == 2
    assert read.ranks is None
    assert read.notes == ("The traces are not of one job: 2 ranks in rank0.json.gz, 3 ranks in rank1.json.",)


@pytest.mark.parametrize("file", sorted(FIXTURES.rglob("*.json.gz")), ids=lambda file: file.name)
def test_a_summary_does_not_need_the_details_of_events(file: Path) -> None:
    attribution = attribute(read(file))
    assert reading.summary(file) == replayed(attribution, extract_rank(attribution).summary)[0]


def test_a_trace_says_what_a_step_takes_without_the_profiler(tmp_path: Path) -> None:
    plain = inspect(FIXTURES.parent / "diagnosis" / "useless_autocast.cuda.plain.json.gz").report
    (trace,) = json.loads(dumps(plain))["traces"]
    assert set(trace["untraced_step_ns"]) == {"median", "low", "high"}
    assert 0 < trace["untraced_step_ns"]["median"] < trace["host_step_ns"]
    unmarked = inspect(write(tmp_path / "trace.json", [op("aten::add", 0, 5)])).report
    (trace,) = json.loads(dumps(unmarked))["traces"]
    assert (trace["untraced_step_ns"], trace["untraced_reason"]) == (None, "no steps")


def test_a_trace_alone_needs_no_graph_for_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with_graph: list[object] = []
    monkeypatch.setattr("profiler_kit.simulation.ranks.rank_graph", lambda *of: with_graph.append(of))
    assert read_all(RANKS[:1], quiet).traces
    assert not with_graph
    read_all(RANKS, quiet)
    assert len(with_graph) == len(RANKS)

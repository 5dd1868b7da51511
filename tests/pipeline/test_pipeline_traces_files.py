"""Which files are traces: as given, and in folders."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from profiler_kit.errors import UsageError
from profiler_kit.pipeline.trace_files import trace_files
from profiler_kit.traces.recognition import looks_like_trace


def made(folder: Path, *names: str) -> Path:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"traceEvents": []}')
    return folder


def names(folder: Path, *given: Path) -> list[str]:
    return [str(file.relative_to(folder)) for file in trace_files(given).files]


def test_a_file_is_taken_whatever_it_is_called(tmp_path: Path) -> None:
    made(tmp_path, "trace", "b.json")
    assert names(tmp_path, tmp_path / "b.json", tmp_path / "trace") == ["b.json", "trace"]


def test_a_file_named_twice_is_one_trace(tmp_path: Path) -> None:
    made(tmp_path, "a.json")
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    again = tmp_path / "sub" / ".." / "a.json"
    (tmp_path / "sub").mkdir()
    assert names(tmp_path, tmp_path / "a.json", again, tmp_path / "link.json") == ["a.json"]


def test_a_folder_stands_for_the_json_files_in_it(tmp_path: Path) -> None:
    made(tmp_path, "rank10.json.gz", "rank9.json", "notes.txt", "report.json", ".hidden.json", "deeper/other.json")
    assert names(tmp_path, tmp_path) == ["rank9.json", "rank10.json.gz"]


def test_the_handlers_files_go_before_other_json(tmp_path: Path) -> None:
    made(tmp_path, "host_1.1623143089861.pt.trace.json", "host_2.1.pt.trace.json.gz", "config.json")
    assert names(tmp_path, tmp_path) == ["host_1.1623143089861.pt.trace.json", "host_2.1.pt.trace.json.gz"]


def test_a_log_folder_of_runs_stands_for_the_traces_of_all(tmp_path: Path) -> None:
    made(tmp_path, "run1/worker0.1.pt.trace.json", "run2/worker0.2.pt.trace.json.gz", "run2/other.json")
    assert names(tmp_path, tmp_path) == ["run1/worker0.1.pt.trace.json", "run2/worker0.2.pt.trace.json.gz"]


def test_a_report_folder_stands_for_its_traces(tmp_path: Path) -> None:
    made(tmp_path, "report.json", "traces/default.json.gz", "traces/benchmark.json.gz")
    assert names(tmp_path, tmp_path) == ["traces/benchmark.json.gz", "traces/default.json.gz"]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere.json: no such file"):
        trace_files([tmp_path / "nowhere.json"])
    with pytest.raises(UsageError, match="no trace in this folder"):
        trace_files([made(tmp_path, "notes.txt")])
    with pytest.raises(UsageError, match="no trace given"):
        trace_files([])


NO_TRACES = {
    "truth.json": b'{"step_ms": 3.0, "said": "\\"traceEvents\\": []"}',
    "list.json": b'[{"name": "ph", "value": 1}]',
    "figures.json.gz": gzip.compress(b"[1, 2, 3]"),
    "empty.json": b"",
    "cut.json.gz": gzip.compress(b'{"traceEvents": [') [:12],
}  # fmt: skip


def test_other_json_beside_traces_is_left_out_and_said_once(tmp_path: Path) -> None:
    made(tmp_path, "rank0.json", "rank1.json")
    for name, held in NO_TRACES.items():
        (tmp_path / name).write_bytes(held)
    found = trace_files([tmp_path, tmp_path])
    assert [file.name for file in found.files] == ["rank0.json", "rank1.json"]
    (note,) = found.notes
    assert f"5 files in {tmp_path}" in note
    assert "cut.json.gz, empty.json, figures.json.gz and 2 more" in note


def test_what_is_named_is_taken_whatever_it_holds(tmp_path: Path) -> None:
    (tmp_path / "truth.json").write_bytes(NO_TRACES["truth.json"])
    assert trace_files([tmp_path / "truth.json"]) == ((tmp_path / "truth.json",), ())


def test_a_folder_of_other_json_alone_holds_no_trace(tmp_path: Path) -> None:
    (tmp_path / "truth.json").write_bytes(NO_TRACES["truth.json"])
    with pytest.raises(UsageError, match=r"no trace .*1 file"):
        trace_files([tmp_path])


@pytest.mark.parametrize(
    "text",
    [
        b'{"schemaVersion": 1, "traceEvents" : [',
        b'{"deviceProperties": [%s 1], "traceEvents": []}' % (b"1," * 200_000),
        b' \n[ {"name": "a", "ph": "X"}]',
        b'\xef\xbb\xbf[{"ph":"X"',
    ],
    ids=["cut off", "much before the events", "a list", "byte order mark"],
)
def test_a_trace_is_told_by_its_beginning_zipped_or_not(tmp_path: Path, text: bytes) -> None:
    plain, zipped = tmp_path / "a.json", tmp_path / "b.json"
    plain.write_bytes(text)
    zipped.write_bytes(gzip.compress(text))
    assert looks_like_trace(plain)
    assert looks_like_trace(zipped)


def test_what_cannot_be_opened_is_left_to_whoever_reads_it(tmp_path: Path) -> None:
    assert looks_like_trace(tmp_path / "gone.json")

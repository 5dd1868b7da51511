"""Which files are traces: as given, and in folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_kit.errors import UsageError
from profiler_kit.inquiry import trace_files


def made(folder: Path, *names: str) -> Path:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    return folder


def names(folder: Path, *given: Path) -> list[str]:
    return [str(file.relative_to(folder)) for file in trace_files(given)]


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
    with pytest.raises(UsageError, match="holds no trace"):
        trace_files([made(tmp_path, "notes.txt")])
    with pytest.raises(UsageError, match="no trace given"):
        trace_files([])

"""`inspect` as a user types it: files, folders, bad ones among them, views, saved reports, no torch."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_files import call
from test_cli_startup import without

import profiler_kit
from profiler_kit.errors import INTERRUPTED, OK, TARGET_FAILED, USAGE, TraceError, UsageError
from profiler_kit.records.report import TraceReport
from profiler_kit.records.serde import read_saved

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "traces"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two traces, a cut one, and what is none; as the working directory."""
    shutil.copy(FIXTURES / "train.cuda.json.gz", tmp_path / "cuda.json.gz")
    whole = gzip.decompress((FIXTURES / "train.cpu.json.gz").read_bytes())
    (tmp_path / "cpu.json").write_bytes(whole)
    (tmp_path / "none.json").write_text('{"a": 1}')
    (tmp_path / "empty.json").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_trace_is_told_on_stdout_and_progress_on_stderr(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = call(["inspect", "cuda.json.gz"], capfd)
    assert done.code == OK
    assert done.out.startswith("cuda.json.gz\n")
    assert "Phases (whole trace, 2 steps)" in done.out
    assert "reading" not in done.out  # progress goes to stderr, and only if an activity takes more than a second
    assert call(["inspect", "cuda.json.gz", "-q"], capfd).err == ""


def test_one_finding_and_the_rows_behind_it(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(["inspect", "cuda.json.gz", "-q", "-o", "saved.json"], capfd).code == OK
    done = call(["inspect", "cuda.json.gz", "-q", "--finding", "1"], capfd)
    assert done.code == OK
    assert done.out.startswith("Finding 1 of ")
    assert call(["show", "saved.json", "--finding", "1"], capfd).out == done.out
    wrong = call(["show", "saved.json", "--finding", "99"], capfd)
    assert (wrong.code, wrong.out) == (USAGE, "")
    assert wrong.err.startswith("error: no finding 99: the report has one finding\n")
    assert call(["show", "saved.json", "--finding", "0"], capfd).code == USAGE


def test_formats_and_files(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = call(
        ["inspect", "cuda.json.gz", "cpu.json", "-q", "-f", "json", "-o", "a.md", "-o", "a.csv", "-o", "saved.json"],
        capfd,
    )
    assert done.code == OK
    data = json.loads(done.out)
    assert [one["file"] for one in data["traces"]] == ["cuda.json.gz", "cpu.json"]
    for one in data["traces"]:
        assert one["busy_ns"] + one["idle_ns"] == one["span_ns"]
    assert (here / "saved.json").read_text() == done.out
    assert (here / "a.csv").read_text().startswith("file,phase,host_ns")
    assert (here / "a.md").read_text().startswith("# 2 traces")


def test_a_saved_inspection_is_shown_again(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shown = call(["inspect", "cuda.json.gz", "-q", "-o", "saved.json"], capfd).out
    (here / "cuda.json.gz").unlink()
    assert call(["show", "saved.json"], capfd).out == shown
    assert "Modules (including children" in call(["show", "saved.json", "--by", "module"], capfd).out
    wrong = call(["show", "saved.json", "--by", "layer"], capfd)
    assert (wrong.code, wrong.out) == (USAGE, "")
    assert "--by layer" in wrong.err


def test_a_report_on_a_target_has_the_views_of_traces(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = FIXTURES.parent / "reports" / "v0_cuda.json"
    done = call(["show", str(report), "--by", "kernel"], capfd)
    assert done.code == OK
    assert "Kernels (default, per traced step)" in done.out
    assert "Findings" not in done.out
    csv = call(["show", str(report), "--by", "kernel", "-f", "csv"], capfd).out
    assert csv.startswith("config,kernel_ns,")


def test_one_view_alone_and_its_csv(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = call(["inspect", "cuda.json.gz", "-q", "--by", "kernel", "--top", "2"], capfd)
    assert "Kernels (whole trace, 2 steps)" in done.out
    assert "Findings" not in done.out
    assert "more)" in done.out
    csv = call(["inspect", "cuda.json.gz", "-q", "--by", "kernel", "-f", "csv"], capfd).out
    assert csv.startswith("file,kernel_ns,")


def test_a_folder_stands_for_its_traces(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logs = here / "log" / "run1"
    logs.mkdir(parents=True)
    shutil.copy(here / "cuda.json.gz", logs / "host_12.1623143089861.pt.trace.json.gz")
    done = call(["inspect", "log", "-q", "-f", "json"], capfd)
    assert [one["file"] for one in json.loads(done.out)["traces"]] == [
        str(Path("log") / "run1" / "host_12.1623143089861.pt.trace.json.gz")
    ]


def test_a_bad_file_among_good_ones_is_named_and_the_others_told(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = call(["inspect", "none.json", "cuda.json.gz", "cpu.json", "-q"], capfd)
    assert done.code == TARGET_FAILED
    assert done.err.startswith("error: none.json: ")
    assert done.err.count("error:") == 1
    assert "Traceback" not in done.err
    assert "none.json: " in done.out
    assert "\ncuda (whole trace" in done.out
    assert "\ncpu (whole trace" in done.out


@pytest.mark.parametrize("names", [["none.json"], ["empty.json"], ["none.json", "empty.json"]])
def test_nothing_but_bad_files_is_one_error(here: Path, capfd: pytest.CaptureFixture[str], names: list[str]) -> None:
    done = call(["inspect", *names, "-q"], capfd)
    assert (done.code, done.out) == (TARGET_FAILED, "")
    assert done.err.startswith(f"error: {names[0]}: ")
    assert done.err.count("error:") == 1
    assert ("1 other file" in done.err) is (len(names) > 1)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["inspect"], "TRACE"),
        (["inspect", "nowhere.json"], "nowhere.json: no such file"),
        (["inspect", "cuda.json.gz", "--by", "layer"], "--by"),
        (["inspect", "cuda.json.gz", "--top", "0"], "--top"),
        (["inspect", "cuda.json.gz", "-f", "pdf"], "'pdf'"),
        (["inspect", "cuda.json.gz", "-o", "no/such/a.md"], "no such folder"),
        (["inspect", "cuda.json.gz", "-o", "a" * 5000 + ".md"], "not a path of a file"),
        (["inspect", "cuda.json.gz", "--annotate", "a/" * 2500 + "b.json"], "not a path of a file"),
        (["inspect", "cuda.json.gz", "--events", "a" * 5000 + ".csv"], "not a path of a file"),
        (["show", "a" * 5000], "not a path of a file"),
    ],
)
def test_usage(here: Path, capfd: pytest.CaptureFixture[str], argv: list[str], said: str) -> None:
    done = call(argv, capfd)
    assert (done.code, done.out) == (USAGE, "")
    assert said in done.err
    assert max(map(len, done.err.splitlines())) < 300  # not the whole of a long path


def test_ctrl_c_keeps_what_was_read(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from profiler_kit.pipeline import trace_reading as reading

    whole = reading.extract_trace

    def pressed(file: Path, **options: bool) -> object:
        if file.name == "cpu.json":
            raise KeyboardInterrupt
        return whole(file, **options)

    monkeypatch.setattr(reading, "extract_trace", pressed)
    done = call(["inspect", "cuda.json.gz", "cpu.json", "-q"], capfd)
    assert done.code == INTERRUPTED
    assert done.out.startswith("cuda.json.gz\n")
    assert "interrupted: " in done.err
    first = call(["inspect", "cpu.json", "cuda.json.gz", "-q"], capfd)
    assert (first.code, first.out) == (INTERRUPTED, "")


def test_inspect_needs_no_torch(here: Path) -> None:
    code = """
from profiler_kit.cli import main
assert main(["inspect", "cuda.json.gz", "cpu.json", "-q", "-o", "saved.json", "-o", "saved.md"]) == 0
assert main(["show", "saved.json"]) == 0
assert not REFUSED & set(sys.modules)
"""
    done = without("torch,pandas", code, cwd=here)
    assert done.returncode == 0, done.stderr


def test_a_saved_inspection_opens_without_numpy(here: Path) -> None:
    assert subprocess.run([sys.executable, "-m", "profiler_kit", "inspect", "cuda.json.gz", "-q", "-o", "saved.json"],
                          env={**os.environ}, cwd=here, capture_output=True).returncode == 0  # fmt: skip
    code = "from profiler_kit.cli import main\nassert main(['show', 'saved.json']) == 0\nassert not REFUSED & set(sys.modules)\n"
    done = without("torch,pandas,numpy", code, cwd=here)
    assert done.returncode == 0, done.stderr


def test_python_gives_the_same_records(here: Path) -> None:
    inspection = profiler_kit.inspect("cuda.json.gz")
    assert isinstance(inspection.report, TraceReport)
    assert [file.name for file in inspection.files] == ["cuda.json.gz"]
    assert inspection.traces[0].busy_ns + inspection.traces[0].idle_ns == inspection.traces[0].span_ns
    assert inspection.findings == inspection.report.findings
    both = profiler_kit.inspect(["cuda.json.gz", Path("none.json")])
    assert len(both.traces) == 1
    assert [error.where for error in both.errors] == ["none.json"]
    with pytest.raises(TraceError):
        profiler_kit.inspect("none.json")
    with pytest.raises(UsageError, match="no such file"):
        profiler_kit.inspect("nowhere.json")


def test_events_wants_one_of_the_files(here: Path) -> None:
    both = profiler_kit.inspect(["cuda.json.gz", "cpu.json"])
    with pytest.raises(UsageError, match="no file selected") as raised:
        both.events()
    assert "cuda.json.gz, cpu.json" in (raised.value.hint or "")
    with pytest.raises(UsageError, match=r"'x\.json'"):
        both.events("x.json")


def test_a_report_that_was_written_is_the_one_that_python_has(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(["inspect", "cuda.json.gz", "-q", "-o", "saved.json"], capfd).code == OK
    saved = read_saved("saved.json")
    assert isinstance(saved, TraceReport)
    assert saved.traces == profiler_kit.inspect("cuda.json.gz").traces

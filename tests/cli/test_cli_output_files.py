"""Output files: no input is replaced, only files are replaced, and an unwritable file does not cost the report."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from cli_files import Ended, call, net

from profiler_kit.cli.commands import analyze
from profiler_kit.cli.output import REPORT_FILES
from profiler_kit.errors import INTERRUPTED, OK, USAGE
from profiler_kit.pipeline.analyze import Analysis
from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.report import Report
from profiler_kit.records.serde import dumps
from profiler_kit.records.target import TargetSpec

FIXTURES = Path(__file__).parents[1] / "fixtures" / "traces"
TRACE = "train.cuda.json.gz"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, v0_cpu_report: Report) -> Path:
    """A folder with a trace, a report, a report folder and a model, as the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(FIXTURES / TRACE, TRACE)
    shutil.copy(FIXTURES / "infer.cuda.json.gz", "infer.json.gz")
    Path("t.json").write_text('{"traceEvents": []}')
    Path("r.json").write_text(dumps(with_verdict(v0_cpu_report)))
    Path("net.py").write_text(net())
    for folder in ("out", "traces"):
        Path(folder).mkdir()
    shutil.copy("r.json", "out/report.json")
    shutil.copy(TRACE, "traces/rank0.json")
    Path("link.json").symlink_to("r.json")
    Path("trace_link.json").symlink_to(TRACE)
    Path("hard.json").hardlink_to("r.json")
    Path("model.md").symlink_to("net.py")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "line",
    [
        "show r.json -o r.json",
        "show r.json -o out/../r.json",
        "show r.json -o link.json",
        "show link.json -o r.json",
        "show r.json -o hard.json",
        "show out -o out/report.json",
        "show r.json -o new.md -o r.json",
        "inspect t.json -o t.json",
        f"inspect {TRACE} -o trace_link.json",
        "inspect traces -o traces/rank0.json",
        f"inspect {TRACE} --annotate {TRACE}",
        f"inspect {TRACE} --annotate trace_link.json",
        f"inspect {TRACE} --events {TRACE} --to csv",
        "compare r.json out -o r.json",
        "compare r.json out -o out/report.json",
        f"compare {TRACE} infer.json.gz -o trace_link.json",
        "count net.py -o model.md",
        "count pkg:build -i net.py:inputs -o model.md",
        "check net.py --base r.json -o r.json",
        "check net.py --base r.json -o model.md",
        "analyze net.py -o model.md",
        "analyze net.py --shapes r.json --out out -o hard.json",
    ],
)
def test_no_output_replaces_an_input(line: str, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = contents(place)
    ended = call(line.split(), capfd)
    assert (ended.code, ended.out) == (USAGE, "")
    assert "this file is an input, and the output would replace it\nhint: use another path" in ended.err
    assert contents(place) == before


def test_no_file_of_a_report_folder_replaces_an_input(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("out/report.md").symlink_to("../net.py")
    ended = call(["analyze", "net.py", "--out", "out"], capfd)
    assert ended.code == USAGE
    assert ended.err == (
        "error: out/report.md: this file is an input, and the output would replace it\n"
        "hint: use another folder with --out\n"
    )


def test_no_annotated_trace_replaces_another_input(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The second trace has the name that the annotation of the first would get."""
    shutil.copy(TRACE, "train.cuda.annotated.json.gz")
    before = contents(place)
    ended = call(["inspect", TRACE, "train.cuda.annotated.json.gz", "--annotate", "."], capfd)
    assert (ended.code, ended.out) == (USAGE, "")
    assert "train.cuda.annotated.json.gz: this file is an input" in ended.err
    assert contents(place) == before


def test_standard_input_and_output_are_files_too(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def redirected(line: str, descriptor: int, file: str) -> Ended:
        saved = os.dup(descriptor)
        other = os.open(file, os.O_RDWR | os.O_CREAT)
        os.dup2(other, descriptor)
        try:
            return call(line.split(), capfd)
        finally:
            os.dup2(saved, descriptor)
            os.close(saved)
            os.close(other)

    before = contents(place)
    assert "this file is an input" in redirected("inspect - -o trace_link.json", 0, TRACE).err
    assert "r2.json: stdout already goes to this file" in redirected("show r.json -o r2.json", 1, "r2.json").err
    assert contents(place) == {**before, "r2.json": b""}


def test_two_outputs_are_two_files(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for line in ("-o a.json -o ./a.json", "-o a.json --annotate a.json"):
        ended = call(["inspect", TRACE, *line.split()], capfd)
        assert (ended.code, ended.out) == (USAGE, "")
        assert "error: a.json: the same file as a.json" in ended.err


def test_a_pipe_and_a_device_are_written_into(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe.json")
    Path("null.json").symlink_to(os.devnull)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(Path("pipe.json").read_bytes()))
    reader.start()
    ended = call(["show", "r.json", "-o", "pipe.json", "-o", "null.json"], capfd)
    reader.join(10)
    assert ended.code == OK, ended.err
    assert received == [Path("r.json").read_bytes()]
    assert Path("pipe.json").is_fifo()
    assert Path(os.devnull).is_char_device()
    assert Path("null.json").is_symlink()


def test_stdout_by_its_path_is_written_into_if_it_is_a_pipe(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("stdout.csv").symlink_to("/dev/stdout")
    reading, writing = os.pipe()
    saved = os.dup(1)
    os.dup2(writing, 1)
    try:
        ended = call(["show", "r.json", "-f", "csv", "-o", "stdout.csv"], capfd)
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    assert ended.code == OK, ended.err
    assert text.count("path,") >= 1
    assert text.startswith(call(["show", "r.json", "-f", "csv"], capfd).out.splitlines()[0])


def test_a_link_is_followed_and_permissions_stay(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("real.json").write_text("old")
    Path("real.json").chmod(0o640)
    Path("alias.json").symlink_to("real.json")
    Path("later.md").symlink_to("not_yet.md")
    assert call(["show", "r.json", "-o", "alias.json", "-o", "later.md"], capfd).code == OK
    assert Path("alias.json").is_symlink()
    assert Path("later.md").is_symlink()
    assert Path("real.json").read_bytes() == Path("r.json").read_bytes()
    assert Path("real.json").stat().st_mode & 0o777 == 0o640
    assert Path("not_yet.md").stat().st_size > 100


def test_a_folder_and_a_missing_folder_are_refused(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("folder.json").mkdir()
    assert "it is a folder\nhint: " in call(["show", "r.json", "-o", "folder.json"], capfd).err
    assert "no such folder\nhint: create the folder, or" in call(["show", "r.json", "-o", "no/a.json"], capfd).err


@pytest.fixture
def no_space(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every file named ``full*`` or in a folder ``full`` meets a full disk when it is written; the names tried so far."""
    real = Path.write_bytes
    tried: list[str] = []

    def write_bytes(self: Path, data: bytes) -> int:
        if self.name.startswith(".full") or self.parent.name == "full":
            tried.append(self.name)
            raise OSError(28, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    return tried


def test_an_unwritable_file_does_not_cost_the_report(
    place: Path, capfd: pytest.CaptureFixture[str], no_space: list[str]
) -> None:
    plain = call(["show", "r.json"], capfd)
    ended = call(["show", "r.json", "-o", "full.json", "-o", "full.md", "-o", "good.csv"], capfd)
    assert (ended.code, ended.out) == (USAGE, plain.out)
    assert [line for line in ended.err.splitlines() if line.startswith("error: ")] == [
        "error: full.json: cannot write this file: No space left on device",
        "error: full.md: cannot write this file: No space left on device",
    ]
    assert len(no_space) == 2
    assert Path("good.csv").stat().st_size > 100
    assert not [path for path in place.iterdir() if path.name.startswith(".full")]


def test_inspect_writes_the_other_files_and_the_report(
    place: Path, capfd: pytest.CaptureFixture[str], no_space: list[str]
) -> None:
    ended = call(["inspect", TRACE, "-o", "full.json", "--annotate", "a.json.gz", "--events", "e.csv"], capfd)
    assert ended.code == USAGE
    assert "train.cuda" in ended.out
    assert ended.err.endswith("full.json: cannot write this file: No space left on device\nhint: use another path\n")
    assert Path("a.json.gz").exists()
    assert Path("e.csv").exists()


def test_a_full_disk_leaves_the_report_of_an_analysis_on_stdout(
    place: Path, capfd: pytest.CaptureFixture[str], no_space: list[str], v0_cpu_report: Report,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(
        "profiler_kit.pipeline.analyze.analyze_spec",
        lambda *_, **__: Analysis(report=with_verdict(v0_cpu_report), spec=TargetSpec(spec="net.py"), traces=()),
    )
    ended = call(["analyze", "net.py", "--out", "full", "-q", "-f", "json"], capfd)
    assert (ended.code, json.loads(ended.out)) == (USAGE, json.loads(Path("r.json").read_text()))
    assert len(no_space) == len(REPORT_FILES)
    assert ended.err.count("No space left on device") == len(REPORT_FILES)


def test_ctrl_c_while_the_report_is_written_keeps_it(
    place: Path, capfd: pytest.CaptureFixture[str], v0_cpu_report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []
    real = analyze.output.write_report_folder

    def interrupted_once(analysis: Analysis, folder: Path) -> None:
        calls.append(folder)
        if len(calls) == 1:
            raise KeyboardInterrupt
        real(analysis, folder)

    monkeypatch.setattr(analyze.output, "write_report_folder", interrupted_once)
    monkeypatch.setattr(
        "profiler_kit.pipeline.analyze.analyze_spec",
        lambda *_, **__: Analysis(report=v0_cpu_report, spec=TargetSpec(spec="net.py"), traces=()),
    )
    ended = call(["analyze", "net.py", "--out", "new", "-q"], capfd)
    assert ended.code == INTERRUPTED
    assert ended.err.endswith("interrupted: the report contains the measurements that finished\n")
    assert {path.name for path in Path("new").iterdir()} == set(REPORT_FILES)

"""What every command refuses before it imports a model, reads a trace or measures."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from profiler_kit.cli import main
from profiler_kit.errors import TARGET_FAILED, USAGE

MARKED = "from pathlib import Path\nPath('imported').touch()\nfrom torch import nn\nmodel = nn.Linear(2, 2)\n"
TRACE = Path(__file__).parents[1] / "fixtures" / "traces" / "train.cuda.json.gz"
TARGETS = ("analyze net.py", "count net.py", "compare net.py net.py", "tune net.py", "sweep net.py", "check net.py")
REFUSED = (
    *(f"{command} {words}" for command in (*TARGETS, "inspect trace.json.gz", "env") for words in (
        "-o file/x.json", "-o nowhere/x.json", "-o folder.json", "-o /proc/x.json", "-f yaml")),
    *(f"{command} -f junit" for command in (*TARGETS[:-1], "inspect trace.json.gz", "env")),
    *(f"{command} -o x.xml" for command in (*TARGETS[:-1], "inspect trace.json.gz", "env")),
    "analyze net.py --configs benchmrk", "analyze net.py --also chanels_last", "compare net.py net.py --configs benchmrk",
    "sweep net.py --configs benchmrk", "tune net.py --changes benchmrk", "analyze net.py --run benchmrk",
    *(f"{command} -i nofile.py:f" for command in ("analyze net.py", "count net.py", "tune net.py", "compare net.py net.py")),
    "count net.py --fits 0", "analyze net.py --out /proc/x", "sweep net.py --out /proc/x",
    "analyze net.py --out file", "analyze net.py --out file/sub", "sweep net.py --out file", "analyze net.py --out blocked",
    "sweep net.py --out blocked", "inspect trace.json.gz --annotate nowhere/x.json",
    "inspect trace.json.gz --events nowhere/x.csv",
    "inspect trace.json.gz --annotate trace.json.gz", "inspect trace.json.gz copy.json.gz --annotate x.json",
    "run", "run --stop", "run --configs benchmrk net.py", "run --later --configs benchmark net.py", "run --out file net.py",
    "check net.py --accept ''", "check net.py --budget params=1 --budget params=2", "init net.py --name flops",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MARKED)
    Path("file").touch()
    Path("folder.json").mkdir()
    Path("blocked").mkdir()
    for name in ("traces", "reports"):  # of analyze and of sweep
        Path("blocked", name).touch()
    for name in ("trace.json.gz", "copy.json.gz"):
        Path(name).write_bytes(TRACE.read_bytes())


@pytest.mark.parametrize("command", [words for words in REFUSED if sys.platform == "linux" or "/proc" not in words])
def test_nothing_has_happened(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert main([*shlex.split(command), "-q"]) == USAGE
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "\nhint: " in shown.err
    assert sorted(tmp_path.rglob("*")) == before


def test_the_other_side_of_compare_is_looked_for_first(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "net.py", "nte.py", "-q"]) == TARGET_FAILED
    assert "profiler-kit compare net.py net.py" in capfd.readouterr().err
    assert not Path("imported").exists()
    assert main(["compare", "net.py", "gone.json", "-q"]) == TARGET_FAILED
    assert not Path("imported").exists()

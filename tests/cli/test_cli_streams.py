"""Standard streams that are closed, full, or take ASCII only; threads that the model leaves running."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_files import call, in_worker, net, write

from profiler_kit.cli.streams import escape_control_characters
from profiler_kit.errors import OK, TARGET_FAILED, USAGE

pytestmark = pytest.mark.jobs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files to count, and a report with a sign that ASCII lacks."""
    made = tmp_path_factory.mktemp("streams")
    write(made)
    (made / "net.py").write_text(net().replace("self.fc", "self.f\u00e9"), encoding="utf-8")
    assert shell(made, "{program} count net.py -q -f json > report.json").returncode == OK
    return made


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """`line` run by a shell, which can close streams; ``{program}`` stands for the command line."""
    program = f"'{sys.executable}' -m profiler_kit"
    return subprocess.run(["/bin/sh", "-c", line.format(program=program)], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_stream_is_no_error(folder: Path, closed: str) -> None:
    ended = shell(folder, f"{{program}} show report.json -o again.json {closed}")
    assert ended.returncode == OK
    assert "Traceback" not in ended.stderr
    assert ("Parameters" in ended.stdout or "parameters" in ended.stdout) == (
        ">&- " not in f"{closed} ".replace("2>&-", "")
    )
    assert (folder / "again.json").read_bytes() == (folder / "report.json").read_bytes()


@pytest.mark.parametrize("setting", ["PYTHONIOENCODING=ascii", "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"])
def test_a_stream_that_takes_ascii_only_gets_what_it_can_take(folder: Path, setting: str) -> None:
    ended = shell(folder, f"{setting} {{program}} show report.json --detail")
    assert (ended.returncode, ended.stderr) == (OK, "")
    assert "f\\xe9" in ended.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_told(folder: Path) -> None:
    ended = shell(folder, "{program} show report.json > /dev/full")
    assert ended.returncode == USAGE
    assert ended.stderr.startswith("error: ")
    assert "No space left on device\nhint: " in ended.stderr
    assert ended.stderr.count("\n") == 2


def test_threads_that_the_model_leaves_running_keep_nothing_waiting(folder: Path) -> None:
    lasting = "import threading, time; threading.Thread(target=time.sleep, args=(300,)).start(); return self.fc(x)"
    (folder / "lasting.py").write_text(net(lasting))
    assert shell(folder, "{program} count lasting.py -q").returncode == OK


@pytest.mark.parametrize("name", ["queue.py", "torch_part.py"])
def test_a_file_that_hides_a_librarys_module_is_named(tmp_path: Path, name: str) -> None:
    """Python looks in the working directory first, for torch's imports too."""
    (tmp_path / "net.py").write_text(net())
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "torch.py").write_text("import torch_part\n")
    (tmp_path / name).write_text("1 / 0\n" if name == "torch_part.py" else "x = 1\n")
    path = f"PYTHONPATH='{tmp_path / 'lib'}':\"$PYTHONPATH\"" if name == "torch_part.py" else ""
    ended = shell(tmp_path, f"{path} {{program}} count net.py -q")
    assert ended.returncode == TARGET_FAILED
    assert ended.stderr.startswith(f"error: {name}: ")
    assert repr(name[:-3]) in ended.stderr
    assert "Traceback" not in ended.stderr


def test_threads_left_in_a_worker_keep_nothing_waiting(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lasting = "import threading, time; threading.Thread(target=time.sleep, args=(300,)).start()"
    (tmp_path / "lasting.py").write_text(in_worker(lasting))
    line = [str(tmp_path / "lasting.py"), "--device", "cpu", "--steps", "1", "--timeout", "200s", "-q"]
    assert call(["analyze", *line, "--configs", "default", "--out", str(tmp_path / "out")], capfd).code == OK


def test_what_is_no_exception_is_a_recorded_failure_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.py").write_text(in_worker("raise KeyboardInterrupt"))
    line = [str(tmp_path / "odd.py"), "--device", "cpu", "--steps", "1", "-q", "--out", str(tmp_path / "out")]
    ended = call(["analyze", *line, "--configs", "default"], capfd)
    assert ended.code == TARGET_FAILED
    assert "odd.py:8: KeyboardInterrupt" in ended.err


def test_a_name_does_not_steer_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    assert escape_control_characters("a\x1b[31mb\nc\u00e9\x07") == "a\\x1b[31mb\nc\u00e9\\x07"
    ended = call(["show", "no\x1b[31msuch.json"], capfd)
    assert ended.code == TARGET_FAILED
    assert "\x1b" not in ended.err

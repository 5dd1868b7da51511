"""Ctrl-C, SIGTERM and SIGHUP: an orderly end that keeps what was measured and leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli_files import call, in_worker, net
from waiting import is_written, wait_for_end, wait_until, written_number

from profiler_kit.cli.commands import show
from profiler_kit.cli.output import REPORT_FILES
from profiler_kit.errors import INTERRUPTED

# A process that starts in the background ignores SIGINT, and Python then installs no handler.
PROGRAM = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from profiler_kit.cli import entry; entry()"
HANG = "import os, time\nprint(os.getpid(), file=open({pid!r}, 'w'), flush=True)\ntime.sleep(300)\n"


class Running:
    """A command in a process of its own, with a temporary folder of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.pid_file = folder / "pid"
        (folder / "tmp").mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            cwd=folder,
            env={**environment, "TMPDIR": str(folder / "tmp")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def hanging_child(self) -> int:
        """The id of the child, once it hangs."""
        wait_until(lambda: is_written(self.pid_file) or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.communicate()
        return written_number(self.pid_file)

    def end(self, number: signal.Signals) -> tuple[int, str, str]:
        """Sends the signal; exit status, stdout and stderr."""
        self.process.send_signal(number)
        out, err = self.process.communicate()
        return self.process.returncode, out, err

    def left_behind(self) -> list[Path]:
        """What lies in the temporary folder but torch's own, which stays: a folder of inductor's, a module of its RPC's."""
        found = [path for path in (self.folder / "tmp").iterdir() if not path.name.startswith("torchinductor")]
        return [path for path in found if not (path / "_remote_module_non_scriptable.py").exists()]


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[signal.Signals, Running]]:
    """Two analyses at once, each of a model that counts well and hangs when it is measured."""
    running = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        folder = tmp_path_factory.mktemp(number.name)
        act = HANG.format(pid=str(folder / "pid")).replace("\n", "; ")
        (folder / "net.py").write_text(in_worker(act))
        running[number] = Running(
            folder, "analyze", "net.py", "--device", "cpu", "--configs", "default", "--out", "out", "-f", "json"
        )
    yield running
    for each in running.values():
        each.process.kill()
        each.process.wait()
        for pipe in (each.process.stdout, each.process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.mark.jobs
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_ended_analysis_leaves_its_report_and_no_process(
    number: signal.Signals, hanging: dict[signal.Signals, Running]
) -> None:
    running = hanging[number]
    child = running.hanging_child()
    code, out, err = running.end(number)
    assert code == INTERRUPTED, err
    assert "Traceback" not in err
    assert "interrupted: " in err
    wait_for_end(child)
    assert running.left_behind() == []
    shown = json.loads(out)
    assert shown == json.loads((running.folder / "out" / "report.json").read_text())
    assert [run["failure"]["kind"] for run in shown["runs"]] == ["interrupted"]
    assert shown["static"]["params"] == 20
    assert {path.name for path in (running.folder / "out").iterdir()} == {*REPORT_FILES, "traces"}
    assert list((running.folder / "out" / "traces").iterdir()) == []


@pytest.mark.jobs
def test_an_ended_check_takes_its_worktree_away(tmp_path: Path) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*words: str) -> str:
        command = ["git", *identity, "-C", str(tmp_path), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout

    git("init", "-q", "-b", "main")
    (tmp_path / "net.py").write_text(HANG.format(pid=str(tmp_path / "pid")) + net())
    git("add", "net.py")
    git("commit", "-q", "-m", "x")
    (tmp_path / "net.py").write_text(net())
    running = Running(tmp_path, "check", "net.py", "--base", "main", "--no-slice")
    child = running.hanging_child()
    code, out, err = running.end(signal.SIGTERM)
    assert (code, out) == (INTERRUPTED, ""), err
    assert err.endswith("interrupted\n")
    assert "Traceback" not in err
    wait_for_end(child)
    assert running.left_behind() == []
    assert len(git("worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_command_once_and_the_handlers_go(
    name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    number = signal.Signals[name]
    tidied: list[str] = []

    def verb(_: object) -> int:
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        finally:
            os.kill(os.getpid(), number)  # an impatient sender must not disturb the tidying
            tidied.append("all")
        return 0

    monkeypatch.setattr(show, "COMMAND", replace(show.COMMAND, run=verb))
    before = signal.signal(number, signal.SIG_DFL)
    try:
        ended = call(["show", "x"], capfd)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert (ended.code, ended.out, ended.err) == (INTERRUPTED, "", "interrupted\n")
    assert tidied == ["all"]


def test_an_ignored_hangup_stays_ignored(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As under nohup."""

    def verb(_: object) -> int:
        os.kill(os.getpid(), signal.SIGHUP)
        return 0

    monkeypatch.setattr(show, "COMMAND", replace(show.COMMAND, run=verb))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert call(["show", "x"], capfd).code == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)

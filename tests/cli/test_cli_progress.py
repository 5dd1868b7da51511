"""Progress: a line on a terminal that leaves nothing behind, few lines in a log, nothing with --quiet."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

import pytest
from simulated_clock import SimulatedClock
from waiting import AMPLE_S, wait_until

from profiler_kit.cli import progress as progress_module
from profiler_kit.cli.progress import LONG_S, Progress, left_text
from profiler_kit.cli.streams import print_message
from profiler_kit.records.progress import ProcessStart

CONTROL = re.compile(r"\x1b\[(\?25[lh]|[0-9;]*[A-Za-z])|[\r\n]|[^\x1b\r\n]+")


class Terminal:
    """A terminal as stderr: what was written, and what its screen shows."""

    def __init__(self) -> None:
        self._reading, self._writing = pty.openpty()
        self.stderr: TextIO = os.fdopen(self._writing, "w", buffering=1)
        self.written = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self.written += os.read(self._reading, 65536).decode()
            except OSError:  # the other end is closed
                return

    def close(self) -> None:
        self.stderr.close()
        self._reader.join()
        os.close(self._reading)

    @contextlib.contextmanager
    def progress(self, *, quiet: bool = False) -> Iterator[Progress]:
        """Progress with this terminal as stderr. pytest replaces stderr between a fixture and its test."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stderr", self.stderr)
            with Progress(quiet=quiet) as progress:
                yield progress
            assert sys.stderr is self.stderr

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.written)

    def screen(self) -> tuple[list[str], bool]:
        """The lines, without trailing spaces and empty lines, and whether the cursor is visible."""
        lines, row, column, is_visible = [""], 0, 0, True
        for match in CONTROL.finditer(self.written):
            text, control = match.group(), match.group(1)
            if text == "\r":
                column = 0
            elif text == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif control in ("?25l", "?25h"):
                is_visible = control == "?25h"
            elif control == "2K":
                lines[row] = ""
            elif control and control.endswith("A"):
                row = max(0, row - int(control[:-1] or 1))
            elif control is None:
                lines[row] = lines[row].ljust(column)[:column] + text + lines[row][column + len(text) :]
                column += len(text)
        return [line.rstrip() for line in lines if line.strip()], is_visible


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    new = Terminal()
    monkeypatch.setattr(progress_module, "TICK_S", 0.01)
    monkeypatch.setattr(progress_module, "JOIN_S", AMPLE_S)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("CI", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    yield new
    if not new.stderr.closed:
        new.close()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    """The time that progress shows: it stands still but where a test lets it pass."""
    return SimulatedClock().install(monkeypatch)


def start(number: int, **fields: Any) -> ProcessStart:
    return ProcessStart(number=number, count=4, name=f"config{number}", **fields)


class CountedTicks:
    """Counts how often the thread of a `Progress` has looked."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        tick = Progress._tick

        def counted(progress: Progress) -> None:
            tick(progress)
            self.count += 1

        patch.setattr(Progress, "_tick", counted)

    def wait(self, progress: Progress) -> None:
        """Return when the thread has looked at all that was said before, or has ended."""
        seen = self.count
        wait_until(lambda: self.count >= seen + 2 or not progress._thread.is_alive())


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_terminal_shows_what_runs_and_what_remains(terminal: Terminal) -> None:
    with terminal.progress() as progress:
        progress.show("counting")
        terminal.wait_for("  counting")
        progress.start_process(start(2, left_ns=150_000_000_000, is_bound=True))
        progress.show("[2/4] config2: first step")
        terminal.wait_for("left")
    terminal.close()
    last = [line for line in plain(terminal.written).split("\r") if "left" in line][-1]
    assert re.fullmatch(r"\s*0:\d\d  \[2/4\] config2: first step  [━╸╺]{20}  at most 2 min left\s*", last), last


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_the_screen_is_clean_afterwards(terminal: Terminal, error: type[BaseException] | None) -> None:
    before = sys.stdout, sys.stderr

    def work() -> None:
        with terminal.progress() as progress:
            progress.start_process(start(1))
            progress.show("x" * 300)  # longer than the line
            terminal.wait_for("xxx")
            print("said by the model", file=sys.stderr)
            terminal.wait_for("said by the model")
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(error):
            work()
    assert (sys.stdout, sys.stderr) == before
    terminal.close()
    assert terminal.screen() == (["said by the model"], True)
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_a_terminal_that_hangs_up_ends_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = CountedTicks(monkeypatch)
    with terminal.progress() as progress:
        progress.show("counting")
        terminal.wait_for("counting")
        os.dup2(os.open("/dev/full", os.O_WRONLY), terminal.stderr.fileno())
        ticks.wait(progress)


@pytest.mark.parametrize("variable", [("CI", "true"), ("TERM", "dumb")])
def test_some_terminals_are_logs(
    terminal: Terminal, variable: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*variable)
    with terminal.progress() as progress:
        progress.start_process(start(1))
    terminal.close()
    assert terminal.written == "    0 s  [1/4] config1\r\n"


def test_a_log_has_one_line_per_process(
    capfd: pytest.CaptureFixture[str], clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "TICK_S", 0.005)
    ticks = CountedTicks(monkeypatch)
    with Progress(quiet=False) as progress:
        progress.show("short")
        ticks.wait(progress)
        progress.show("counting\x1b[31m")
        clock.sleep(2 * LONG_S)
        ticks.wait(progress)
        for number in (1, 2, 3):
            left_ns = None if number == 1 else 90_000_000_000 // number
            progress.start_process(start(number, left_ns=left_ns, is_bound=number == 2))
            for step in range(50):
                progress.show(f"[{number}/4] config{number}: warm-up step {step + 1}")
            clock.sleep(2 * LONG_S)
            ticks.wait(progress)
        progress.start_process(None)
        clock.sleep(2 * LONG_S)
        ticks.wait(progress)
        progress.show("measuring the peaks")
        clock.sleep(2 * LONG_S)
        ticks.wait(progress)
    assert capfd.readouterr().err.splitlines() == [
        "    2 s  counting\\x1b[31m",
        "    2 s  [1/4] config1",
        "    4 s  [2/4] config2 (at most 45 s left)",
        "    6 s  [3/4] config3 (about 30 s left)",
        "   12 s  measuring the peaks",
    ]


def test_a_message_stays_on_the_screen(terminal: Terminal) -> None:
    with terminal.progress() as progress:
        progress.show("counting")
        terminal.wait_for("counting")
        progress.print("first result:\nslow \x1b[31m[bold]convolution[/bold]")
        terminal.wait_for("convolution")
    terminal.close()
    assert terminal.screen() == (["first result:", "slow \\x1b[31m[bold]convolution[/bold]"], True)


def test_a_message_in_a_log_has_one_time(capfd: pytest.CaptureFixture[str]) -> None:
    with Progress(quiet=False) as progress:
        progress.print("first result:\nA step takes 3 ms.")
    assert capfd.readouterr().err == "    0 s  first result:\n         A step takes 3 ms.\n"


def test_silence(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: Terminal, clock: SimulatedClock
) -> None:
    ticks = CountedTicks(monkeypatch)
    with terminal.progress(quiet=True) as progress:
        progress.show("counting")
        progress.print("first result")
        progress.start_process(start(1))
        clock.sleep(2 * LONG_S)
    terminal.close()
    assert terminal.written == ""
    with Progress(quiet=False, silent_s=5.0) as progress:
        progress.show("counting")
        clock.sleep(2 * LONG_S)
        ticks.wait(progress)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("left_s", "running_s", "is_bound", "text"),
    [
        (None, 0, False, ""),
        (10, 10, False, ""),
        (10, 12, False, ""),
        (10, 3, False, "about 7 s left"),
        (99.4, 0, True, "at most 99 s left"),
        (150, 0, False, "about 2 min left"),
        (3000, 0, False, "about 50 min left"),
    ],
)
def test_the_time_left(left_s: float | None, running_s: float, is_bound: bool, text: str) -> None:
    left_ns = None if left_s is None else round(left_s * 1e9)
    assert left_text(start(1, left_ns=left_ns, is_bound=is_bound), running_s) == text


def test_a_line_for_a_ci_runner_is_escaped(capfd: pytest.CaptureFixture[str]) -> None:
    """GitHub also executes lines of stderr, after any white space."""
    with Progress(quiet=False) as progress:
        progress.print("first result:\n::error::from a name")
    print_message("error: a name\n  ::warning::b\nhint: c::d")
    assert capfd.readouterr().err.splitlines()[1:] == [
        "         \\x3a:error::from a name",
        "error: a name",
        "  \\x3a:warning::b",
        "hint: c::d",
    ]

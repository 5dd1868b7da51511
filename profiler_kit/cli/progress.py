"""Progress on stderr: a bar on a terminal, lines in a log."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from profiler_kit.cli.streams import escape_control_characters

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from profiler_kit.records.progress import ProcessStart

LONG_S: Final = 1.0  # a log shows an activity that runs for so long
TICK_S: Final = 0.125
JOIN_S: Final = 2.0  # for the thread that draws; a terminal that does not accept output must not stop the command
BAR_CHARS: Final = 20
SECONDS_BELOW: Final = 100.0  # shorter times left are shown in seconds


@dataclass(frozen=True)
class _Message:
    """A text that stays."""

    text: str


class Progress:
    """Shows the current activity while the block runs.

    A terminal shows one line, which is erased at the end: the activity, the elapsed time, and while processes measure a bar
    and the time left. A log gets one line for each measuring process, and for each other activity that takes longer than
    `LONG_S`, but none for those in the first `silent_s` seconds of the block.

    One thread writes everything. The caller's thread takes no lock, so that Ctrl-C cannot leave one held.
    """

    def __init__(self, *, quiet: bool, silent_s: float = 0.0) -> None:
        self._quiet = quiet
        self._silent_s = silent_s
        self._start_s = time.monotonic()
        self._events: deque[tuple[float, str | ProcessStart | _Message | None]] = deque()
        self._text, self._text_s, self._is_text_printed = "", 0.0, True
        self._process: ProcessStart | None = None
        self._process_s = 0.0
        self._live: Live | None = None
        self._running = threading.Lock()  # held while the block runs
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        if not self._quiet:
            try:
                if _is_terminal():
                    self._live = _new_live()
                    self._live.start()
                self._running.acquire()
                self._thread.start()
            except BaseException:
                self._stop()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def show(self, text: str) -> None:
        """Make `text` the current activity."""
        from profiler_kit.process.supervision import note_stage

        note_stage(text)
        self._events.append((time.monotonic(), text))

    def start_process(self, process: ProcessStart | None) -> None:
        """Make `process` the measuring process; None after the last one."""
        self._events.append((time.monotonic(), process))

    def print(self, text: str) -> None:
        """Write `text`, which may have several lines, above the line on a terminal or into the log."""
        self._events.append((time.monotonic(), _Message(text)))

    def _stop(self) -> None:
        try:
            if self._running.locked():
                self._running.release()
            if self._thread.is_alive():
                self._thread.join(JOIN_S)
        finally:
            if self._live is not None:
                with contextlib.suppress(OSError):  # the terminal is gone
                    self._live.stop()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # nobody reads stderr anymore
            while not self._running.acquire(timeout=TICK_S):
                self._tick()
            self._read_events()

    def _tick(self) -> None:
        now_s = time.monotonic()
        self._read_events()
        if self._live is not None:
            self._live.update(self._line(now_s), refresh=True)
        elif self._process is None and not self._is_text_printed and now_s >= self._log_time_s():
            self._is_text_printed = True
            self._log(now_s, self._text)

    def _log_time_s(self) -> float:
        return max(self._text_s + LONG_S, self._start_s + self._silent_s)

    def _read_events(self) -> None:
        while self._events:
            event_s, event = self._events.popleft()
            if isinstance(event, _Message):
                self._print(event_s, event.text)
                continue
            if isinstance(event, str):
                if event != self._text:
                    self._text, self._text_s, self._is_text_printed = event, event_s, False
                continue
            self._process, self._process_s = event, event_s
            if event is None:
                self._text, self._is_text_printed = "", True
            elif self._live is None:
                left = left_text(event, 0.0)
                self._log(event_s, f"[{event.place}] {event.name}" + (f" ({left})" if left else ""))

    def _print(self, now_s: float, text: str) -> None:
        if self._live is not None:
            self._live.console.print(escape_control_characters(text), markup=False, highlight=False)
            return
        first, *others = text.splitlines()
        self._log(now_s, first)
        for line in others:
            print(f"{'':9}{escape_control_characters(line)}", file=sys.stderr, flush=True)

    def _log(self, now_s: float, text: str) -> None:
        print(f"{now_s - self._start_s:5.0f} s  {escape_control_characters(text)}", file=sys.stderr, flush=True)

    def _line(self, now_s: float) -> Table:
        """The line on a terminal."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        line = Table.grid(padding=(0, 2, 0, 0))
        if not self._text:
            return line
        # the columns keep their width, except for the activity's, whose text is cut
        text = Text(self._text, no_wrap=True, overflow="ellipsis")
        cells: list[Text | ProgressBar] = [Text(_clock(now_s - self._start_s)), text]
        line.add_column(no_wrap=True)
        line.add_column()
        if self._process is not None:
            done = self._process.number - 1
            cells.append(ProgressBar(total=self._process.count, completed=done, width=BAR_CHARS))
            cells.append(Text(left_text(self._process, now_s - self._process_s)))
            line.add_column(no_wrap=True)
            line.add_column(no_wrap=True)
        line.add_row(*cells)
        return line


def left_text(process: ProcessStart, running_s: float) -> str:
    """The estimated time left, `running_s` seconds after the start of `process`; empty if it is unknown or over."""
    left_s = process.left_ns * 1e-9 - running_s if process.left_ns is not None else 0.0
    if left_s <= 0:
        return ""
    amount = f"{max(1, round(left_s))} s" if left_s < SECONDS_BELOW else f"{round(left_s / 60)} min"
    return f"{'at most' if process.is_bound else 'about'} {amount} left"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02d}"


def _is_terminal() -> bool:
    """Whether stderr is a terminal that a person looks at. Systems of continuous integration set ``CI``."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


def _new_live() -> Live:
    from rich.console import Console
    from rich.live import Live

    return Live(
        console=Console(file=sys.stderr),
        auto_refresh=False,
        transient=True,
        # output of the user's code appears above the line; stdout is only redirected if it is stderr too
        redirect_stdout=sys.stdout is sys.stderr,
    )

"""The parent of a process that compares configurations in turns (`worker.screen`). It starts with the first comparison."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from profiler_kit import process
from profiler_kit.measurement.visits import START_UP_S
from profiler_kit.measurement.worker_process import failure_of, spawn_worker
from profiler_kit.process.protocol import PREPARED, OnProgress
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import Screened, ScreenJob, ScreenRequest
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import dumps, loads
from profiler_kit.records.target import TargetSpec
from profiler_kit.temporary_files import temporary_folder

BUDGETS: Final = 5.0  # that a comparison may take, with building, first steps and checks, before it counts as a hang
MIN_LIMIT_S: Final = 30.0


@dataclass(slots=True, kw_only=True)
class Screen:
    """Compares configurations of `spec` in one process, which is replaced if it ends.

    `ready_s`: when the process was ready for its first comparison, on the monotonic clock.
    """

    spec: TargetSpec
    device: str
    baseline: RunConfig
    on_progress: OnProgress
    ready_s: float = 0.0
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _child: process.Child | None = None
    _waits: threading.Event = field(default_factory=threading.Event)
    _answers: Path = Path()
    _read: int = 0  # answers

    @property
    def is_running(self) -> bool:
        """Whether the next comparison starts no process."""
        return self._child is not None

    def compare(self, base: RunConfig | None, config: RunConfig, *, budget_s: float, checks: bool = True) -> Screened:
        """The turns of `base` and `config`, of at most `budget_s`; without `base`, the checks of `config`.

        A crash or a hang becomes the failure of `config`.
        """
        request = ScreenRequest(base=base, config=config, budget_s=budget_s, checks=checks)
        limit_s = max(MIN_LIMIT_S, BUDGETS * budget_s)
        child = self._start()
        if not self._waits.is_set():
            child.exits_within(START_UP_S, unless=self._waits.is_set)
            self.ready_s = time.monotonic()
        self._waits.clear()
        child.send_line(dumps(request, indent=None).strip(), is_last=False)
        child.exits_within(limit_s, unless=self._waits.is_set)
        answer = self._answer()
        if answer is None:
            outcome = child.finish(0.0)
            answer = Screened(run=ConfigRun(config=config, failure=failure_of(outcome, limit_s)), is_over=True)
        if answer.is_over:
            self.close()
        return answer

    def close(self) -> None:
        """End the process; the next comparison starts another one."""
        self._child = None
        self._stack.close()

    def _start(self) -> process.Child:
        if self._child is None:
            folder = self._stack.enter_context(temporary_folder("screen"))
            self._answers, self._read = folder / "answers.jsonl", 0
            self._waits.clear()
            job = ScreenJob(spec=self.spec, config=self.baseline, device=self.device, answers=str(self._answers))
            self._child = self._stack.enter_context(
                spawn_worker("screen", job, folder, talks=True, on_progress=self._on_worker_progress)
            )
        return self._child

    def _on_worker_progress(self, text: str) -> None:
        if text == PREPARED:
            self._waits.set()
        else:
            self.on_progress(text)

    def _answer(self) -> Screened | None:
        """The next answer; None if the process has written none."""
        lines = self._answers.read_text(encoding="utf-8").splitlines() if self._answers.exists() else []
        if len(lines) <= self._read:
            return None
        self._read += 1
        return loads(Screened, lines[self._read - 1], "the answer of the screen")

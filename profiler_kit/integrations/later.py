"""Lets a program run without hooks until a request comes, and records its next steps then, as often as it is asked."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from typing import Final

from profiler_kit.integrations.attachment import STARTED, Request, last_request, register
from profiler_kit.integrations.program import AfterImport, Program
from profiler_kit.integrations.program_session import ProgramSession, RunOptions

POLL_S: Final = 0.5  # between two looks at the report folder


class Later:
    """Waits in a thread of its own for requests in the report folder, and starts a session for each, one at a time."""

    def __init__(self, program: Program, options: RunOptions) -> None:
        self._program, self._options = program, options
        self._process, self._is_over = os.getpid(), threading.Event()
        self._session: ProgramSession | None = None
        self._handled: Request | None = None

    def run(self) -> None:
        """Run the program in this process. What it raises is raised."""
        self._options.out.mkdir(parents=True, exist_ok=True)
        self._handled = last_request(self._options.out)  # of an earlier run with the same folder
        register(self._options.out, self._program.name)
        AfterImport("torch", self._wait).install()
        self._program.run(at_end=self._end)

    def _wait(self) -> None:
        from profiler_kit.recording.optimizer_steps import STEPS

        STEPS.install(stays=True)
        threading.Thread(target=self._serve, name="profiler_kit", daemon=True).start()

    def _serve(self) -> None:
        while not self._is_over.wait(POLL_S):
            wanted = last_request(self._options.out)
            if wanted is None or wanted == self._handled or (self._session is not None and not self._session.is_over):
                continue
            self._handled = wanted
            time.sleep(max(0.0, min(wanted.at_s - time.time(), 60.0)))
            self._record(wanted)

    def _record(self, wanted: Request) -> None:
        from profiler_kit.recording.optimizer_steps import STEPS

        folder = self._options.out / wanted.name
        options = replace(self._options, out=folder)
        # a program that trains has no steps that are calls
        self._session = ProgramSession(self._program, options, is_late=True, watches_calls=not STEPS.have_begun)
        self._session.watch()
        folder.mkdir(exist_ok=True)
        (folder / STARTED).touch()

    def _end(self) -> None:
        """The program is over: write the report on a recording that has begun."""
        if os.getpid() == self._process:
            self._is_over.set()
            if self._session is not None:
                self._session.end()

"""Calls of tools: each runs a command in a process of its own, which writes its files into a new folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from profiler_kit import process
from profiler_kit.errors import BUDGET_BROKEN, OK, KitError, UsageError
from profiler_kit.mcp_server.access import Access
from profiler_kit.mcp_server.answers import cut
from profiler_kit.mcp_server.tools import Tool

FILES: Final = ("report.json", "report.md", "report.html")  # of an answer; the first one is the record
LOG: Final = "log.txt"  # what the command and the model wrote on stderr, and the model on stdout
ERROR_LINES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """What all calls share: the tools, the files that they may name, and the folder of their results.

    `runs_code`: False refuses a call that would run code of a model.
    """

    tools: tuple[Tool, ...]
    access: Access
    out: Path
    runs_code: bool = True

    def offered(self) -> tuple[Tool, ...]:
        """The tools that a client can call."""
        return tuple(tool for tool in self.tools if self.runs_code or not tool.runs_user_code or tool.settings.read)

    def prepare(self, name: str, arguments: Mapping[str, object]) -> Call:
        """The call of the tool `name`. Raises KitError for arguments that it refuses."""
        tool = next((tool for tool in self.offered() if tool.name == name), None)
        if tool is None:
            names = ", ".join(tool.name for tool in self.offered())
            raise UsageError(f"no tool {name!r}", hint=f"use one of: {names}")
        texts = tool.texts(arguments)
        for text in (text for words in texts.values() for text in words):
            self.access.require(text)
        if tool.runs_user_code and not self.runs_code:
            self._require_files(tool, texts)
        folder = self._new_folder(name)
        outputs = [f"--output={folder / file}" for file in FILES]
        options, positional = tool.command(texts)
        words = (tool.settings.verb, *options, "--quiet", *outputs, "--", *positional)
        return Call(argv=tuple(process.own_command(*words)), working_folder=self.access.roots[0], folder=folder)

    def _require_files(self, tool: Tool, texts: Mapping[str, Sequence[str]]) -> None:
        """Raise UsageError unless the call reads reports and traces alone."""
        from profiler_kit.pipeline.compare import are_traces, is_saved

        paths = [self.access.path(texts[name][0]) for name in tool.settings.read]
        is_read = all(path.exists() for path in paths) and (
            are_traces(str(paths[0]), str(paths[1])) or all(is_saved(str(path)) for path in paths)
        )
        if not is_read:
            raise UsageError(
                "this server runs no code of models",
                where=tool.name,
                hint="give reports or traces, or start it without --no-code",
            )

    def _new_folder(self, name: str) -> Path:
        """A new folder for the files of a call: ``count_1``, ``count_2``."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            number = 1
            while True:
                folder = self.out / f"{name}_{number}"
                try:
                    folder.mkdir()
                except FileExistsError:
                    number += 1
                else:
                    return folder
        except OSError as error:
            raise UsageError(
                f"cannot create a folder: {error.strerror}",
                where=str(self.out),
                hint="start the server with another --out",
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a tool: the command `argv`, which writes its files into `folder`."""

    argv: tuple[str, ...]
    working_folder: Path
    folder: Path

    @contextmanager
    def start(self) -> Iterator[process.Child]:
        """The running command. It is stopped when the block is left. Removes the folder if nothing in it helps anyone."""
        try:
            plain = {**os.environ, "NO_COLOR": "1"}  # errors are found by their label
            with process.start_child(self.argv, cwd=self.working_folder, env=plain, log=self.folder / LOG) as child:
                yield child
        finally:
            if not self._record.exists() and not self._log_explains():
                shutil.rmtree(self.folder, ignore_errors=True)

    def answer(self, outcome: process.Outcome) -> dict[str, Any]:
        """The exit code, the files, and the record cut to a size. Raises KitError if the command has written no record."""
        message, hint = outcome.error
        if not self._record.exists():
            log = f"; its messages are in {self.folder / LOG}" if self._log_explains() else ""
            raise KitError(f"{message}{log}", hint=hint or None)
        shown, lengths = cut(json.loads(self._record.read_text(encoding="utf-8", errors="replace")))
        failed = outcome.returncode not in (OK, BUDGET_BROKEN)
        return {
            "exit_code": outcome.returncode,
            **({"error": {"message": message, "hint": hint}} if failed else {}),
            "files": [str(file) for file in self._files()],
            "report": shown,
            "rows_in_file": lengths,
        }

    @property
    def _record(self) -> Path:
        return self.folder / FILES[0]

    def _log_explains(self) -> bool:
        """Whether the log has more than an error and its hint."""
        log = self.folder / LOG
        return log.exists() and len(log.read_bytes().splitlines()) > ERROR_LINES

    def _files(self) -> list[Path]:
        """The files with content."""
        files = (self.folder / name for name in (*FILES, LOG))
        return [file for file in files if file.exists() and file.stat().st_size]

"""Expected errors: a message, a place, a hint and an exit code.

`cli` prints an expected error as:

    error: models/net.py:41: build() returned None
    hint: return the module, or (module, inputs)

Any other exception is a bug in profiler_kit and is printed with its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable

OK, BUDGET_BROKEN, USAGE, TARGET_FAILED, NOT_COMPARABLE = 0, 1, 2, 3, 4
INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """The end of a message about an unknown `name`: ``; did you mean benchmark?``; empty if no choice is near."""
    from difflib import get_close_matches  # most commands fail in no name

    near = get_close_matches(name, list(choices), n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


class KitError(Exception):
    """An expected failure: what happened, where, and what to do.

    `message` describes the failure. `where` is a place that a user can open (``file.py:41``, ``report.json: runs[2]``).
    `hint` is the next thing to do. `exit_code` is the exit status of the command.
    """

    exit_code: int = TARGET_FAILED

    def __init__(self, message: str, *, hint: str | None = None, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    @property
    def place_and_message(self) -> str:
        """What happened, and where."""
        return f"{self.where}: {self.message}" if self.where else self.message

    def __str__(self) -> str:
        text = self.place_and_message
        return f"{text}\nhint: {self.hint}" if self.hint else text


class UsageError(KitError):
    """The command line or the arguments of a call are invalid."""

    exit_code = USAGE


class TargetError(KitError):
    """The user's model could not be found, built or run, or its inputs could not be created."""

    exit_code = TARGET_FAILED


class UncountedError(KitError):
    """Ops without a FLOP formula ran although the user required a formula for every op (``--strict``)."""

    exit_code = BUDGET_BROKEN


class TraceError(KitError):
    """A trace file could not be read."""

    exit_code = TARGET_FAILED


class ReportError(KitError):
    """A saved report could not be read or written."""

    exit_code = TARGET_FAILED


class NotComparableError(KitError):
    """Two reports or revisions have nothing in common that can be compared."""

    exit_code = NOT_COMPARABLE

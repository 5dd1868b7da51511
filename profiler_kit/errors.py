"""Every error a user is expected to meet: message, where, hint, and the exit code it ends in.

An expected error is printed in one place (`cli`) as::

    error: models/net.py:41: build() returned None
    hint: return the module, or (module, inputs)

Anything that is not a `KitError` is a bug of ours and shows its traceback.
"""

from __future__ import annotations

OK, BUDGET_BROKEN, USAGE, TARGET_FAILED, NOT_COMPARABLE = 0, 1, 2, 3, 4
INTERRUPTED = 130  # what shells give for 128 + SIGINT


class KitError(Exception):
    """An expected failure, told in one message: what happened, where, what to do.

    `message` says what happened, `where` is a place a user can open (``file.py:41``, ``report.json: runs[2]``),
    `hint` is the next thing to do, `exit_code` what the command ends in.
    """

    exit_code: int = TARGET_FAILED

    def __init__(self, message: str, *, hint: str | None = None, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\nhint: {self.hint}" if self.hint else text


class UsageError(KitError):
    """The command line, or a call's arguments, do not make sense."""

    exit_code = USAGE


class TargetError(KitError):
    """The user's model could not be found, built, fed or run."""

    exit_code = TARGET_FAILED


class UncountedError(KitError):
    """Ops without a formula ran, and the user asked that none may."""

    exit_code = BUDGET_BROKEN


class TraceError(KitError):
    """A trace file could not be read."""

    exit_code = TARGET_FAILED


class ReportError(KitError):
    """A saved report could not be read or written."""

    exit_code = TARGET_FAILED


class NotComparableError(KitError):
    """Two reports, or two revisions, have nothing that can be compared."""

    exit_code = NOT_COMPARABLE

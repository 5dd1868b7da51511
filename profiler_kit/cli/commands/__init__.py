"""The commands of the command line. Drop-in: each file of this folder defines one ``COMMAND``, a `Command`.

All files are imported for every command line, including ``--help``: slow imports belong inside functions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from profiler_kit._family import members
from profiler_kit.errors import KitError

RUNS_CODE: Final = "Runs the code of the models that it is given; traces and reports are only read."
RUNS_NO_CODE: Final = "Runs no code of models."
Outcome = int | Callable[[], None]  # an exit status, or the user's program, which takes over the process


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command: its `name`, a one-line `summary` and `examples` for ``--help``, its options and its action.

    `add_options` is called only if the command is on the command line, so it may import registries. `run` takes the
    parsed options, prints and writes the results, and returns the exit status, or a program that takes over.
    `runs_user_code`: whether it may run code of
    the user, and so needs a process that watches it. `report_failure` writes the requested files and raises the error if
    that process ends without a result.
    """

    name: str
    summary: str
    examples: tuple[str, ...]
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Outcome]
    runs_user_code: bool = True
    report_failure: Callable[[argparse.Namespace, KitError], None] | None = None

    @property
    def trust(self) -> str:
        """Whether it runs code of models, in a sentence."""
        return RUNS_CODE if self.runs_user_code else RUNS_NO_CODE


def commands() -> tuple[Command, ...]:
    """All commands, in the order of their file names. Raises TypeError for a file without ``COMMAND``."""
    modules = members(sys.modules[__name__])
    for module in modules:
        if not isinstance(getattr(module, "COMMAND", None), Command):
            raise TypeError(f"{module.__file__}: expected COMMAND = Command(...)")
    return tuple(module.COMMAND for module in modules)

"""The verbs of the command line. Drop-in: one file per verb, found by being here. A file holds ``COMMAND``, a `Command`.

All files are imported for every command line, ``--help`` included: a file imports what is slow inside its functions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

from profiler_kit._family import members


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A verb: its `name`, a one-line `summary` and `examples` for ``--help``, its options, and what it does.

    `add_options` is called only when the verb is on the command line, so it may import registries. `run` takes the
    parsed options, prints and writes, and returns the exit status.
    """

    name: str
    summary: str
    examples: tuple[str, ...]
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def commands() -> tuple[Command, ...]:
    """All verbs, in the order of their files' names. Raises TypeError for a file that holds none."""
    found = []
    for member in members(sys.modules[__name__]):
        command = getattr(member, "COMMAND", None)
        if not isinstance(command, Command):
            raise TypeError(f"{member.__file__}: expected COMMAND = Command(...)")
        found.append(command)
    return tuple(found)

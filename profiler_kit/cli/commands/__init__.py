"""The verbs of the command line. Drop-in: one file per verb, found by being here. A file holds ``COMMAND``, a `Command`.

All files are imported for every command line, ``--help`` included: slow imports go inside its functions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

from profiler_kit._family import members


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A verb: its `name`, a one-line `summary` and `examples` for ``--help``, its options, and its action.

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
    verbs = members(sys.modules[__name__])
    for verb in verbs:
        if not isinstance(getattr(verb, "COMMAND", None), Command):
            raise TypeError(f"{verb.__file__}: expected COMMAND = Command(...)")
    return tuple(verb.COMMAND for verb in verbs)

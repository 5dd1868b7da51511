"""The command line's grammar, from the verbs in `commands/`. Built without torch, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final, NoReturn

from profiler_kit._version import VERSION
from profiler_kit.cli.commands import commands
from profiler_kit.errors import UsageError

DESCRIPTION: Final = "Where a PyTorch model's FLOPs, memory and time go, and why."
EXIT_STATUS: Final = """\
exit status: 0 ok, 1 a budget is broken or (--strict) an op has no formula, 2 usage,
  3 the target or a trace could not be loaded or run, 4 nothing comparable, 130 interrupted (what was measured before is kept)
"""


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are ours: one message with a hint, exit status 2."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError where argparse would print its usage and exit."""
        raise UsageError(message, hint=f"{self.prog} --help shows what there is")


def parser(words: Sequence[str]) -> Parser:
    """The parser of the command line `words`; the parsed namespace's `command` is the `Command` to run.

    Every verb is listed. Only the options of the verb in `words` are built, which are most of the work.
    """
    verb = next((word for word in words if not word.startswith("-")), None)
    members = commands()
    examples = "\n".join(f"  profiler-kit {example}" for command in members for example in command.examples)
    top = Parser(
        prog="profiler-kit",
        description=DESCRIPTION,
        epilog=f"examples:\n{examples}\n\n{EXIT_STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"profiler-kit {VERSION}")
    verbs = top.add_subparsers(dest="verb", metavar="COMMAND", required=True, parser_class=Parser)
    for command in members:
        sub = verbs.add_parser(command.name, help=command.summary)
        sub.set_defaults(command=command)
        if command.name == verb:
            command.add_options(sub)
    return top

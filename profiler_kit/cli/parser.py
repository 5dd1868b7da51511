"""The argument parser, built from the commands in `commands/`. It never imports torch, so that ``--help`` is fast."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Final, NoReturn

from profiler_kit._version import VERSION
from profiler_kit.cli.commands import Command, commands
from profiler_kit.command_lines import kit_command
from profiler_kit.errors import UsageError, did_you_mean

DESCRIPTION: Final = "Show where a PyTorch model's FLOPs, memory and time go, and why."
EXIT_STATUS: Final = """\
exit status:
  0    success
  1    a budget is exceeded, or --strict found an op without a formula
  2    the command line is invalid
  3    the target or a trace could not be loaded or run, or its code ended the process
  4    there is nothing to compare
  130  interrupted; finished measurements are kept
"""


_UNKNOWN: Final = re.compile(
    r"(?:unrecognized arguments: (?P<option>-[\w-]+)|.*invalid choice: '(?P<choice>[^']*)' \(choose from (?P<choices>.*)\))"
)


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises UsageError (exit status 2) for invalid arguments.

    `chosen`: the parser of the command on the command line, where that is known.
    """

    chosen: Parser | None = None

    def error(self, message: str) -> NoReturn:
        """Raise UsageError, where argparse would print its usage and exit."""
        parser = self.chosen or self
        unknown = _UNKNOWN.match(message)
        if unknown is not None:
            choices = unknown["choices"] or parser.format_usage()
            message += did_you_mean(unknown["option"] or unknown["choice"], re.findall(r"[\w-]+", choices))
        raise UsageError(message, hint=f"run {kit_command(*parser.prog.split()[1:], '--help')}")


def described(command: Command) -> str:
    """What `command` does, and whether it runs the code of models."""
    summary = f"{command.summary[:1].upper()}{command.summary[1:]}."
    return f"{summary} {command.trust}" if command.runs_user_code else summary


def build_parser(arguments: Sequence[str]) -> Parser:
    """The parser for the command line `arguments`. The `command` of the parsed namespace is the `Command` to run.

    All commands are listed, but only the options of the command in `arguments` are built, because that is most of the work.
    """
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    all_commands = commands()
    examples = "\n".join(f"  profiler-kit {example}" for command in all_commands for example in command.examples)
    main_parser = Parser(
        prog="profiler-kit",
        description=DESCRIPTION,
        epilog=f"examples:\n{examples}\n\n{EXIT_STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    main_parser.add_argument("--version", action="version", version=f"profiler-kit {VERSION}")
    subparsers = main_parser.add_subparsers(dest="verb", metavar="COMMAND", required=True, parser_class=Parser)
    for command in all_commands:
        sub = subparsers.add_parser(command.name, help=command.summary, description=described(command))
        sub.set_defaults(command=command)
        if command.name == name:
            command.add_options(sub)
            main_parser.chosen = sub
    return main_parser

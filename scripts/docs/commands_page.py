"""The reference of the command line, from its parsers: every command with every option."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.cli.commands import Command, commands
from profiler_kit.cli.parser import EXIT_STATUS, Parser, described
from profiler_kit.render.markdown import code, escape

GENERAL: Final = "options"  # argparse's name of the group without a title
MAX_VALUE_CHARS: Final = 24  # longer lists of choices are part of the meaning, so that the first column stays narrow


@dataclass(frozen=True, slots=True)
class Option:
    """One argument of a command: the group of ``--help``, how it is written, and its meaning."""

    group: str
    names: tuple[str, ...]
    value: str
    meaning: str

    def row(self) -> str:
        """Its row of a Markdown table, without the outer bars."""
        written = f"{', '.join(self.names)} {self.value}".strip()
        return f"{code(written)} | {escape(self.meaning)}"


def options_of(command: Command) -> tuple[Option, ...]:
    """All arguments of `command` in the order of ``--help``, without ``--help`` itself."""
    parser = Parser(prog=f"profiler-kit {command.name}", formatter_class=argparse.HelpFormatter)
    command.add_options(parser)
    formatter = argparse.HelpFormatter(parser.prog)
    options = []
    for group in parser._action_groups:
        for action in group._group_actions:
            if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
                continue
            metavar = formatter._metavar_formatter(action, action.dest.upper())
            value = "" if action.nargs == 0 else formatter._format_args(action, metavar(1)[0])
            names = tuple(action.option_strings)
            meaning = formatter._expand_help(action) if action.help else ""
            if action.choices and len(value) > MAX_VALUE_CHARS:
                value = "NAME"
                meaning = f"{', '.join(map(str, action.choices))}: {meaning}"
            options.append(Option(group.title or GENERAL, names, value, meaning))
    return tuple(options)


def option_table(options: tuple[Option, ...], header: str) -> str:
    """A Markdown table of `options`."""
    rows = "\n".join(f"| {option.row()} |" for option in options)
    return f"| {header} | meaning |\n|---|---|\n{rows}"


def exit_status_table() -> str:
    """The exit statuses as a Markdown table."""
    lines = [line.split(maxsplit=1) for line in EXIT_STATUS.splitlines()[1:]]
    return "| status | meaning |\n|--:|---|\n" + "\n".join(f"| {status} | {meaning} |" for status, meaning in lines)


def command_parts() -> dict[str, str]:
    """The parts of the page: `commands`, a section for each; `shared`, the options that several take; `statuses`."""
    options = {command: options_of(command) for command in commands()}
    uses = Counter(option for own in options.values() for option in own if option.names)
    shared = {option: None for own in options.values() for option in own if uses[option] > 1}
    groups = dict.fromkeys(option.group for option in shared)
    return {
        "commands": "\n\n".join("\n\n".join(_section(command, own, shared)) for command, own in options.items()),
        "shared": "\n\n".join(
            f"### {_title(group)}\n\n"
            + option_table(tuple(option for option in shared if option.group == group), "option")
            for group in groups
        ),
        "statuses": exit_status_table(),
    }


def _title(group: str) -> str:
    """The heading of a group of shared options: ``tables`` are "Table options"."""
    return f"{'General' if group == GENERAL else group.removesuffix('s').capitalize()} options"


def _section(command: Command, options: tuple[Option, ...], shared: dict[Option, None]) -> Iterator[str]:
    """The parts of the section of `command`."""
    yield f"## {command.name}"
    yield described(command)
    yield "```\n" + "\n".join(f"profiler-kit {example}" for example in command.examples) + "\n```"
    arguments = tuple(option for option in options if not option.names)
    if arguments:
        yield option_table(arguments, "argument")
    own = tuple(option for option in options if option.names and option not in shared)
    if own:
        yield option_table(own, "option")
    links = []
    for group in dict.fromkeys(option.group for option in options if option in shared):
        names = (code(option.names[-1]) for option in options if option in shared and option.group == group)
        links.append(f"- [{_title(group)}](#{_title(group).lower().replace(' ', '-')}): {', '.join(names)}")
    yield "\n".join(links)

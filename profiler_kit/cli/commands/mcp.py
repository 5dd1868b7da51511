"""The command `mcp`: commands of this package as tools for coding assistants."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit import errors
from profiler_kit.cli import output
from profiler_kit.cli.commands import Command, commands
from profiler_kit.command_lines import install_command
from profiler_kit.errors import UsageError

if TYPE_CHECKING:
    from profiler_kit.mcp_server.tools import Tool

DEFAULT_OUT: Final = Path("profiler_kit_out") / "mcp"  # in the first root


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the limits of the server."""
    parser.add_argument(
        "--root", action="append", default=[], type=Path, metavar="FOLDER",
        help="requests may name files in this folder alone; relative paths start at the first one (default: the working "
        "folder; repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"folder of the reports (default: {DEFAULT_OUT} in the first --root)"
    )
    parser.add_argument(
        "--no-code",
        action="store_true",
        help="run no code of models: only traces and saved reports are read",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until stdin ends. Raises UsageError without the SDK, or for a folder that cannot be used."""
    try:
        from profiler_kit.mcp_server.server import serve
    except ImportError as error:
        raise UsageError(
            "the package mcp, version 2 or newer, is not installed", hint=install_command("profiler-kit[mcp]")
        ) from error
    from profiler_kit.mcp_server.access import Access
    from profiler_kit.mcp_server.calls import Calls

    roots = tuple(_folder(root) for root in options.root or [Path()])
    out = (options.out or roots[0] / DEFAULT_OUT).resolve()
    output.check_folder(out, "--out")
    interrupted = serve(
        Calls(tools=tools(), access=Access(roots=(*roots, out)), out=out, runs_code=not options.no_code)
    )
    return errors.INTERRUPTED if interrupted else errors.OK


def tools() -> tuple[Tool, ...]:
    """The tools, with the options of their commands."""
    from profiler_kit.cli.parser import Parser
    from profiler_kit.mcp_server.tools import TOOLS, Tool

    verbs = {command.name: command for command in commands()}
    parsers = {settings.verb: Parser(prog=settings.verb) for settings in TOOLS}
    for verb, parser in parsers.items():
        verbs[verb].add_options(parser)
    return tuple(
        Tool(
            settings=settings,
            parser=parsers[settings.verb],
            summary=verbs[settings.verb].summary,
            trust=verbs[settings.verb].trust,
            runs_user_code=verbs[settings.verb].runs_user_code,
        )
        for settings in TOOLS
    )


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError("no such folder", where=str(path), hint="give an existing folder with --root")
    return path.resolve()


COMMAND: Final = Command(
    name="mcp",
    summary="serve count, inspect, compare, check and findings to coding assistants (Model Context Protocol)",
    examples=("mcp --no-code",),
    add_options=add_options,
    run=run,
    runs_user_code=False,
)

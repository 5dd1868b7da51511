"""The command `init`: write budgets for today's figures into pyproject.toml."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler_kit import errors
from profiler_kit.cli import output
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import TARGET_HELP, add_target_options, limit_command, target_spec
from profiler_kit.cli.progress import Progress
from profiler_kit.command_lines import kit_command


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the target and its name."""
    parser.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    parser.add_argument(
        "--name", metavar="NAME", help="name of the target in pyproject.toml (default: of the file and the class)"
    )
    parser.add_argument("--gpu", metavar="NAME", help="device of the target, for predicted memory and step time")
    add_target_options(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print no progress")


def run(options: argparse.Namespace) -> int:
    """Count the target, add its tables to pyproject.toml and print them."""
    from profiler_kit.pipeline.budget_files import add_budgets, require_new_target
    from profiler_kit.pipeline.count import count_spec

    limit_command(options)
    spec = target_spec(options, allow_guess=False)
    name = options.name or output.folder_name(options.target)
    require_new_target(name, Path.cwd())
    with output.redirect_stdout_to_stderr(), Progress(quiet=options.quiet, silent_s=3.0) as progress:
        report = count_spec(spec, gpu=options.gpu, on_progress=progress.show)
        change = add_budgets(report, spec, name, options.gpu, Path.cwd())
    with output.stdout_errors():
        print(f"added to {change.file_name}:\n")
        print("\n".join(change.lines))
        print(f"\nnext: {kit_command('check', name)}")
    return errors.OK


COMMAND = Command(
    name="init",
    summary="write budgets for a target's figures of today into pyproject.toml",
    examples=("init models/net.py:Net -i 8,3,224,224",),
    add_options=add_options,
    run=run,
)

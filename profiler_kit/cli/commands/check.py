"""The command `check`: the pre-merge gate. Compares static figures with a base and applies budgets."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler_kit.cli import output
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import (
    TARGET_HELP,
    add_convention_options,
    add_output_options,
    add_target_options,
    target_spec,
)
from profiler_kit.cli.progress import Progress


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of target, base, budgets and output."""
    parser.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    parser.add_argument(
        "--base",
        metavar="REV",
        help="git revision or report.json to compare with (default: merge base with the main branch)",
    )
    parser.add_argument(
        "--budget", action="append", default=[], metavar="METRIC=LIMIT",
        help="limit of a metric, for example flops=+10%% (relative to the base) or params=26M (repeatable)",
    )  # fmt: skip
    add_target_options(parser)
    add_convention_options(parser, strict=True)
    add_output_options(parser)


def run(options: argparse.Namespace) -> int:
    """Check the target against its budgets and return the exit status of the verdict."""
    from profiler_kit.pipeline.check import check_target
    from profiler_kit.records.uncounted import require_counted
    from profiler_kit.report.comparison import check_document

    output.check_options(options, inputs=[options.target, options.base or "", *options.input])
    command = ("check", "", *(("--base", options.base) if options.base is not None else ()))
    with output.redirect_stdout_to_stderr(), Progress(quiet=options.quiet) as progress:
        result, head = check_target(
            target_spec(options, allow_guess=False, command=command),
            [options.target, *_target_arguments(options)],
            name=output.folder_name(options.target),
            folder=Path.cwd(),
            base=options.base,
            budgets=options.budget,
            strict=options.strict,
            convention=options.convention,
            on_progress=progress.show,
        )
    output.emit(check_document(result), options)
    if options.strict:
        require_counted(head)
    return result.exit_code


def _target_arguments(options: argparse.Namespace) -> list[str]:
    """The target options as command line arguments again, because a separate process counts the base."""
    from profiler_kit.records.counts import DEFAULT_CONVENTION

    arguments: list[str] = []
    for text in options.input:
        arguments += ["-i", text]
    for text in options.kw:
        arguments += ["--kw", text]
    arguments += ["--mode", options.mode, "--seed", str(options.seed)]
    for name in ("loss", "optimizer", "dtype", "amp", "batch"):
        value = getattr(options, name)
        if value is not None:
            arguments += [f"--{name}", str(value)]
    if options.convention != DEFAULT_CONVENTION:
        arguments += ["--convention", options.convention]
    flags = {"--channels-last": options.channels_last, "--no-slice": options.no_slice}
    return [*arguments, *(flag for flag, is_set in flags.items() if is_set)]


COMMAND = Command(
    name="check",
    summary="compare with a git revision and apply budgets, as a pre-merge gate",
    examples=("check my_model.py --base main --budget flops=+10%",),
    add_options=add_options,
    run=run,
)

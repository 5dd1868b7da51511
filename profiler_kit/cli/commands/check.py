"""The verb `check`: the pre-merge gate. Static figures of both sides, budgets, exit status."""

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


def add_options(sub: argparse.ArgumentParser) -> None:
    """Adds the target, the base, the budgets, and where results go."""
    sub.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    sub.add_argument("--base", metavar="REV", help="git revision or report.json to compare with (default: merge base)")
    sub.add_argument(
        "--budget", action="append", default=[], metavar="METRIC=LIMIT", help="flops=+10%%, params=26M … (repeatable)"
    )
    add_target_options(sub)
    add_convention_options(sub, strict=True)
    add_output_options(sub)


def run(options: argparse.Namespace) -> int:
    """Judges the target by its budgets, and returns the verdict's exit status."""
    from profiler_kit.pipeline.check import check_target
    from profiler_kit.records.strict import require_counted
    from profiler_kit.report.comparison import check_document

    output.check(options)
    command = ("check", "", *(("--base", options.base) if options.base is not None else ()))
    with output.foreign_output_on_stderr(), Progress(quiet=options.quiet) as progress:
        result, head = check_target(
            target_spec(options, allow_guess=False, command=command),
            [options.target, *_target_words(options)],
            name=output.slug(options.target),
            folder=Path.cwd(),
            base=options.base,
            budgets=options.budget,
            strict=options.strict,
            convention=options.convention,
            say=progress.say,
        )
    output.emit(check_document(result), options)
    if options.strict:
        require_counted(head)
    return result.exit_code


def _target_words(options: argparse.Namespace) -> list[str]:
    """The options that shape the target, as words of a command line again: the base is counted by a process of its own."""
    from profiler_kit.records.counts import DEFAULT_CONVENTION

    words: list[str] = []
    for text in options.input:
        words += ["-i", text]
    for text in options.kw:
        words += ["--kw", text]
    words += ["--mode", options.mode, "--seed", str(options.seed)]
    for name in ("loss", "optimizer", "dtype", "amp", "batch"):
        value = getattr(options, name)
        if value is not None:
            words += [f"--{name}", str(value)]
    if options.convention != DEFAULT_CONVENTION:
        words += ["--convention", options.convention]
    return [*words, "--channels-last"] if options.channels_last else words


COMMAND = Command(
    name="check",
    summary="pre-merge gate: compare with a git revision and apply budgets",
    examples=("check my_model.py --base main --budget flops=+10%",),
    add_options=add_options,
    run=run,
)

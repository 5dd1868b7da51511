"""The verb `check`: the pre-merge gate. Static figures of both sides, budgets, exit status."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from profiler_kit import errors
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
    from profiler_kit.gate import base, budgets
    from profiler_kit.pipeline.count import count_spec
    from profiler_kit.records.strict import require_counted, uncounted_text
    from profiler_kit.report.comparison import check_document

    output.check(options)
    limits = budgets.load_budgets(Path.cwd(), output.slug(options.target), options.budget)
    if options.strict:
        limits = budgets.with_strictness(limits)
    before, missing = None, None
    with output.foreign_output_on_stderr(), Progress(quiet=options.quiet) as progress:
        progress.say("counting")
        command = ("check", "", *(("--base", options.base) if options.base is not None else ()))
        head = count_spec(target_spec(options, allow_guess=False, command=command), convention=options.convention)
        progress.say("counting the base")
        try:
            before = base.base_report(options.base, [options.target, *_target_words(options)], repo=Path.cwd())
        except errors.NotComparableError as error:  # the target is new: limits that need no base still hold
            if not limits:
                raise
            missing = error
    result = budgets.check(before, head, limits)
    if missing is not None:
        result = replace(result, notes=(*result.notes, missing.message))
    if options.strict and head.static is not None:  # in the comment on the change too
        uncounted = (f"No formula for {uncounted_text(op)}" for op in head.static.uncounted)
        result = replace(result, notes=(*result.notes, *uncounted))
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

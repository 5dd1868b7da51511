"""The verb `count`: FLOPs, MACs, parameters and memory, without a device."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from profiler_kit import errors
from profiler_kit.cli import choices, output
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import (
    TARGET_HELP,
    add_convention_options,
    add_output_options,
    add_table_options,
    add_target_options,
    target_spec,
)
from profiler_kit.cli.progress import Progress
from profiler_kit.cli.values import size, variations

if TYPE_CHECKING:
    from profiler_kit.records.counts import MemoryQuestions


def add_options(sub: argparse.ArgumentParser) -> None:
    """Adds the target, memory, conventions, the roofline, and where results go."""
    sub.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    add_target_options(sub, several_batches=True)
    _add_memory_options(sub)
    add_convention_options(sub, strict=True, cross_check=True)
    group = sub.add_argument_group("roofline")
    group.add_argument(
        "--hardware", metavar="NAME",
        help=f"bound each layer and op by the datasheet of this device: {choices.cards()}; "
        "or here: by the measured peaks of this machine's device",
    )  # fmt: skip
    add_output_options(sub)
    add_table_options(sub)


def run(options: argparse.Namespace) -> int:
    """Counts the target. With ``--strict`` raises UncountedError for ops without a formula."""
    from profiler_kit.pipeline.count import count_spec
    from profiler_kit.records.strict import require_counted

    output.check(options)
    with output.foreign_output_on_stderr(), Progress(quiet=options.quiet) as progress:
        progress.say("counting")
        report = count_spec(
            target_spec(options),
            convention=options.convention,
            cross_check=options.cross_check,
            hardware=options.hardware,
            gpu=options.gpu,
            asked=_memory_questions(options),
            say=progress.say,
        )
    output.warn(report)
    output.emit_report(report, options)
    if options.strict:
        require_counted(report)
    return errors.OK


def _add_memory_options(sub: argparse.ArgumentParser) -> None:
    group = sub.add_argument_group("memory")
    group.add_argument("--gpu", metavar="NAME", help=f"whose memory is predicted: {choices.gpus()}")
    group.add_argument("--fits", type=size, metavar="SIZE", help="the largest batch that fits, as 24GiB")
    group.add_argument(
        "--checkpoint", action="append", default=[], metavar="PATH",
        help="what if this module kept its inputs alone; auto proposes modules, for --fits if given (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--what-if", action="extend", default=[], type=variations, metavar="CHANGE,…",
        help=f"the memory with this changed ({choices.changes()}); "
        "several by comma together, a bare amp or optimizer each in a row of its own (repeatable)",
    )  # fmt: skip


def _memory_questions(options: argparse.Namespace) -> MemoryQuestions | None:
    from profiler_kit.records.counts import MemoryQuestions

    questions = MemoryQuestions(
        batches=(options.batch or ())[1:],
        fits_bytes=options.fits,
        checkpoint=tuple("" if path == "(root)" else path for path in options.checkpoint),
        variations=tuple(options.what_if),
    )
    return None if questions == MemoryQuestions() else questions


COMMAND = Command(
    name="count",
    summary="static only: FLOPs, MACs, parameters and memory per layer, no device",
    examples=("count pkg.nets:build --kw width=64 -i 'ids=8,1024:int64[0:50257]' -o layers.csv",),
    add_options=add_options,
    run=run,
)

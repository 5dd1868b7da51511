"""The command `count`: FLOPs, MACs, parameters and memory, without a device."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from profiler_kit import errors
from profiler_kit.cli import choices, output
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import (
    TARGET_HELP,
    add_convention_options,
    add_finding_option,
    add_output_options,
    add_table_options,
    add_target_options,
    add_timeout_option,
    limit_command,
    target_spec,
)
from profiler_kit.cli.progress import Progress
from profiler_kit.cli.values import parse_factor, parse_parallel, parse_size, parse_variations

if TYPE_CHECKING:
    from profiler_kit.records.counts import MemoryOptions


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of target, memory, counting, roofline and output."""
    parser.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    add_target_options(parser, several_batches=True)
    _add_memory_options(parser)
    add_convention_options(parser, strict=True, cross_check=True)
    add_timeout_option(parser)
    group = parser.add_argument_group("roofline")
    group.add_argument(
        "--hardware", metavar="NAME",
        help=f"add the roofline bound of each layer and op, from the datasheet of this device: {choices.cards()}; "
        "or here, for the measured peaks of this machine's device",
    )  # fmt: skip
    add_output_options(parser)
    add_finding_option(parser)
    add_table_options(parser)


def run(options: argparse.Namespace) -> int:
    """Count the target. With ``--strict``, raises UncountedError for ops without a formula."""
    from profiler_kit.pipeline.count import count_spec
    from profiler_kit.records.uncounted import require_counted

    limit_command(options)
    output.check_options(options, inputs=[options.target, *options.input])
    with output.redirect_stdout_to_stderr(), Progress(quiet=options.quiet, silent_s=3.0) as progress:
        report = count_spec(
            target_spec(options),
            convention=options.convention,
            cross_check=options.cross_check,
            hardware=options.hardware,
            gpu=options.gpu,
            host_factor=options.host,
            memory_options=_memory_options(options),
            parallel=tuple(dict.fromkeys(options.parallel)),
            timeout_s=options.timeout,
            on_progress=progress.show,
        )
    output.warn_about_guesses(options, report)
    output.emit_report(report, options)
    if options.strict:
        require_counted(report)
    return errors.OK


def _add_memory_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("memory")
    group.add_argument("--gpu", metavar="NAME", help=f"predict memory and time for this device: {choices.gpus()}")
    group.add_argument(
        "--host", type=parse_factor, default=1.0, metavar="FACTOR",
        help="for the predicted time: how many times as long as the reference host yours takes per op, as env --host measures "
        "(default: 1)",
    )  # fmt: skip
    group.add_argument(
        "--fits",
        type=parse_size,
        metavar="SIZE",
        help="find the largest batch that fits into this memory, for example 24GiB",
    )
    group.add_argument(
        "--checkpoint", action="append", default=[], metavar="PATH",
        help="predict memory with activation checkpointing of this module; auto proposes modules, for --fits if set "
        "(repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--what-if", action="extend", default=[], type=parse_variations, metavar="CHANGE,…",
        help=f"predict memory after a change: {choices.changes()}; join changes that apply together with commas; amp or "
        "optimizer without a value tries every value (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--parallel", action="extend", default=[], type=parse_parallel, metavar="KIND=N,…",
        help="predict the peak and the communication of one of N ranks: ddp=N or fsdp2=N "
        "(repeatable)",
    )  # fmt: skip


def _memory_options(options: argparse.Namespace) -> MemoryOptions | None:
    from profiler_kit.records.counts import MemoryOptions

    memory_options = MemoryOptions(
        batches=(options.batch or ())[1:],
        fits_bytes=options.fits,
        checkpoint=tuple("" if path == "(root)" else path for path in options.checkpoint),
        variations=tuple(options.what_if),
    )
    return None if memory_options == MemoryOptions() else memory_options


COMMAND = Command(
    name="count",
    summary="count FLOPs, MACs, parameters and memory per layer, without a device",
    examples=("count pkg.nets:build --kw width=64 -i 'ids=8,1024:int64[0:50257]' -o layers.csv",),
    add_options=add_options,
    run=run,
)

"""The command `tune`: the fastest (or smallest) configuration that is surely better, with the lines to paste."""

from __future__ import annotations

import argparse
import sys

from profiler_kit import errors
from profiler_kit.cli import choices, output
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import (
    TARGET_HELP,
    add_device_option,
    add_output_options,
    add_target_options,
    target_spec,
)
from profiler_kit.cli.progress import Progress
from profiler_kit.cli.values import parse_names, parse_percent, parse_positive, parse_seconds, parse_tolerance


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of target, search and output."""
    from profiler_kit.records.tuning import DEFAULT_TOLERANCE, GOALS

    parser.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    add_target_options(parser)
    group = parser.add_argument_group("search")
    group.add_argument(
        "--goal", choices=GOALS,
        help="time: of a step at the given batch; throughput: time per example, with larger batches too; memory: peak at the "
        "given batch (CUDA only) (default: throughput for training whose batch size nothing states, otherwise time)",
    )  # fmt: skip
    group.add_argument(
        "--budget", type=parse_seconds, default=120.0, metavar="TIME", dest="budget_s",
        help="wall time of the search and the final measurement, for example 10m (default: 2m; on a CPU, 40s for short steps)",
    )  # fmt: skip
    group.add_argument(
        "--processes", type=parse_positive, metavar="N", help="start at most N processes (default: no limit)"
    )
    group.add_argument(
        "--tolerance", type=parse_tolerance, default=DEFAULT_TOLERANCE, metavar="ERROR",
        help="accepted error of the outputs against float64, relative to the largest output: a number that is added to the "
        "baseline's own error, a multiple of it such as 10x, the larger of both, or any "
        f"(default: {DEFAULT_TOLERANCE})",
    )  # fmt: skip
    group.add_argument(
        "--max-slowdown", type=parse_percent, default=0.1, metavar="PERCENT",
        help="with --goal memory: how much longer a step may take (default: 10%%)",
    )  # fmt: skip
    group.add_argument(
        "--changes", type=parse_names, default=(), metavar="A,B",
        help=f"try only these changes: {choices.cudnn_configurations()}, or {choices.axes()} (default: those that usually help "
        "on this device)",
    )  # fmt: skip
    group.add_argument(
        "--timeout", type=parse_seconds, metavar="TIME",
        help="stop a process that takes longer (default: five times the baseline's, at least 30s; compilation gets the rest of "
        "--budget), and counting too (default: 10m)",
    )  # fmt: skip
    add_device_option(group)
    add_output_options(parser)


def run(options: argparse.Namespace) -> int:
    """Search, and show the result. Nothing better is a result."""
    from profiler_kit.pipeline.tune import tune_spec, tuning_options
    from profiler_kit.report.tuning import tuning_document

    output.check_options(options, inputs=[options.target, *options.input])
    search = tuning_options(
        goal=options.goal,
        processes=options.processes,
        budget_s=options.budget_s,
        tolerance=options.tolerance,
        max_slowdown=options.max_slowdown,
        changes=options.changes,
    )
    with output.redirect_stdout_to_stderr(), Progress(quiet=options.quiet) as progress:
        tuning = tune_spec(
            target_spec(options),
            options=search,
            chooses_goal=options.goal is None,
            device=options.device,
            timeout_s=options.timeout,
            on_progress=progress.show,
            on_process=progress.start_process,
        )
    output.emit(tuning_document(tuning), options)
    if tuning.outcome == "interrupted":
        print("interrupted: the result contains the measurements that finished", file=sys.stderr)
        return errors.INTERRUPTED
    return errors.OK


COMMAND = Command(
    name="tune",
    summary="find the settings that surely make a model faster or smaller, with the lines to paste",
    examples=("tune my_model.py", "tune my_model.py --goal throughput --budget 10m -o tuned.json"),
    add_options=add_options,
    run=run,
)

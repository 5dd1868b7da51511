"""The verb `compare`: two targets, reports or traces. What differs, and why."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from profiler_kit import errors
from profiler_kit.cli import output
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import (
    add_convention_options,
    add_measure_options,
    add_output_options,
    add_target_options,
    target_spec,
)
from profiler_kit.cli.progress import Progress

if TYPE_CHECKING:
    from profiler_kit.records.target import TargetSpec


def add_options(sub: argparse.ArgumentParser) -> None:
    """Adds both sides, how targets are counted and measured, and where results go."""
    sub.add_argument("a", metavar="A", help="a target, a report.json or its folder, or a trace (then B is one too)")
    sub.add_argument("b", metavar="B", help="the same")
    add_target_options(sub)
    add_measure_options(sub)
    sub.add_argument("--static", action="store_true", help="count only, measure nothing")
    add_convention_options(sub)
    add_output_options(sub)


def run(options: argparse.Namespace) -> int:
    """Compares the two sides. Raises TargetError where one of them was measured and every run failed."""
    from profiler_kit.pipeline.compare import are_traces, compare_traces, is_saved, report_sides
    from profiler_kit.report.comparison import comparison_document
    from profiler_kit.report.trace_comparison import trace_comparison_document

    traces = are_traces(options.a, options.b)
    output.check(options)
    if traces:
        with Progress(quiet=options.quiet) as progress:
            compared = compare_traces(options.a, options.b, say=progress.say)
        output.emit(trace_comparison_document(compared), options)
        return errors.OK

    def side(text: str, *command: str) -> str | TargetSpec:
        command = (*command, "--static") if options.static else command
        return text if is_saved(text) else target_spec(options, text, command=command)

    with output.foreign_output_on_stderr(), Progress(quiet=options.quiet) as progress:
        sides = report_sides(
            side(options.a, "compare", "", options.b),
            side(options.b, "compare", options.a, ""),
            static=options.static,
            convention=options.convention,
            device=options.device,
            configs=options.configs,
            budget_s=options.budget_s,
            steps=options.steps,
            timeout_s=options.timeout,
            say=progress.say,
        )
    output.warn(sides.a, sides.b)
    output.emit(comparison_document(sides.compare()), options)
    if sides.failure is not None:
        raise sides.failure
    return errors.OK


COMMAND = Command(
    name="compare",
    summary="two targets, reports or traces: what differs in time, work and memory, and why",
    examples=("compare models/convnet_v0.py models/convnet_v1.py",),
    add_options=add_options,
    run=run,
)

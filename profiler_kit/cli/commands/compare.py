"""The command `compare`: the differences between two targets, reports or traces, and their reasons."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_kit import errors
from profiler_kit.cli import output
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import (
    add_convention_options,
    add_measure_options,
    add_output_options,
    add_target_options,
    limit_command,
    seen_run,
    target_spec,
)
from profiler_kit.cli.progress import Progress

if TYPE_CHECKING:
    from profiler_kit.records.target import TargetSpec


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add both sides and the options of target, measurement, counting and output."""
    parser.add_argument(
        "a",
        metavar="A",
        help="target, report.json, report folder, or trace; REV:FILE for a target at a git revision; or a range of revisions "
        "REV..REV, with the target as the other side",
    )
    parser.add_argument("b", metavar="B", help="same choices as A; a trace can only be compared with a trace")
    add_target_options(parser)
    add_measure_options(parser)
    parser.add_argument("--static", action="store_true", help="count only; measure nothing")
    add_convention_options(parser)
    add_output_options(parser)


def run(options: argparse.Namespace) -> int:
    """Compare the two sides. Raises TargetError if a side was measured and every run failed."""
    from profiler_kit.pipeline.compare import (
        are_traces,
        compare_traces,
        is_saved,
        report_sides,
        revision_targets,
        sides_of,
        with_labels,
    )
    from profiler_kit.report.comparison import comparison_document
    from profiler_kit.report.trace_comparison import trace_comparison_document

    if options.static:
        limit_command(options)
    options.a, options.b = sides_of(options.a, options.b, Path.cwd())
    both_are_traces = are_traces(options.a, options.b)
    output.check_options(options, inputs=[options.a, options.b, *options.input])
    if both_are_traces:
        with Progress(quiet=options.quiet) as progress:
            compared = compare_traces(options.a, options.b, on_progress=progress.show, timelines=output.draws(options))
        output.emit(trace_comparison_document(compared.comparison, timelines=compared.timelines), options)
        return errors.OK

    def side(text: str, *command: str) -> str | TargetSpec:
        command = (*command, "--static") if options.static else command
        at_revision = revisions.get(text)
        if at_revision is not None:
            spec = target_spec(options, at_revision.text, command=command)
            here = Path(at_revision.checkout.top, Path(at_revision.text).relative_to(at_revision.checkout.folder))
            return replace(spec, checkout=at_revision.checkout, seen=seen_run(str(here), options.from_run))
        return text if is_saved(text) else target_spec(options, text, command=command)

    with (
        revision_targets((options.a, options.b), Path.cwd()) as revisions,
        output.redirect_stdout_to_stderr(),
        Progress(quiet=options.quiet) as progress,
    ):
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
            on_progress=progress.show,
            on_process=progress.start_process,
        )
        sides = with_labels(sides, revisions, (options.a, options.b))
    output.warn_about_guesses(options, sides.a, sides.b)
    output.emit(comparison_document(sides.compare()), options)
    if sides.failure is not None:
        raise sides.failure
    return errors.INTERRUPTED if sides.interrupted else errors.OK


COMMAND = Command(
    name="compare",
    summary="compare time, work and memory of two targets, reports or traces",
    examples=(
        "compare models/convnet_v0.py models/convnet_v1.py",
        "compare main..HEAD my_model.py",
    ),
    add_options=add_options,
    run=run,
)

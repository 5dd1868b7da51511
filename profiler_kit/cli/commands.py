"""One function per verb: takes the parsed options, prints and writes, returns the exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from profiler_kit import errors
from profiler_kit.cli import output
from profiler_kit.cli.inspect_command import inspect, traces_shown
from profiler_kit.cli.measure_options import laboratory_questions
from profiler_kit.cli.options import memory_questions, target_argv, target_spec
from profiler_kit.cli.progress import Progress
from profiler_kit.records.document import Document
from profiler_kit.records.report import Report
from profiler_kit.records.saved import kind_words
from profiler_kit.records.serde import read_saved
from profiler_kit.records.strict import require_counted
from profiler_kit.records.target import TargetSpec
from profiler_kit.records.trace_asks import TraceView
from profiler_kit.records.traces import TraceReport


def analyze(given: argparse.Namespace) -> int:
    """The whole job: counts, measures, attributes, explains, and leaves a report folder."""
    from profiler_kit.pipeline.analyze import all_failed, analyze_spec

    output.check(given)
    only = _names(given.configs)
    spec = target_spec(given)
    folder = given.out if given.out is not None else Path("profiler_kit_out") / output.slug(given.target)
    with output.foreign_output_on_stderr(), Progress(quiet=given.quiet) as progress:
        analysis = analyze_spec(
            spec,
            device=given.device,
            configs=only,
            budget_s=given.budget_s,
            steps=given.steps,
            timeout_s=given.timeout,
            traces=folder / "traces",
            say=progress.say,
            convention=given.convention,
            asked=laboratory_questions(given),
        )
        progress.say("writing the report")
        output.write_report_folder(analysis, folder)
    output.warn(analysis.report)
    try:
        output.emit(_document(analysis.report, given), given)
    finally:
        output.note(f"report: {folder}/ (report.json, report.md, layers.csv, traces/)", given)
    if analysis.interrupted:
        print("interrupted: the report holds what was measured before", file=sys.stderr)
        return errors.INTERRUPTED
    failed = all_failed(analysis.report)
    if failed is not None:
        raise failed
    return errors.OK


def count(given: argparse.Namespace) -> int:
    """Static figures only."""
    from profiler_kit.pipeline.count import count_spec

    output.check(given)
    with output.foreign_output_on_stderr(), Progress(quiet=given.quiet) as progress:
        progress.say("counting")
        report = count_spec(
            target_spec(given),
            convention=given.convention,
            cross_check=given.cross_check,
            hardware=given.hardware,
            gpu=given.gpu,
            asked=memory_questions(given),
            say=progress.say,
        )
    output.warn(report)
    output.emit(_document(report, given), given)
    if given.strict:
        require_counted(report)
    return errors.OK


def compare(given: argparse.Namespace) -> int:
    """Two targets, reports or traces: what differs, and why."""
    from profiler_kit.pipeline.compare import are_traces, compare_traces, is_saved, report_sides
    from profiler_kit.report.comparison import comparison_document
    from profiler_kit.report.trace_comparison import trace_comparison_document

    traces = are_traces(given.a, given.b)
    output.check(given)
    if traces:
        with Progress(quiet=given.quiet) as progress:
            compared = compare_traces(given.a, given.b, say=progress.say)
        output.emit(trace_comparison_document(compared), given)
        return errors.OK

    def side(text: str, *command: str) -> str | TargetSpec:
        command = (*command, "--static") if given.static else command
        return text if is_saved(text) else target_spec(given, text, command=command)

    with output.foreign_output_on_stderr(), Progress(quiet=given.quiet) as progress:
        sides = report_sides(
            side(given.a, "compare", "", given.b),
            side(given.b, "compare", given.a, ""),
            static=given.static,
            convention=given.convention,
            device=given.device,
            configs=_names(given.configs),
            budget_s=given.budget_s,
            steps=given.steps,
            timeout_s=given.timeout,
            say=progress.say,
        )
    output.warn(sides.a, sides.b)
    output.emit(comparison_document(sides.compare()), given)
    if sides.failure is not None:
        raise sides.failure
    return errors.OK


def check(given: argparse.Namespace) -> int:
    """The pre-merge gate: static figures of both sides, budgets, exit status."""
    from profiler_kit.pipeline.check import check_target
    from profiler_kit.report.comparison import check_document

    output.check(given)
    command = ("check", "", *(("--base", given.base) if given.base is not None else ()))
    with output.foreign_output_on_stderr(), Progress(quiet=given.quiet) as progress:
        result, head = check_target(
            target_spec(given, allow_guess=False, command=command),
            [given.target, *target_argv(given)],
            name=output.slug(given.target),
            folder=Path.cwd(),
            base=given.base,
            budgets=given.budget,
            strict=given.strict,
            convention=given.convention,
            say=progress.say,
        )
    output.emit(check_document(result), given)
    if given.strict:
        require_counted(head)
    return result.exit_code


def show(given: argparse.Namespace) -> int:
    """A saved report again, in any format."""
    output.check(given)
    saved = read_saved(given.report)
    if isinstance(saved, TraceReport):
        output.emit(traces_shown(saved, given), given)
    elif isinstance(saved, Report):
        if given.by in get_args(TraceView):
            raise errors.UsageError(
                f"a report on a target has no view by {given.by}", hint="one of: tree, layer, op, what-if"
            )
        output.emit(_document(saved, given), given)
    else:
        from profiler_kit.report.saved import answer_document

        if given.by is not None:
            raise errors.UsageError(f"{kind_words(saved.kind)} has no views", hint="leave out --by")
        output.emit(answer_document(saved), given)
    return errors.OK


def env(given: argparse.Namespace) -> int:
    """What this machine is for the tool."""
    from profiler_kit.pipeline.env import env
    from profiler_kit.report import machine_document

    output.check(given)
    with output.foreign_output_on_stderr(), Progress(quiet=given.quiet) as progress:
        machine = env(given.device, fresh=given.fresh, say=progress.say)
    output.emit(machine_document(machine), given)
    return errors.OK


def _document(report: Report, given: argparse.Namespace) -> Document:
    from profiler_kit.report import report_document

    return report_document(
        report, top=given.top, depth=given.depth, sort=given.sort, run=given.run, by=given.by, unit=given.unit
    )


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise errors.UsageError("--configs names no configuration", hint="take --configs default,benchmark")
    return names


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "analyze": analyze,
    "check": check,
    "compare": compare,
    "count": count,
    "env": env,
    "inspect": inspect,
    "show": show,
}

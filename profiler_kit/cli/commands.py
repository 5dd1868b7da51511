"""One function per verb: takes the parsed options, prints and writes, returns the exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

from profiler_kit import errors
from profiler_kit.cli import output
from profiler_kit.cli.inspect_command import inspect, traces_shown
from profiler_kit.cli.measure_options import laboratory_questions
from profiler_kit.cli.options import memory_questions, target_argv, target_spec
from profiler_kit.cli.progress import Progress
from profiler_kit.cli.trace_sides import compare_traces, compares_traces
from profiler_kit.records.document import Document
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.serde import read_report, read_saved
from profiler_kit.records.strict import require_counted, uncounted_text
from profiler_kit.records.trace_asks import TraceView


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
    if compares_traces(given.a, given.b):
        output.check(given)
        compare_traces(given)
        return errors.OK
    from profiler_kit.comparison.compare import compare as compared
    from profiler_kit.pipeline.analyze import all_failed
    from profiler_kit.report.comparison import comparison_document

    output.check(given)
    with output.foreign_output_on_stderr(), Progress(quiet=given.quiet) as progress:
        a = _side(given.a, ("compare", "", given.b), given, progress)
        b = _side(given.b, ("compare", given.a, ""), given, progress)
    output.warn(a, b)
    output.emit(comparison_document(compared(a, b)), given)
    for text, report in ((given.a, a), (given.b, b)):
        failed = all_failed(report)
        if failed is not None and not _is_saved(text):  # what could be compared was, but the user asked for more
            hint = f"see its log with profiler-kit analyze {text}"
            raise errors.TargetError(failed.message, where=text, hint=hint)
    return errors.OK


def check(given: argparse.Namespace) -> int:
    """The pre-merge gate: static figures of both sides, budgets, exit status."""
    from profiler_kit.gate import base, budgets
    from profiler_kit.pipeline.count import count_spec
    from profiler_kit.report.comparison import check_document

    output.check(given)
    limits = budgets.load_budgets(Path.cwd(), output.slug(given.target), given.budget)
    if given.strict:
        limits = budgets.with_strictness(limits)
    before, missing = None, None
    with output.foreign_output_on_stderr(), Progress(quiet=given.quiet) as progress:
        progress.say("counting")
        command = ("check", "", *(("--base", given.base) if given.base is not None else ()))
        head = count_spec(target_spec(given, allow_guess=False, command=command), convention=given.convention)
        progress.say("counting the base")
        try:
            before = base.base_report(given.base, [given.target, *target_argv(given)], repo=Path.cwd())
        except errors.NotComparableError as error:  # the target is new: limits that need no base still hold
            if not limits:
                raise
            missing = error
    result = budgets.check(before, head, limits)
    if missing is not None:
        result = replace(result, notes=(*result.notes, missing.message))
    if given.strict and head.static is not None:  # in the comment on the change too
        lacking = (f"No formula for {uncounted_text(op)}" for op in head.static.uncounted)
        result = replace(result, notes=(*result.notes, *lacking))
    output.emit(check_document(result), given)
    if given.strict:
        require_counted(head)
    return result.exit_code


def show(given: argparse.Namespace) -> int:
    """A saved report again, in any format."""
    output.check(given)
    report = read_saved(given.report)
    if isinstance(report, TraceReport):
        output.emit(traces_shown(report, given), given)
    elif given.by in get_args(TraceView):
        raise errors.UsageError(
            f"a report on a target has no view by {given.by}", hint="one of: tree, layer, op, what-if"
        )
    else:
        output.emit(_document(report, given), given)
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


def _side(text: str, command: tuple[str, ...], given: argparse.Namespace, progress: Progress) -> Report:
    if _is_saved(text):
        return read_report(text)
    from profiler_kit.pipeline.analyze import analyze_spec
    from profiler_kit.pipeline.count import count_spec

    spec = target_spec(given, text, command=(*command, "--static") if given.static else command)
    if given.static:
        progress.say(f"{text}: counting")
        return count_spec(spec, convention=given.convention)
    analysis = analyze_spec(
        spec,
        device=given.device,
        configs=_names(given.configs) or ("default", "no-tf32"),
        budget_s=given.budget_s / 2,
        steps=given.steps,
        timeout_s=given.timeout,
        say=lambda line: progress.say(f"{text}: {line}"),
        convention=given.convention,
    )
    if analysis.interrupted:
        raise KeyboardInterrupt  # half a comparison is none, and nothing of it is kept
    return analysis.report


def _is_saved(text: str) -> bool:
    path = Path(text)
    return path.suffix == ".json" or (path.is_dir() and (path / "report.json").exists())


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

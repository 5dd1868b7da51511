"""The pre-merge gate: count a target and its base, compare them, and apply budgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profiler_kit.comparison.compare import compare
from profiler_kit.errors import NotComparableError
from profiler_kit.gate.base import load_base
from profiler_kit.gate.budgets import load_budgets, with_strict_budget
from profiler_kit.gate.verdict import judge_budgets
from profiler_kit.pipeline.count import count_spec
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.comparison import Budget, CheckResult
from profiler_kit.records.counts import DEFAULT_CONVENTION
from profiler_kit.records.report import Report
from profiler_kit.records.target import TargetSpec
from profiler_kit.records.uncounted import uncounted_text


def check_target(
    spec: TargetSpec,
    target_argv: Sequence[str],
    *,
    name: str,
    folder: Path,
    base: str | None = None,
    budgets: Sequence[str] = (),
    strict: bool = False,
    convention: str = DEFAULT_CONVENTION,
    on_progress: OnProgress,
) -> tuple[CheckResult, Report]:
    """The result of the gate for the target of `spec`, and the report of the current target.

    `target_argv` contains the target and its options as command line arguments, for counting it at `base`: a revision, a
    saved report, or None for the merge base with the main branch. `name` selects the target's budgets in the configuration
    file; `budgets` are further budget texts, which take precedence. `folder` is the working directory.

    Raises:
        TargetError, UsageError
        NotComparableError: the base is missing, and all budgets are relative.
    """
    limits = load_budgets(folder, name, budgets)
    if strict:
        limits = with_strict_budget(limits)
    on_progress("counting")
    head = count_spec(spec, convention=convention)
    on_progress("counting the base")
    base_side, notes = None, []
    try:
        base_side = load_base(base, target_argv, repo=folder)
    except NotComparableError as error:  # the target is new: absolute limits still apply
        if not limits:
            raise
        notes.append(error.message)
    if strict and head.static is not None:  # also part of the pull request comment
        notes += [f"No formula for {uncounted_text(op)}" for op in head.static.uncounted]
    return check_reports(base_side, head, limits, notes=notes), head


def check_reports(
    base: Report | None, head: Report, budgets: Sequence[Budget], *, notes: Sequence[str] = ()
) -> CheckResult:
    """Check every budget on `head`, relative ones against `base`, and compare the two reports.

    `notes` are added to the result. Without a base only absolute budgets are checked.
    """
    comparison = None
    if base is not None:
        try:
            comparison = compare(base, head, labels=("the base", "this change"))
        except NotComparableError as error:
            notes = (error.message, *notes)
    return judge_budgets(base, head, budgets, comparison, notes=notes)

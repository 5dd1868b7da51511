"""The pre-merge gate: the change and its base counted, compared, and held against budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from profiler_kit.comparison.compare import compare
from profiler_kit.errors import NotComparableError
from profiler_kit.gate.base import base_report
from profiler_kit.gate.budgets import load_budgets, with_strictness
from profiler_kit.gate.verdict import verdict
from profiler_kit.pipeline.count import count_spec
from profiler_kit.records.comparison import Budget, CheckResult
from profiler_kit.records.counts import DEFAULT_CONVENTION
from profiler_kit.records.report import Report
from profiler_kit.records.strict import uncounted_text
from profiler_kit.records.target import TargetSpec


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
    say: Callable[[str], None],
) -> tuple[CheckResult, Report]:
    """The gate's answer for the target of `spec`, and the report of the target as it is now.

    `target_argv`: the target and its options as words, which are counted again at `base` (a revision or a saved report;
    None: where the branch left the main one). `name`: the target's in the tables of budgets; `budgets` are texts that go
    before these. `folder`: where the command runs.

    Raises TargetError, UsageError; NotComparableError where there is no base and no budget that holds without one.
    """
    limits = load_budgets(folder, name, budgets)
    if strict:
        limits = with_strictness(limits)
    say("counting")
    head = count_spec(spec, convention=convention)
    say("counting the base")
    before, notes = None, []
    try:
        before = base_report(base, target_argv, repo=folder)
    except NotComparableError as error:  # the target is new: limits that need no base still hold
        if not limits:
            raise
        notes.append(error.message)
    if strict and head.static is not None:  # in the comment on the change too
        notes += [f"No formula for {uncounted_text(op)}" for op in head.static.uncounted]
    return check_reports(before, head, limits, notes=notes), head


def check_reports(
    base: Report | None, head: Report, budgets: Sequence[Budget], *, notes: Sequence[str] = ()
) -> CheckResult:
    """Every budget judged on `head`, relative ones against `base`, and what differs between the two.

    `notes` are further ones. Without a base only absolute limits can be judged.
    """
    comparison = None
    if base is not None:
        try:
            comparison = compare(base, head, labels=("the base", "this change"))
        except NotComparableError as error:
            notes = (error.message, *notes)
    return verdict(base, head, budgets, comparison, notes=notes)

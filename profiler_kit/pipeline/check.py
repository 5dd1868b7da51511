"""The pre-merge gate: count targets and their bases, compare them, and apply budgets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from profiler_kit import process
from profiler_kit.errors import KitError, NotComparableError, TargetError, UsageError
from profiler_kit.gate.base import COUNT_TIMEOUT_S, CountCommand, TargetFiles, count_command, saved_base, target_files
from profiler_kit.gate.budget_tables import raised_options
from profiler_kit.gate.budgets import parse_budgets, with_strict_budget
from profiler_kit.gate.git import (
    Revision,
    changed_files,
    files_at,
    find_base,
    python_stems,
    renames,
    repository_root,
    worktree,
)
from profiler_kit.gate.metrics import STEP_TIME
from profiler_kit.gate.settings import Settings, TargetSettings, read_settings, require_targets
from profiler_kit.gate.verdict import ADD_TIME, combine, failed_result, judge_budgets, judge_deleted, judge_new
from profiler_kit.loading.command import next_command
from profiler_kit.measurement.step_times import compare_steps
from profiler_kit.pipeline.count import count_spec
from profiler_kit.process import Outcome
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.check import Budget, CheckResult, CheckResults, StepTimeCheck
from profiler_kit.records.counts import DEFAULT_CONVENTION
from profiler_kit.records.notes import Note
from profiler_kit.records.report import Report
from profiler_kit.records.serde import loads_report
from profiler_kit.records.target import Checkout, TargetSpec
from profiler_kit.records.uncounted import register_hint, uncounted_text

__all__ = [
    "CheckTarget",
    "Settings",
    "TargetSettings",
    "check_reports",
    "check_targets",
    "next_command",
    "parse_budgets",
    "raised_options",
    "settings_for",
    "timer",
    "unfinished_check",
]

HARMLESS_SUFFIXES: Final = (".md", ".rst")  # of files that no model reads
SAVED_BASE: Final = "the base is a saved report; name a revision with --base"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTarget:
    """A target to check.

    - `name`: selects its budgets. `spec`: the target, for counting it here. `options`: its options as arguments of the command
      line, for counting it in another process.
    - `base_target`, `base_options`, `base_spec`: the same at the base, where they differ.
    """

    name: str
    spec: TargetSpec
    options: tuple[str, ...]
    budgets: tuple[Budget, ...] = ()
    base_target: str | None = None
    base_options: tuple[str, ...] | None = None
    gpu: str | None = None
    base_spec: TargetSpec | None = None

    @property
    def hardware(self) -> str | None:
        """The device whose roofline bounds the step: only where a budget asks for it, since not every device has peaks."""
        return self.gpu if any(budget.metric == "device_step" for budget in self.budgets) else None

    @property
    def argv(self) -> list[str]:
        """The target and its options as arguments of ``count``."""
        return [self.spec.spec, *self.options, *self._device_options()]

    @property
    def base_argv(self) -> list[str]:
        """The same for the base."""
        options = self.options if self.base_options is None else self.base_options
        return [self.base_target or self.spec.spec, *options, *self._device_options()]

    def _device_options(self) -> list[str]:
        options = [] if self.gpu is None else ["--gpu", self.gpu]
        return options if self.hardware is None else [*options, "--hardware", self.hardware]


LATER_S: Final = 60.0  # after the limit of a count, which says where it was: for the start of its process

TimeSides = Callable[[CheckTarget, CountCommand], "StepTimeCheck | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What happens to one target: its text at the base, and the reason if one side does not exist."""

    target: CheckTarget
    base_text: str
    renamed_from: str = ""
    missing: str = ""  # why the base has no such target
    deleted: str = ""  # why the change has no such target
    hint: str = ""
    error: KitError | None = None


def settings_for(folder: Path, names: Sequence[str]) -> Settings:
    """The settings of the repository around `folder`. `names`: the names of the targets on the command line.

    Raises:
        UsageError: pyproject.toml has a mistake, or budgets for a target that does not exist.
    """
    settings = read_settings(folder)
    if any(name not in settings.targets and name not in names for name in settings.by_target):
        require_targets(settings, {*names, *python_stems(folder)})
    return settings


def check_targets(
    targets: Sequence[CheckTarget],
    *,
    folder: Path,
    settings: Settings,
    base: str | None = None,
    strict: bool = False,
    convention: str = DEFAULT_CONVENTION,
    time_sides: TimeSides | None = None,
    timeout_s: float | None = None,
    on_progress: OnProgress,
    while_waiting: Callable[[], None] = lambda: None,
) -> CheckResults:
    """The results of the gate for `targets`, in their order.

    `base`: a revision, a saved report (of a single target), or None for the merge base with the main branch. `folder` is the
    working directory. `time_sides` measures the step time of both sides. A side that cannot be counted is a result.
    `timeout_s` limits the count of each side (default: `COUNT_TIMEOUT_S`).
    `while_waiting` is called while another process counts the base: what the caller imports then costs no time.

    Raises:
        UsageError: no repository, an unknown revision, a target outside of the repository.
        ReportError: the saved report cannot be read.
    """
    timeout_s = timeout_s or COUNT_TIMEOUT_S
    saved = saved_base(base, folder)
    if saved is not None:
        if len(targets) != 1:
            raise UsageError(
                "a saved report is the base of one target", hint="name the target: check TARGET --base FILE"
            )
        return combine([_check_against_report(targets[0], saved, settings, convention, strict, timeout_s, on_progress)])
    top = repository_root(folder)
    revision = find_base(base or settings.base, folder)
    plans = [_plan(target, folder, top, revision) for target in targets]
    is_same = not any(not name.endswith(HARMLESS_SUFFIXES) for name in changed_files(top, revision.commit))
    needs_base = [
        plan
        for plan in plans
        if not (plan.missing or plan.deleted or plan.error or _is_unchanged(plan, is_same=is_same))
    ]
    with contextlib.ExitStack() as stack:
        checkout = stack.enter_context(worktree(top, revision.commit)) if needs_base else None
        commands = {}
        if checkout is not None:
            for plan in needs_base:
                argv = [plan.base_text, *plan.target.base_argv[1:]]
                spec = plan.target.base_spec or plan.target.spec
                commands[plan.target.name] = count_command(
                    argv, repo=folder, top=top, folder=checkout, revision=revision, timeout_s=timeout_s,
                    check=[word or plan.target.spec.spec for word in spec.command],
                )  # fmt: skip
        on_progress("counting both sides")
        heads, bases = _count_sides(plans, commands, convention, folder, timeout_s, while_waiting)
        results = []
        for plan in plans:
            name = plan.target.name
            head, counted_base = heads.get(name), bases.get(name)
            time, untimed = None, ADD_TIME if name in commands else ""
            if time_sides is not None and isinstance(head, Report) and isinstance(counted_base, Report):
                on_progress(f"{name}: measuring both sides")
                try:
                    time = time_sides(plan.target, commands[name])
                except KitError as error:
                    untimed = error.message
            results.append(_result(plan, head, counted_base, revision, settings, strict, time, untimed))
    return combine(results)


def unfinished_check(targets: Sequence[CheckTarget], error: KitError) -> CheckResults:
    """The results of a check that ended with `error` while it counted this change."""
    return combine(
        [failed_result(target.name, target.spec.spec, "change", error, target.budgets) for target in targets]
    )


def _is_unchanged(plan: _Plan, *, is_same: bool) -> bool:
    """Whether the base is counted already: no file differs, and both sides have the same options."""
    target = plan.target
    return is_same and plan.base_text == target.spec.spec and target.base_argv == target.argv


def _plan(target: CheckTarget, folder: Path, top: Path, revision: Revision) -> _Plan:
    """Find out whether both sides have the file of `target`, and its name at the base."""
    now = target_files(target.spec.spec, folder, top)
    base_text = target.base_target or target.spec.spec
    plan = _Plan(target=target, base_text=base_text)
    if now.file is None:
        return plan
    exists = (top / now.file).is_file()
    if target.base_target is not None:
        before = target_files(target.base_target, folder, top)
        if before.file is None or files_at(top, revision.commit, before.file):
            return replace(plan, renamed_from=target.base_target)
        raise UsageError(
            f"{before.file} does not exist at the base, {revision.description}",
            where="--base-target",
            hint="name a target that the base has",
        )
    if not exists:
        return _deleted(plan, now, top, revision)
    if files_at(top, revision.commit, now.file):
        return plan
    old = renames(top, revision.commit).get(now.file.as_posix())
    if old is None:
        return replace(plan, missing=f"{now.file} does not exist at the base, {revision.description}")
    return replace(plan, base_text=_moved(target.spec.spec, now.file, old, folder, top), renamed_from=old)


def _moved(text: str, file: Path, old: str, folder: Path, top: Path) -> str:
    """TARGET with the file's old path, relative to the working directory where possible."""
    _, colon, attribute = text.partition(":")
    if not text.partition(":")[0].endswith(".py"):  # a module
        name = old.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return f"{name}{colon}{attribute}"
    path = top / old
    here = folder.resolve()
    relative = str(path.relative_to(here)) if path.is_relative_to(here) and not Path(text).is_absolute() else str(path)
    return f"{relative}{colon}{attribute}"


def _deleted(plan: _Plan, now: TargetFiles, top: Path, revision: Revision) -> _Plan:
    assert now.file is not None
    old_names = renames(top, revision.commit)
    new = next((new for new, old in old_names.items() if old == now.file.as_posix()), None)
    if new is not None:
        return replace(plan, deleted=f"{now.file} was renamed to {new}", hint=f"check {new} instead")
    if files_at(top, revision.commit, now.file):
        return replace(
            plan,
            deleted=f"{now.file} was deleted; the base, {revision.description}, has it",
            hint="remove the target from the command or from pyproject.toml",
        )
    error = TargetError(
        "no such file", where=str(now.file), hint="neither this change nor the base has it: check the path"
    )
    return replace(plan, error=error)


def _count_sides(
    plans: Sequence[_Plan],
    commands: dict[str, CountCommand],
    convention: str,
    folder: Path,
    timeout_s: float,
    while_waiting: Callable[[], None],
) -> tuple[dict[str, Report | KitError], dict[str, Report | KitError]]:
    """The reports of both sides by target, or the errors. All processes run at the same time, as many as there are cores.

    A single target is counted in this process while another one counts its base.
    """
    heads: dict[str, Report | KitError] = {}
    bases: dict[str, Report | KitError] = {}
    present = [plan.target for plan in plans if not (plan.deleted or plan.error)]
    if len(present) == 1:
        target = present[0]
        with contextlib.ExitStack() as stack:
            command = commands.get(target.name)
            child = (
                stack.enter_context(process.start_child(command.argv, cwd=command.cwd, env=command.env))
                if command is not None
                else None
            )
            heads[target.name] = _attempt(lambda: _count_here(target, convention, timeout_s))
            if child is not None and command is not None:
                import profiler_kit.comparison.compare  # noqa: F401

                while_waiting()
                outcome = child.finish(command.timeout_s + LATER_S)
                bases[target.name] = _attempt(partial(command.report, outcome))
        return heads, bases
    jobs: list[tuple[dict[str, Report | KitError], str, _Job]] = []
    for target in present:
        jobs.append((heads, target.name, _head_job(target, folder, timeout_s)))
        command = commands.get(target.name)
        if command is not None:
            jobs.append((bases, target.name, _Job(command.argv, command.cwd, command.env, command.report)))
    for (side, name, job), outcome in zip(jobs, _run_all([job for _, _, job in jobs], timeout_s), strict=True):
        side[name] = _attempt(partial(job.read, outcome))
    return heads, bases


@dataclass(frozen=True, slots=True)
class _Job:
    """A process that counts one side, and how to read its outcome."""

    argv: Sequence[str]
    cwd: Path
    env: dict[str, str] | None
    read: Callable[[Outcome], Report]


def _head_job(target: CheckTarget, folder: Path, timeout_s: float) -> _Job:
    limit = ("--timeout", f"{timeout_s:g}s")
    command = process.own_command("count", *target.argv, *limit, "--quiet", "-f", "json")
    return _Job(command, folder, None, lambda outcome: _head_report(outcome, target.spec.spec))


def _head_report(outcome: Outcome, name: str) -> Report:
    if outcome.ok:
        return loads_report(outcome.stdout, name)
    message, hint = outcome.error
    raise TargetError(message, hint=hint)


def _run_all(jobs: Sequence[_Job], timeout_s: float) -> list[Outcome]:
    """The outcomes of all jobs, in their order; as many run at a time as there are cores. Raises KitError."""
    outcomes: dict[int, Outcome] = {}

    def command_of(job: tuple[int, _Job], _: int) -> process.SlotCommand:
        return process.SlotCommand(argv=job[1].argv, cwd=job[1].cwd, env=job[1].env, timeout_s=timeout_s + LATER_S)

    with contextlib.closing(
        process.run_in_slots(enumerate(jobs), range(process.usable_cores()), command_of)
    ) as finished:
        for (number, _), _, outcome in finished:
            if not isinstance(outcome, Outcome):
                raise outcome
            outcomes[number] = outcome
    return [outcomes[number] for number in range(len(jobs))]


def _count_here(target: CheckTarget, convention: str, timeout_s: float) -> Report:
    return count_spec(target.spec, convention=convention, gpu=target.gpu, hardware=target.hardware, timeout_s=timeout_s)


def _attempt(count: Callable[[], Report]) -> Report | KitError:
    try:
        return count()
    except KitError as error:
        return error


def _result(
    plan: _Plan,
    head: Report | KitError | None,
    base: Report | KitError | None,
    revision: Revision,
    settings: Settings,
    strict: bool,
    time: StepTimeCheck | None,
    untimed: str,
) -> CheckResult:
    target = plan.target
    name, spec = target.name, target.spec.spec
    budgets = with_strict_budget(target.budgets) if strict else target.budgets

    def finished(result: CheckResult) -> CheckResult:
        return replace(
            result, name=name, spec=spec, renamed_from=plan.renamed_from, base=result.base or revision.description
        )

    if plan.error is not None:
        return finished(failed_result(name, spec, "change", plan.error, budgets))
    if plan.deleted:
        return finished(judge_deleted(name, spec, settings.deleted, reason=plan.deleted, hint=plan.hint))
    assert head is not None
    if isinstance(head, KitError):
        return finished(failed_result(name, spec, "change", head, budgets))
    if plan.missing:
        return finished(judge_new(head, budgets, settings.new, reason=plan.missing))
    if isinstance(base, KitError):
        return finished(failed_result(name, spec, "base", base, budgets))
    if base is None:  # nothing differs
        base = replace(head, notes=(Note(code="revision", text=revision.description), *head.notes))
    notes = _strict_notes(head) if strict else ()
    return finished(check_reports(base, head, budgets, notes=notes, time=time, untimed=untimed))


def _strict_notes(head: Report) -> tuple[str, ...]:
    """The ops without a formula, which ``--strict`` also puts into the comment."""
    uncounted = head.static.uncounted if head.static is not None else ()
    notes = [f"No formula for {uncounted_text(op)}" for op in uncounted]
    return (*notes, *((f"To count it, {register_hint(uncounted[0].op)}.",) if notes else ()))


def _check_against_report(
    target: CheckTarget,
    base: Report,
    settings: Settings,
    convention: str,
    strict: bool,
    timeout_s: float,
    on_progress: OnProgress,
) -> CheckResult:
    on_progress("counting")
    head = _attempt(lambda: _count_here(target, convention, timeout_s))
    revision = Revision("", base.revision)
    return _result(
        _Plan(target=target, base_text=target.spec.spec), head, base, revision, settings, strict, None, SAVED_BASE
    )


def timer(device: str, on_progress: OnProgress) -> TimeSides:
    """A function that measures the step of both sides of a target, for its budget on the step time."""
    from profiler_kit.worker.environment import pick_device

    device = pick_device(device)

    def time_sides(target: CheckTarget, base: CountCommand) -> StepTimeCheck | None:
        allowed = next((b.increase for b in target.budgets if b.metric == STEP_TIME), None)
        if allowed is None:
            return None
        checkout = Checkout(top=str(base.top), folder=str(base.folder))
        name, colon, attribute = base.target.partition(":")
        text = f"{base.cwd / name}{colon}{attribute}" if name.endswith(".py") else base.target
        spec = target.base_spec or target.spec
        return compare_steps(
            replace(spec, spec=text, checkout=checkout),
            target.spec,
            device=device,
            allowed=allowed,
            on_progress=on_progress,
        )

    return time_sides


def check_reports(
    base: Report | None,
    head: Report,
    budgets: Sequence[Budget],
    *,
    notes: Sequence[str] = (),
    time: StepTimeCheck | None = None,
    untimed: str = ADD_TIME,
) -> CheckResult:
    """Check every budget on `head`, relative ones against `base`, and compare the two reports.

    `notes` are added to the result. Without a base only absolute budgets are checked. `untimed`: as in `judge_budgets`.
    """
    from profiler_kit.comparison.compare import compare  # not before both sides are being counted: it takes a while

    comparison = None
    if base is not None:
        try:
            comparison = compare(base, head, labels=("the base", "this change"), one_model=True)
        except NotComparableError as error:
            notes = (error.message, *notes)
    return judge_budgets(base, head, budgets, comparison, notes=notes, time=time, untimed=untimed)

"""Builds the candidates of a target in their order until one can be built."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parameter import is_lazy

from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.loading.candidates.announcement import Decision, join_words, value_text
from profiler_kit.loading.candidates.arguments import (
    Arguments,
    AssumedKind,
    Assumption,
    Binder,
    learned_values,
    repairs,
    unknown_values,
    with_sources,
)
from profiler_kit.loading.candidates.building import (
    NotAModelError,
    check_names,
    construct,
    missing_error,
    uses_missing_package,
)
from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.candidates.signatures import MissingArgumentsError, missing_arguments
from profiler_kit.loading.candidates.sourced import numbers_in
from profiler_kit.loading.candidates.unknown import GENERIC_SIZE, learn_from, learning, settle
from profiler_kit.loading.command import next_command
from profiler_kit.loading.forms import BuiltModel
from profiler_kit.loading.program.names import used_names
from profiler_kit.loading.scripts.execution import EvaluationError
from profiler_kit.loading.scripts.import_errors import import_failure
from profiler_kit.loading.scripts.placeholders import UnavailableError, causes
from profiler_kit.loading.scripts.source import Source
from profiler_kit.loading.solve import Progress, Solved, Solver
from profiler_kit.records.notes import Choice, Confidence, plain_notes
from profiler_kit.records.target import Pinned, PinnedValue
from profiler_kit.user_code.time_limit import TimeLimitError, time_limit

MAX_BUILDS: Final = 8
_MAX_MISSING_PACKAGES: Final = 3  # candidates that fail for this reason, before the others are not tried
_MAX_SLOW_BUILDS: Final = 3  # fit into the time limit of a load
_MAX_COMPLETIONS: Final = 16  # builds of one candidate
_BUILD_LIMIT_S: Final = 60.0  # no new candidate is tried after this time; a backstop, MAX_BUILDS is the rule
_LISTED_VALUES: Final = 3
LAST_RESORT: Final = ("part", "loss")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The chosen candidate, with the arguments that built it, its model, how the two are known, and what is assumed."""

    candidate: Candidate
    built: BuiltModel
    confidence: Confidence = field(default_factory=Confidence)
    choices: tuple[Choice, ...] = ()
    arguments: Arguments = field(default_factory=Arguments)
    assumptions: tuple[Assumption, ...] = ()
    builds: Builds | None = None  # of the candidate, with other assumptions


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFailure:
    """Why a build with `arguments` failed. `progress`: (the number of modules that were registered before, - empty weights).

    `selection`: the model, if it could be built, but has weights without elements. `learned`: the values of unknowns that its
    uses of them showed.
    """

    error: TargetError
    arguments: Arguments
    progress: Progress
    selection: Selection | None = None
    learned: tuple[Assumption, ...] = ()

    @property
    def signature(self) -> tuple[object, ...]:
        """The same for failures that differ in nothing."""
        return (self.error.message, self.error.where)


@dataclass(slots=True, kw_only=True)
class Construction:
    """Builds the first candidate that can be built. `ranked` are all candidates of the target, for the announcement.

    `failures` are the candidates that could not be built, with their errors.
    """

    source: Source
    binder: Binder
    ranked: Sequence[Candidate]
    on_meta: bool
    failures: list[tuple[Candidate, KitError]] = field(default_factory=list)
    _slow: set[str] = field(default_factory=set)  # the evidence and the names of candidates that took too long

    def first(self, candidates: Sequence[Candidate]) -> Selection:
        """The first of `candidates` that can be built. A part of a model that cannot be built never stands for it.

        Raises:
            UsageError: an argument of ``--kw`` is invalid.
            TargetError: nothing can be built.
        """
        fallback: Selection | None = None  # a module without parameters is rarely the model
        deadline = time.monotonic() + _BUILD_LIMIT_S
        for candidate, generic in self._attempts(candidates):
            if self.failures and time.monotonic() > deadline:
                break
            selection = self._attempt(candidate, generic=generic, is_only=len({c.evidence for c in candidates}) == 1)
            if selection is None:
                continue
            is_certain = candidate.is_model or candidate.evidence in LAST_RESORT or len(candidates) == 1
            if is_certain or _has_parameters(selection.built.model):
                return selection
            fallback = fallback or selection
        if fallback is not None and all(failed.evidence == "library" for failed, _ in self.failures):
            return fallback
        if all(c.value is None and isinstance(error.__cause__, NotAModelError) for c, error in self.failures):
            raise NotAModelError
        raise self._explanation()

    def _attempts(self, candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, bool]]:
        """(candidate, whether parameters without a usual value get a size), as long as failures leave hope."""
        callables = [c for c in candidates if c.value is not None and not c.is_model]
        attempts = [*((c, False) for c in candidates), *((c, True) for c in callables)]
        builds = 0
        for candidate, generic in attempts:
            missing = [failed for failed, error in self.failures if uses_missing_package(error)]
            if builds == MAX_BUILDS or len(missing) >= _MAX_MISSING_PACKAGES:
                return
            # Other arguments do not replace a package, candidates with the same evidence are sizes of one model, and smaller
            # sizes than those that a script gives are another model.
            if (generic and candidate in missing) or self._slow & {candidate.evidence, candidate.name}:
                continue
            if candidate.name in self._parts_of_failed():
                continue
            builds += 1
            yield candidate, generic

    def _parts_of_failed(self) -> set[str]:
        classes = self.binder.classes
        return {part for failed, _ in self.failures if failed.name in classes for part in classes[failed.name].contains}

    def _attempt(self, candidate: Candidate, *, generic: bool, is_only: bool) -> Selection | None:
        """The built `candidate`; None if that fails, which is added to `failures`. `is_only`: others are not tried."""
        seconds = self.source.spec.import_timeout_s / (1 if is_only else _MAX_SLOW_BUILDS)
        limit = None  # until another limit, which may end first, lets this one begin
        try:
            with time_limit(seconds + is_only) as limit:  # later than the limit of the load, which reports the line
                return self._completed_build(candidate, generic=generic)
        except UsageError:
            raise
        except TargetError as error:
            self.failures.append((candidate, error))
        except TimeLimitError as error:
            if error.limit is not limit:
                raise
            self._slow.update(
                (candidate.evidence, candidate.name) if candidate.site is not None else (candidate.evidence,)
            )
            text = f"{candidate.name}() still running after {seconds:g} s"
            hint = "pass smaller arguments with --kw NAME=VALUE"
            self.failures.append((candidate, TargetError(text, where=self._place(candidate), hint=hint)))
        return None

    def _place(self, candidate: Candidate) -> str:
        return candidate.site.where if candidate.site is not None else self.source.at(candidate.line)

    def _completed_build(self, candidate: Candidate, *, generic: bool) -> Selection:
        """The first build that succeeds, with values for what failed builds miss. Raises TargetError."""
        builds = Builds(self, candidate, generic=generic)
        result = builds.solve([pinned_assumptions(self.source.spec.pinned)])
        if isinstance(result, Solved):
            assert isinstance(result.outcome, Selection)
            return result.outcome
        assert result is not None
        if result.failure.selection is not None:
            return result.failure.selection
        raise result.failure.error from result.failure.error.__cause__

    def build(
        self, candidate: Candidate, binder: Binder, *, generic: bool, names_sources: bool = False
    ) -> Selection | BuildFailure:
        """The model that `candidate` builds with the assumptions of `binder`, or why that fails. Raises UsageError.

        With `names_sources`, the sizes of its layers know the assumed arguments that they follow from.
        """
        spec, where = self.source.spec, self._place(candidate)
        if candidate.is_model and binder.texts:
            raise UsageError(
                f"--kw {spec.kwargs[0]}: {candidate.name!r} is already a model and takes no arguments",
                where=where,
                hint=f"omit it: {next_command(replace(spec, kwargs=()))}",
            )
        if candidate.is_model:
            return Selection(candidate=candidate, built=BuiltModel(model=candidate.value))
        check_names(spec, candidate.name, candidate.value, binder.texts, where)
        bound = Arguments()
        binder.evaluator.notes.clear()  # of other candidates
        registered = 0

        def call() -> Any:
            nonlocal bound
            if candidate.value is None and candidate.site is not None:
                return self._evaluated(candidate)
            try:
                bound = binder.bind(candidate, generic=generic)
            except MissingArgumentsError as missing:
                alternative = self._alternative(candidate)
                raise missing_error(spec, candidate.name, missing, where, alternative) from missing
            passed = with_sources(bound) if names_sources else bound
            return candidate.value(*passed.args, **passed.kwargs)

        def count(*_: object) -> None:
            nonlocal registered
            registered += 1

        hook = register_module_module_registration_hook(count)
        failure: TargetError | None = None
        with learning() as learned:
            try:
                built = construct(spec, candidate.name, call, where, on_meta=self.on_meta)
                self._reject_layer(candidate, built.model, where)
            except TargetError as error:
                failure = _with_assumptions(error, bound)
                failure.__cause__ = error.__cause__
                for cause in causes(error):
                    learn_from(cause)
            finally:
                hook.remove()
        values = learned_values(learned, candidate.name, self.binder.evaluator.session.target)
        known = {(assumption.kind, assumption.name) for assumption in binder.assumptions}
        found = tuple(value for value in values if (value.kind, value.name) not in known)
        if failure is not None or found:
            failure = failure or TargetError(f"{candidate.name}() has arguments that nothing states", where=where)
            progress = (registered, -1 if found else 0)
            return BuildFailure(error=failure, arguments=bound, progress=progress, learned=found)
        settle(built.model)
        decision = Decision(
            source=self.source, candidate=candidate, arguments=bound, model=built.model, ranked=self.ranked,
            failures=tuple(self.failures),
        )  # fmt: skip
        candidate = replace(candidate, args=bound.args, kwargs=bound.kwargs, bound=bound.bound)
        return Selection(
            candidate=candidate,
            built=replace(built, notes=(*decision.notes, *plain_notes(binder.evaluator.notes), *built.notes)),
            confidence=decision.confidence,
            choices=decision.choices,
            arguments=bound,
        )

    def _alternative(self, candidate: Candidate) -> str | None:
        """The target text of the best other candidate that needs no arguments; None without one."""
        others = [other for other in self.ranked if other.name != candidate.name]
        plain = (o for o in others if o.evidence in ("factory", "class") and not missing_arguments(o.value, {}))
        other = next(plain, None)
        return f"{self.source.name}:{other.name}" if other is not None else None

    def _evaluated(self, candidate: Candidate) -> Any:
        source, site = self.source, candidate.site
        assert site is not None
        try:
            return source.evaluator.value(site.place, site.call)
        except EvaluationError as error:
            names = used_names(site.call)
            missing: BaseException | None = next((f.error for f in source.failures if names & set(f.names)), None)
            if uses_missing_package(error) or isinstance(error.__cause__, UnavailableError):
                missing = error.__cause__
            if missing is not None:
                raise import_failure(source.spec, source.file, missing) from missing
            raise TargetError(
                f"{candidate.name}(), the model at {site.where}, cannot be built alone: {error.reason}",
                where=error.where,
                hint="define a function get_model() that returns it",
            ) from error

    def _reject_layer(self, candidate: Candidate, model: Any, where: str) -> None:
        """Raise TargetError for a single layer without parameters, such as ReLU, which a script only calls."""
        is_layer = type(model).__module__.startswith("torch.nn.") and not any(True for _ in model.children())
        if candidate.evidence == "library" and is_layer and not _has_parameters(model):
            raise TargetError(
                f"{candidate.name}() has no parameters",
                where=where,
                hint="name the model that contains it after a colon",
            )

    def _explanation(self) -> KitError:
        """The error of the best candidate, or of the first one that needs a missing package, the usual cause of the others."""
        errors = [error for _, error in self.failures]
        main = next((error for error in errors if uses_missing_package(error)), errors[0])
        names = list(dict.fromkeys(candidate.name for candidate, error in self.failures if error is not main))
        others = [name for name in names if name not in main.message]
        if not others or uses_missing_package(main):
            return main
        error = TargetError(f"{main.message}; {join_words(others)} failed too", where=main.where, hint=main.hint)
        error.__cause__ = main.__cause__
        return error


class Builds(Solver[tuple[Assumption, ...], Selection | BuildFailure, BuildFailure]):
    """Builds of one candidate: the unknowns are arguments, global names and fields of configurations that nothing gives."""

    def __init__(self, construction: Construction, candidate: Candidate, *, generic: bool) -> None:
        super().__init__(max_trials=_MAX_COMPLETIONS, seconds=_BUILD_LIMIT_S)
        self._construction, self._candidate, self._generic = construction, candidate, generic

    def attempt(self, state: tuple[Assumption, ...]) -> Selection | BuildFailure:
        """The outcome of a build with the assumptions `state`."""
        binder = replace(self._construction.binder, assumptions=state)
        space, names = vars(self._construction.source.module), binder.assumed("global")
        before = {name: space[name] for name in names if name in space}
        space.update(names)
        outcome = self._construction.build(self._candidate, binder, generic=self._generic)
        if isinstance(outcome, BuildFailure):  # another candidate would use them without a word
            for name in names:
                del space[name]
            space.update(before)
            return outcome
        return replace(outcome, assumptions=state, builds=self)

    def sourced(self, state: tuple[Assumption, ...]) -> nn.Module | None:
        """The model with the assumptions `state`, whose sizes know their sources; None if it cannot be built so."""
        binder = replace(self._construction.binder, assumptions=state)
        outcome = self._construction.build(self._candidate, binder, generic=self._generic, names_sources=True)
        built = outcome.built.model if isinstance(outcome, Selection) else None
        return built if isinstance(built, nn.Module) else None

    def problem(self, state: tuple[Assumption, ...], outcome: Selection | BuildFailure) -> BuildFailure | None:
        """Why the build failed, or that an assumed size left weights without elements."""
        if isinstance(outcome, BuildFailure):
            return outcome
        empty = list(_empty_modules(outcome.built.model)) if outcome.arguments.assumed else []
        if not empty:
            return None
        error = TargetError(f"{self._candidate.name}() has {len(empty)} layers with weights without elements")
        return BuildFailure(
            error=error, arguments=outcome.arguments, progress=(1 << 20, -len(empty)), selection=outcome
        )

    def changes(self, state: tuple[Assumption, ...], failure: BuildFailure) -> Iterator[tuple[Assumption, ...]]:
        """`state` with one more assumption that may repair `failure`; another argument replaces no package."""
        source, binder = self._construction.source, replace(self._construction.binder, assumptions=state)
        if source.attr is None and uses_missing_package(failure.error):
            return
        if failure.selection is not None:
            yield from self._without_empty_weights(state, failure.arguments)
            return
        if failure.learned:
            yield (*state, *failure.learned)
            return
        known = {(assumption.kind, assumption.owner, assumption.name) for assumption in state}
        for assumption in repairs(failure.error, failure.arguments, self._candidate.name, binder):
            if (assumption.kind, assumption.owner, assumption.name) not in known:
                yield (*state, assumption)

    def _without_empty_weights(
        self, state: tuple[Assumption, ...], arguments: Arguments
    ) -> Iterator[tuple[Assumption, ...]]:
        """`state` with a size for each unknown that is a switch by its name, but gave a layer its size."""
        model = self.sourced(state)
        numbers = [n for module in _empty_modules(model) for n in numbers_in(module)] if model is not None else []
        empty = {name for number in numbers if number == 0 for name in number.slopes}
        unknowns = unknown_values(arguments, self._candidate.value) if callable(self._candidate.value) else {}
        sizes = tuple(
            assumption(kind, name, GENERIC_SIZE, self._candidate.name)
            for (kind, name), value in unknowns.items()
            if name in empty and not value
        )
        if sizes:
            yield (*state, *sizes)


def assumption(kind: AssumedKind, name: str, value: Any, owner: str) -> Assumption:
    """The assumption that `name` has `value`."""
    return Assumption(kind=kind, name=name, value=value, text=repr(value), owner=owner if kind == "argument" else "")


def pinned_assumptions(pinned: Pinned | None) -> tuple[Assumption, ...]:
    """What trials of an earlier load assumed."""
    values = pinned.assumed if pinned is not None else ()
    return tuple(
        Assumption(kind=v.kind, name=v.name, value=ast.literal_eval(v.value), text=v.value, owner=v.owner)
        for v in values
    )


def pinned_values(assumptions: tuple[Assumption, ...]) -> tuple[PinnedValue, ...]:
    """`assumptions` for other loads of the target, without those that a build shows again, such as tables."""
    plain = (a for a in assumptions if type(a.value) in (int, float, bool, str))
    return tuple(PinnedValue(kind=a.kind, name=a.name, value=a.text, owner=a.owner) for a in plain)


def _empty_modules(model: Any) -> Iterator[nn.Module]:
    """The modules with a weight without elements."""
    for module in model.modules() if isinstance(model, nn.Module) else ():
        weights = module.parameters(recurse=False)
        if any(not is_lazy(weight) and weight.numel() == 0 for weight in weights):
            yield module


def _with_assumptions(error: TargetError, arguments: Arguments) -> TargetError:
    """`error` with the arguments that are assumed: they may be the reason, and not the user's code."""
    values = [f"{name}={value_text(arguments.bound[name])}" for name in arguments.assumed if name in arguments.bound]
    if not values or uses_missing_package(error):
        return error
    more = f" and {len(values) - _LISTED_VALUES} more" if len(values) > _LISTED_VALUES else ""
    message = f"{error.message}, with assumed {', '.join(values[:_LISTED_VALUES])}{more}"
    return TargetError(message, where=error.where, hint="pass the right values with --kw NAME=VALUE")


def _has_parameters(model: Any) -> bool:
    return not isinstance(model, nn.Module) or any(True for _ in model.parameters())

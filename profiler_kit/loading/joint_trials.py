"""Arguments and inputs that nothing states, as unknowns of one search.

One trial builds the model, searches its inputs and takes its loss. Where forward runs with no input, or not with those that the
user states, the failing operation shows two sizes that must be equal. The numbers of its layers know the assumed arguments that
they follow from, so one of these gets another value, and the next trial begins with the build.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from linecache import getline
from typing import Final

from profiler_kit.errors import TargetError
from profiler_kit.loading.candidates.arguments import Assumption, unknown_values
from profiler_kit.loading.candidates.construction import BuildFailure, Selection, assumption
from profiler_kit.loading.candidates.plausible import UNKNOWN, plausible_value
from profiler_kit.loading.candidates.sourced import SourcedInt, numbers_in
from profiler_kit.loading.input_search.meta_run import MetaRunner
from profiler_kit.loading.input_search.mismatches import SizeMismatch, mismatches
from profiler_kit.loading.input_search.outcomes import Failure, NoFitError
from profiler_kit.loading.input_search.search import marked_arguments
from profiler_kit.loading.model import Target
from profiler_kit.loading.solve import Progress, Solved, Solver
from profiler_kit.meta.copies import is_all_meta, meta_copy
from profiler_kit.user_code.locations import user_lines

_MAX_TRIALS: Final = 8
_SECONDS: Final = 30.0  # of CPU time; a search for inputs has its own limit
_WORDS: Final = re.compile(r"[A-Za-z_]\w*")

State = tuple[Assumption, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a build with its inputs gave: a target, or an error. Without both, other arguments failed for other reasons."""

    selection: Selection | None
    target: Target | None = None
    error: NoFitError | None = None

    @property
    def progress(self) -> Progress:
        """How far forward got."""
        return self.error.failure.progress if self.error is not None else (-1, 0)

    @property
    def signature(self) -> tuple[object, ...]:
        """The same for failures that differ in nothing."""
        return self.error.failure.signature if self.error is not None else ()


class JointTrials(Solver[State, Trial, Trial]):
    """Trials of one candidate. `build` makes its model with assumptions, and `load` the target of the model.

    `guard` is around code of the user that finds what to change.
    """

    def __init__(
        self,
        build: Callable[[State], Selection | BuildFailure],
        load: Callable[[Selection], Target],
        guard: Callable[[], AbstractContextManager[object]],
    ) -> None:
        super().__init__(max_trials=_MAX_TRIALS, seconds=_SECONDS)
        self._build, self._load, self._guard = build, load, guard

    def attempt(self, state: State) -> Trial:
        """The target with the assumptions `state`."""
        selection = self._build(state)
        if isinstance(selection, BuildFailure):
            return Trial(selection=None)
        try:
            return Trial(selection=selection, target=self._load(selection))
        except NoFitError as error:
            return Trial(selection=selection, error=error)
        except TargetError:
            if not self.outcomes:  # nothing was changed yet
                raise
            return Trial(selection=None)

    def problem(self, state: State, outcome: Trial) -> Trial | None:
        """The trial, if it has no target."""
        return outcome if outcome.target is None else None

    def changes(self, state: State, failure: Trial) -> Iterator[State]:
        """`state` with another value for an unknown that the failing operation depends on."""
        selection, error = failure.selection, failure.error
        if selection is None or error is None:
            return
        with self._guard():
            corrections = list(_corrections(selection, error))
        for assumed in corrections:
            kept = (a for a in state if (a.kind, a.name) != (assumed.kind, assumed.name))
            yield (*kept, assumed)

    def result(self, first: State) -> Target:
        """The target of the first trial that has one. Raises the error of the trial `first`."""
        solved = self.solve([first])
        if isinstance(solved, Solved) and solved.outcome.target is not None:
            return solved.outcome.target
        error = self.outcomes[first].error
        assert error is not None
        raise error


def _corrections(selection: Selection, error: NoFitError) -> Iterator[Assumption]:
    """Values that may repair the failure: a usual one instead of None, and sizes that make both sides equal."""
    name = selection.candidate.name
    unknowns = unknown_values(selection.arguments, selection.candidate.value)
    if not unknowns:
        return
    words = _words(error.failure)
    for (kind, key), value in unknowns.items():
        usual = plausible_value(key, selection.arguments.bound) if value is None and key in words else UNKNOWN
        if usual is not UNKNOWN and usual is not None:
            yield assumption(kind, key, usual, name)
    if isinstance(error.failure.error, UnboundLocalError):  # each branch that sets the variable is switched off
        for (kind, key), value in unknowns.items():
            if value is False:
                yield assumption(kind, key, True, name)
    kinds = {key: (kind, value) for (kind, key), value in unknowns.items() if type(value) is int}
    for key, size in dict.fromkeys(_sizes(selection, error, {key: value for key, (_, value) in kinds.items()})):
        if key in kinds and size != kinds[key][1] and size > 0:
            yield assumption(kinds[key][0], key, size, name)


def _words(failure: Failure) -> frozenset[str]:
    """The names in the lines of user code that led to `failure`."""
    lines = (getline(*place) for place in user_lines(failure.error))
    return frozenset(word for line in lines for word in _WORDS.findall(line))


def _sizes(selection: Selection, error: NoFitError, values: dict[str, int]) -> Iterator[tuple[str, int]]:
    """(unknown, size) that makes equal what the failing operation got and needs: first for those that its numbers come from."""
    failure = _sourced_failure(selection, error) or error.failure
    pairs = [(m.got, m.need) for m in mismatches(failure, _names(error)) if isinstance(m, SizeMismatch)]
    pairs = [pair for got, need in pairs for pair in ((got, need), (need, got))]
    near = [*numbers_in(failure.arguments), *numbers_in(failure.module), *_read(failure)]
    for size, present in pairs:
        for number in near:
            for name, slope in number.slopes.items() if number == present else ():
                if name in values and slope:
                    yield name, round(values[name] + (size - present) / slope)
    for size, present in pairs:  # a size that follows from an unknown in a way that the numbers do not show
        yield from ((name, size) for name, value in values.items() if value == present)


def _names(error: NoFitError) -> frozenset[str]:
    return frozenset(text.name for text in error.texts if text.name is not None)


def _read(failure: Failure) -> Iterator[SourcedInt]:
    """The numbers among the variables and attributes that the failing line reads."""
    owner = failure.names.get("self")
    for word in dict.fromkeys(_WORDS.findall(failure.source)):
        yield from numbers_in([failure.names.get(word), vars(owner).get(word) if hasattr(owner, "__dict__") else None])


def _sourced_failure(selection: Selection, error: NoFitError) -> Failure | None:
    """The same failure of a model whose numbers know their sources; None if it cannot be repeated."""
    model = selection.builds.sourced(selection.assumptions) if selection.builds is not None else None
    if model is None:
        return None
    runner = MetaRunner(model if is_all_meta(model) else meta_copy(model), needs_batch=False)
    args, kwargs = marked_arguments(error.texts)
    return runner.run(args, kwargs).failure

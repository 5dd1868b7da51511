"""Searches inputs with which a model's forward runs, on tensors without data.

The search begins with the usual inputs for the names of forward's parameters. When forward fails, the failing operation shows
which input it received and which size it needs; this input is changed, and forward runs again. The inputs that got furthest are
changed first. The number of trials is fixed, so that the result does not depend on the speed of the machine; the time limit is
for models whose forward takes seconds.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from profiler_kit.loading.data_path.values import Array
from profiler_kit.loading.input_search.facts import Facts, facts_of
from profiler_kit.loading.input_search.meta_run import MetaRunner
from profiler_kit.loading.input_search.mismatches import SizeMismatch, mismatches
from profiler_kit.loading.input_search.outcomes import (
    Failure,
    InputGuess,
    NoGuess,
    Outcome,
    ignores_input,
    input_name,
    mark,
    plain_failure,
)
from profiler_kit.loading.input_search.preferred_forms import PREFERRED_FORMS, as_containers, is_tiny
from profiler_kit.loading.input_search.proposals import Value, proposals, with_known_sizes
from profiler_kit.loading.input_search.recorder import META
from profiler_kit.loading.input_search.repairs import repairs, usual_sides
from profiler_kit.loading.input_search.roles import Parameter, forward_parameters
from profiler_kit.loading.input_search.states import State, texts_by_name, with_batch, with_dim, with_side, with_text
from profiler_kit.loading.inputs import InputText, build_arguments
from profiler_kit.loading.messages import reports
from profiler_kit.loading.solve import MAX_CHANGED, Solved, Solver, Unsolved, combinations
from profiler_kit.meta.batch import tensors_in
from profiler_kit.meta.copies import meta_copy

MAX_TRIALS: Final = 160
MAX_ELEMENTS: Final = 1 << 40  # of one input; torch cannot describe much larger ones
MAX_SECONDS: Final = 20.0  # of CPU time, so that a busy machine gives the same result
READS_VALUES: Final = "forward reads values, so only its first part was checked"
TAKES_LONG: Final = "forward takes long, so only its first part was checked"
MAX_BISECTIONS: Final = 12
EXTRA_TRIALS: Final = 40  # for the sizes that the last failing operation depends on
_NAMES: Final = re.compile(r"[A-Za-z_]\w*")


def search_inputs(
    model: nn.Module,
    arguments: Mapping[str, Any],
    *,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    start: tuple[InputText, ...] = (),
    known: Mapping[str, Array] | None = None,
    corrects: bool = False,
    max_trials: int = MAX_TRIALS,
) -> InputGuess | NoGuess:
    """Search inputs for `model`, which is on the meta device and does not change.

    `arguments` are those of its constructor, by name; `options` are those of programs that build it. `known` is what programs say
    about the parameters: some of their sizes. `start` are named inputs to begin with. With `corrects`, these are inputs that
    failed, and the search changes them as little as possible.
    """
    known = known or {}
    parameters = forward_parameters(model, frozenset((*(text.parameter or "" for text in start), *known)))
    facts = facts_of(model, arguments, options)
    best: NoGuess | None = None
    tiny: InputGuess | None = None  # whose rows are the batch, because there is one pixel
    trials = 0
    for needs_batch in (True, False):
        search = _Search(
            model,
            parameters,
            facts,
            seed,
            known=known,
            needs_batch=needs_batch,
            corrects=corrects,
            max_trials=max_trials,
        )
        result = search.run(start)
        trials += result.trials
        if isinstance(result, InputGuess):
            if not (needs_batch and search.refused_batch and any(map(is_tiny, result.texts))):
                return replace(result, trials=trials)
            tiny = result
            continue
        if tiny is not None:
            return replace(tiny, trials=trials)
        best = best or result
        if result.is_unavoidable or (needs_batch and not search.refused_batch):
            best = result
            break
    assert best is not None
    return replace(best, trials=trials)


class _Search(Solver[State, Outcome, Failure]):
    def __init__(
        self,
        model: nn.Module,
        parameters: tuple[Parameter, ...],
        facts: Facts,
        seed: int,
        *,
        known: Mapping[str, Array],
        needs_batch: bool,
        corrects: bool,
        max_trials: int,
    ) -> None:
        super().__init__(max_trials=max_trials, seconds=MAX_SECONDS)
        self._corrects = corrects
        self._known = known
        self._parameters = parameters
        self._required = tuple(parameter for parameter in parameters if not parameter.is_optional)
        self._facts = facts
        self._model = model
        self._seed = seed
        self._runner = MetaRunner(meta_copy(model), seed=seed, needs_batch=needs_batch)
        self._strict = needs_batch
        self._solved: set[tuple[object, ...]] = set()  # the operations for which any dimension was tried
        self.refused_batch = False

    def run(self, start: tuple[InputText, ...]) -> InputGuess | NoGuess:
        result = self.solve(self._first_states(start))
        while isinstance(result, Unsolved):
            self.max_trials = len(self.outcomes) + EXTRA_TRIALS
            solved = self._solve_any(result.state, result.failure)
            if solved is None:
                break
            result = self.solve([solved])
        if isinstance(result, Solved):
            return self._judged(result.state, result.outcome)
        state, failure = (result.state, result.failure) if result is not None else ((), None)
        return NoGuess(
            texts=self._texts(state), failure=failure, trials=len(self.outcomes),
            is_unavoidable=failure is not None and self._is_only(failure),
            repeats=self._repeats_of(failure) if failure is not None else 0,
        )  # fmt: skip

    def _judged(self, state: State, outcome: Outcome) -> InputGuess:
        """The guess with `state`, in the form that its author would write, or with a doubt if forward did not end."""
        if outcome.failure is None:
            polished = (state, outcome) if self._corrects else self._with_preferred_form(state, outcome)
            return self._guess(*polished, doubt="")
        return self._guess(state, outcome, doubt=READS_VALUES if outcome.failure.needs_values else TAKES_LONG)

    def problem(self, state: State, outcome: Outcome) -> Failure | None:
        """Why the outcome is not a result. Forward need not end if it takes long, or reads values that meta tensors lack."""
        failure = self._problem(state, outcome)
        if failure is None or isinstance(failure.error, TimeoutError):
            return None
        if not failure.needs_values:
            return failure
        repaired = repairs(state, failure, self._facts, corrects=self._corrects)
        has_repair = self._takes_flag(failure) and any(not self.is_queued(changed) for changed in repaired)
        return failure if has_repair else None

    def changes(self, state: State, failure: Failure) -> Iterator[State]:
        """The inputs that solve a size, then those that differ in what `failure` suggests, then further ones."""
        solved = self._solve(state, failure)
        if solved is not None:
            yield solved
        yield from itertools.islice(repairs(state, failure, self._facts, corrects=self._corrects), 24)
        yield from self._with_optional(state, failure)

    def ignores_unknowns(self, failure: Failure) -> bool:
        """Whether the failing code looks at no input."""
        return ignores_input(failure)

    def _repeats_of(self, failure: Failure) -> int:
        """The number of inputs that got as far as `failure`, if all of them failed in this way, else 0."""
        last = [o.failure for o in self.outcomes.values() if o.failure and o.failure.progress == failure.progress]
        return len(last) if all(other.signature == failure.signature for other in last) else 0

    def _is_only(self, failure: Failure) -> bool:
        """Whether all inputs that got as far as `failure` failed in this way, which depends on none."""
        return self._repeats_of(failure) > 0 and ignores_input(failure)

    def _takes_flag(self, failure: Failure) -> bool:
        names = {input_name(value) for value in failure.names.values() if isinstance(value, Tensor)}
        return any(failure.source.startswith((f"if {name}", f"if not {name}")) for name in names if name)

    def _first_states(self, start: tuple[InputText, ...]) -> Iterator[State]:
        by_name: dict[str, Value] = {}
        for text in start:
            parameter_name = text.parameter or ""
            by_name[parameter_name] = (*by_name.get(parameter_name, ()), text)
        choices: list[list[Value]] = []
        for parameter in self._required:
            values = proposals(parameter, self._required, self._facts, self._model)
            if parameter.name in self._known:
                values = [*with_known_sizes(parameter.name, values, self._known[parameter.name], self._facts), *values]
            if parameter.name in by_name:
                values.insert(0, by_name[parameter.name])
            choices.append(values)
        for chosen in combinations(choices):
            given = iter(chosen)
            yield tuple(() if parameter.is_optional else next(given) for parameter in self._parameters)

    def _with_optional(self, state: State, failure: Failure) -> Iterator[State]:
        """States with a value for an optional parameter that the failing line reads while it is None.

        A variable that no branch has set depends on each of them.
        """
        read = None if isinstance(failure.error, UnboundLocalError) else set(_NAMES.findall(failure.source))
        for index, parameter in enumerate(self._parameters):
            name = parameter.name
            is_missed = name in failure.names and failure.names[name] is None and (read is None or name in read)
            if not state[index] and parameter.takes_none and is_missed:
                for value in proposals(parameter, (*self._required, parameter), self._facts, self._model)[:MAX_CHANGED]:
                    yield (*state[:index], value, *state[index + 1 :])

    def attempt(self, state: State) -> Outcome:
        """The outcome of a forward pass with the inputs `state`."""
        outcome = self._run(state)
        if outcome.failure is not None and outcome.failure.needs_values and not self._runner.reads_values:
            # a new copy: forward may have stored tensors without values, such as a mask
            copy = meta_copy(self._model)
            self._runner = MetaRunner(copy, seed=self._seed, needs_batch=self._strict, reads_values=True)
            outcome = self._run(state)
        error = outcome.failure.error if outcome.failure is not None else None
        self.refused_batch |= type(error).__name__ == "LayerInputError"
        return outcome

    def _passed(self, state: State) -> Iterator[tuple[Parameter, Value, bool]]:
        """(parameter, value, whether it is passed by its position), without the optional parameters that are not passed."""
        is_positional = True
        for parameter, value in zip(self._parameters, state, strict=False):
            is_positional &= bool(value) and not parameter.is_keyword
            if value:
                yield parameter, value, is_positional

    def _run(self, state: State) -> Outcome:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        if any(math.prod(text.shape) > MAX_ELEMENTS for value in state for text in value):
            return Outcome(failure=plain_failure(ValueError("an input of this size has no storage"), (), (0, 0)))
        for parameter, value, is_positional in self._passed(state):
            positional, named = marked_arguments(value)
            argument = named[parameter.name] if named else positional[0]
            if is_positional:
                args.append(argument)
            else:
                kwargs[parameter.name] = argument
        return self._runner.run(tuple(args), kwargs)

    def _problem(self, state: State, outcome: Outcome) -> Failure | None:
        """Why the outcome is not a result: a failure, no tensor, or an output without the batch of the inputs."""
        if outcome.failure is not None:
            return outcome.failure
        outputs = list(tensors_in(as_containers(outcome.output)))
        if not self._strict or not outputs or not any(text.shape for value in state for text in value):
            return None
        batches = {size for value in state for text in value for size in text.shape[: 2 if len(text.shape) < 4 else 1]}
        if any(not output.dim() or batches & set(output.shape[:2]) for output in outputs):
            return None
        self.refused_batch = True
        error = ValueError(f"the output has {outputs[0].shape[0]} rows for a batch of 1")
        return plain_failure(error, (outputs[0],), (1 << 20, 0))

    def _solve(self, state: State, failure: Failure) -> State | None:
        """The state with another image size or length, if the failing operation needs another number of elements."""
        mixed = failure.progress[0] == 1 << 20
        names = frozenset(texts_by_name(state))
        if mixed:
            flat = SizeMismatch(names=names, dim=0, got=failure.arguments[0].shape[0], need=1, is_flat=True)
        else:
            sizes = [m for m in mismatches(failure, names) if isinstance(m, SizeMismatch)]
            solvable = next((m for m in sizes if m.is_flat or m.is_spatial), None)
            if solvable is None:
                return None
            flat = solvable
        texts = texts_by_name(state)
        for name in sorted(flat.names & texts.keys()):
            text = texts[name]
            if len(text.shape) not in (3, 4, 5) or text.is_whole or (text.shape[1:2] == (flat.got,) and not mixed):
                continue
            for side in usual_sides(text, flat.got, flat.need):
                changed = with_text(state, with_side(text, side))
                if self.is_over:
                    return None
                if self._is_past(changed, failure):
                    return changed
                if self._needs_rows(changed) and self._is_past(pair := with_batch(changed, 2), failure):
                    return pair
            found_state = self._bisect(state, partial(with_side, text), len(text.shape), failure, flat)
            if found_state is not None:
                return found_state
        return None

    def _solve_any(self, state: State, failure: Failure) -> State | None:
        """The state with another size of one dimension, on which the wrong size depends; once for each operation."""
        texts = texts_by_name(state)
        sizes = [m for m in mismatches(failure, frozenset(texts)) if isinstance(m, SizeMismatch)]
        if failure.position in self._solved or ignores_input(failure):
            return None
        self._solved.add(failure.position)
        for name in sorted(sizes[0].names & texts.keys()) if sizes else ():
            text = texts[name]
            for dim in range(1, len(text.shape)) if len(text.shape) > 2 and not text.is_whole else ():
                solved = self._bisect(state, partial(with_dim, text, dim), len(text.shape), failure, sizes[0])
                if solved is not None:
                    return solved
        return None

    def _is_past(self, state: State, failure: Failure) -> bool:
        """Whether `state` gets further than `failure`."""
        problem = self._problem(state, self.outcome(state))
        if problem is None:
            return True
        return problem.progress > failure.progress and problem.position != failure.position

    def _needs_rows(self, state: State) -> bool:
        """Whether only the batch of one is wrong: a map of one element has nothing to normalize."""
        failure = self.outcome(state).failure
        return failure is not None and reports(failure.error, "single_row")

    def _bisect(
        self, state: State, resized: Callable[[int], InputText], rank: int, failure: Failure, flat: SizeMismatch
    ) -> State | None:
        """The state with ``resized(size)`` that gets past `failure`; None if `flat` does not depend on the size."""
        low, high = 1, 1024 if rank > 3 else 1 << 17
        for _ in range(MAX_BISECTIONS + (6 if rank == 3 else 0)):
            if low > high or self.is_over:
                return None
            side = (low + high) // 2
            changed = with_text(state, resized(side))
            if self._is_past(changed, failure):
                return changed
            got = self._got(changed, failure, flat)
            if got == flat.got and changed != state:
                return None
            if got is not None and got > flat.need:
                high = side - 1
            else:  # too small, or failed earlier because a map vanished
                low = side + 1
        return None

    def _got(self, state: State, failure: Failure, flat: SizeMismatch) -> int | None:
        """The size that the failing operation of `failure` got instead of that in `flat`; None if another operation failed."""
        problem = self._problem(state, self.outcome(state))
        if problem is None or problem.position != failure.position:
            return None
        sizes = mismatches(problem, frozenset(texts_by_name(state)))
        return next((m.got for m in sizes if isinstance(m, SizeMismatch) and m.need == flat.need), None)

    def _with_preferred_form(self, state: State, outcome: Outcome) -> tuple[State, Outcome]:
        """`state` in the form in which its author would write it, if that runs too."""
        for change in PREFERRED_FORMS:
            for changed in change(state, outcome, self._facts):
                if not self._agrees(changed):
                    continue
                other = self.outcome(changed)
                if self._problem(changed, other) is None:
                    state, outcome = changed, other
                    break
        return state, outcome

    def _agrees(self, state: State) -> bool:
        """Whether `state` has the sizes that programs state."""
        texts = texts_by_name(state)
        pairs = [
            (texts[name].shape, array.sizes) for name, array in self._known.items() if name in texts and array.sizes
        ]
        return all(
            len(shape) == len(sizes)
            and all(size in (None, own) for own, size in zip(shape[1:], sizes[1:], strict=True))
            for shape, sizes in pairs
        )

    def _guess(self, state: State, outcome: Outcome, *, doubt: str) -> InputGuess:
        for text in texts_by_name(state).values():
            rows = outcome.rows.get(text.name or "")
            if rows and (text.is_integer or text.dtype is None):
                state = with_text(state, replace(text, low=0, high=rows))
        shapes = tuple(tuple(output.shape) for output in tensors_in(as_containers(outcome.output)))
        return InputGuess(
            texts=self._texts(state), doubt=doubt, trials=len(self.outcomes), facts=self._facts,
            output_shapes=shapes,
        )  # fmt: skip

    def _texts(self, state: State) -> tuple[InputText, ...]:
        """The ``-i`` texts of `state`: without names as long as positions are enough."""
        texts: list[InputText] = []
        is_plain = True
        for parameter, value, is_positional in self._passed(state):
            is_plain &= (
                is_positional and len(value) == 1 and value[0].name == parameter.name and value[0].literal is None
            )
            texts += [replace(text, name=None) if is_plain else text for text in value]
        return tuple(texts)


def marked_arguments(texts: tuple[InputText, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(positional, keyword) arguments of forward on meta, whose tensors know the names of `texts`."""
    return build_arguments((text, _marked_tensor(text)) for text in texts)


def _marked_tensor(text: InputText) -> Any:
    value = text.make(generator=torch.Generator().manual_seed(0), dtype=torch.float32, device=META)
    return mark(value, text.name) if isinstance(value, Tensor) and text.name is not None else value

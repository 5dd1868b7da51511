"""Inputs that the programs of a repository pass to the model, from the path of their data: loaders, data sets, transforms."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from profiler_kit.loading.command import next_command
from profiler_kit.loading.data_path.flow import Flow
from profiler_kit.loading.data_path.values import Array, known
from profiler_kit.loading.evidence.announcements import announcement, input_note
from profiler_kit.loading.evidence.input_check import named_texts
from profiler_kit.loading.evidence.model_calls import value_at
from profiler_kit.loading.evidence.record import Evidence
from profiler_kit.loading.evidence.subject import Subject
from profiler_kit.loading.evidence.training_batch import (
    data_modules,
    in_training_batch,
    is_of_other_data,
    training_batch,
)
from profiler_kit.loading.input_search.outcomes import InputGuess
from profiler_kit.loading.inputs import InputText
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.model_use import ModelCall, trains
from profiler_kit.loading.program.names import calls_in, last_name
from profiler_kit.loading.program.places import ancestors, place_of
from profiler_kit.loading.scripts.source import Source
from profiler_kit.records.notes import Choice

MAX_CALLS: Final = 12  # calls of the model that are followed, as long as the time of the data path lasts
MAX_LOADERS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What a call of the model passes: by parameter of forward, an array of which some sizes are known."""

    call: ModelCall
    arrays: dict[str, Array]

    def fits(self, texts: tuple[InputText, ...]) -> bool:
        """Whether `texts`, which have names, have the sizes that are known."""
        by_name = {text.name: text for text in texts}
        return all(name in by_name and _agrees(by_name[name], array) for name, array in self.arrays.items())

    def states(self, texts: tuple[InputText, ...]) -> bool:
        """Whether it says all sizes of `texts` apart from the batch."""
        sizes = [array.sizes for text in texts if (array := self.arrays.get(text.name or "")) is not None]
        return len(sizes) == len(texts) and all(
            known_sizes is not None and None not in known_sizes[1:] for known_sizes in sizes
        )


def _agrees(text: InputText, array: Array) -> bool:
    sizes = array.sizes
    return sizes is None or (
        len(sizes) == len(text.shape) and all(size in (None, own) for size, own in zip(sizes, text.shape, strict=True))
    )


def from_programs(subject: Subject) -> Evidence | None:
    """The inputs that a program passes to the model that it trains, if forward runs with them.

    Sizes that the program leaves open are searched.
    """
    if not subject.spec.allow_guess:
        return None
    with subject.user_code("the search for inputs"):
        calls = list(_passed_by_programs(subject))
    for passed in calls:
        where = passed.call.where
        texts = tuple(
            InputText(name=name, shape=tuple(size or 1 for size in array.sizes or ()), dtype=array.dtype)
            for name, array in passed.arrays.items()
        )
        if passed.states(texts) and set(subject.forward.required) <= passed.arrays.keys():
            subject.check_fit(texts, where)
        guess = subject.guess(passed.arrays)
        if isinstance(guess, InputGuess) and passed.fits(named_texts(guess.texts, subject.forward)):
            return _evidence(subject, guess, passed)
    return None


def _evidence(subject: Subject, guess: InputGuess, passed: Passed) -> Evidence:
    found = (
        in_training_batch(subject, guess.texts) if not guess.doubt else guess.texts
    )  # a call that only acts has one example
    texts = named_texts(found, subject.forward)
    where = passed.call.where
    batch, notes = subject.create(found)
    pinned = tuple(map(str, found))
    listed = " ".join(map(str, texts))
    if passed.states(texts) and not guess.doubt and not passed.call.document.is_test:
        note = input_note(f"{listed}, as {where} passes them")
        return Evidence(
            value=batch, where=where, strength="derived", source="data_set", notes=(*notes, note), pinned=pinned
        )
    stated = ", ".join(name for name in passed.arrays if name in {text.name for text in texts})
    choice = Choice(subject="inputs", value=listed, why=f"sizes of {stated} as far as {where} states them")
    notes = (announcement(choice, next_command(subject.spec, inputs=list(pinned))),)
    return Evidence(
        value=batch, where=where, strength="assumed", source="search", notes=notes, pinned=pinned, choices=(choice,)
    )


def _programs(subject: Subject) -> tuple[Document, ...]:
    """The programs of the model: those that train it first, of them the one that builds it, and tests last."""
    site = subject.candidate.site if subject.candidate is not None else None
    documents = [d for d in subject.documents if d.kind in ("target", "importer")]
    return tuple(
        sorted(documents, key=lambda d: (d.is_test, not trains(d.tree), site is None or site.document is not d))
    )


@lru_cache(maxsize=2)  # each trial of other arguments has a subject of its own
def _flow(documents: tuple[Document, ...], source: Source) -> Flow:
    def evaluate(document: Document, node: ast.expr) -> Any:
        return value_at(source, document, node, {})

    return Flow(tuple(document for document in documents if document.kind in ("target", "importer")), evaluate)


def _passed_by_programs(subject: Subject) -> Iterator[Passed]:
    """What the calls of the model in programs that train it pass, where the number of dimensions of an input is known."""
    if subject.source is None or not subject.documents:
        return
    flow = _flow(subject.documents, subject.source)
    size = None
    calls = [
        call
        for document in _programs(subject)
        for call in subject.use.calls(document)
        if call.kind == "forward" and (trains(document.tree) or _is_in_loop(call))
    ]
    calls.sort(key=lambda call: (not _is_in_step(call), is_of_other_data(call.document.tree, call.call)))
    by_function = {_scope(call): call for call in reversed(calls)}  # the first of each function
    for call in [call for call in calls if by_function[_scope(call)] is call][:MAX_CALLS]:
        values = _values(subject, flow, call)
        arrays = {name: value for name, value in values.items() if isinstance(value, Array) and value.sizes}
        if not any(set(array.sizes or ()) - {None} for array in arrays.values()):
            continue
        if size is None:
            stated = training_batch(subject)
            size = stated.size if stated is not None else 0
        yield Passed(call=call, arrays={name: _in_batch(array, size) for name, array in arrays.items()})


def _is_in_step(call: ModelCall) -> bool:
    """Whether the function around the call computes gradients, so that it is a training step and not a validation."""
    return any(last_name(other.func) == "backward" for other in calls_in(_scope(call)))


def _scope(call: ModelCall) -> ast.AST:
    return next(iter(place_of(call.document, call.call).scopes[::-1]), call.document.tree)


def _is_in_loop(call: ModelCall) -> bool:
    """Whether a loop goes through the data of the call, so that it is no trial."""
    return any(isinstance(node, ast.For) for node in ancestors(call.document.tree, call.call))


def _in_batch(array: Array, size: int) -> Array:
    sizes = array.sizes or ()
    return replace(array, sizes=(sizes[0] or size or None, *sizes[1:]))


def _values(subject: Subject, flow: Flow, call: ModelCall) -> dict[str, Any]:
    names = subject.forward.positional
    values: dict[str, Any] = {}
    for position, node in enumerate(call.call.args):
        if isinstance(node, ast.Starred) or position >= len(names):
            break
        values[names[position]] = flow.follow(call.document, node)
    for word in call.call.keywords:
        if word.arg is not None:
            values[word.arg] = flow.follow(call.document, word.value)
    return {name: value for name, value in values.items() if known(value)}


def loader_batches(subject: Subject) -> Iterator[Evidence]:
    """The first input of the batches of loaders that the user's files make, which may not fit forward."""
    if not subject.spec.allow_guess or subject.source is None:
        return
    stated = training_batch(subject)
    with subject.user_code("the search for inputs"):
        flow = _flow(subject.documents, subject.source)
        documents = (d for document in _programs(subject) for d in (document, *data_modules(document)))
        found = [
            (array, document.at(call.lineno))
            for document in documents
            for batch, call in islice(flow.batches(document), MAX_LOADERS)
            if (array := _first_array(batch)) is not None and array.sizes and None not in array.sizes[1:]
        ]
    for array, where in found[:MAX_LOADERS]:
        sizes = _in_batch(array, stated.size if stated is not None else 0).sizes or ()
        text = InputText(shape=tuple(size or 1 for size in sizes), dtype=array.dtype)
        note = input_note(f"{text}, from the loader at {where}")
        yield Evidence(
            value=subject.created_in_size((text,)), where=where, strength="derived", source="data_set", notes=(note,)
        )


def _first_array(value: Any) -> Array | None:
    if isinstance(value, Array):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return next((array for part in parts if (array := _first_array(part)) is not None), None)

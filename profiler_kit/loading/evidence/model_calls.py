"""Inputs that a call of the model in the user's files passes: in a script, a README or a docstring."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from profiler_kit.loading.command import next_command
from profiler_kit.loading.data_path.values import UNKNOWN
from profiler_kit.loading.evidence.announcements import announcement, input_note
from profiler_kit.loading.evidence.input_check import input_texts, named_texts
from profiler_kit.loading.evidence.record import Evidence
from profiler_kit.loading.evidence.subject import Subject
from profiler_kit.loading.input_search.meta_run import MetaRunner
from profiler_kit.loading.inputs import InputText
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.model_use import ModelCall
from profiler_kit.loading.program.places import place_of
from profiler_kit.loading.program.programs import TEST, TRAINING, TRIAL, in_program_order, is_program, program_rank
from profiler_kit.loading.scripts.execution import EvaluationError
from profiler_kit.loading.scripts.source import Source
from profiler_kit.meta.batch import Batch, map_batch
from profiler_kit.meta.copies import meta_copy
from profiler_kit.records.notes import Choice

MAX_CALLS: Final = 12  # calls that are evaluated in one document
MAX_ELEMENTS: Final = 1 << 28  # of an input; a larger one is not an example
_PLAIN: Final = (int, float, bool, str, type(None), np.ndarray)


def from_model_call(subject: Subject) -> Evidence | None:
    """The inputs of the first call of the model whose arguments have values and with which forward runs.

    The documents come in the order of programs, and in the one that builds the model the calls after that.
    """
    site = subject.candidate.site if subject.candidate is not None else None

    def is_unrelated(call: ModelCall) -> bool:
        """Whether `call` stands before the call that builds the model, or in another function."""
        if site is None or site.document is not call.document:
            return False
        scopes = place_of(call.document, call.call).scopes
        return call.call.lineno < site.call.lineno or scopes[: len(site.place.scopes)] != site.place.scopes

    documents = in_program_order(subject.documents, site.document if site is not None else None)
    is_trained = any(map(is_program, documents))
    unfit: tuple[tuple[InputText, ...], str] | None = None  # of the first call
    with subject.user_code("the search for inputs"):
        for document in documents:
            for call in islice(sorted(subject.use.calls(document), key=is_unrelated), MAX_CALLS):
                batch = batch_of(subject, call, {})
                if batch is None:
                    continue
                if _runs(subject, batch):
                    rank = program_rank(document)
                    if rank in (TRIAL, TEST) or (is_trained and rank > TRAINING):
                        return _of_trial(subject, batch, call)
                    texts = " ".join(map(str, input_texts(batch, subject.forward)))
                    notes = (input_note(f"{texts}, as {call.where} passes them"),)
                    return Evidence(value=batch, where=call.where, strength="derived", source="evidence", notes=notes)
                if unfit is None and all(isinstance(value, Tensor) for value in batch.values()):
                    unfit = named_texts(input_texts(batch, subject.forward), subject.forward), call.where
    if unfit is not None:
        subject.check_fit(*unfit)
    return None


def _of_trial(subject: Subject, batch: Batch, call: ModelCall) -> Evidence:
    """The inputs of a call that trains nothing, in a test or in the target's own file: the real ones may be larger."""
    texts = named_texts(input_texts(batch, subject.forward), subject.forward)
    choice = Choice(subject="inputs", value=" ".join(map(str, texts)), why=f"as {call.where} passes them in a trial")
    note = announcement(choice, next_command(subject.spec, inputs=[str(text) for text in texts]))
    return Evidence(
        value=batch, where=call.where, strength="assumed", source="evidence", notes=(note,), choices=(choice,)
    )


def batch_of(subject: Subject, call: ModelCall, bindings: Mapping[str, Any]) -> Batch | None:
    """The values of the arguments of `call`; None if one of them is unknown or not an input, or without a tensor."""
    document = call.document
    if call.kind == "forward":
        nodes = call.call.args
        if not (nodes or call.call.keywords) or any(isinstance(node, ast.Starred) for node in nodes):
            return None
        args = tuple(value_of(subject, document, node, bindings) for node in nodes)
        words = {word.arg: word.value for word in call.call.keywords if word.arg is not None}
        kwargs = {name: value_of(subject, document, node, bindings) for name, node in words.items()}
        batch = Batch(args=args, kwargs=kwargs)
        if any(value is UNKNOWN for value in batch.values()):
            return None
    else:
        argument = call.argument
        value = value_of(subject, document, argument, bindings) if argument is not None else None
        tool_batch = _tool_batch(value, call)
        if tool_batch is None:
            return None
        batch = tool_batch
    tensors = list(batch.tensors())
    has_data = bool(tensors) or any(isinstance(value, np.ndarray) for value in batch.values())
    if not has_data or any(tensor.numel() > MAX_ELEMENTS for tensor in tensors):
        return None
    return batch if all(map(_is_input, batch.values())) else None


def value_of(
    subject: Subject, document: Document, node: ast.expr, bindings: Mapping[str, Any], at: ast.expr | None = None
) -> Any:
    """The value of an expression of `document`, or of a new one at the place of the node `at`; `UNKNOWN` if it has none."""
    assert subject.source is not None
    return value_at(subject.source, document, node, bindings, at)


def value_at(
    source: Source, document: Document, node: ast.expr, bindings: Mapping[str, Any], at: ast.expr | None = None
) -> Any:
    """`value_of`, of the documents of `source`."""
    if isinstance(node, ast.Constant):
        return node.value
    try:
        return source.evaluator.value(place_of(document, at or node), node, bindings)
    except (EvaluationError, KeyError):
        return UNKNOWN  # other evidence follows


def _runs(subject: Subject, batch: Batch) -> bool:
    assert subject.meta_model is not None
    runner = MetaRunner(meta_copy(subject.meta_model), seed=subject.spec.seed, needs_batch=False)
    on_meta = map_batch(batch, lambda tensor: tensor.to("meta"), lambda tensor: tensor)
    failure = runner.run(on_meta.args, on_meta.kwargs).failure
    return failure is None or failure.needs_values or isinstance(failure.error, TimeoutError)


def _is_input(value: object) -> bool:
    if isinstance(value, (Tensor, *_PLAIN)):
        return True
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_input(item) for key, item in value.items())
    return isinstance(value, (tuple, list)) and all(map(_is_input, value))


def _tool_batch(value: Any, call: ModelCall) -> Batch | None:
    if call.kind == "inputs":
        items = value if isinstance(value, (tuple, list)) else (value,)
        return Batch(args=tuple(items)) if any(isinstance(item, Tensor) for item in items) else None
    if isinstance(value, Tensor):
        return Batch(args=(value,))
    shapes = [value] if _is_shape(value) else list(value) if isinstance(value, (tuple, list)) else []
    if not shapes or not all(map(_is_shape, shapes)):
        return None
    # torchinfo's input_size contains the batch; torchsummary's and ptflops' do not
    batch = () if call.kind == "sizes" and "torchinfo" in call.document.text else (1,)
    return Batch(args=tuple(torch.zeros((*batch, *shape)) for shape in shapes))


def _is_shape(value: object) -> bool:
    return isinstance(value, (tuple, list)) and bool(value) and all(type(size) is int and size > 0 for size in value)

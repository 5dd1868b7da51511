"""Explains failed forward passes: the module, the input, the line of code, and a command to try."""

from __future__ import annotations

import re
import shlex
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from profiler_kit.errors import KitError, TargetError
from profiler_kit.loading.command import next_command
from profiler_kit.loading.evidence.input_check import input_texts, missing_inputs, named_texts
from profiler_kit.loading.input_search.layers import dims_text, needed_shape
from profiler_kit.loading.input_search.meta_run import MetaRunner
from profiler_kit.loading.input_search.outcomes import InputGuess
from profiler_kit.loading.input_search.search import search_inputs
from profiler_kit.loading.inputs import InputText
from profiler_kit.loading.messages import Problem, reports
from profiler_kit.loading.validation import AMP_DTYPES
from profiler_kit.meta.batch import forward_of, map_batch, tensors_in
from profiler_kit.meta.copies import meta_copy
from profiler_kit.user_code.locations import (
    is_out_of_memory,
    library_place,
    one_line_message,
    user_place,
    user_source,
)

if TYPE_CHECKING:
    from profiler_kit.loading.model import Target

_TRIALS: Final = 60  # of the search for a hint


class NeedsDataError(TargetError):
    """The model cannot run on meta tensors, which have no values. It may run on a real device."""


class DeviceMoveError(NeedsDataError):
    """The model moves tensors to another device than that of the run. `moves_redirected` may help."""


class _Explanation(NamedTuple):
    """The error for a `problem` on `devices`: an error of `kind` (on CUDA, which has all, a plain one), a `text`, and a `hint`.

    The command in the hint has the options `add`.
    """

    problem: Problem
    devices: tuple[str, ...]
    kind: type[TargetError]
    text: str
    add: str
    hint: str = "{command}"


_ANY: Final = ("meta", "cpu", "cuda")
_MIXED: Final = "a tensor is not on the model's device ({device}): {error}"
_ON_DEVICE: Final = "create it with device=x.device, or use register_buffer"
_VALUES: Final = "data-dependent control flow ({code}) cannot run on meta tensors"
_EXPLANATIONS: Final = (
    _Explanation("missing_device", ("meta", "cpu"), DeviceMoveError,
                 "the code needs a device that is not available here ({error})",
                 "--device cuda", "on a machine with the device, run {command}"),
    _Explanation("cuda_only", ("meta", "cpu"), NeedsDataError, "a kernel runs on CUDA only ({sentence})", "--device cuda"),
    _Explanation("no_meta_kernel", ("meta",), NeedsDataError, "an op does not support meta tensors ({sentence})", "--device cpu"),
    _Explanation("copies_meta", ("meta",), DeviceMoveError, _VALUES, "--device cpu"),
    _Explanation("reads_values", ("meta",), NeedsDataError, _VALUES, "--device cpu"),
    _Explanation("needs_bfloat16", ("meta", "cuda"), NeedsDataError,
                 "grouped matrix products (experts) need bfloat16 on {device}", "--dtype bfloat16"),
    _Explanation("device_mix", ("cpu",), TargetError, _MIXED, "", _ON_DEVICE),
    _Explanation("device_mix", _ANY, DeviceMoveError, _MIXED, "--device cpu", f"{_ON_DEVICE}; or run {{command}}"),
    _Explanation("single_row", _ANY, TargetError, "{layer} needs more than one value per channel in training", "--batch 2"),
    _Explanation("device_assert", _ANY, TargetError,
                 "an assertion failed on the device, usually because an index or a label is out of range",
                 "--device cpu", "find the line with {command}"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A module call that was running when the exception was raised."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def first_tensor(self) -> Tensor | None:
        return next(tensors_in((self.args, self.kwargs)), None)


def explain_forward_failure(target: Target, error: BaseException) -> TargetError:
    """A TargetError that explains why a forward pass of `target` raised `error`.

    Raises `error` itself if it needs no explanation: KitErrors, out-of-memory errors, and anything but an Exception.
    """
    if isinstance(error, KitError) or not isinstance(error, Exception) or is_out_of_memory(error):
        raise error
    calls = list(_calls(error))
    inner = calls[-1] if calls else None
    where = user_place(error) or library_place(error)
    for explain in (
        _explain_missing_inputs,
        _explain_embedding,
        _explain_by_table,
        _explain_shapes,
        _explain_dtypes,
    ):
        explanation = explain(target, error, inner, where)
        if explanation is not None:
            return explanation
    # an error outside all modules comes from the loss, backward or the optimizer
    place = f"forward of {_label(target, inner.module)}" if inner is not None else "the step"
    hint = _working_inputs(target) if inner is not None else None
    return TargetError(
        f"{place} raised {one_line_message(error)}",
        where=where,
        hint=hint or f"fix it{_other_inputs(target)}",
    )


def _calls(error: BaseException) -> Iterator[_Call]:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "_call_impl" and isinstance(frame.f_locals.get("self"), nn.Module):
            local = frame.f_locals
            yield _Call(module=local["self"], args=tuple(local.get("args", ())), kwargs=dict(local.get("kwargs", {})))


def _label(target: Target, module: nn.Module) -> str:
    """``features.3 (Linear)``; only the class for the root module."""
    path = target.paths().get(id(module), "")
    return f"{path} ({type(module).__name__})" if path else type(module).__name__


def _command(target: Target, replaced: Mapping[int, InputText] | None = None) -> str:
    """The command with all inputs of the target as ``-i``, those in `replaced` (by position) changed."""
    texts = input_texts(target.batch, forward_of(target.model))
    return next_command(target.spec, inputs=[str((replaced or {}).get(i, text)) for i, text in enumerate(texts)])


def _other_inputs(target: Target) -> str:
    """The end of a hint that suggests other inputs, with those of the target as options; empty without inputs."""
    texts = input_texts(target.batch, forward_of(target.model))
    words = shlex.join(word for text in texts for word in ("-i", str(text)))
    return f", or pass inputs other than {words}" if words else ""


def _explain_missing_inputs(
    target: Target, error: Exception, inner: _Call | None, where: str | None
) -> TargetError | None:
    if not isinstance(error, TypeError) or inner is None or inner.module is not target.model:
        return None
    if not reports(error, "missing_argument"):
        return None
    return missing_inputs(target.spec, forward_of(target.model), target.batch, where)


def _explain_embedding(target: Target, error: Exception, inner: _Call | None, where: str | None) -> TargetError | None:
    if inner is None or not isinstance(inner.module, (nn.Embedding, nn.EmbeddingBag)):
        return None
    indices = inner.first_tensor()
    if indices is None:
        return None
    rows = inner.module.num_embeddings
    is_float = indices.is_floating_point()
    position = next((i for i, t in enumerate(target.batch.tensors()) if t is indices), None)
    if position is None:  # not an input itself: assume the first input of the same kind
        position = next((i for i, t in enumerate(target.batch.tensors()) if t.is_floating_point() == is_float), None)
    if position is None:  # the model made them from an array
        return None
    name = target.info.inputs[position].name
    tensor = list(target.batch.tensors())[position]
    keyword = None if position < len(list(tensors_in(target.batch.args))) else name
    text = InputText(shape=tuple(tensor.shape), name=keyword, dtype="int64", low=0, high=rows)
    hint = _command(target, {position: text})
    if is_float:
        kind = str(indices.dtype).removeprefix("torch.")
        return TargetError(
            f"{_label(target, inner.module)} needs integers, but {name!r} is {kind}", where=where, hint=hint
        )
    if isinstance(error, IndexError):
        return TargetError(
            f"{_label(target, inner.module)} has {rows} rows, but {name!r} contains an index outside [0, {rows})",
            where=where,
            hint=hint,
        )
    return None


def _explain_by_table(target: Target, error: Exception, inner: _Call | None, where: str | None) -> TargetError | None:
    device, line = target.device.type, one_line_message(error)
    rows = (row for row in _EXPLANATIONS if device in row.devices and reports(error, row.problem))
    row = next(rows, None)
    if row is None:
        return None
    fields = {
        "code": _value_access(error), "command": next_command(target.spec, add=tuple(row.add.split())), "device": device,
        "error": line, "layer": _label(target, inner.module) if inner is not None else "the step",
        "sentence": line.partition(". ")[0],
    }  # fmt: skip
    kind = TargetError if device == "cuda" else row.kind
    return kind(row.text.format_map(fields), where=where, hint=row.hint.format_map(fields))


def _value_access(error: Exception) -> str:
    """The expression that reads values in the user's line."""
    source = user_source(error)
    call = re.search(r"\.(item|tolist|numpy|nonzero|cpu|unique|any|all)\(", source)
    return f".{call.group(1)}()" if call else source[:60] or one_line_message(error)


def _explain_shapes(target: Target, error: Exception, inner: _Call | None, where: str | None) -> TargetError | None:
    if inner is None or not isinstance(error, (RuntimeError, ValueError, IndexError, AssertionError)):
        return None
    layer_input = inner.first_tensor()
    needed = needed_shape(inner.module, tuple(layer_input.shape)) if layer_input is not None else None
    if needed is None and not reports(error, "shapes"):
        return None
    if layer_input is not None and needed is not None:
        mismatch = f"got {dims_text(tuple(layer_input.shape))}, needs {dims_text(needed)}"
    else:
        mismatch = one_line_message(error)
    finished = _finished_modules(target)
    message = f"shape mismatch in {_label(target, inner.module)}: {mismatch}"
    if finished:
        listed = finished if len(finished) <= 4 else ["...", *finished[-3:]]
        message += f". Modules that ran before: {', '.join(listed)}"
    if layer_input is not None and needed is not None and len(needed) == len(layer_input.shape) + 1:
        message += ". A batch dimension is missing"
    return TargetError(message, where=where, hint=_working_inputs(target) or f"fix the layer{_other_inputs(target)}")


def _working_inputs(target: Target) -> str | None:
    """A hint with inputs like those of the target for which forward runs; None if the search finds none, or the same."""
    if any(tensor.is_nested for tensor in target.batch.tensors()):
        return None  # shapes as text do not describe them
    forward = forward_of(target.model)
    texts = named_texts(input_texts(target.batch, forward), forward)
    try:
        model = meta_copy(target.model)
    except KitError:
        return None  # a model that cannot be copied is explained without a search
    start = tuple(text for text in texts if text.name is not None)
    guess = search_inputs(model, {}, seed=target.spec.seed, start=start, corrects=True, max_trials=_TRIALS)
    if not isinstance(guess, InputGuess) or guess.doubt or not guess.texts:
        return None
    command = next_command(target.spec, inputs=[str(text) for text in guess.texts])
    if command == _command(target):
        return None
    plural = "these inputs work" if len(guess.texts) > 1 else "this shape works"
    return f"{plural}: {command}"


def _finished_modules(target: Target) -> list[str]:
    """Paths of the leaf modules that finish before a forward pass on meta fails; empty if it does not fail there."""
    try:
        runner = MetaRunner(meta_copy(target.model), needs_batch=False)
    except KitError:
        return []  # a model that cannot be copied is explained without a trial
    batch = map_batch(target.batch, lambda t: t.to("meta"), lambda t: t)
    failure = runner.run(batch.args, batch.kwargs).failure
    paths = {id(module): path for path, module in runner.model.named_modules()}
    return [paths[module] for module in runner.finished if paths.get(module)] if failure is not None else []


def _explain_dtypes(target: Target, error: Exception, inner: _Call | None, where: str | None) -> TargetError | None:
    if inner is None or not reports(error, "needs_floats"):
        return None
    kind = next((p.dtype for p in target.model.parameters() if p.is_floating_point()), torch.float32)
    name = str(kind).removeprefix("torch.")
    replaced = {
        i: replace(text, dtype=name, low=None, high=None)
        for i, text in enumerate(input_texts(target.batch, forward_of(target.model)))
        if (text.dtype or "float32") != name
    }
    if target.spec.dtype is None and replaced:
        hint = f"pass inputs in the model's dtype: {_command(target, replaced)}"
    elif target.spec.dtype is not None:
        instead = f"use --amp {target.spec.dtype} instead of" if target.spec.dtype in AMP_DTYPES else "leave out"
        hint = f"the model creates tensors of another dtype: {instead} --dtype {target.spec.dtype}"
    else:
        hint = "create the model's internal tensors with dtype=x.dtype"
    return TargetError(
        f"dtype mismatch in {_label(target, inner.module)}: {one_line_message(error)}", where=where, hint=hint
    )

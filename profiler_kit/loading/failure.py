"""Explains failed forward passes: the module, the input, the line of code, and a command to try."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from profiler_kit.errors import KitError, TargetError
from profiler_kit.loading.command import next_command
from profiler_kit.loading.evidence.input_check import input_texts, missing_inputs
from profiler_kit.loading.input_search.layers import dims_text, needed_shape
from profiler_kit.loading.input_search.outcomes import InputGuess
from profiler_kit.loading.input_search.search import search_inputs
from profiler_kit.loading.inputs import InputText
from profiler_kit.loading.validation import AMP_DTYPES
from profiler_kit.meta.batch import Batch, forward_of, map_batch, tensors_in
from profiler_kit.meta.copies import meta_copy
from profiler_kit.meta.device_moves import moves_redirected
from profiler_kit.user_code.locations import (
    is_out_of_memory,
    library_place,
    one_line_message,
    user_place,
    user_source,
)
from profiler_kit.user_code.restoration import restored_objects

if TYPE_CHECKING:
    from profiler_kit.loading.model import Target

_META: Final = torch.device("meta")
_TRIALS: Final = 60  # of the search for a hint
_NEEDS_VALUES: Final = (
    "called on meta tensors",
    "out of meta tensor",
    "meta device type tensor",
    "data-independent",
    "with Meta tensors",
    "meta tensor without",
    "data-dependent",
    "D meta Long tensor",  # the lengths of a packed sequence
)
# the last one: attention of jagged tensors asks for the autocast of the tensors' device, and meta has none
_NO_KERNEL: Final = (
    "SparseMeta", "SparseCsrMeta", "fake impl", "NestedTensorImpl", "unknown device type for autocast",
)  # fmt: skip
# Errors of CUDA-only kernels for tensors on other devices: Triton launches, checks in extensions, custom ops.
_CUDA_ONLY: Final = re.compile(
    r"cannot be accessed from Triton|active drivers|need to be on CUDA"
    r"|must be (a )?(CUDA|cuda) tensors?|must be on (the )?(GPU|CUDA|cuda)"
    r"|Expected a 'cuda' device|no backend-specific|with arguments from the '(CPU|Meta)' backend"
)
# Errors of code that asks for a device which this machine or this run does not have.
_MISSING_DEVICE: Final = re.compile(
    r"not compiled with \w+ enabled|without CUDA support|not linked with support for|[Nn]o NVIDIA driver|No CUDA GPUs"
    r"|Cannot access accelerator|requires CUDA support|requires a CUDA|dummy base class|'_(cuda|xpu)_\w+'|cannot pin"
    r"|NVTX functions not installed|without MPS backend|Cannot get \w+ generator|type torch\.cuda\.\w+ not available"
    r"|from the '(CUDA|XPU|MPS)' backend|Device index must not be negative|unsupported scalarType|autocast device_type"
)
_SHAPE_WORDS: Final = re.compile(
    r"shape|size|dimension|channels|must match|same reduction dim|stack expects|inconsistent tensor", re.IGNORECASE
)


class NeedsDataError(TargetError):
    """The model cannot run on meta tensors, which have no values. It may run on a real device."""


class DeviceMoveError(NeedsDataError):
    """The model moves tensors to another device than that of the run. `moves_redirected` may help."""


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
        _explain_missing_device,
        _explain_missing_kernel,
        _explain_value_access,
        _explain_bfloat16,
        _explain_device_mix,
        _explain_single_row,
        _explain_device_assert,
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
    if re.search(r"missing \d+ required", str(error)) is None:
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


def _explain_missing_device(
    target: Target, error: Exception, inner: _Call | None, where: str | None
) -> TargetError | None:
    if target.device.type == "cuda" or _MISSING_DEVICE.search(str(error)) is None:
        return None
    return DeviceMoveError(
        f"the code needs a device that is not available here ({one_line_message(error)})",
        where=where,
        hint=f"on a machine with the device, run {next_command(target.spec, add=('--device', 'cuda'))}",
    )


def _explain_missing_kernel(
    target: Target, error: Exception, inner: _Call | None, where: str | None
) -> TargetError | None:
    if target.device.type != "cuda" and _CUDA_ONLY.search(str(error)) is not None:
        return NeedsDataError(
            f"a kernel runs on CUDA only ({one_line_message(error).partition('. ')[0]})",
            where=where,
            hint=next_command(target.spec, add=("--device", "cuda")),
        )
    if target.device.type != "meta" or not any(words in str(error) for words in _NO_KERNEL):
        return None
    return NeedsDataError(
        f"an op does not support meta tensors ({one_line_message(error).partition('. ')[0]})",
        where=where,
        hint=next_command(target.spec, add=("--device", "cpu")),
    )


def _explain_value_access(
    target: Target, error: Exception, inner: _Call | None, where: str | None
) -> TargetError | None:
    if target.device.type != "meta" or not any(words in str(error) for words in _NEEDS_VALUES):
        return None
    source = user_source(error)
    kind = DeviceMoveError if "out of meta tensor" in str(error) else NeedsDataError
    call = re.search(r"\.(item|tolist|numpy|nonzero|cpu|unique|any|all)\(", source)
    expression = f".{call.group(1)}()" if call else source[:60] or one_line_message(error)
    return kind(
        f"data-dependent control flow ({expression}) cannot run on meta tensors",
        where=where,
        hint=next_command(target.spec, add=("--device", "cpu")),
    )


def _explain_bfloat16(target: Target, error: Exception, inner: _Call | None, where: str | None) -> TargetError | None:
    if target.device.type == "cpu" or "Expected inputs of BF16 type" not in str(error):
        return None
    kind = NeedsDataError if target.device.type == "meta" else TargetError
    return kind(
        f"grouped matrix products (experts) need bfloat16 on {target.device.type}",
        where=where,
        hint=next_command(target.spec, add=("--dtype", "bfloat16")),
    )


def _explain_device_mix(target: Target, error: Exception, inner: _Call | None, where: str | None) -> TargetError | None:
    if re.search(r"expected device|(on|at) the same device", str(error)) is None:
        return None
    hint = "create it with device=x.device, or use register_buffer"
    if target.device.type != "cpu":
        hint += f"; or run {next_command(target.spec, add=('--device', 'cpu'))}"
    kind = DeviceMoveError if target.device.type == "meta" else TargetError
    return kind(
        f"a tensor is not on the model's device ({target.device.type}): {one_line_message(error)}",
        where=where,
        hint=hint,
    )


def _explain_shapes(target: Target, error: Exception, inner: _Call | None, where: str | None) -> TargetError | None:
    if inner is None or not isinstance(error, (RuntimeError, ValueError, IndexError, AssertionError)):
        return None
    layer_input = inner.first_tensor()
    needed = needed_shape(inner.module, tuple(layer_input.shape)) if layer_input is not None else None
    if needed is None and _SHAPE_WORDS.search(str(error)) is None:
        return None
    if layer_input is not None and needed is not None:
        mismatch = f"got {dims_text(tuple(layer_input.shape))}, needs {dims_text(needed)}"
    else:
        mismatch = one_line_message(error)
    trial = _Trial(target)
    finished = trial.finished_modules()
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
    texts = [
        text if text.name is not None or i >= len(forward.positional) else replace(text, name=forward.positional[i])
        for i, text in enumerate(input_texts(target.batch, forward))
    ]
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


class _Trial:
    """A forward pass of a meta copy of the target, to find the failing module."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._batch = map_batch(target.batch, lambda t: t.to("meta"), lambda t: t)
        try:
            self._model: nn.Module | None = meta_copy(target.model)
        except KitError:
            self._model = None  # a model that cannot be copied is explained without a trial

    def finished_modules(self) -> list[str]:
        """Paths of the leaf modules that finished before the failure; empty if the copy does not fail."""
        if self._model is None:
            return []
        finished: list[str] = []
        for path, module in self._model.named_modules():
            if path and not list(module.children()):
                module.register_forward_hook(lambda *_, path=path: finished.append(path))
        return [] if self._runs(self._batch) else list(dict.fromkeys(finished))

    def _runs(self, batch: Batch) -> bool:
        if self._model is None:
            return False
        try:
            with (
                torch.no_grad(),
                contextlib.redirect_stdout(sys.stderr),
                moves_redirected(_META, join=True),
                restored_objects(self._model, batch.args, batch.kwargs),
            ):
                self._model(*batch.args, **batch.kwargs)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return False
        return True


def _explain_dtypes(target: Target, error: Exception, inner: _Call | None, where: str | None) -> TargetError | None:
    if inner is None or re.search(r"same dtype|scalar type|should be the same|not implemented for", str(error)) is None:
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


def _explain_single_row(target: Target, error: Exception, inner: _Call | None, where: str | None) -> TargetError | None:
    if "more than 1 value per channel" not in str(error) or inner is None:
        return None
    return TargetError(
        f"{_label(target, inner.module)} needs more than one value per channel in training",
        where=where,
        hint=next_command(target.spec, add=("--batch", "2")),
    )


def _explain_device_assert(
    target: Target, error: Exception, inner: _Call | None, where: str | None
) -> TargetError | None:
    if "device-side assert" not in str(error):
        return None
    return TargetError(
        "an assertion failed on the device, usually because an index or a label is out of range",
        where=where,
        hint=f"find the line with {next_command(target.spec, add=('--device', 'cpu'))}",
    )

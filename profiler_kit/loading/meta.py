"""A copy of a model without its numbers: same structure, every tensor on the meta device."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from profiler_kit.errors import TargetError
from profiler_kit.loading.place import first_line
from profiler_kit.loading.values import remember_like


def meta_copy(model: nn.Module) -> nn.Module:
    """A deep copy of `model` whose tensors are all on the meta device; no tensor's memory is read or copied.

    Tensors that are one in the model (tied weights) are one in the copy. Raises TargetError when the model holds
    something that cannot be copied.
    """
    if isinstance(model, torch.jit.ScriptModule):
        return _scripted_on_meta(model)
    return copy_with(model, _on_meta).to("meta")


def copy_with(model: nn.Module, change: Callable[[Tensor], Tensor]) -> nn.Module:
    """A deep copy of `model` with ``change(tensor)`` in place of every tensor, once where several names share one.

    Scripted modules in it are copied onto the meta device. Raises TargetError when the model cannot be copied.
    """
    memo: dict[int, Any] = {}
    for script in _scripts(model):
        memo[id(script)] = _scripted_on_meta(script)
    for tensor in _tensors(model):
        if id(tensor) not in memo:
            memo[id(tensor)] = change(tensor)
    return _deepcopy(model, memo)


def _scripts(model: nn.Module) -> Iterator[torch.jit.ScriptModule]:
    """The outermost scripted modules in `model`."""
    for child in model.children():
        if isinstance(child, torch.jit.ScriptModule):
            yield child
        else:
            yield from _scripts(child)


def _scripted_on_meta(script: torch.jit.ScriptModule) -> nn.Module:
    """A copy of `script` on meta. It lives in C++, where only its own format can copy it without its numbers."""
    held = io.BytesIO()
    try:
        if any(tensor.is_meta for tensor in (*script.parameters(), *script.buffers())):
            return copy.deepcopy(script)
        torch.jit.save(script, held)
        held.seek(0)
        made: nn.Module = torch.jit.load(held, map_location="meta")
    except RuntimeError as error:
        raise TargetError(
            f"the scripted module {script.original_name} cannot be copied: {first_line(error)}",
            hint="give the model as it was before torch.jit.script or torch.jit.trace",
        ) from error
    return made.train(script.training)


def is_all_meta(model: nn.Module) -> bool:
    """Whether every tensor the model holds, in plain attributes too, is on the meta device."""
    return all(tensor.device.type == "meta" for tensor in _tensors(model))


def private_copy(model: nn.Module) -> nn.Module:
    """A deep copy of `model`, weights included. Raises TargetError when it cannot be copied."""
    memo: dict[int, Any] = {}
    for tensor in _tensors(model):
        # deepcopy refuses both: what is no leaf, of which a module keeps one only as a cache, and what has no storage
        if not tensor.is_leaf or tensor.layout not in (torch.strided, torch.sparse_coo) or tensor.is_nested:
            memo[id(tensor)] = tensor.detach().clone()
    return _deepcopy(model, memo)


def _deepcopy(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    keep = list(memo.values())  # a memo key is an id: nothing it stands for may be freed meanwhile
    try:
        made = copy.deepcopy(model, memo)
    except Exception as error:
        raise TargetError(
            f"{type(model).__name__} cannot be copied: {first_line(error)}",
            hint="give the file that builds it as the target, so that it is built anew",
        ) from error
    del keep
    return made


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    """Every tensor the modules hold: parameters, buffers, and those in plain attributes."""
    for module in model.modules():
        yield from _walk(vars(module))


def _walk(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _walk(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _walk(item)


def _on_meta(tensor: Tensor) -> Tensor:
    if isinstance(
        tensor, (UninitializedParameter, UninitializedBuffer)
    ):  # Module.to() would make it a plain, empty tensor
        lazy: Any = type(tensor)
        return cast(Tensor, lazy(requires_grad=tensor.requires_grad, device="meta", dtype=tensor.dtype))
    made = remember_like(tensor.detach().to("meta"), tensor)
    if not isinstance(tensor, nn.Parameter):
        return made.requires_grad_(tensor.requires_grad and tensor.is_leaf)
    parameter = nn.Parameter(made, requires_grad=tensor.requires_grad)
    vars(parameter).update(vars(tensor))  # marks such as `no_weight_decay`
    return parameter

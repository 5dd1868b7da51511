"""Copies of models: on the meta device, with replaced tensors, or with all weights. Also of TorchScript modules."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from profiler_kit.errors import TargetError
from profiler_kit.meta.values import copy_values, stored_values
from profiler_kit.user_code.boundary import user_boundary
from profiler_kit.user_code.locations import one_line_message
from profiler_kit.user_code.reachable import is_shared, reachable, tensors_of


def load_on_meta(buffer: io.BytesIO) -> nn.Module:
    """The scripted module in `buffer` with all tensors on meta. Run it with ``torch.jit.optimized_execution(False)``.

    Optimization and loading compare the values of constants, which meta tensors do not have.
    """
    try:
        module: nn.Module = torch.jit.load(buffer, map_location="meta")
    except NotImplementedError:
        buffer.seek(0)
        module = torch.jit.load(buffer, map_location="cpu").to("meta")
        for node, name in _constants(module):
            node.t_(name, node.t(name).to("meta"))
    for part in module.modules():
        if not hasattr(part, "training"):  # freezing removes it
            vars(part)["training"] = False
    return module


def graph_constants(model: nn.Module) -> Iterator[Tensor]:
    """The tensors in the graphs of the scripted modules in `model`."""
    return (node.t(name) for node, name in _constants(model))


def _constants(module: nn.Module) -> Iterator[tuple[Any, str]]:
    """The nodes of all graphs in `module` that hold a tensor, each with the name of the attribute."""
    for part in module.modules():
        script: Any = part._c if isinstance(part, torch.jit.ScriptModule) else None
        for method in script._method_names() if script is not None else ():
            for node in script._get_method(method).graph.findAllNodes("prim::Constant", recurse=True):
                yield from ((node, name) for name in node.attributeNames() if node.kindOf(name) == "t")


def meta_copy(model: nn.Module) -> nn.Module:
    """A deep copy of `model` with all tensors on the meta device; no tensor data is read or copied.

    Shared tensors (tied weights) stay shared. Raises TargetError if the model contains an object that cannot be copied.
    """
    if isinstance(model, torch.jit.ScriptModule):
        return _scripted_on_meta(model)
    return copy_with_tensors(model, _on_meta).to("meta")


def filled(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """A tensor on the CPU like `tensor`, with its values where they are stored, else small random numbers, or zeros."""
    value = stored_values(tensor)
    if value is None and tensor.is_floating_point():
        value = torch.rand(tensor.shape, generator=generator).mul_(0.02).to(tensor.dtype)
    return torch.zeros(tensor.shape, dtype=tensor.dtype) if value is None else value


def copy_with_tensors(model: nn.Module, change: Callable[[Tensor], Tensor]) -> nn.Module:
    """A deep copy of `model` with every tensor replaced by ``change(tensor)``. Shared tensors stay shared.

    Scripted modules are copied to the meta device. Raises TargetError if the model cannot be copied.
    """
    memo: dict[int, Any] = {}
    for script in _scripts(model):
        memo[id(script)] = _scripted_on_meta(script)
    for value in reachable((model,), into_code=False):
        if is_shared(type(value)):
            memo[id(value)] = value
        elif isinstance(value, Tensor) and id(value) not in memo:
            memo[id(value)] = change(value)
    return _deepcopy(model, memo)


def _scripts(model: nn.Module) -> Iterator[torch.jit.ScriptModule]:
    """The outermost scripted modules in `model`."""
    for child in model.children():
        if isinstance(child, torch.jit.ScriptModule):
            yield child
        else:
            yield from _scripts(child)


def _scripted_on_meta(script: torch.jit.ScriptModule) -> nn.Module:
    """A copy of `script` on meta, through a file in memory: only its own format can copy a C++ module without data."""
    buffer = io.BytesIO()
    try:
        if any(tensor.is_meta for tensor in (*script.parameters(), *script.buffers())):
            return copy.deepcopy(script)
        torch.jit.save(script, buffer)
        buffer.seek(0)
        script_copy = load_on_meta(buffer)
    except RuntimeError as error:
        raise TargetError(
            f"the scripted module {script.original_name} cannot be copied: {one_line_message(error)}",
            hint="use the model before torch.jit.optimize_for_inference, or before torch.jit.script or torch.jit.trace",
        ) from error
    return script_copy.train(getattr(script, "training", False))


def is_all_meta(model: nn.Module) -> bool:
    """Whether all tensors of the model, including those in plain attributes and in frozen graphs, are on the meta device."""
    if not all(constant.is_meta for constant in graph_constants(model)):
        return False
    return all(tensor.device.type == "meta" for tensor in tensors_of(model))


def copy_with_weights(model: nn.Module) -> nn.Module:
    """A deep copy of `model` with its weights. Raises TargetError if it cannot be copied."""
    memo: dict[int, Any] = {}
    for value in reachable((model,), into_code=False):
        if is_shared(type(value)):
            memo[id(value)] = value
        # deepcopy fails for non-leaf tensors (modules keep them as caches) and for tensors without storage
        elif isinstance(value, Tensor) and (
            not value.is_leaf or value.layout not in (torch.strided, torch.sparse_coo) or value.is_nested
        ):
            memo[id(value)] = value.detach().clone()
    return _deepcopy(model, memo)


def _deepcopy(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    alive = list(memo.values())  # the keys are ids, so their objects must stay alive
    try:
        with user_boundary():
            model_copy = copy.deepcopy(model, memo)
    except Exception as error:
        raise TargetError(
            f"{type(model).__name__} cannot be copied: {one_line_message(error)}",
            hint="use the file that builds it as the target",
        ) from error
    del alive
    return model_copy


def _on_meta(tensor: Tensor) -> Tensor:
    if isinstance(
        tensor, (UninitializedParameter, UninitializedBuffer)
    ):  # Module.to() would turn it into a plain empty tensor
        lazy_class: Any = type(tensor)
        return cast(Tensor, lazy_class(requires_grad=tensor.requires_grad, device="meta", dtype=tensor.dtype))
    meta_tensor = copy_values(tensor.detach().to("meta"), tensor)
    if not isinstance(tensor, nn.Parameter):
        return meta_tensor.requires_grad_(tensor.requires_grad and tensor.is_leaf)
    parameter = nn.Parameter(meta_tensor, requires_grad=tensor.requires_grad)
    vars(parameter).update(vars(tensor))  # attributes such as `no_weight_decay`
    return parameter

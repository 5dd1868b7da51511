"""TorchScript modules on the meta device. A frozen module has its weights as constants in the graph of its forward."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


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

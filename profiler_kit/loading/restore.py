"""Whatever a static stage does to a model is undone: gradients, buffers, weights, training flags, random numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def unchanged(model: nn.Module, *, weights: bool = False, inputs: Sequence[torch.Tensor] = ()) -> Iterator[None]:
    """Runs the block with no gradients on `model` and `inputs`, and leaves both as they were, also after an exception.

    Buffers (running statistics) are copied and put back; with `weights` the parameters too, for a block that steps an
    optimizer. Meta tensors have no values to keep.
    """
    modules = list(model.modules())  # each walk over a large model takes milliseconds
    parameters = _parameters(modules)
    gradients = {id(tensor): (tensor, tensor.grad) for tensor in (*parameters, *(t for t in inputs if t.is_leaf))}
    flags = [(module, module.training) for module in modules]
    kept = [tensor for module in modules for tensor in module._buffers.values() if tensor is not None]
    kept += parameters if weights else ()
    values = [(tensor, tensor.detach().clone()) for tensor in kept if not tensor.is_meta]
    for tensor, gradient in gradients.values():
        if gradient is not None:
            tensor.grad = None
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        with torch.no_grad():
            for tensor, value in values:
                tensor.copy_(value)
        for tensor in _parameters(model.modules()):  # lazy modules make parameters while they run
            if id(tensor) not in gradients:
                tensor.grad = None
        for tensor, gradient in gradients.values():
            tensor.grad = gradient
        for module, training in flags:
            module.training = training


def _parameters(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    return [tensor for module in modules for tensor in module._parameters.values() if tensor is not None]

"""Restores models after static stages: gradients, buffers, weights, training flags and random number generators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def restored_model(model: nn.Module, *, weights: bool = False, inputs: Sequence[torch.Tensor] = ()) -> Iterator[None]:
    """Run the block without gradients on `model` and `inputs`, and restore both afterwards, also after an exception.

    Restores buffers (running statistics), and with `weights` also parameters, for a block that runs an optimizer. Meta
    tensors have no values to restore.
    """
    modules = list(model.modules())  # iterating over a large model takes milliseconds
    parameters = _parameters(modules)
    gradients = {id(tensor): (tensor, tensor.grad) for tensor in (*parameters, *(t for t in inputs if t.is_leaf))}
    flags = [(module, module.training) for module in modules]
    tensors = [tensor for module in modules for tensor in module._buffers.values() if tensor is not None]
    tensors += parameters if weights else ()
    values = [(tensor, tensor.detach().clone()) for tensor in tensors if not tensor.is_meta]
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
        for tensor in _parameters(model.modules()):  # lazy modules create parameters while they run
            if id(tensor) not in gradients:
                tensor.grad = None
        for tensor, gradient in gradients.values():
            tensor.grad = gradient
        for module, training in flags:
            module.training = training


def _parameters(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    return [tensor for module in modules for tensor in module._parameters.values() if tensor is not None]

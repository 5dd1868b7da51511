"""Whatever counting does to a model is undone: gradients, buffers, weights, training flags, random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def unchanged(model: nn.Module, *, weights: bool = False) -> Iterator[None]:
    """Runs the block with no gradients on `model`, and leaves the model as it was, also after an exception.

    Buffers (running statistics) are copied and put back; with `weights` the parameters too, for a block that steps an
    optimizer. Meta tensors have no values to keep.
    """
    gradients = {p: p.grad for p in model.parameters()}
    flags = {module: module.training for module in model.modules()}
    kept = [*model.buffers(), *(model.parameters() if weights else ())]
    values = [(tensor, tensor.detach().clone()) for tensor in kept if not tensor.is_meta]
    for parameter in gradients:
        parameter.grad = None
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        with torch.no_grad():
            for tensor, value in values:
                tensor.copy_(value)
        for parameter in model.parameters():
            parameter.grad = gradients.get(parameter)
        for module, training in flags.items():
            module.training = training

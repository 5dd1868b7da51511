"""Whatever counting does to a model is undone: gradients, buffers, weights, training flags, random numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def unchanged(model: nn.Module, *, weights: bool = False, inputs: Sequence[torch.Tensor] = ()) -> Iterator[None]:
    """Runs the block with no gradients on `model` and `inputs`, and leaves both as they were, also after an exception.

    Buffers (running statistics) are copied and put back; with `weights` the parameters too, for a block that steps an
    optimizer. Meta tensors have no values to keep.
    """
    gradients = {tensor: tensor.grad for tensor in (*model.parameters(), *(t for t in inputs if t.is_leaf))}
    flags = {module: module.training for module in model.modules()}
    kept = [*model.buffers(), *(model.parameters() if weights else ())]
    values = [(tensor, tensor.detach().clone()) for tensor in kept if not tensor.is_meta]
    for tensor in gradients:
        tensor.grad = None
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        with torch.no_grad():
            for tensor, value in values:
                tensor.copy_(value)
        for tensor in (*gradients, *model.parameters()):  # lazy modules make parameters while they run
            tensor.grad = gradients.get(tensor)
        for module, training in flags.items():
            module.training = training

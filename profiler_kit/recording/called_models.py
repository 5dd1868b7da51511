"""Several models that one loop calls, as one module: its call makes the calls of one step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from profiler_kit.recording.observations import ObservedCall


class CalledModels(nn.Module):
    """The models of a loop as parts, by their names. The models themselves are not changed.

    Its call takes the names of parts with their arguments, and returns their outputs: those of one step.
    """

    def __init__(self, models: Sequence[nn.Module], names: Sequence[str]) -> None:
        super().__init__()
        self.names: dict[int, str] = {}
        for model, name in zip(models, names, strict=True):
            label = name
            for number in itertools.count(2):
                if not hasattr(self, label):
                    break
                label = f"{name}_{number}"
            self.add_module(label, model)
            self.names[id(model)] = label

    def calls(self, observed: Sequence[ObservedCall]) -> tuple[Any, ...]:
        """The arguments of `forward` for the calls that were observed. Calls of other models are left out."""
        return tuple(
            (self.names[call.model], call.has_gradients, call.arguments.args, call.arguments.kwargs)
            for call in observed
            if call.model in self.names
        )

    def forward(self, *calls: tuple[str, bool, tuple[Any, ...], dict[str, Any]]) -> list[Any]:
        """The outputs of `calls`: the name of a part, whether it records gradients, and its arguments."""
        outputs = []
        for name, has_gradients, args, kwargs in calls:
            with torch.set_grad_enabled(has_gradients and torch.is_grad_enabled()):
                outputs.append(getattr(self, name)(*args, **kwargs))
        return outputs


def sum_of_outputs(outputs: Any) -> Tensor:
    """The sum of all outputs that have gradients: each call takes part in the backward pass."""
    tensors = [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad]
    total = torch.zeros(())
    for tensor in tensors:
        total = total + tensor.sum().float()
    return total

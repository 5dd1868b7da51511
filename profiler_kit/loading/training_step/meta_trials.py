"""Runs functions on a copy of a model with meta tensors, to learn about outputs and losses without computation."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from profiler_kit.loading.program.reading import source_text
from profiler_kit.loading.training_step.losses import as_mapping
from profiler_kit.meta.batch import Batch, copied_containers, map_batch, tensors_in
from profiler_kit.meta.copies import meta_copy
from profiler_kit.meta.eager import compilation_disabled
from profiler_kit.meta.garbage_collection import older_objects_frozen
from profiler_kit.meta.op_memo import MemoMode
from profiler_kit.meta.values import ValueTracking, copy_values
from profiler_kit.user_code.environment import seeded
from profiler_kit.user_code.locations import is_out_of_memory
from profiler_kit.user_code.restoration import restored_objects


class MetaTrials:
    """A model and its batch on meta tensors. The model itself is not changed, and its output is computed only once."""

    def __init__(self, model: nn.Module, batch: Batch, seed: int) -> None:
        self._original = model
        self._seed = seed
        self._batch = map_batch(batch, _on_meta, _on_meta)
        self._model: nn.Module | None = None
        self._output: Any = None
        self._has_output = False
        self._memo = MemoMode()  # shared, since trials repeat the ops of the forward pass

    @property
    def batch(self) -> Batch:
        """The batch on meta tensors."""
        return self._batch

    @property
    def model(self) -> nn.Module | None:
        """The model on meta tensors; None for a model with lazy layers, whose shapes are unknown."""
        if self._model is None:
            tensors = [*self._original.parameters(), *self._original.buffers()]
            if not any(is_lazy(tensor) for tensor in tensors):
                self._model = meta_copy(self._original)
        return self._model

    def output(self) -> Any:
        """The output of the model; None if it does not run on meta tensors."""
        model = self.model
        if not self._has_output and model is not None:
            self._has_output = True
            with contextlib.suppress(Exception):
                self._output = self.run(lambda: model(*self._batch.args, **self._batch.kwargs))
        return self._output

    def run(self, function: Callable[[], Any]) -> Any:
        """The result of `function`, with gradients: on meta tensors, or else with the values of small ones. Raises its error."""
        with (
            seeded(self._seed),
            torch.enable_grad(),
            contextlib.redirect_stdout(sys.stderr),
            compilation_disabled(),
            older_objects_frozen(),
        ):
            try:
                with restored_objects(*self._objects(function)), self._memo:
                    return copied_containers(function())
            except Exception as error:
                if is_out_of_memory(error):
                    raise
            with restored_objects(*self._objects(function)), ValueTracking():
                return copied_containers(function())

    def _objects(self, function: Callable[[], Any]) -> tuple[Any, ...]:
        return (function, self._model, self._batch.args, self._batch.kwargs, self._batch.labels)


def _on_meta(tensor: Tensor) -> Tensor:
    if tensor.is_meta:
        return tensor
    return copy_values(tensor.detach().to("meta"), tensor)


# Code without one of these passes the gradients of its parameters on.
_STOPS_GRADIENTS: Final = re.compile(
    r"\b(no_grad|inference_mode|set_grad_enabled|requires_grad\w*|detach_?|data|arg(max|min|sort)|topk)\b"
)


def may_stop_gradients(model: nn.Module) -> bool:
    """Whether the code of a class in `model` contains a function that stops gradients."""
    kinds = {type(module) for module in model.modules() if not type(module).__module__.startswith("torch.")}
    return any(_STOPS_GRADIENTS.search(source_text(kind)) for kind in kinds)


def is_without_gradients(trials: MetaTrials) -> bool:
    """Whether the model returns tensors, and none of them depends on a parameter. False if it does not run on meta tensors."""
    outputs = list(tensors_in(as_mapping(trials.output())))
    return bool(outputs) and not any(output.requires_grad for output in outputs)

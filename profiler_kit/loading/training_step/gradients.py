"""Whether the output of a model depends on its parameters, so that a training step exists."""

from __future__ import annotations

import re
from typing import Final

from torch import nn

from profiler_kit.loading.program.reading import source_text
from profiler_kit.loading.training_step.losses import as_mapping
from profiler_kit.loading.training_step.meta_trials import MetaTrials
from profiler_kit.meta.batch import tensors_in

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

"""An optimizer made anew with ``fused=True``."""

from __future__ import annotations

import inspect
from typing import Any, Final

import torch

from profiler_kit.errors import TargetError
from profiler_kit.loading.place import first_line

FUSED: Final = "fused"
_HINT: Final = "of torch's own SGD, Adam and AdamW have one: take --optimizer adamw, or leave fused_optimizer out"


def fused(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """An optimizer of the same class, parameters and settings, fused; to be called before its first step.

    Raises TargetError where the class has no fused implementation, none for these parameters, or is used already.
    """
    kind: Any = type(optimizer)
    takes = inspect.signature(kind.__init__).parameters
    if FUSED not in takes:
        raise TargetError(f"{kind.__name__} has no fused implementation", hint=_HINT)
    if all(group.get(FUSED) for group in optimizer.param_groups):
        raise TargetError(f"the target's {kind.__name__} is fused already", hint="leave fused_optimizer out")
    # foreach and fused are two ways to do the same, of which only one may be asked for
    groups = [{**group, FUSED: True, "foreach": False} for group in optimizer.param_groups]
    settings = {name: value for name, value in optimizer.defaults.items() if name in takes}
    try:
        replacement: torch.optim.Optimizer = kind(groups, **{**settings, FUSED: True, "foreach": False})
    except (RuntimeError, TypeError, ValueError) as error:
        raise TargetError(f"{kind.__name__} can't be fused here: {first_line(error)}", hint=_HINT) from error
    return replacement

"""The words of a target that stand beside the model: device, mode, dtypes, names of losses and optimizers."""

from __future__ import annotations

from typing import Final

import torch

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading.losses import CHOICES
from profiler_kit.loading.optimizers import OPTIMIZERS
from profiler_kit.records.target import TargetSpec

MODEL_DTYPES: Final = ("float32", "float64", "float16", "bfloat16")
LARGEST_BATCH: Final = 2**31 - 1  # a larger one fits no device, and overflows what torch counts with
LARGEST_SEED: Final = 2**64 - 1  # torch.manual_seed's
AMP_DTYPES: Final = ("bfloat16", "float16")


def device_of(name: str) -> torch.device:
    """The device of this name. Raises UsageError for no device, TargetError for one that is not here."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"unknown device {name!r}", hint="take meta, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TargetError("no CUDA device here", where=f"--device {name}", hint="take --device cpu")
    return device


def check_words(spec: TargetSpec) -> None:
    """Raises UsageError for a word of `spec` that is none of the choices."""
    for word, value, choices, other in (
        ("--mode", spec.mode, ("train", "infer"), ""),
        ("--dtype", spec.dtype, MODEL_DTYPES, ""),
        ("--amp", spec.amp, AMP_DTYPES, ""),
        ("loss", spec.loss, CHOICES, ", or define loss_fn(output, *inputs)"),
        ("optimizer", spec.optimizer, tuple(OPTIMIZERS), ", or define configure_optimizer(model)"),
    ):
        if value is not None and value not in choices:
            raise UsageError(f"unknown {word} {value!r}", hint=f"take one of {', '.join(choices)}{other}")
    if spec.batch is not None and not 1 <= spec.batch <= LARGEST_BATCH:
        raise UsageError(f"--batch {spec.batch}: not a number from 1 to {LARGEST_BATCH}", hint="take --batch 8")
    if not 0 <= spec.seed <= LARGEST_SEED:
        raise UsageError(f"--seed {spec.seed}: not a number from 0 to 2**64 - 1", hint="take --seed 0")

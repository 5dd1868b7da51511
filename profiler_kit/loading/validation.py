"""Validation of a target's options: device, mode, dtypes, names of losses and optimizers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading.inputs import FILE_INPUT
from profiler_kit.loading.training_step.losses import CHOICES
from profiler_kit.loading.training_step.optimizers import OPTIMIZERS
from profiler_kit.loading.training_step.output_losses import is_output_path
from profiler_kit.records.target import TargetSpec

MODEL_DTYPES: Final = ("float32", "float64", "float16", "bfloat16")
MAX_BATCH: Final = 2**31 - 1  # larger ones overflow torch's counters
MAX_SEED: Final = 2**64 - 1  # limit of torch.manual_seed
AMP_DTYPES: Final = ("bfloat16", "float16")


def parse_device(name: str) -> torch.device:
    """The torch device `name`. Raises UsageError for an unknown name, TargetError for CUDA without a GPU."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"unknown device {name!r}", hint="use meta, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TargetError("this machine has no CUDA device", where=f"--device {name}", hint="use --device cpu")
    return device


def check_options(spec: TargetSpec) -> None:
    """Raise UsageError for an invalid option of `spec`."""
    for option, value, choices, alternative in (
        ("--mode", spec.mode, ("train", "infer"), ""),
        ("--dtype", spec.dtype, MODEL_DTYPES, ""),
        ("--amp", spec.amp, AMP_DTYPES, ""),
        (
            "--loss",
            spec.loss,
            CHOICES,
            ", output[1] or output.loss for a loss that the model returns, or define loss_fn(output, *inputs)",
        ),
        ("--optimizer", spec.optimizer, tuple(OPTIMIZERS), ", or define configure_optimizer(model)"),
    ):
        if option == "--loss" and value is not None and is_output_path(value):
            continue
        if value is not None and value not in choices:
            raise UsageError(f"unknown {option} {value!r}", hint=f"use one of {', '.join(choices)}{alternative}")
    function = FILE_INPUT.match(spec.inputs[0]) if len(spec.inputs) == 1 else None
    if function is not None and not Path(function["file"]).is_file():
        raise UsageError(
            "no such file", where=function["file"],
            hint="use the path of the file that defines the function, or pass shapes: -i 1,3,224,224",
        )  # fmt: skip
    if spec.batch is not None and not 1 <= spec.batch <= MAX_BATCH:
        raise UsageError(f"--batch {spec.batch}: must be from 1 to {MAX_BATCH}", hint="use a value such as --batch 8")
    if not 0 <= spec.seed <= MAX_SEED:
        raise UsageError(f"--seed {spec.seed}: must be from 0 to 2**64 - 1", hint="use a value such as --seed 0")

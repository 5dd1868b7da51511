"""The networks of `networks.models` as targets on meta tensors, with the settings of the measurement."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from profiler_kit.loading import Target, from_model
from scripts.bench.networks.models import MODELS


def target_of(case: str) -> Target:
    """Return the target of a case such as ``unet|b32|sgd|fp32`` or ``unet|b32|infer|fp32``."""
    name, batch, optimizer, dtype = case.split("|")
    recipe = MODELS[name]
    with torch.device("meta"):
        model = recipe.build()
        inputs, labels = recipe.batch(int(batch[1:]), "meta")

    def loss(output: Any, *_: Tensor) -> Tensor:
        return recipe.loss(output, labels)

    return from_model(
        model,
        tuple(inputs),
        loss_fn=loss,
        configure_optimizer=partial(_optimizer, optimizer),
        amp="bfloat16" if dtype == "bf16" else None,
        mode="infer" if optimizer == "infer" else "train",
        device="meta",
    )


def _optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=1e-3)
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

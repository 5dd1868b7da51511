"""The hold-out of the memory prediction: networks and settings that no rule was fitted on, as random cases of two sets.

A case is named ``network|b<batch>|<optimizer>|<precision>|<loss>|<layout>``. Networks of timm are skipped if it is missing.
scripts/lab/record_holdout.py of commit 9a0182c9 chose the cases and measured them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from profiler_kit.loading import Target, from_model
from profiler_kit.memory import LibraryConfig, Setup
from profiler_kit.user_code.environment import define_missing_ops
from scripts.bench.networks.holdout_plain import PLAIN

LOSSES: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "ce": F.cross_entropy,
    "mse": F.mse_loss,
    "smooth_l1": F.smooth_l1_loss,
    "huber": F.huber_loss,
    "l1": F.l1_loss,
    "soft_margin": F.soft_margin_loss,
    "bce": F.binary_cross_entropy_with_logits,
}
OPTIMIZERS: Final[dict[str, Callable[..., torch.optim.Optimizer]]] = {
    "sgd": partial(torch.optim.SGD, lr=1e-5),
    "momentum": partial(torch.optim.SGD, lr=1e-5, momentum=0.9),
    "adam": partial(torch.optim.Adam, lr=1e-6),
    "adamw": partial(torch.optim.AdamW, lr=1e-6),
    "rmsprop": partial(torch.optim.RMSprop, lr=1e-6),
    "adagrad": partial(torch.optim.Adagrad, lr=1e-6),
    "nadam": partial(torch.optim.NAdam, lr=1e-6),
    "adamax": partial(torch.optim.Adamax, lr=1e-6),
}


def target_of(case: str) -> Target:
    """The case as a target on meta tensors."""
    name, batch, work, precision, loss_name, layout = case.split("|")
    with torch.device("meta"):
        model, shape = _build(name)
        inputs = torch.randn(int(batch[1:]), *shape)
        if any(isinstance(parameter, nn.UninitializedParameter) for parameter in model.parameters()):
            model(inputs)  # a lazy layer takes its size from its first input
        if layout == "cl":
            inputs = inputs.contiguous(memory_format=torch.channels_last)
            for parameter in model.parameters():  # as Module.to, which rejects weights of other ranks than 4
                if parameter.dim() == 4:
                    parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        model.train(work != "infer")
        with torch.no_grad():
            out = _first(model(inputs))
        labels = torch.randint(0, out.shape[1], (out.shape[0],)) if loss_name == "ce" else torch.rand(out.shape)
    return from_model(
        model,
        (inputs,),
        labels=(labels,),
        loss_fn=lambda output, *labels: LOSSES[loss_name](_first(output), labels[0]),
        configure_optimizer=lambda model: OPTIMIZERS[work]([p for p in model.parameters() if p.requires_grad]),
        amp={"bf16": "bfloat16", "fp16": "float16"}.get(precision),
        mode="infer" if work == "infer" else "train",
        device="meta",
    )


def _first(output: Any) -> Tensor:
    while not isinstance(output, Tensor):
        output = next(iter(output.values())) if isinstance(output, dict) else output[0]
    return output


def _build(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    if name in PLAIN:
        build, shape = PLAIN[name]
        return build(), shape
    define_missing_ops()
    timm = importlib.import_module("timm")
    try:
        model: nn.Module = timm.create_model(name)
    except (RuntimeError, NotImplementedError):  # its initialization reads values
        with torch.device("cpu"):
            model = timm.create_model(name)
        model = model.to("meta")
    return model, tuple(model.default_cfg["input_size"])  # type: ignore[index]


def setup_of(case: str) -> Setup:
    """The setup of the case's simulation. `ieee` is float32 without TF32."""
    return Setup(config=LibraryConfig(conv_tf32=case.split("|")[3] != "ieee"))

"""The hold-out of the memory prediction: networks and settings that no rule was fitted on, as random cases of two sets.

A case is named ``network|b<batch>|<optimizer>|<precision>|<loss>|<layout>``. Networks of timm are skipped if it is missing.
Measurement and simulation build the same model, inputs, loss and optimizer from the name.
"""

from __future__ import annotations

import contextlib
import importlib
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from profiler_kit.loading import Target, from_model
from profiler_kit.memory import LibraryConfig, Setup
from profiler_kit.user_code.torchvision_ops import define_missing_ops
from scripts.bench.networks.holdout_plain import PLAIN

# One network per family of timm.
TIMM_SETS: Final = {
    1: [
        "dla34", "cspresnet50", "res2net50_26w_4s", "skresnet18", "resnest14d", "hrnet_w18_small", "ghostnet_100",
        "mixnet_s", "regnety_008", "ese_vovnet19b_dw", "efficientnetv2_rw_t", "mobilevit_s", "coat_lite_tiny",
        "poolformer_s12", "gcvit_xxtiny", "edgenext_small", "selecsls42", "convit_tiny", "pvt_v2_b0",
        "focalnet_tiny_srf",
    ],
    2: [
        "xception41", "dpn68", "repvgg_a0", "nfnet_l0", "resnext26ts", "tf_efficientnet_b0", "rexnet_100",
        "hgnet_tiny", "lcnet_100", "repvit_m1", "starnet_s1", "fastvit_t8", "mambaout_femto", "visformer_tiny",
        "xcit_nano_12_p16_224", "twins_svt_small", "levit_128", "sequencer2d_s", "resmlp_12_224", "gernet_s",
        "botnet26t_256", "densenet121", "inception_v4",
    ],
}  # fmt: skip
PLAIN_SETS: Final = {
    1: ("dilated_residual", "point_set", "denoiser", "warped", "enlarged", "forecast", "tagger", "pyramid"),
    2: ("wide_kernels", "separation", "unpooled", "critic", "conformer", "brain_waves", "operator", "volume_encoder"),
}
# `ieee` is float32 without TF32; bf16 and fp16 are autocast.
PRECISIONS: Final = ("fp32", "fp32", "ieee", "bf16", "bf16", "fp16")
BATCHES: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32)
LOSSES: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
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


def holdout_cases(which: int, per_network: int = 6) -> list[str]:
    """The cases of a set, in rounds over its networks, so that a shortened run covers all networks."""
    rng = random.Random(1000 + which)
    rounds: list[str] = []
    for _ in range(per_network):
        names = [*TIMM_SETS[which], *PLAIN_SETS[which]]
        rng.shuffle(names)
        for name in names:
            loss = "ce" if name not in PLAIN and rng.random() < 0.6 else rng.choice(list(LOSSES))
            work = "infer" if rng.random() < 0.12 else rng.choice(list(OPTIMIZERS))
            layout = "cl" if rng.random() < 0.15 and not _is_flat(name) else "nchw"
            rounds.append(f"{name}|b{rng.choice(BATCHES)}|{work}|{rng.choice(PRECISIONS)}|{loss}|{layout}")
    return list(dict.fromkeys(rounds))


def _is_flat(name: str) -> bool:
    return name in PLAIN and len(PLAIN[name][1]) != 3


class HoldoutCase:
    """The parts of a case by name, built on `device`."""

    def __init__(self, case: str, device: str) -> None:
        """Build the model, its inputs and its labels."""
        self.name, batch, self.work, self.precision, self.loss_name, layout = case.split("|")
        with torch.device(device):
            self.model, shape = _build(self.name)
            self.inputs = torch.randn(int(batch[1:]), *shape)
            if any(isinstance(parameter, nn.UninitializedParameter) for parameter in self.model.parameters()):
                self.model(self.inputs)  # a lazy layer takes its size from its first input
            if layout == "cl":
                self.inputs = self.inputs.contiguous(memory_format=torch.channels_last)
                for parameter in self.model.parameters():  # as Module.to, which rejects weights of other ranks than 4
                    if parameter.dim() == 4:
                        parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        self.model.train(self.work != "infer")
        self.device = device
        out = self._first(self._output())
        with torch.device(device):
            is_classes = self.loss_name == "ce"
            self.labels = torch.randint(0, out.shape[1], (out.shape[0],)) if is_classes else torch.rand(out.shape)

    def _output(self) -> Any:
        """The output of a copy of the model on meta tensors, or of the model itself if it holds tensors of its own."""
        with torch.no_grad():
            try:
                with torch.device("meta"):
                    return _on_meta(self.model)(torch.empty_like(self.inputs, device="meta"))
            except (RuntimeError, NotImplementedError):
                return self.model(self.inputs)

    @staticmethod
    def _first(output: Any) -> Tensor:
        while not isinstance(output, Tensor):
            output = next(iter(output.values())) if isinstance(output, dict) else output[0]
        return output

    def loss(self, output: Any, *labels: Tensor) -> Tensor:
        """The case's loss of the first tensor of the model's output."""
        scores = self._first(output)
        if self.loss_name == "ce":
            return F.cross_entropy(scores, labels[0])
        return LOSSES[self.loss_name](scores, labels[0])

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The case's optimizer."""
        return OPTIMIZERS[self.work]([p for p in model.parameters() if p.requires_grad])

    @property
    def amp(self) -> str | None:
        """Autocast's dtype."""
        return {"bf16": "bfloat16", "fp16": "float16"}.get(self.precision)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Autocast on the case's device."""
        if self.amp is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device, getattr(torch, self.amp))


def _on_meta(model: nn.Module) -> nn.Module:
    import copy

    memo: dict[int, Any] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        empty = torch.empty_like(tensor, device="meta")
        memo[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
    return copy.deepcopy(model, memo)


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
        model = model.to(torch.empty(0).device)
    config: Any = model.default_cfg
    return model, tuple(config["input_size"])


def target_of(case: str) -> Target:
    """The case as a target on meta tensors."""
    parts = HoldoutCase(case, "meta")
    return from_model(
        parts.model,
        (parts.inputs,),
        labels=(parts.labels,),
        loss_fn=parts.loss,
        configure_optimizer=parts.optimizer,
        amp=parts.amp,
        mode="infer" if parts.work == "infer" else "train",
        device="meta",
    )


def setup_of(case: str) -> Setup:
    """The setup of the case's simulation."""
    return Setup(config=LibraryConfig(conv_tf32=case.split("|")[3] != "ieee"))

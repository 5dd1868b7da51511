"""Records which loss functions of torch use a label, and how: as class numbers, as probabilities, or as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from profiler_kit.loading.training_step.losses import LabelKind
from profiler_kit.meta.batch import tensors_in

# Functions of torch.nn.functional, with the kind of label that their second argument is. The modules of torch.nn call them.
_KINDS: Final[Mapping[Callable[..., Any], LabelKind]] = {
    F.cross_entropy: "classes",
    F.nll_loss: "classes",
    F.multi_margin_loss: "classes",
    F.binary_cross_entropy: "binary",
    F.binary_cross_entropy_with_logits: "binary",
    F.multilabel_soft_margin_loss: "binary",
    F.mse_loss: "like",
    F.l1_loss: "like",
    F.smooth_l1_loss: "like",
    F.huber_loss: "like",
    F.kl_div: "binary",
    F.soft_margin_loss: "like",
    F.gaussian_nll_loss: "like",
    F.poisson_nll_loss: "binary",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelUse:
    """How a loss function uses a label. `classes` is the number of classes; None if the function has none."""

    kind: LabelKind
    classes: int | None = None


class LabelUses(TorchFunctionMode):
    """A mode that follows `labels`, by name, through their conversions and records the first use of each in a loss function."""

    def __init__(self, labels: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.uses: dict[str, LabelUse] = {}
        self._names = {id(tensor): name for name, tensor in labels.items()}
        self._alive: list[Tensor] = list(labels.values())  # so that no other tensor gets the same id

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._record(func, args, kwargs)
        result = func(*args, **kwargs)
        origin = next((self._names[id(t)] for t in tensors_in((args, kwargs)) if id(t) in self._names), None)
        if origin is not None:
            for tensor in tensors_in(result):
                if not tensor.requires_grad:
                    self._names.setdefault(id(tensor), origin)
                    self._alive.append(tensor)
        return result

    def _record(self, func: Any, args: Any, kwargs: Any) -> None:
        if func is F.one_hot:
            count = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
            self._add(args[0] if args else kwargs.get("tensor"), "classes", count if count > 0 else None)
        elif func in _KINDS:
            prediction = args[0] if args else kwargs.get("input")
            label = args[1] if len(args) > 1 else kwargs.get("target")
            classes = None
            if _KINDS[func] == "classes" and isinstance(prediction, Tensor) and prediction.dim():
                classes = prediction.shape[1 if prediction.dim() > 1 else 0]
            self._add(label, _KINDS[func], classes)

    def _add(self, label: object, kind: LabelKind, classes: int | None) -> None:
        name = self._names.get(id(label))
        if name is not None:
            self.uses.setdefault(name, LabelUse(kind=kind, classes=classes))

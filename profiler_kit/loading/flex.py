"""Letting flex_attention run under a mode that watches it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from typing_extensions import Self

_MODULE: Final = "torch.nn.attention.flex_attention"
_AS_IT_IS: Final = {"_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True, "_validate_device": lambda *tensors: None}


class WholeFlexAttention(TorchDispatchMode):
    """A dispatch mode that flex_attention reaches whole, from torch 2.7 on; it can be entered several times.

    A fused kernel keeps its scores to itself: taken apart, the op would be counted, and its memory seen, otherwise. By itself
    flex_attention compiles the op first, which would take in the mode that watches, and refuses meta tensors and, with
    gradients, a CPU; while the mode lasts, it calls the op as it is, on any device. Nothing happens where its module is not
    loaded, or has none of this (before torch 2.9).
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._flex: list[Mapping[str, Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap `__torch_dispatch__`, at a tenth of its time; `kinds` keeps compilers away

    def __enter__(self) -> Self:
        module: Any = sys.modules.get(_MODULE)
        before = {name: getattr(module, name) for name in _AS_IT_IS if hasattr(module, name)}
        for name in before:
            setattr(module, name, _AS_IT_IS[name])
        self._flex.append(before)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        for name, value in self._flex.pop().items():
            setattr(sys.modules[_MODULE], name, value)

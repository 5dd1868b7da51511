"""Support for flex_attention under dispatch modes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from typing_extensions import Self

_MODULE: Final = "torch.nn.attention.flex_attention"
_UNCOMPILED: Final = {"_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True, "_validate_device": lambda *tensors: None}


class UndecomposedFlexAttention(TorchDispatchMode):
    """A dispatch mode that receives flex_attention as one op, from torch 2.7 on. It can be entered several times.

    A fused kernel does not store its scores, so counting the decomposed op would give other FLOPs and memory. Without this
    mode, flex_attention compiles the op together with the active dispatch mode, and rejects meta tensors and gradients on
    the CPU. Inside this mode it calls the op directly, on any device. Has no effect if the module of flex_attention is not
    loaded or lacks these switches (before torch 2.9).
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._flex: list[Mapping[str, Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # skipping costs a tenth of the time; `kinds` disables compilers

    def __enter__(self) -> Self:
        module: Any = sys.modules.get(_MODULE)
        before = {name: getattr(module, name) for name in _UNCOMPILED if hasattr(module, name)}
        for name in before:
            setattr(module, name, _UNCOMPILED[name])
        self._flex.append(before)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        for name, value in self._flex.pop().items():
            setattr(sys.modules[_MODULE], name, value)

"""What an op was called with, as a text: the same for a call on a device and for its like on tensors without data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

_PLACES: Final = (
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Generator,
)  # they differ without data, or say nothing


def op_name(op: object) -> str:
    """``aten.relu`` for the op ``aten.relu.default``."""
    text = str(op)
    return text.rpartition(".")[0] if text.count(".") > 1 else text


def signature(args: Any, kwargs: Mapping[str, Any]) -> str:
    """``float32[8,3,32,32], float32[4,3,3,3], None, [1,1], ...``: types, shapes and strides of tensors, values of the rest.

    Strides are told of tensors that are not contiguous. What a tensor holds, and where it is, is left out.
    """
    said = [_text(value) for value in args]
    said += [
        f"{name}={_text(value)}"
        for name, value in sorted(kwargs.items())
        if name != "pin_memory" and not isinstance(value, _PLACES)
    ]
    return ", ".join(said)


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        shape = ",".join(map(str, value.shape))
        kind = str(value.dtype).removeprefix("torch.")
        if value.layout is not torch.strided or value.is_contiguous():
            return f"{kind}[{shape}]"
        return f"{kind}[{shape}]/({','.join(map(str, value.stride()))})"
    if isinstance(value, (list, tuple)):
        return f"[{','.join([_text(item) for item in value])}]"
    if isinstance(value, _PLACES):
        return "-"
    return str(value)

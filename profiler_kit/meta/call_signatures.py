"""Signatures of op calls: equal for a call on a device and for the same call on tensors without data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

_IGNORED_TYPES: Final = (
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Generator,
    torch.UntypedStorage,  # its text has every element
)  # differ for tensors without data, or carry no information


def op_name(op: object) -> str:
    """``aten.relu`` for the op ``aten.relu.default``."""
    text = str(op)
    return text.rpartition(".")[0] if text.count(".") > 1 else text


def call_signature(args: Any, kwargs: Mapping[str, Any]) -> str:
    """The arguments of an op call as text: ``float32[8,3,32,32], float32[4,3,3,3], None, [1,1], ...``.

    Contains the dtypes and shapes of tensors, the strides of non-contiguous tensors, and the values of other arguments.
    Does not contain the values and devices of tensors.
    """
    texts = [_text(value) for value in args]
    texts += [
        f"{name}={_text(value)}"
        for name, value in sorted(kwargs.items())
        if name != "pin_memory" and not isinstance(value, _IGNORED_TYPES)
    ]
    return ", ".join(texts)


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        shape = ",".join(map(str, value.shape))
        kind = str(value.dtype).removeprefix("torch.")
        if value.layout is not torch.strided or value.is_contiguous():
            return f"{kind}[{shape}]"
        return f"{kind}[{shape}]/({','.join(map(str, value.stride()))})"
    if isinstance(value, (list, tuple)):
        return f"[{','.join([_text(item) for item in value])}]"
    if isinstance(value, _IGNORED_TYPES):
        return "-"
    return str(value)

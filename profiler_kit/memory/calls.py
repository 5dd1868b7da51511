"""Calls of ops, put as scratch rules read them: facts in place of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from profiler_kit.memory.scratch import OpCall, TensorFacts

_DTYPES: dict[torch.dtype, str] = {}


def facts_of(tensor: Tensor) -> TensorFacts:
    """What a rule may know of `tensor`."""
    dtype = tensor.dtype
    name = _DTYPES.get(dtype)
    if name is None:
        name = _DTYPES[dtype] = str(dtype).rpartition(".")[2]
    return TensorFacts(tuple(tensor.shape), tensor.stride(), name, dtype.itemsize)


def call_of(op: str, args: Any, kwargs: Mapping[str, Any], out: Any, *, in_backward: bool) -> OpCall:
    """The call of the op called `op`, which returned `out`."""
    outputs = out if isinstance(out, (tuple, list)) else (out,)
    return OpCall(
        op,
        tuple([_facts(arg) for arg in args]),
        {key: _facts(value) for key, value in kwargs.items()},
        tuple([_facts(value) for value in outputs]),
        in_backward,
    )


def _facts(value: Any) -> Any:
    if isinstance(value, Tensor):
        return facts_of(value)
    if isinstance(value, (list, tuple)):
        return tuple([_facts(item) for item in value])
    return value

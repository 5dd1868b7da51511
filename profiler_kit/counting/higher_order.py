"""Ops that take functions: flex_attention. They have no schema, and reach a dispatch mode whole where it asks for them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from torch._ops import HigherOrderOperator

from profiler_kit.counting.formulas import find
from profiler_kit.counting.operands import OpFacts, described, spec_of, tensors_in
from profiler_kit.records.counts import Cost

_MODULE: Final = "torch.nn.attention.flex_attention"
_AS_IT_IS: Final = {"_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True, "_validate_device": lambda *tensors: None}


def run_higher_order(op: HigherOrderOperator, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, OpFacts]:
    """Runs a call, and says what came back and the facts of it; nothing is changed in place."""
    inputs = tuple({id(tensor): spec_of(tensor) for tensor in tensors_in((*args, *kwargs.values()))}.values())
    out = op(*args, **kwargs)
    outputs = tuple(spec_of(tensor) for tensor in tensors_in((out,)))
    found, cost = find(op.name()), None
    if found is not None:
        given = [described(value) for value in args]
        cost = found.function(*given, **{name: described(value) for name, value in kwargs.items()}, out=described(out))
        cost += Cost(read_bytes=sum(spec.nbytes for spec in inputs), write_bytes=sum(spec.nbytes for spec in outputs))
    return out, OpFacts(op=f"higher_order.{op.name()}", inputs=inputs, outputs=outputs, cost=cost)


def open_flex_attention() -> Mapping[str, Any]:
    """Lets flex_attention call its op as it is, on any device, and returns what `restore_flex_attention` needs.

    By itself it compiles the op first, which would take in the mode that watches, and refuses meta tensors and, with gradients,
    a CPU. Nothing happens where its module is not loaded, or has none of this (before torch 2.9).
    """
    module: Any = sys.modules.get(_MODULE)
    before = {name: getattr(module, name) for name in _AS_IT_IS if hasattr(module, name)}
    for name in before:
        setattr(module, name, _AS_IT_IS[name])
    return before


def restore_flex_attention(before: Mapping[str, Any]) -> None:
    """Sets everything back as it was."""
    for name, value in before.items():
        setattr(sys.modules[_MODULE], name, value)

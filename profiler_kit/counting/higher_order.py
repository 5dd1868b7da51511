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
_SWITCH: Final = "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"


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


def flex_attention_as_written(on: bool | None) -> bool | None:
    """Sets whether flex_attention calls its op as it is instead of compiling it first, and returns how that was set.

    Compiling would take in the mode that watches. None where the module is not loaded, or, before torch 2.9, has no such
    switch; setting None does nothing.
    """
    module: Any = sys.modules.get(_MODULE)
    before: bool | None = getattr(module, _SWITCH, None)
    if on is not None and before is not None:
        setattr(module, _SWITCH, on)
    return before

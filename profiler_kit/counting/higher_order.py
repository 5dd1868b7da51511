"""Ops that take functions: flex_attention. They have no schema, and reach a dispatch mode whole where it asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch._ops import HigherOrderOperator

from profiler_kit.counting.formulas import find
from profiler_kit.counting.operands import OpFacts, described, spec_of, tensors_in
from profiler_kit.records.counts import Cost


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

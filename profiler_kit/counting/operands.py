"""From an op's live arguments to metadata, and from its schema to what it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch._ops import HigherOrderOperator

from profiler_kit.counting.arithmetic import per_element
from profiler_kit.counting.formulas import Formula, find
from profiler_kit.counting.layouts import spec_of_layout
from profiler_kit.records.counts import ZERO, Cost, TensorSpec


@lru_cache(maxsize=65536)
def _spec(shape: tuple[int, ...], dtype: torch.dtype, nbytes: int) -> TensorSpec:
    return TensorSpec(shape=shape, dtype=str(dtype).removeprefix("torch."), nbytes=nbytes)


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape, dtype and bytes of `tensor`. An element that several positions share (stride 0) counts once."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return spec_of_layout(tensor)
    shape = tuple(tensor.shape)
    if tensor.is_contiguous():
        elements = tensor.numel()
    else:
        elements = prod(size for size, stride in zip(shape, tensor.stride(), strict=True) if stride != 0)
    return _spec(shape, tensor.dtype, elements * tensor.dtype.itemsize)


def described(value: Any) -> Any:
    """`value` with every tensor replaced by its spec."""
    if isinstance(value, torch.Tensor):
        return spec_of(value)
    if type(value) in (list, tuple) and any(isinstance(item, (torch.Tensor, list, tuple)) for item in value):
        return tuple(described(item) for item in value)
    return value


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among `values` and in lists and tuples among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif type(value) in (list, tuple):
            yield from tensors_in(value)


@dataclass(frozen=True, slots=True)
class Plan:
    """How calls of one op are counted, decided once from its name, tags and schema.

    `formula` None with `known` false is an op nobody knows. `written` are positions of arguments the op changes in
    place, `unread` those of them that it overwrites unread; `outputs` are names of its ``out=`` arguments.
    """

    name: str
    formula: Formula | None
    known: bool
    pointwise: bool
    moves_nothing: bool
    written: frozenset[int]
    unread: frozenset[int]
    outputs: frozenset[str]
    composite: bool


def plan(op: torch._ops.OpOverload) -> Plan:
    """The plan for `op`: its formula, else a rule from its schema, else unknown.

    The rules: a view (every result aliases an argument, none is written) moves nothing; a factory (no tensor goes in)
    only writes; torch's own pointwise tag means 1 FLOP per output element.
    """
    found = find(str(op))
    schema = op._schema
    arguments = schema.arguments
    changed = [(i, a) for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
    written = frozenset(i for i, a in changed if not a.kwarg_only)
    outputs = frozenset(a.name for _, a in changed if a.kwarg_only)
    is_view = bool(schema.returns) and all(
        r.alias_info is not None and not r.alias_info.is_write for r in schema.returns
    )
    factory = not any("Tensor" in str(a.type) for a in arguments if a.name not in outputs)
    pointwise = torch.Tag.pointwise in op.tags
    qualified = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
    composite = found is None and torch._C._dispatch_has_kernel_for_dispatch_key(qualified, "CompositeImplicitAutograd")
    return Plan(
        name=str(op).rpartition(".")[0],
        formula=found,
        known=found is not None or is_view or factory or pointwise,
        pointwise=pointwise,
        moves_nothing=is_view or (found is not None and found.moves == "nothing"),
        written=written,
        unread=written if found is not None and found.moves == "overwrite" else frozenset(),
        outputs=outputs,
        composite=composite,
    )


@dataclass(frozen=True, slots=True)
class Operands:
    """What one call of an op was given and what it returned, as metadata, each distinct tensor once."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    reads: tuple[TensorSpec, ...]
    changed: tuple[TensorSpec, ...]
    changed_ids: frozenset[int]


def operands(how: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Operands:
    """The operands of a call, looked at before it runs: an in-place op may change them."""
    reads: dict[int, TensorSpec] = {}
    changed: dict[int, TensorSpec] = {}
    for position, value in enumerate(args):
        for tensor in tensors_in((value,)):
            if position not in how.unread:
                reads[id(tensor)] = spec_of(tensor)
            if position in how.written:
                changed[id(tensor)] = spec_of(tensor)
    for name, value in kwargs.items():
        for tensor in tensors_in((value,)):
            (changed if name in how.outputs else reads)[id(tensor)] = spec_of(tensor)
    return Operands(
        args=tuple(described(value) for value in args),
        kwargs={name: described(value) for name, value in kwargs.items() if name not in how.outputs},
        reads=tuple(reads.values()),
        changed=tuple(changed.values()),
        changed_ids=frozenset(changed),
    )


def results(given: Operands, out: Any) -> tuple[TensorSpec, ...]:
    """The tensors a call wrote: those it changed in place and those it made."""
    made = {id(t): spec_of(t) for t in tensors_in((out,)) if id(t) not in given.changed_ids}
    return given.changed + tuple(made.values())


def cost(how: Plan, given: Operands, out: Any) -> Cost | None:
    """The cost of a call, None where no formula and no rule says."""
    if not how.known:
        return None
    written = results(given, out)
    own = ZERO
    if how.formula is not None:
        own = how.formula.function(*given.args, **given.kwargs, out=described(out))
    elif how.pointwise and written and not how.moves_nothing:
        own = per_element(written[0])
    if how.moves_nothing or (how.formula is not None and how.formula.moves == "own"):
        return own
    return own + traffic(given.reads, written)


def traffic(reads: Iterable[TensorSpec], written: Iterable[TensorSpec]) -> Cost:
    """The bytes of operands that are each moved once."""
    return Cost(read_bytes=sum(spec.nbytes for spec in reads), write_bytes=sum(spec.nbytes for spec in written))


@dataclass(frozen=True, slots=True, eq=False)
class OpFacts:
    """A call without its place: which op, what it reads and writes, and its cost, None where unknown."""

    op: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    cost: Cost | None


def run(op: Callable[..., Any], how: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, OpFacts]:
    """Runs a call, and says what came back and the facts of it."""
    given = operands(how, args, kwargs)
    out = op(*args, **kwargs)
    return out, OpFacts(op=how.name, inputs=given.reads, outputs=results(given, out), cost=cost(how, given, out))


def run_higher_order(op: HigherOrderOperator, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, OpFacts]:
    """As `run`, for an op that takes functions, such as flex_attention: it has no schema, and changes nothing in place."""
    inputs = tuple({id(tensor): spec_of(tensor) for tensor in tensors_in((*args, *kwargs.values()))}.values())
    out = op(*args, **kwargs)
    outputs = tuple(spec_of(tensor) for tensor in tensors_in((out,)))
    own, total = find(op.name()), None
    if own is not None:
        options = {name: described(value) for name, value in kwargs.items()}
        total = own.function(*map(described, args), **options, out=described(out)) + traffic(inputs, outputs)
    return out, OpFacts(op=f"higher_order.{op.name()}", inputs=inputs, outputs=outputs, cost=total)

"""Metadata of an op's arguments and results, also of sparse and nested tensors, the operands it reads and writes, and its
cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from inspect import signature
from math import prod
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._mode_utils import no_dispatch

from profiler_kit.counting.arithmetic import per_element
from profiler_kit.counting.formulas import Formula, find_formula
from profiler_kit.meta.bounds import note_bound
from profiler_kit.meta.packed_weights import packed_tensors
from profiler_kit.meta.values import known_values
from profiler_kit.records.counts import ZERO, Cost, TensorSpec


def spec_of_layout(tensor: torch.Tensor) -> TensorSpec:
    """The spec of a sparse or nested tensor.

    Shapes: a strided nested tensor has its padded shape, (batch, longest ..., width); a jagged one (1, sum of lengths,
    width); a sparse one its full shape. `values` has the lengths of a strided nested tensor, before its last dimension.
    Units: bytes of stored values and, for sparse tensors, of indices. A sparse meta tensor has no stored pattern, so its
    `stored` is None and its bytes are those of a dense tensor.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_nested and tensor.layout is torch.strided:
        sizes = tensor._nested_tensor_size()
        longest = tuple(int(size) for size in sizes.max(0).values) if len(sizes) else ()
        lengths = tuple(int(length) for length in sizes[:, -2]) if len(longest) > 1 else None
        return TensorSpec(
            shape=(len(sizes), *longest), dtype=dtype, nbytes=tensor.numel() * tensor.dtype.itemsize, values=lengths
        )
    if tensor.layout is torch.jagged:
        values: Any = tensor._values  # `values()` would save the tensor for backward
        return TensorSpec(shape=(1, *values.shape), dtype=dtype, nbytes=values.numel() * values.dtype.itemsize)
    shape = tuple(tensor.shape)
    if tensor.is_meta or tensor.layout is torch._mkldnn:  # type: ignore[attr-defined]
        return TensorSpec(shape=shape, dtype=dtype, nbytes=tensor.numel() * tensor.dtype.itemsize)
    indices: tuple[torch.Tensor, ...]
    if tensor.layout is torch.sparse_coo:
        indices, values = (tensor._indices(),), tensor._values()
    else:
        by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        compressed_name, plain_name = ("crow_indices", "col_indices") if by_row else ("ccol_indices", "row_indices")
        indices, values = (getattr(tensor, compressed_name)(), getattr(tensor, plain_name)()), tensor.values()
    nbytes = sum(part.numel() * part.dtype.itemsize for part in (*indices, values))
    return TensorSpec(shape=shape, dtype=dtype, nbytes=nbytes, stored=values.numel())


@lru_cache(maxsize=65536)
def _spec(shape: tuple[int, ...], dtype: torch.dtype, nbytes: int) -> TensorSpec:
    return TensorSpec(shape=shape, dtype=str(dtype).removeprefix("torch."), nbytes=nbytes)


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape, dtype and bytes of `tensor`. Counts: an element that several positions share (stride 0) once."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return spec_of_layout(tensor)
    shape = tuple(tensor.shape)
    if tensor.is_contiguous():
        elements = tensor.numel()
    else:
        elements = prod(size for size, stride in zip(shape, tensor.stride(), strict=True) if stride != 0)
    return _spec(shape, tensor.dtype, elements * tensor.dtype.itemsize)


def as_specs(value: Any, spec: Callable[[torch.Tensor], TensorSpec] | None = None) -> Any:
    """`value` with a `TensorSpec` in place of every tensor: ``spec(tensor)``, or without values."""
    if isinstance(value, torch.Tensor):
        return (spec or spec_of)(value)
    if type(value) in (list, tuple) and any(isinstance(item, (torch.Tensor, list, tuple)) for item in value):
        return tuple(as_specs(item, spec) for item in value)
    return value


def specs_with_values(op: str, argument: str, value: Any) -> Any:
    """`as_specs` of an argument whose values the formula of `op` reads. If they are unknown, the work is an upper bound."""
    known = {id(tensor): known_values(tensor) for tensor in tensors_in((value,))}
    if any(values is None for values in known.values()):
        note_bound(op, "upper", f"the values of {argument} are unknown, so the most work that they allow counts")
        return as_specs(value)

    def spec(tensor: torch.Tensor) -> TensorSpec:
        values = known[id(tensor)]
        assert values is not None
        with no_dispatch():
            return replace(spec_of(tensor), values=tuple(int(element) for element in values.flatten().tolist()))

    return as_specs(value, spec)


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors in `values`, also inside nested lists and tuples."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif type(value) in (list, tuple):
            yield from tensors_in(value)


@dataclass(frozen=True, slots=True)
class Plan:
    """How to count calls of one op; decided once from its name, tags and schema.

    `is_known`: whether a formula or a rule gives the cost; otherwise the op is uncounted. `written`: positions of arguments
    that the op changes in place. `unread`: those of them that it overwrites without reading. `outputs`: names of its
    ``out=`` arguments. `composite`: whether the op is a composite of other ops and has no formula. `reads`: the arguments, by
    position and by name, whose values the formula reads. `parameters`: the names of the positional arguments.
    """

    name: str
    formula: Formula | None
    is_known: bool
    pointwise: bool
    moves_nothing: bool
    written: frozenset[int]
    unread: frozenset[int]
    outputs: frozenset[str]
    composite: bool
    reads: Mapping[int | str, str]
    parameters: tuple[str, ...]


def plan_op(op: torch._ops.OpOverload) -> Plan:
    """The plan for `op`: its formula, else a rule from its schema, else unknown.

    Counts: a view (every result aliases an argument, none is written) moves no bytes; a factory (no tensor argument) only
    writes; an op with torch's pointwise tag has 1 FLOP per output element.
    """
    formula = find_formula(str(op))
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
    composite = formula is None and torch._C._dispatch_has_kernel_for_dispatch_key(
        qualified, "CompositeImplicitAutograd"
    )
    return Plan(
        name=str(op).rpartition(".")[0],
        formula=formula,
        is_known=formula is not None or is_view or factory or pointwise,
        pointwise=pointwise,
        moves_nothing=is_view or (formula is not None and formula.moves == "nothing"),
        written=written,
        unread=written if formula is not None and formula.moves == "overwrite" else frozenset(),
        outputs=outputs,
        composite=composite,
        reads={} if formula is None else argument_places(op, formula.reads),
        parameters=tuple(argument.name for argument in arguments if not argument.kwarg_only),
    )


def reads_values(op: torch._ops.OpOverload) -> bool:
    """Whether the formula of `op` reads values of its arguments."""
    formula = find_formula(str(op))
    return formula is not None and bool(formula.reads)


def argument_places(op: torch._ops.OpOverload, names: Iterable[str]) -> dict[int | str, str]:
    """The positions and the names of those arguments of `op` that are in `names`, each with its name."""
    wanted = set(names)
    return {
        place: argument.name
        for position, argument in enumerate(op._schema.arguments)
        if argument.name in wanted
        for place in (position, argument.name)
    }


@dataclass(frozen=True, slots=True)
class Operands:
    """Metadata of a call's arguments; each distinct tensor once in `reads` and in `changed`."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    reads: tuple[TensorSpec, ...]
    changed: tuple[TensorSpec, ...]
    changed_ids: frozenset[int]


def operands(plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Operands:
    """The operands of a call. Read them before the call: an in-place op may change their metadata."""
    reads: dict[int, TensorSpec] = {}
    changed: dict[int, TensorSpec] = {}
    for position, value in enumerate(args):
        for tensor in tensors_in((value,)):
            if position not in plan.unread:
                reads[id(tensor)] = spec_of(tensor)
            if position in plan.written:
                changed[id(tensor)] = spec_of(tensor)
        for packed in _packed_objects(value):
            reads[id(packed)] = _packed_spec(packed)
    for name, value in kwargs.items():
        for tensor in tensors_in((value,)):
            (changed if name in plan.outputs else reads)[id(tensor)] = spec_of(tensor)

    def of_argument(place: int | str, value: Any) -> Any:
        return specs_with_values(plan.name, plan.reads[place], value) if place in plan.reads else as_specs(value)

    return Operands(
        args=tuple(of_argument(place, value) for place, value in enumerate(args)),
        kwargs={name: of_argument(name, value) for name, value in kwargs.items() if name not in plan.outputs},
        reads=tuple(reads.values()),
        changed=tuple(changed.values()),
        changed_ids=frozenset(changed),
    )


def _packed_objects(value: Any) -> Iterator[Any]:
    """The packed weights of quantized layers in `value`."""
    if type(value) is torch.ScriptObject:
        yield value
    elif type(value) in (list, tuple) and value and type(value[0]) is torch.ScriptObject:
        yield from value


def _packed_spec(packed: Any) -> TensorSpec:
    tensors = packed_tensors(packed)
    elements, nbytes = sum(t.numel() for t in tensors), sum(t.numel() * t.element_size() for t in tensors)
    return TensorSpec(shape=(elements,), dtype="packed", nbytes=nbytes)


def written_specs(call: Operands, out: Any) -> tuple[TensorSpec, ...]:
    """The tensors that a call wrote: those changed in place, then the new ones."""
    new = {id(t): spec_of(t) for t in tensors_in((out,)) if id(t) not in call.changed_ids}
    return call.changed + tuple(new.values())


def call_cost(plan: Plan, call: Operands, out: Any) -> Cost | None:
    """The cost of a call; None without a formula or a rule."""
    if not plan.is_known:
        return None
    written = written_specs(call, out)
    cost = ZERO
    if plan.formula is not None:
        cost = plan.formula.cost(call.args, call.kwargs, plan.parameters, as_specs(out))
    elif plan.pointwise and written and not plan.moves_nothing:
        cost = per_element(written[0])
    if plan.moves_nothing or (plan.formula is not None and plan.formula.moves == "own"):
        return cost
    return cost + traffic(call.reads, written)


def traffic(reads: Iterable[TensorSpec], written: Iterable[TensorSpec]) -> Cost:
    """The bytes of operands that move once each."""
    return Cost(read_bytes=sum(spec.nbytes for spec in reads), write_bytes=sum(spec.nbytes for spec in written))


@dataclass(frozen=True, slots=True, eq=False)
class OpFacts:
    """A call without its module and phase: the op, the tensors it reads and writes, and its cost (None if unknown)."""

    op: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    cost: Cost | None


def run_op(op: Callable[..., Any], plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, OpFacts]:
    """Run a call; return its result and its facts."""
    call = operands(plan, args, kwargs)
    out = op(*args, **kwargs)
    cost = call_cost(plan, call, out)
    return out, OpFacts(op=plan.name, inputs=call.reads, outputs=written_specs(call, out), cost=cost)


def run_higher_order(op: HigherOrderOperator, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, OpFacts]:
    """As `run_op`, for an op that takes functions, such as flex_attention. It has no schema and no in-place effect."""
    inputs = tuple({id(tensor): spec_of(tensor) for tensor in tensors_in((*args, *kwargs.values()))}.values())
    out = op(*args, **kwargs)
    outputs = tuple(spec_of(tensor) for tensor in tensors_in((out,)))
    name, formula, cost = f"higher_order.{op.name()}", find_formula(op.name()), None
    if formula is not None:
        options = {option: as_specs(value) for option, value in kwargs.items()}
        specs = [
            specs_with_values(name, parameter, value) if _lists_work(parameter, formula, value) else as_specs(value)
            for parameter, value in zip(signature(formula.function).parameters, args, strict=False)
        ]
        cost = formula.function(*specs, *map(as_specs, args[len(specs) :]), **options, out=as_specs(out))
        cost += traffic(inputs, outputs)
    return out, OpFacts(op=name, inputs=inputs, outputs=outputs, cost=cost)


def _lists_work(parameter: str, formula: Formula, value: Any) -> bool:
    """Whether the formula reads an argument and its tensors list several pieces of work, of which not all may be done."""
    return parameter in formula.reads and any(tensor.numel() > 1 for tensor in tensors_in((value,)))

"""Totals of the recorded ops: per phase, per op, per module; coverage and uncounted ops."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from profiler_kit.counting.module_calls import ModuleCall
from profiler_kit.records.counts import (
    COUNT_PHASES,
    LOSS_PATH,
    Cost,
    CountPhase,
    ModuleNode,
    OpRecord,
    OpTotal,
    SavedTensor,
    UncountedOp,
)

_HIGHER_ORDER: Final = "higher_order."  # its functions read further tensors
_INDICES: Final = ("bool", "int16", "int32", "int64", "uint16", "uint32", "uint64")


class CostSum:
    """A mutable sum of costs. Adding frozen `Cost` records would allocate one record per addition."""

    __slots__ = ("flops", "macs", "read_bytes", "write_bytes")

    def __init__(self) -> None:
        self.macs = self.flops = self.read_bytes = self.write_bytes = 0

    def add(self, cost: Cost, times: int) -> None:
        """Add `cost` multiplied by `times`."""
        self.macs += cost.macs * times
        self.flops += cost.flops * times
        self.read_bytes += cost.read_bytes * times
        self.write_bytes += cost.write_bytes * times

    def total(self) -> Cost:
        """The sum so far."""
        return Cost(macs=self.macs, flops=self.flops, read_bytes=self.read_bytes, write_bytes=self.write_bytes)


def by_phase(ops: Sequence[OpRecord]) -> dict[CountPhase, Cost]:
    """The cost of every phase; zero for a phase without ops."""
    sums = {phase: CostSum() for phase in COUNT_PHASES}
    for op in ops:
        if op.cost is not None:
            sums[op.phase].add(op.cost, op.calls)
    return {phase: total.total() for phase, total in sums.items()}


def by_op(ops: Sequence[OpRecord]) -> tuple[OpTotal, ...]:
    """Calls and cost per op and phase, sorted by phase, then by name."""
    calls: Counter[tuple[str, CountPhase]] = Counter()
    sums: dict[tuple[str, CountPhase], CostSum | None] = {}
    for op in ops:
        key = (op.op, op.phase)
        calls[key] += op.calls
        op_sum = sums.setdefault(key, CostSum() if op.cost is not None else None)
        if op.cost is not None and op_sum is not None:
            op_sum.add(op.cost, op.calls)
    order = sorted(calls, key=lambda key: (COUNT_PHASES.index(key[1]), key[0]))
    return tuple(
        OpTotal(op=name, phase=phase, calls=calls[name, phase], cost=op_sum.total() if op_sum is not None else None)
        for name, phase in order
        for op_sum in (sums[name, phase],)
    )


def uncounted_ops(ops: Sequence[OpRecord]) -> tuple[UncountedOp, ...]:
    """The ops without a known cost, with their calls and module paths, the most frequent first."""
    calls: Counter[str] = Counter()
    paths: dict[str, dict[str, None]] = {}
    macs: Counter[str] = Counter()
    for op in ops:
        if op.cost is None:
            calls[op.op] += op.calls
            paths.setdefault(op.op, {}).setdefault(op.path)
            macs[op.op] += op.calls * possible_macs(op)
    return tuple(
        UncountedOp(
            op=name,
            calls=calls[name],
            paths=tuple(paths[name]),
            possible_macs=None if name.startswith(_HIGHER_ORDER) else macs[name],
        )
        for name in sorted(calls, key=lambda name: (-calls[name], name))
    )


def possible_macs(op: OpRecord) -> int:
    """A limit of the MACs of one call, if it contracts two of its operands, or one with itself.

    Counts: operands that can be multiplied. Integers of more than 8 bits and booleans are indices, lengths and masks.
    """
    sizes = sorted((prod(spec.shape) for spec in op.inputs if not spec.dtype.startswith(_INDICES)), reverse=True)
    return sizes[0] * sizes[min(1, len(sizes) - 1)] if sizes else 0


def coverage_percent(totals: Sequence[OpTotal]) -> float:
    """Percentage of op calls with a known cost (zero is known); 100 if there are no calls."""
    calls = sum(total.calls for total in totals)
    counted_calls = sum(total.calls for total in totals if total.cost is not None)
    return 100.0 * counted_calls / calls if calls else 100.0


def by_module(
    modules: Sequence[ModuleNode],
    of_torch: Container[str],
    ops: Sequence[OpRecord],
    calls: Sequence[ModuleCall],
    saved: Sequence[SavedTensor],
    loss_name: str | None,
) -> tuple[ModuleNode, ...]:
    """Self figures of every module, in pre-order. The loss is the last node if an op or a saved tensor belongs to it.

    `of_torch`: the paths of modules whose code is part of torch.
    """
    costs: defaultdict[tuple[str, CountPhase], CostSum] = defaultdict(CostSum)
    for op in ops:
        if op.cost is not None:
            costs[op.path, op.phase].add(op.cost, op.calls)
    calls_by_path: defaultdict[str, list[ModuleCall]] = defaultdict(list)
    orders: dict[str, int] = {}
    for index, call in enumerate(calls):
        calls_by_path[call.path].append(call)
        orders.setdefault(call.path, index)
    forward_ops: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for op in ops:
        if op.phase == "forward":
            forward_ops[op.path][op.op] += op.calls
    saved_bytes: Counter[str] = Counter()
    held_bytes: Counter[str] = Counter()
    for item in saved:
        saved_bytes[item.saved_in] += item.tensor.nbytes
        for path in item.held_in:
            held_bytes[path] += item.tensor.nbytes

    def with_work(node: ModuleNode, module_calls: Sequence[ModuleCall]) -> ModuleNode:
        path = node.path
        return replace(
            node,
            calls=len(module_calls),
            forward=costs[path, "forward"].total(),
            loss=costs[path, "loss"].total(),
            backward=costs[path, "backward"].total(),
            recompute=costs[path, "recompute"].total(),
            output_bytes=sum(call.output_bytes for call in module_calls),
            output_shape=module_calls[-1].output_shape if module_calls else None,
            saved_bytes=saved_bytes[path],
            held_bytes=held_bytes[path],
            forward_ops=() if path in of_torch else _op_calls(forward_ops[path], len(module_calls)),
            order=orders.get(path),
        )

    nodes = [with_work(module, calls_by_path[module.path]) for module in modules]
    if any(op.path == LOSS_PATH for op in ops) or LOSS_PATH in saved_bytes:
        nodes.append(with_work(ModuleNode(path=LOSS_PATH, class_name=loss_name or "loss", state=()), ()))
    return tuple(nodes)


def _op_calls(calls: Counter[str], module_calls: int) -> tuple[str, ...]:
    """The ops of a module with their calls per call of the module, where that is an integer: ``aten.relu x2``."""
    return tuple(
        f"{name} x{count // module_calls}" if module_calls and count % module_calls == 0 else name
        for name, count in sorted(calls.items())
    )

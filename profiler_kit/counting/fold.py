"""From ops to owners: self cost per module and phase, totals per op, and what nobody knows the cost of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from profiler_kit.counting.modules import ModuleFacts
from profiler_kit.counting.watch import ModuleCall
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


class CostSum:
    """A running sum of costs; adding frozen records one by one would make as many new ones."""

    __slots__ = ("flops", "macs", "read_bytes", "write_bytes")

    def __init__(self) -> None:
        self.macs = self.flops = self.read_bytes = self.write_bytes = 0

    def add(self, cost: Cost, times: int) -> None:
        """Adds `cost` so many `times`."""
        self.macs += cost.macs * times
        self.flops += cost.flops * times
        self.read_bytes += cost.read_bytes * times
        self.write_bytes += cost.write_bytes * times

    def total(self) -> Cost:
        """The sum."""
        return Cost(macs=self.macs, flops=self.flops, read_bytes=self.read_bytes, write_bytes=self.write_bytes)


def by_phase(ops: Sequence[OpRecord]) -> dict[CountPhase, Cost]:
    """The cost of every phase, zero where nothing ran."""
    sums = {phase: CostSum() for phase in COUNT_PHASES}
    for op in ops:
        if op.cost is not None:
            sums[op.phase].add(op.cost, op.calls)
    return {phase: each.total() for phase, each in sums.items()}


def by_op(ops: Sequence[OpRecord]) -> tuple[OpTotal, ...]:
    """Calls and cost of every op in every phase, in the order of phases, then of names."""
    calls: Counter[tuple[str, CountPhase]] = Counter()
    sums: dict[tuple[str, CountPhase], CostSum | None] = {}
    for op in ops:
        key = (op.op, op.phase)
        calls[key] += op.calls
        each = sums.setdefault(key, CostSum() if op.cost is not None else None)
        if op.cost is not None and each is not None:
            each.add(op.cost, op.calls)
    order = sorted(calls, key=lambda key: (COUNT_PHASES.index(key[1]), key[0]))
    return tuple(
        OpTotal(op=name, phase=phase, calls=calls[name, phase], cost=each.total() if each is not None else None)
        for name, phase in order
        for each in (sums[name, phase],)
    )


def uncounted(ops: Sequence[OpRecord]) -> tuple[UncountedOp, ...]:
    """The ops without a known cost: how often each ran, and where; the most frequent first."""
    calls: Counter[str] = Counter()
    paths: dict[str, dict[str, None]] = {}
    for op in ops:
        if op.cost is None:
            calls[op.op] += op.calls
            paths.setdefault(op.op, {}).setdefault(op.path)
    return tuple(
        UncountedOp(op=name, calls=calls[name], paths=tuple(paths[name]))
        for name in sorted(calls, key=lambda name: (-calls[name], name))
    )


def coverage_percent(totals: Sequence[OpTotal]) -> float:
    """The share of op calls whose cost is known, zero included, in percent; 100 where no op ran."""
    calls = sum(total.calls for total in totals)
    known = sum(total.calls for total in totals if total.cost is not None)
    return 100.0 * known / calls if calls else 100.0


def by_module(
    facts: Sequence[ModuleFacts],
    ops: Sequence[OpRecord],
    calls: Sequence[ModuleCall],
    saved: Sequence[SavedTensor],
    loss_name: str | None,
) -> tuple[ModuleNode, ...]:
    """Every module with its self figures, in pre-order; the loss comes last, where something ran in it."""
    costs: defaultdict[tuple[str, CountPhase], CostSum] = defaultdict(CostSum)
    for op in ops:
        if op.cost is not None:
            costs[op.path, op.phase].add(op.cost, op.calls)
    called: defaultdict[str, list[ModuleCall]] = defaultdict(list)
    for call in calls:
        called[call.path].append(call)
    saved_bytes: Counter[str] = Counter()
    held_bytes: Counter[str] = Counter()
    for item in saved:
        saved_bytes[item.saved_in] += item.tensor.nbytes
        for path in item.held_in:
            held_bytes[path] += item.tensor.nbytes

    def node(fact: ModuleFacts, times: Sequence[ModuleCall]) -> ModuleNode:
        return ModuleNode(
            path=fact.path,
            class_name=fact.class_name,
            aliases=fact.aliases,
            config=fact.config,
            calls=len(times),
            params=fact.params,
            trainable_params=fact.trainable_params,
            param_bytes=fact.param_bytes,
            **{phase: costs[fact.path, phase].total() for phase in COUNT_PHASES},
            output_bytes=sum(call.output_bytes for call in times),
            output_shape=times[-1].output_shape if times else None,
            saved_bytes=saved_bytes[fact.path],
            held_bytes=held_bytes[fact.path],
        )

    nodes = [node(fact, called[fact.path]) for fact in facts]
    if any(op.path == LOSS_PATH for op in ops) or LOSS_PATH in saved_bytes:
        loss = ModuleFacts(
            path=LOSS_PATH,
            aliases=(),
            class_name=loss_name or "loss",
            config="",
            params=0,
            trainable_params=0,
            param_bytes=0,
        )
        nodes.append(node(loss, ()))
    return tuple(nodes)

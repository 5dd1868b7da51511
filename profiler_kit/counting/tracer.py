"""One pass over the step, op by op: every op that reaches the dispatcher becomes an OpRecord with its owner and phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.counting.operands import Plan, cost, operands, plan, results
from profiler_kit.counting.watch import ModuleWatch
from profiler_kit.records.counts import Cost, CountPhase, OpRecord, TensorSpec


@dataclass(slots=True)
class _Seen:
    op: str
    path: str
    region: int | None  # for recomputed ops outside any module: the sequence number of the node that recomputes
    phase: CountPhase
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    cost: Cost | None


class Tracer(TorchDispatchMode):
    """A dispatch mode that records ops. It can be entered several times, one phase after the other.

    In backward an op belongs to the module whose forward made the running autograd node. Where gradients are being
    tracked, or a module is called, while a node runs, forward work is done again: phase ``recompute``.
    """

    def __init__(self, watch: ModuleWatch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch
        self._plans: dict[torch._ops.OpOverload, Plan] = {}
        self._seen: list[_Seen] = []
        self._phase: CountPhase = "forward"

    def set_phase(self, phase: CountPhase) -> None:
        """Ops from here on belong to `phase`."""
        self._phase = phase
        self._watch.in_backward = phase == "backward"

    def records(self) -> tuple[OpRecord, ...]:
        """All ops so far, in the order they ran."""
        return tuple(
            OpRecord(
                seq=seq,
                op=item.op,
                path=item.path if item.region is None else self._watch.of_region(item.region),
                phase=item.phase,
                inputs=item.inputs,
                outputs=item.outputs,
                cost=item.cost,
            )
            for seq, item in enumerate(self._seen)
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        how = self._plans.get(func)
        if how is None:
            how = self._plans[func] = plan(func)
        if how.composite:
            # Composite ops reach a mode whole where autograd is off (inference mode): count their parts.
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        given = operands(how, args, kwargs)
        out = func(*args, **kwargs)
        path, region, phase = self._owner()
        self._seen.append(_Seen(how.name, path, region, phase, given.reads, results(given, out), cost(how, given, out)))
        return out

    def _owner(self) -> tuple[str, int | None, CountPhase]:
        watch = self._watch
        node: Any = torch._C._current_autograd_node()  # None outside backward, whatever the stub says
        if self._phase != "backward":  # a node here means gradients taken within forward
            return watch.current if node is None else watch.of_node(node), None, self._phase
        if watch.stack:
            return watch.current, None, "recompute"
        if node is None:
            return watch.current, None, "backward"
        if torch.is_grad_enabled():
            sequence: int = node._sequence_nr()
            watch.in_region(sequence)
            return "", sequence, "recompute"
        return watch.of_node(node), None, "backward"

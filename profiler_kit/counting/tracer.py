"""One pass over the step, op by op: every op that reaches the dispatcher becomes an OpRecord with its owner and phase."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload

from profiler_kit.counting.conventions import Convention, OpCall
from profiler_kit.counting.memo import Memo
from profiler_kit.counting.operands import OpFacts, Plan, plan, run, run_higher_order
from profiler_kit.counting.watch import ModuleWatch
from profiler_kit.loading.flex import WholeFlexAttention
from profiler_kit.loading.stand_ins import stand_in
from profiler_kit.records.counts import CountPhase, OpRecord


class Tracer(WholeFlexAttention):
    """A dispatch mode that records ops. It can be entered several times, one phase after the other.

    In backward an op belongs to the module whose forward made the running autograd node. Where gradients are being
    tracked, or a module is called, while a node runs, forward work is done again: phase ``recompute``.
    """

    def __init__(self, watch: ModuleWatch, memo: Memo | None = None, convention: Convention | None = None) -> None:
        """`memo`: what is known of calls already; by default nothing is. `convention`: by default the kit's."""
        super().__init__()
        self._watch = watch
        self._memo = Memo(limit=0) if memo is None else memo
        self._restate = None if convention is None else convention.restate
        self._seen = None if convention is None else convention.seen
        self._plans: dict[torch._ops.OpOverload, Plan] = {}
        # how often each call, by owner and phase; for recomputed ops outside any module the owner is the sequence
        # number of the node that recomputes
        self._calls: dict[tuple[OpFacts, str | int, CountPhase], int] = {}
        self._phase: CountPhase = "forward"

    def set_phase(self, phase: CountPhase) -> None:
        """Ops from here on belong to `phase`."""
        self._phase = phase
        self._watch.in_backward = phase == "backward"

    def records(self) -> tuple[OpRecord, ...]:
        """All ops so far, in the order they first ran; calls alike in one module and phase are one record."""
        of_region = self._watch.of_region
        return tuple(
            OpRecord(
                op=facts.op,
                path=owner if isinstance(owner, str) else of_region(owner),
                phase=phase,
                inputs=facts.inputs,
                outputs=facts.outputs,
                cost=facts.cost,
                calls=calls,
            )
            for (facts, owner, phase), calls in self._calls.items()
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # the subclass turns the op into ops on the tensors it wraps, and those come here
        kwargs = kwargs or {}
        if type(func) is not OpOverload and isinstance(func, HigherOrderOperator):
            out, facts = run_higher_order(func, args, kwargs)
            self.note(self._restated(facts, func, args, kwargs, out))
            return out
        key = self._memo.key(func, args, kwargs)
        known = None if key is None else self._memo.find(key)
        if known is not None:
            out = known.result(func, args, kwargs)
            self.note(known.facts)
            return out
        how = self._plans.get(func)
        if how is None:
            how = self._plans[func] = plan(func)
        if how.composite:
            # Composite ops reach a mode whole where autograd is off (inference mode): count their parts.
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        kernel = stand_in(func, args) or (func if key is None else self._memo.first(func, args))
        out, facts = run(kernel, how, args, kwargs)
        facts = self._restated(facts, func, args, kwargs, out)
        if key is not None:
            self._memo.keep(key, func, args, out, facts)
        self.note(facts)
        return out

    def note(self, facts: OpFacts) -> None:
        """Counts a call of what `facts` say, at the module and in the phase that run now."""
        owner, phase = self._owner()
        if self._seen is not None:
            self._seen(facts, owner, phase)
        place = (facts, owner, phase)
        self._calls[place] = self._calls.get(place, 0) + 1

    def _restated(self, facts: OpFacts, op: Any, args: Any, kwargs: Any, out: Any) -> OpFacts:
        """`facts` with the cost that the convention gives; to be worked out once for calls alike."""
        if self._restate is None:
            return facts
        return replace(facts, cost=self._restate(OpCall(op=op, args=args, kwargs=kwargs, out=out, own=facts.cost)))

    def _owner(self) -> tuple[str | int, CountPhase]:
        watch = self._watch
        node: Any = torch._C._current_autograd_node()  # None outside backward, whatever the stub says
        if self._phase != "backward":  # a node here means gradients taken within forward
            return watch.current if node is None else watch.of_node(node), self._phase
        if watch.stack:
            return watch.current, "recompute"
        if node is None:
            return watch.current, "backward"
        if torch.is_grad_enabled():
            sequence: int = node._sequence_nr()
            watch.in_region(sequence)
            return sequence, "recompute"
        return watch.of_node(node), "backward"

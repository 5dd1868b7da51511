"""A dispatch mode that records every op of a step, with its module and phase."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload

from profiler_kit.counting.conventions import Convention, OpCall
from profiler_kit.counting.module_calls import ModuleWatch
from profiler_kit.counting.operands import OpFacts, Plan, plan_op, reads_values, run_higher_order, run_op
from profiler_kit.meta.flex_attention import UndecomposedFlexAttention
from profiler_kit.meta.meta_kernels import replacement_kernel
from profiler_kit.meta.op_memo import Memo
from profiler_kit.records.counts import CountPhase, OpRecord


class Tracer(UndecomposedFlexAttention):
    """A dispatch mode that records ops. It can be entered several times, once per phase.

    In backward an op is attributed to the module whose forward made the running autograd node. If gradients are enabled or
    a module is called while a node runs, the op is forward work that is repeated: phase ``recompute``.
    """

    def __init__(
        self, watch: ModuleWatch, memo: Memo[OpFacts] | None = None, convention: Convention | None = None
    ) -> None:
        """`memo`: results of repeated calls; None runs every call. `convention`: None is ``kit``."""
        super().__init__()
        self._watch = watch
        self._memo: Memo[OpFacts] = Memo(limit=0) if memo is None else memo
        self._memo.exclude(reads_values)
        self._op_cost = None if convention is None else convention.op_cost
        self._plans: dict[torch._ops.OpOverload, Plan] = {}
        # Calls by facts, owner and phase. The owner of a recomputed op outside any module is the sequence number of the
        # autograd node that recomputes it.
        self._calls: dict[tuple[OpFacts, str | int, CountPhase], int] = {}
        self._phase: CountPhase = "forward"

    def set_phase(self, phase: CountPhase) -> None:
        """Attribute ops to `phase` from now on."""
        self._phase = phase
        self._watch.in_backward = phase == "backward"

    def records(self) -> tuple[OpRecord, ...]:
        """All ops so far, in the order of their first call. Equal calls in one module and phase are one record."""
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
            return NotImplemented  # the subclass calls ops on the tensors it wraps, and those reach this mode
        with torch._C.DisableTorchFunction():  # a function mode would see every access to a tensor's attributes
            return self._run(func, args, kwargs or {})

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if type(func) is not OpOverload and isinstance(func, HigherOrderOperator):
            out, facts = run_higher_order(func, args, kwargs)
            self.note(self._with_convention(facts, func, args, kwargs, out))
            return out
        key = self._memo.key(func, args, kwargs)
        entry = None if key is None else self._memo.find(key)
        if entry is not None:
            out = entry.result(func, args, kwargs)
            self.note(entry.facts)
            return out
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = plan_op(func)
        if plan.composite and not any(isinstance(value, Tensor) and value.is_nested for value in args):
            # With autograd off (inference mode) composite ops are not decomposed before they reach a mode: count their parts.
            # Nested tensors have kernels of their own for some of these ops.
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        kernel = replacement_kernel(func, args) or self._memo.kernel(func, args, key)
        out, facts = run_op(kernel, plan, args, kwargs)
        facts = self._with_convention(facts, func, args, kwargs, out)
        if key is not None:
            self._memo.store(key, func, args, out, facts)
        self.note(facts)
        return out

    def note(self, facts: OpFacts) -> None:
        """Count a call with these `facts` in the current module and phase."""
        place = (facts, *self._owner())
        self._calls[place] = self._calls.get(place, 0) + 1

    def note_call(self, facts: OpFacts, op: Any, args: Any, out: Any) -> None:
        """Count a call that does not reach the dispatcher, with the convention's cost."""
        self.note(self._with_convention(facts, op, args, {}, out))

    def _with_convention(self, facts: OpFacts, op: Any, args: Any, kwargs: Any, out: Any) -> OpFacts:
        """`facts` with the convention's cost. Called once for equal calls."""
        if self._op_cost is None:
            return facts
        call = OpCall(op=op, args=args, kwargs=kwargs, out=out, kit_cost=facts.cost)
        return replace(facts, cost=self._op_cost(call))

    def _owner(self) -> tuple[str | int, CountPhase]:
        watch = self._watch
        node: Any = torch._C._current_autograd_node()  # None outside backward, although the stub excludes it
        if self._phase != "backward":  # a node here means that forward computes gradients
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

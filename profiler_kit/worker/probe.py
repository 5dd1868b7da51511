"""Measures the allocations of one step on CUDA, op by op: the op at the peak, and its workspace.

The caching allocator's peak is reset before each op. Peak - before - growth is then the memory that the op only used while
it ran: cuDNN workspaces, layout copies, reduction buffers. It uses a separate step, because it slows every op down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.meta.call_signatures import call_signature
from profiler_kit.meta.ownership import ModuleTracker, parameter_owners
from profiler_kit.records.counts import PHASE_PATHS, Phase
from profiler_kit.records.runs import OpMemory, PeakMemory
from profiler_kit.worker.pieces import tensors
from profiler_kit.worker.steps import Runner

LISTED_OPS = 20  # number of ops with the largest workspaces in a report


def measure_peak_memory(runner: Runner) -> PeakMemory | None:
    """The measured peak of one step by category; None if no op allocated on the device."""
    runner.synchronize()
    if runner.optimizer is not None:
        runner.optimizer.zero_grad(set_to_none=True)
    probe = _Probe(runner)
    with probe.owners.watching(), probe:
        runner.step(probe.mark)
    runner.synchronize()
    if not probe.ops:
        return None
    return _by_category(runner, probe)


class _Probe(TorchDispatchMode):
    """Records the peak of each op, with its phase and module."""

    supports_higher_order_operators = True

    def __init__(self, runner: Runner) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = runner.target.device
        self.phase: Phase = "forward"
        self.ops: list[OpMemory] = []
        self.live_gradients: list[int] = []  # live gradient bytes at the start of each op; parallel to `ops`
        self.pointwise: set[str] = set()  # ops that need no workspace
        self.owners = ModuleTracker(runner.target.paths(), parameter_owners(runner.target.model))
        self._parameters = list(runner.target.model.parameters())

    def mark(self, phase: Phase) -> None:
        self.phase = phase
        self.owners.set_base(PHASE_PATHS.get(phase, ""))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        result = func(*args, **(kwargs or {}))
        peak = torch.cuda.max_memory_allocated(self.device)
        if peak > before:
            growth = max(0, torch.cuda.memory_allocated(self.device) - before)
            self.ops.append(
                OpMemory(
                    path=self.owners.running,
                    phase=self.phase,
                    op=str(func),
                    before_bytes=before,
                    growth_bytes=growth,
                    workspace_bytes=peak - before - growth,
                    call=call_signature(args, kwargs or {}),
                )
            )
            if torch.Tag.pointwise in getattr(func, "tags", ()):
                self.pointwise.add(str(func))
            self.live_gradients.append(_gradient_bytes(self._parameters))
        return result


def _by_category(runner: Runner, probe: _Probe) -> PeakMemory:
    at = max(range(len(probe.ops)), key=lambda i: _peak_of(probe.ops[i]))
    op = probe.ops[at]
    target = runner.target
    parameters = sum(_device_bytes(t) for t in (*target.model.parameters(), *target.model.buffers()))
    gradients = probe.live_gradients[at]
    state = sum(_device_bytes(t) for t in tensors(runner.optimizer.state)) if runner.optimizer is not None else 0
    inputs = sum(_device_bytes(t) for t in tensors((target.batch.args, target.batch.kwargs, target.batch.labels)))
    fixed = parameters + gradients + state + inputs
    # Other memory that is live before the op at the peak is saved for backward, or an intermediate result.
    saved = max(0, op.before_bytes - fixed)
    categories_bytes = parameters + gradients + state + inputs + saved + op.workspace_bytes
    return PeakMemory(
        peak_path=op.path,
        peak_phase=op.phase,
        peak_op=op.op,
        peak_bytes=_peak_of(op),
        parameters=parameters,
        gradients=gradients,
        optimizer_state=state,
        inputs=inputs,
        saved_activations=saved,
        workspace=op.workspace_bytes,
        rest=_peak_of(op) - categories_bytes,
        ops=tuple(replace(o, call="") for o in sorted(probe.ops, key=lambda o: -o.workspace_bytes)[:LISTED_OPS]),
        calls=_workspace_candidates(probe),
    )


def _workspace_candidates(probe: _Probe) -> tuple[OpMemory, ...]:
    """The ops that may use a workspace: all except pointwise ops that never used one. Ops with a workspace of 0 are included."""
    with_workspace = {op.op for op in probe.ops if op.workspace_bytes > 0}
    return tuple(op for op in probe.ops if op.op in with_workspace or op.op not in probe.pointwise)


def _peak_of(op: OpMemory) -> int:
    return op.before_bytes + op.growth_bytes + op.workspace_bytes


def _gradient_bytes(parameters: list[nn.Parameter]) -> int:
    return sum(_device_bytes(p.grad) for p in parameters if p.grad is not None)


def _device_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size() if tensor.device.type == "cuda" else 0

"""Runs the three parts of a convolution separately: forward, gradient of the input, gradient of the weight.

`aten::convolution_backward` computes both gradients in one call, and a trace does not attribute their kernels.
Called for one gradient at a time, it runs the same kernels: cuDNN looks each of them up separately, by the same key.

The step in parts has a separate trace, because the user's trace must not show the extra marks and split gradients.
torch.compile is inactive under a dispatch mode, so compiled parts are not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.meta.compilation import compiled_parts
from profiler_kit.meta.ownership import ModuleTracker, parameter_owners
from profiler_kit.records import marks
from profiler_kit.records.counts import PHASE_PATHS, Phase
from profiler_kit.records.experiments import ConvolutionPart, PartWorkspace
from profiler_kit.worker.steps import Runner
from profiler_kit.worker.tracing import profiled, write_trace

Watch = Callable[[str, ConvolutionPart], AbstractContextManager[Any]]

_ATEN: Final = torch.ops.aten
# The ops of one convolution. TorchScript uses `_convolution`.
_WHOLE: Final = (_ATEN.convolution.default, _ATEN._convolution.default, _ATEN._convolution.deprecated)
# Autograd turns these into `convolution`. Inference mode skips autograd, so they arrive unchanged.
_COMPOSED: Final = frozenset(
    overload
    for packet in (
        _ATEN.conv1d, _ATEN.conv2d, _ATEN.conv3d,
        _ATEN.conv_transpose1d, _ATEN.conv_transpose2d, _ATEN.conv_transpose3d,
    )
    for overload in (getattr(packet, name) for name in packet.overloads())
)  # fmt: skip
_WEIGHT: Final = 1  # index of the weight among a convolution's operands
_BACKWARD_WEIGHT: Final = 2
# Indices of convolution_backward's output mask: input, weight, bias. The bias's gradient is a sum, not a convolution.
_MASKED: Final[tuple[tuple[int, ConvolutionPart], ...]] = ((0, "dgrad"), (1, "wgrad"))
_BIAS: Final = 2

_Weight = tuple[int, tuple[int, ...]]


class ConvolutionParts(TorchDispatchMode):
    """While active, runs every part of a convolution separately inside ``watch(path, part)``; `path` is its module.

    A gradient belongs to the module whose forward used the same weight, whichever thread runs backward: autograd's sequence
    numbers count per thread, and with reentrant checkpointing the engine's thread creates nodes too. If several modules share
    the weight, the sequence number decides.
    """

    supports_higher_order_operators = True

    def __init__(self, runner: Runner, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch
        self._runner = runner
        self._owners = ModuleTracker(runner.target.paths(), parameter_owners(runner.target.model))
        self._users: dict[_Weight, list[str]] = {}  # paths whose forward used a weight, most recent last

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Track module calls and run convolutions in parts within the block."""
        with self._owners.watching(), self:
            yield

    def step(self) -> None:
        """Run one step of the runner with convolutions in parts. Restores everything, also after an exception."""
        with self.watching():
            self._runner.step(self._mark)

    def _mark(self, phase: Phase) -> None:
        self._owners.set_base(PHASE_PATHS.get(phase, ""))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _WHOLE:
            path = self._forward_owner(args)
            with self._watch(path, "fprop"):
                return func(*args, **kwargs)
        if func is _ATEN.convolution_backward.default and not kwargs:
            return self._gradients(func, args)
        if func in _COMPOSED:
            with self:
                return func.decompose(*args, **kwargs)
        return func(*args, **kwargs)

    def _gradients(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        *operands, mask = args
        gradients: list[Any] = [None, None, None]
        path = self._backward_owner(args[_BACKWARD_WEIGHT])
        for place, part in _MASKED:
            if mask[place]:
                with self._watch(path, part):
                    gradients[place] = func(*operands, _only(place))[place]
        if mask[_BIAS]:
            gradients[_BIAS] = func(*operands, _only(_BIAS))[_BIAS]
        return tuple(gradients)

    def _forward_owner(self, args: tuple[Any, ...]) -> str:
        path = self._owners.running
        if len(args) > _WEIGHT:
            users = self._users.setdefault(_weight_key(args[_WEIGHT]), [])
            if path in users:
                users.remove(path)
            users.append(path)
        return path

    def _backward_owner(self, weight: Any) -> str:
        users = self._users.get(_weight_key(weight), [])
        if len(users) == 1:
            return users[0]
        running = self._owners.running
        return running if running in users or not users else users[-1]


def _weight_key(weight: Any) -> _Weight:
    """The identity of a weight among all tensors that are alive."""
    return weight.data_ptr(), tuple(weight.shape)


def _only(place: int) -> list[bool]:
    return [i == place for i in range(3)]


def record_parts(runner: Runner, path: Path) -> tuple[PartWorkspace, ...]:
    """Write to `path` the trace of one step with convolutions in marked parts; returns the workspace of each part.

    Runs three steps: warm-up, one under the profiler, one with the allocator watched. If the first step has no convolution
    (or it is compiled or captured into a graph), nothing is written and the result is empty.

    Counts: the peak of a call beyond the memory before it and its results; the largest of all calls.
    """
    return _workspaces(runner) if runner.cuda and trace_parts(runner, path) else ()


def trace_parts(runner: Runner, path: Path) -> bool:
    """Write the trace of a step with marked parts to `path`; False if the warm-up step has no convolution."""
    paths: list[str] = []

    def watch(owner: str, part: ConvolutionPart) -> AbstractContextManager[Any]:
        paths.append(owner)
        return record_function(marks.convolution(part, owner))

    with profiled(runner.cuda, 1) as profiler:
        _run_step(runner, watch)
        if not paths:
            return False
        profiler.step()
        with record_function(marks.step(1)):
            _run_step(runner, watch)
    write_trace(profiler, path)
    return True


def _workspaces(runner: Runner) -> tuple[PartWorkspace, ...]:
    device = runner.target.device
    sizes: dict[tuple[str, ConvolutionPart], int] = {}

    @contextmanager
    def watch(owner: str, part: ConvolutionPart) -> Iterator[None]:
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        yield
        peak = torch.cuda.max_memory_allocated(device)
        growth = max(0, torch.cuda.memory_allocated(device) - before)
        sizes[owner, part] = max(sizes.get((owner, part), 0), peak - before - growth)

    _run_step(runner, watch)
    return tuple(PartWorkspace(path=path, part=part, bytes=size) for (path, part), size in sizes.items())


def _run_step(runner: Runner, watch: Watch) -> None:
    """Run one step with `watch` around every part of every convolution outside compiled modules."""
    compiled = compiled_parts(runner.target.step_module)

    def watch_plain(owner: str, part: ConvolutionPart) -> AbstractContextManager[Any]:
        inside = any(not module or owner == module or owner.startswith(f"{module}.") for module in compiled)
        return nullcontext() if inside else watch(owner, part)

    ConvolutionParts(runner, watch_plain).step()
    runner.synchronize()  # every kernel then belongs to the step that launched it

"""The three parts of a convolution, one after the other and each under a watch: forward, gradient by data, by weight.

`aten::convolution_backward` computes both gradients in one call, and nothing in a trace says which kernel is for which. Asked
for one at a time, it does the same: cuDNN looks each of them up for itself, by the same key.

The trace of a step in parts is one of its own, as the extra marks and the split gradients have no place in the user's. What
torch.compile has compiled runs as it is written while a dispatch mode is active, so nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.loading.compiled import compiled_parts
from profiler_kit.loading.ownership import Ownership, parameter_owners
from profiler_kit.records import marks
from profiler_kit.records.counts import PHASE_PATHS, Phase
from profiler_kit.records.laboratory import ConvolutionPart, PartWorkspace
from profiler_kit.worker.steps import Runner
from profiler_kit.worker.tracing import profiled, write_trace

Watch = Callable[[str, ConvolutionPart], AbstractContextManager[Any]]

_ATEN: Final = torch.ops.aten
# What computes one convolution. `_convolution` is how TorchScript writes it.
_WHOLE: Final = (_ATEN.convolution.default, _ATEN._convolution.default, _ATEN._convolution.deprecated)
# What comes down as `convolution` after autograd, and as it was called in inference mode, which has no autograd to pass.
_COMPOSED: Final = frozenset(
    overload
    for packet in (
        _ATEN.conv1d, _ATEN.conv2d, _ATEN.conv3d,
        _ATEN.conv_transpose1d, _ATEN.conv_transpose2d, _ATEN.conv_transpose3d,
    )
    for overload in (getattr(packet, name) for name in packet.overloads())
)  # fmt: skip
_WEIGHT: Final = 1  # its place among a convolution's operands
_BACKWARD_WEIGHT: Final = 2
# The places of convolution_backward's output mask: input, weight, bias. The bias's sum is no convolution.
_MASKED: Final[tuple[tuple[int, ConvolutionPart], ...]] = ((0, "dgrad"), (1, "wgrad"))
_BIAS: Final = 2

_Weight = tuple[int, tuple[int, ...]]


class ConvolutionParts(TorchDispatchMode):
    """While active, runs every convolution's parts one by one, each inside ``watch(path, part)``; `path` owns it.

    A gradient's owner is whose forward used the same weight, wherever backward runs: autograd's numbers count per thread, and
    with a reentrant checkpoint the engine's thread makes nodes too. Where several modules share the weight, the number decides.
    """

    def __init__(self, runner: Runner, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch
        self._runner = runner
        self._owners = Ownership(runner.target.paths(), parameter_owners(runner.target.model))
        self._users: dict[_Weight, list[str]] = {}  # paths whose forward used a weight, the latest last

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follows module calls and runs convolutions in parts for as long as the block runs."""
        with self._owners.watching(), self:
            yield

    def step(self) -> None:
        """One step of the runner, convolutions in parts; nothing is left behind, also after an exception."""
        with self.watching():
            self._runner.step(self._mark)

    def _mark(self, phase: Phase) -> None:
        self._owners.stand_in(PHASE_PATHS.get(phase, ""))

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
            users = self._users.setdefault(_key(args[_WEIGHT]), [])
            if path in users:
                users.remove(path)
            users.append(path)
        return path

    def _backward_owner(self, weight: Any) -> str:
        users = self._users.get(_key(weight), [])
        if len(users) == 1:
            return users[0]
        running = self._owners.running
        return running if running in users or not users else users[-1]


def _key(weight: Any) -> _Weight:
    """What tells a weight from others that live at the same time."""
    return weight.data_ptr(), tuple(weight.shape)


def _only(place: int) -> list[bool]:
    return [i == place for i in range(3)]


def record(runner: Runner, path: Path) -> tuple[PartWorkspace, ...]:
    """Writes to `path` the trace of one step whose convolutions run in marked parts; returns what each part took as scratch.

    Three steps: one to warm up, one under the profiler, one with the allocator watched. Where the first meets no convolution
    (none there, or compiled or captured into a graph, so that no op passes by) nothing is written and nothing returned.

    Counts: the most that any call of a part held beyond what lived before it and what it returned.
    """
    return _workspaces(runner) if runner.cuda and trace_parts(runner, path) else ()


def trace_parts(runner: Runner, path: Path) -> bool:
    """Whether a warm-up step met a convolution; then the trace of the next one, its parts marked, is at `path`."""
    met: list[str] = []

    def watch(owner: str, part: ConvolutionPart) -> AbstractContextManager[Any]:
        met.append(owner)
        return record_function(marks.convolution(part, owner))

    with profiled(runner, 1) as profiler:
        _step(runner, watch)
        if not met:
            return False
        profiler.step()
        with record_function(marks.step(1)):
            _step(runner, watch)
    write_trace(profiler, path)
    return True


def _workspaces(runner: Runner) -> tuple[PartWorkspace, ...]:
    device = runner.target.device
    most: dict[tuple[str, ConvolutionPart], int] = {}

    @contextmanager
    def watch(owner: str, part: ConvolutionPart) -> Iterator[None]:
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        yield
        peak = torch.cuda.max_memory_allocated(device)
        growth = max(0, torch.cuda.memory_allocated(device) - before)
        most[owner, part] = max(most.get((owner, part), 0), peak - before - growth)

    _step(runner, watch)
    return tuple(PartWorkspace(path=path, part=part, bytes=size) for (path, part), size in most.items())


def _step(runner: Runner, watch: Watch) -> None:
    """One step with `watch` around every part of every convolution that runs as in any step."""
    compiled = compiled_parts(runner.target.runs)

    def watch_plain(owner: str, part: ConvolutionPart) -> AbstractContextManager[Any]:
        inside = any(not one or owner == one or owner.startswith(f"{one}.") for one in compiled)
        return nullcontext() if inside else watch(owner, part)

    ConvolutionParts(runner, watch_plain).step()
    runner.synchronize()  # so that every kernel belongs to the step that launched it

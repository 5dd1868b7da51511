"""The three parts of a convolution, one after the other and each under a watch: forward, gradient by data, by weight.

`aten::convolution_backward` computes both gradients in one call, and nothing in a trace says which kernel is for which. Asked
for one at a time, it does the same: cuDNN looks each of them up for itself, by the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.loading.ownership import Ownership, parameter_owners
from profiler_kit.records.counts import PHASE_PATHS, Phase
from profiler_kit.records.laboratory import ConvolutionPart
from profiler_kit.worker.steps import Runner

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

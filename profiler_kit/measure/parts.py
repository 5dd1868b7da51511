"""The three parts of a convolution, one after the other and each under a watch: forward, gradient by data, by weight.

`aten::convolution_backward` computes both gradients in one call, and nothing in a trace says which kernel is for which. Asked
for one at a time, it does the same: cuDNN looks each of them up for itself, by the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.measure.steps import Runner
from profiler_kit.records.laboratory import ConvolutionPart
from profiler_kit.target.ownership import Ownership, parameter_owners

Watch = Callable[[str, ConvolutionPart], AbstractContextManager[Any]]

# The places of convolution_backward's output mask: input, weight, bias. The bias's sum is no convolution.
_MASKED: Final[tuple[tuple[int, ConvolutionPart], ...]] = ((0, "dgrad"), (1, "wgrad"))
_BIAS: Final = 2


class ConvolutionParts(TorchDispatchMode):
    """While active, runs every convolution's parts one by one, each inside ``watch(path, part)``; `path` owns it."""

    def __init__(self, runner: Runner, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch
        self.owners = Ownership(runner.target.paths(), parameter_owners(runner.target.model))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.convolution.default:
            with self._watch(self._owner(), "fprop"):
                return func(*args, **kwargs)
        if func is torch.ops.aten.convolution_backward.default and not kwargs:
            return self._gradients(func, args)
        return func(*args, **kwargs)

    def _gradients(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        *given, mask = args
        made: list[Any] = [None, None, None]
        path = self._owner()
        for place, part in _MASKED:
            if mask[place]:
                with self._watch(path, part):
                    made[place] = func(*given, _only(place))[place]
        if mask[_BIAS]:
            made[_BIAS] = func(*given, _only(_BIAS))[_BIAS]
        return tuple(made)

    def _owner(self) -> str:
        node: Any = torch._C._current_autograd_node()  # None outside backward
        if node is None or self.owners.stack:  # forward, or forward again inside backward
            return self.owners.current
        return self.owners.of_node(node)


def _only(place: int) -> list[bool]:
    return [i == place for i in range(3)]

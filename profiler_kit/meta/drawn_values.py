"""Drawn values of meta tensors, for code that reads what follows from weights and activations: routing, sampling, periods.

The inputs of a step are random numbers, so such values are arbitrary on real tensors too. Real ones need the memory and the
time of all computation; drawn ones need neither. Integers and booleans are the result of the model's own op on random
operands: the indices of a top-k lie in its dimension, and do not repeat. Each line that reads a drawn value is a bound of the
count, of the kind "drawn".
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakIdKeyDictionary

from profiler_kit.meta.bounds import note_bound
from profiler_kit.meta.values import CPU_ERRORS, DATA_DEPENDENT_TAGS, ValueShadow, is_small, op_tensors

MAX_DRAWN: Final = 1 << 22  # elements: the choices of 8,192 tokens among 512 experts
MAX_READS: Final = 1 << 14  # a loop that reads more values waits for one that never comes
_REASON: Final = "they follow from weights or activations, and random ones stand for them"


class DrawnShadow(ValueShadow):
    """A `ValueShadow` that draws the values that nothing determines.

    Raises: RuntimeError after `MAX_READS` reads.
    """

    max_integers = MAX_DRAWN

    def __init__(self) -> None:
        super().__init__()
        self._drawn = WeakIdKeyDictionary()  # tensors whose twins depend on drawn values
        self._generator = torch.Generator().manual_seed(0)
        self._reads = 0

    def follows(self, tensor: Tensor) -> bool:
        """As `ValueShadow.follows`; integers and booleans of larger tensors too."""
        return is_small(tensor) or (_is_drawable(tensor) and not tensor.is_floating_point())

    def read(self, tensor: Tensor) -> Tensor | None:
        """The values of `tensor`, drawn if they are unknown; None for one that is too large."""
        twin = self.value_of(tensor)
        if twin is None and _is_drawable(tensor):
            twin = self._draw(tensor)
            self.add(tensor, twin)
            self._drawn[tensor] = True
        if tensor in self._drawn:
            self._note_read()
        return twin

    def _note_read(self) -> None:
        self._reads += 1
        if self._reads > MAX_READS:
            raise RuntimeError(f"data-dependent: more than {MAX_READS} values were read that nothing determines")
        note_bound("values", "drawn", _REASON)

    def _asked_values(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result on drawn operands. A copy to the CPU alone draws nothing: its values may never be read."""
        operands = op_tensors((args, kwargs))
        if not DATA_DEPENDENT_TAGS.isdisjoint(func.tags) and any(self.read(tensor) is None for tensor in operands):
            return None
        if any(tensor in self._drawn for tensor in operands):
            self._note_read()
        return super()._asked_values(func, args, kwargs)

    def _track(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        operands = op_tensors((args, kwargs))
        value, is_drawn = self._on_twins(func, args, kwargs), any(tensor in self._drawn for tensor in operands)
        if value is None and not func.is_view and any(not tensor.is_floating_point() for tensor in op_tensors(out)):
            value, is_drawn = self._on_drawn_operands(func, args, kwargs, operands), True
        self._store_twins(out, value)
        if is_drawn and value is not None:
            self._drawn.update((tensor, True) for tensor in op_tensors(out))

    def _on_drawn_operands(self, func: Any, args: Any, kwargs: Any, operands: list[Tensor]) -> Any:
        """The result of `func`, which has integers, with random operands in place of unknown ones; None if there is none."""
        if not all(_is_drawable(tensor) for tensor in operands):
            return None
        known = ((tensor, self.value_of(tensor)) for tensor in operands)
        twins = {id(tensor): self._draw(tensor) if twin is None else twin for tensor, twin in known}

        def replaced(item: Any) -> Any:
            return twins[id(item)] if isinstance(item, Tensor) else item

        try:
            with no_dispatch():
                return func(*tree_map(replaced, args), **tree_map(replaced, kwargs))
        except CPU_ERRORS:
            return None  # the op does not run on the CPU, or rejects these values

    def _draw(self, tensor: Tensor) -> Tensor:
        """Numbers between 0 and 1, which probabilities can be; of integers and booleans 0 and 1."""
        with no_dispatch(), torch._C.DisableTorchFunction():
            numbers = torch.rand(tuple(tensor.shape), generator=self._generator)
            return numbers.to(tensor.dtype) if tensor.is_floating_point() else (numbers < 0.5).to(tensor.dtype)


def _is_drawable(tensor: Tensor) -> bool:
    return not tensor.is_complex() and tensor.layout is torch.strided and tensor.numel() <= MAX_DRAWN

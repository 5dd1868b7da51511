"""A memo of batch normalization that works for shapes not seen before.

A convolutional network normalizes in a dozen shapes. The meta kernels of batch normalization are the slowest of all
(twenty Python ops per direction): on ResNet-50 they would take half of the count. Every result has the shape of one of
the arguments, so one call shows which argument, for all shapes. A test compares this with the kernels over thousands of
shapes.

The memo applies only to row-major tensors without empty dimensions. The kernel runs for other memory formats, and for a
single value per channel, which it rejects in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

_META: Final = torch.device("meta")
_BATCH_NORM_OPS: Final = (torch.ops.aten.native_batch_norm.default, torch.ops.aten.native_batch_norm_backward.default)

Form = tuple[Any, ...]  # a call's arguments without the sizes of its tensors
Shapes = list[torch.Size]


class BatchNormMemo:
    """For each form of a call (dimensions and dtypes): which argument's shape each result has."""

    def __init__(self) -> None:
        self._results: dict[Form, list[tuple[int, torch.dtype] | None]] = {}  # index into the shapes, dtype

    def find(self, op: torch._ops.OpOverload, args: Sequence[Any]) -> Callable[..., Any] | None:
        """A function that returns new results for `op` with these arguments; None if `op` must run."""
        if op not in _BATCH_NORM_OPS:
            return None
        form, shapes = _form(op, args)
        results = None if form is None else self._results.get(form)
        if results is None:
            return None

        def make_results(*_: Any) -> Any:
            specs = (None if result is None else (shapes[result[0]], result[1]) for result in results)
            return tuple(None if spec is None else torch.empty(spec[0], dtype=spec[1], device=_META) for spec in specs)

        return make_results

    def store(self, op: torch._ops.OpOverload, args: Sequence[Any], out: Sequence[torch.Tensor | None]) -> None:
        """Store which argument's shape each result of a call has. The results must be new tensors."""
        if op not in _BATCH_NORM_OPS:
            return
        form, shapes = _form(op, args)
        if form is None or any(
            result is not None and not (_is_row_major(result) and result.shape in shapes) for result in out
        ):
            return
        self._results[form] = [None if result is None else (shapes.index(result.shape), result.dtype) for result in out]


def _form(op: torch._ops.OpOverload, args: Sequence[Any]) -> tuple[Form | None, Shapes]:
    """The form of a call (None if other shapes cannot be derived from it), and the distinct shapes of its tensors."""
    form: list[Any] = [id(op), torch.get_default_dtype()]
    shapes: Shapes = []
    for value in args:
        if not isinstance(value, torch.Tensor):
            form.append(tuple(value) if isinstance(value, list) else value)
            continue
        if not _is_row_major(value):
            return None, shapes
        if value.shape not in shapes:
            shapes.append(value.shape)
        form += (value.dtype, value.dim(), shapes.index(value.shape))
    batched, vectors = shapes[0], shapes[1:]
    if len(batched) < 2 or vectors not in ([], [batched[1:2]]) or args[0].numel() == batched[1]:
        return None, shapes
    return tuple(form), shapes


def _is_row_major(tensor: torch.Tensor) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if stride != expected or size == 0:
            return False
        expected *= size
    return True

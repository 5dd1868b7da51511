"""Foreach ops run once per kind of items, with the results of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.meta.metadata import is_foreach, run_foreach
from profiler_kit.meta.op_memo import MemoMode

ATEN = torch.ops.aten
SHAPES = [(3, 4), (5,), (3, 4), (), (5,), (4, 3), (3, 4)]


def tensors(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Tensors of four shapes, the last one transposed."""
    created = [torch.empty(shape, dtype=dtype, device="meta") for shape in SHAPES]
    return [*created, torch.empty(4, 3, dtype=dtype, device="meta").t()]


def metadata(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.untyped_storage().nbytes()


class Lengths(TorchDispatchMode):
    """Records the length of the first list of every foreach op."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_foreach(func):
            self.lengths.append(len(args[0]))
        return func(*args, **(kwargs or {}))


FUNCTIONAL: list[tuple[Any, Callable[[], tuple[Any, ...]]]] = [
    (ATEN._foreach_sqrt.default, lambda: (tensors(),)),
    (ATEN._foreach_sqrt.default, lambda: (tensors(torch.int64),)),
    (ATEN._foreach_add.List, lambda: (tensors(), tensors(torch.bfloat16))),
    (ATEN._foreach_mul.ScalarList, lambda: (tensors(), [2.0] * 8)),
    (ATEN._foreach_mul.ScalarList, lambda: (tensors(torch.int64), [2, 2, 2.0, 2, 2, 2, 2, 2])),
    (ATEN._foreach_norm.Scalar, lambda: (tensors(),)),
    (ATEN._foreach_addcdiv.ScalarList, lambda: (tensors(), tensors(), tensors(), [0.5] * 8)),
]


@pytest.mark.parametrize(("op", "args"), FUNCTIONAL)
def test_results_are_those_of_torch(op: Any, args: Callable[[], tuple[Any, ...]]) -> None:
    lengths = Lengths()
    with lengths:
        results = run_foreach(op, args(), {})
    assert [*map(metadata, results)] == [*map(metadata, op(*args()))]
    assert lengths.lengths[0] < len(SHAPES) + 1
    assert len({tensor.untyped_storage()._cdata for tensor in results}) == len(results)


def test_an_in_place_op_changes_no_metadata_and_runs_once_per_kind() -> None:
    parameters, lengths = tensors(), Lengths()
    before = [*map(metadata, parameters)]
    with lengths:
        result = run_foreach(ATEN._foreach_add_.List, (parameters, tensors()), {"alpha": 2})
    assert not result
    assert [*map(metadata, parameters)] == before
    assert lengths.lengths == [5]


def test_an_error_of_one_item_is_raised() -> None:
    others = tensors()
    others[-1] = torch.empty(7, device="meta")
    with pytest.raises(RuntimeError):
        run_foreach(ATEN._foreach_add_.List, (tensors(), others), {})
    with pytest.raises(RuntimeError):
        run_foreach(ATEN._foreach_add_.List, (tensors(), tensors()[:3]), {})


def test_items_that_share_a_storage_or_are_observed_run() -> None:
    buffer = torch.empty(8, device="meta")
    first, lengths = [buffer[:4] for _ in range(3)], Lengths()
    with lengths:
        run_foreach(ATEN._foreach_add_.List, (first, [buffer[4:] for _ in range(3)]), {})
        run_foreach(ATEN._foreach_sqrt_.default, (tensors(),), {}, lambda tensor: tensor.dim() == 1)
    assert lengths.lengths == [3, 6]


def test_tensors_with_values_get_their_values() -> None:
    steps = [torch.tensor(1.0) for _ in range(4)]
    run_foreach(ATEN._foreach_add_.Scalar, (steps, 1), {})
    assert [step.item() for step in steps] == [2.0] * 4


def test_a_mode_with_a_memo_gives_the_same_results() -> None:
    layer = torch.nn.Linear(4, 4, device="meta")
    with MemoMode():
        for _ in range(3):
            out = layer(torch.empty(2, 4, device="meta")).relu_()
            out.sum().backward()
    assert out.shape == (2, 4)
    assert layer.weight.grad is not None
    assert layer.weight.grad.shape == (4, 4)

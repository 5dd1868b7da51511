"""What messages report: the messages are those that the installed torch, NumPy and Python raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from profiler_kit.loading.messages import Problem, item_count, numbers, ranks, reports, unpacked_count

X = torch.ones(2, 3)
META = torch.ones(2, 3, device="meta")


def unpack(value: Any) -> None:
    _first, _second, _third = value


def check_size(value: Tensor) -> None:
    assert value.shape[1] == 7, f"expected 7 channels, got {value.shape[1]}"


def raised(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the test reads the message
        call()
    return caught.value


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (META.tolist, "reads_values"),
        (lambda: META.cpu(), "copies_meta"),
        (lambda: META.to_sparse_csr() @ META.T, "no_meta_kernel"),
        (lambda: X.type(META.type()), "missing_device"),
        (lambda: nn.Linear(3, 3)(META), "device_mix"),
        (lambda: nn.BatchNorm1d(3)(X[:1]), "single_row"),
        (lambda: nn.Linear(3, 3).forward(), "wrong_call"),
        (lambda: nn.Linear(3, 3).forward(), "missing_argument"),
        (lambda: X @ X, "shapes"),
        (lambda: nn.functional.mse_loss(X, torch.ones(2, 4)) + X.view(7), "same_sizes"),
        (lambda: nn.Conv1d(2, 2, 5)(X), "too_small"),
        (lambda: X.shape[2], "one_item_more"),
        (lambda: nn.Embedding(4, 2)(X), "needs_integers"),
        (lambda: nn.Linear(3, 3)(X.long()), "needs_floats"),
        (lambda: X.masked_fill(X, 0.0), "needs_bools"),
        (lambda: range(X), "needs_number"),  # type: ignore[call-overload]
        (lambda: torch.from_numpy(X), "needs_array"),
        (lambda: torch.cat(X), "needs_list"),  # type: ignore[call-overload]
        (lambda: bool(X > 0), "needs_flag"),
        (lambda: X.ids, "needs_none"),  # type: ignore[attr-defined]
    ],
)
def test_a_message_reports_its_problem(call: Callable[[], object], problem: Problem) -> None:
    assert reports(raised(call), problem)


def test_a_message_states_dimensions() -> None:
    assert [*ranks(raised(lambda: nn.BatchNorm2d(3)(X)))] == [(2, 4)]
    assert [*ranks(raised(lambda: X.softmax(2)))] == [(2, 3)]
    assert [*ranks(raised(lambda: X.softmax(-3)))] == [(2, 3)]


def test_a_message_states_counts() -> None:
    too_few = raised(lambda: unpack(X))
    assert (unpacked_count(too_few), item_count(too_few)) == (3, 3)
    beyond = raised(lambda: X[5])
    assert (unpacked_count(beyond), item_count(beyond)) == (0, 6)
    assert item_count(raised(lambda: torch.cat(X))) == 2  # type: ignore[call-overload]
    assert numbers(raised(lambda: check_size(X)))[:2] == [7, 3]

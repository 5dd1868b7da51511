"""Values beside tensors that have none: right where they are known, absent where they are not."""

from __future__ import annotations

from collections.abc import Callable

import examples
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

from profiler_kit.meta.values import MAX_INTEGERS, ValueTracking, store_values

KNOWN: dict[str, Callable[[], Tensor]] = {
    "arange": lambda: torch.arange(10) % 3,
    "compared": lambda: (torch.arange(10) < 4).sum(),
    "literal": lambda: torch.tensor([3, 1, 2]).sort().values,
    "filled": lambda: torch.empty(4, dtype=torch.int64).fill_(7),
    "zeros": lambda: torch.zeros(2, 3, dtype=torch.bool).logical_not().cumsum(1),
    "floats": lambda: torch.linspace(0, 1, 5) * 2,
    "data-dependent shape": lambda: torch.nonzero(torch.arange(6) % 2),
    "boolean index": lambda: torch.arange(6)[torch.arange(6) > 3],
    "two-dimensional boolean index": lambda: torch.arange(6).reshape(2, 3)[torch.eye(2, 3, dtype=torch.bool)],
    "masked": lambda: torch.arange(6).masked_select(torch.arange(6) > 2),
    "unique": lambda: torch.unique(torch.tensor([2, 2, 5])),
    "repeated": lambda: torch.repeat_interleave(torch.tensor([1, 0, 2])),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_follows_from_constants_is_what_the_cpu_computes(name: str) -> None:
    truth = KNOWN[name]()
    with ValueTracking() as values, torch.device("meta"):
        made = KNOWN[name]()
        assert made.is_meta
        assert made.shape == truth.shape
        known = values.value_of(made)
        assert known is not None
        assert torch.equal(known, truth)
        assert made.tolist() == truth.tolist()
        assert torch.equal(made.cpu(), truth)


UNKNOWN: dict[str, Callable[[], Tensor]] = {
    "chance": lambda: torch.randint(0, 5, (3,)),
    "memory": lambda: torch.empty(3, dtype=torch.int64),
    "of chance": lambda: torch.randn(3) > 0,
    "large": lambda: torch.arange(MAX_INTEGERS + 1),
    "written over": lambda: torch.zeros(3, dtype=torch.int64).copy_(torch.randint(0, 2, (3,))),
    "partly filled": lambda: _partly_filled(),
}


def _partly_filled() -> Tensor:
    made = torch.empty(3, dtype=torch.int64)
    made[:2].fill_(1)
    return made


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_does_not_follow_is_never_made_up(name: str) -> None:
    with ValueTracking() as values, torch.device("meta"):
        assert values.value_of(UNKNOWN[name]()) is None
        with pytest.raises((RuntimeError, NotImplementedError)):
            (UNKNOWN[name]().float() * torch.randn(())).sum().item()


def test_views_share_their_values_and_their_ignorance() -> None:
    with ValueTracking() as values, torch.device("meta"):
        base = torch.zeros(4, dtype=torch.int64)
        view = base[1:3]
        view.fill_(5)
        assert base.tolist() == [0, 5, 5, 0]
        view.copy_(torch.randint(0, 9, (2,)))
        assert values.value_of(base) is None
        base.fill_(1)
        assert view.tolist() == [1, 1]


@settings(max_examples=examples.count(60))
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(-3, 3)), max_size=12))
def test_any_series_of_writes_is_known_or_right(writes: list[tuple[int, int, int]]) -> None:
    def run(random: Callable[[], Tensor]) -> tuple[Tensor, bool]:
        """The tensor after the writes, and whether a value of chance may still be in it."""
        held, chance = torch.zeros(5, dtype=torch.int64), [False] * 5
        for at, kind, value in writes:
            if kind == 0:
                held[at] = value
                chance[at] = False
            elif kind == 1:
                held[at:] += value
            elif kind == 2:
                held[at : at + 1].copy_(random())
                chance[at] = True
            else:
                held.fill_(value)
                chance = [False] * 5
        return held, any(chance)

    truth, _ = run(lambda: torch.tensor([9]))
    with ValueTracking() as values, torch.device("meta"):
        made, unsure = run(lambda: torch.randint(0, 5, (1,)))
        known = values.value_of(made)
    if unsure:
        assert known is None
    elif known is not None:
        assert torch.equal(known, truth)
    if not any(kind == 2 for _, kind, _ in writes):
        assert known is not None


def test_a_remembered_value_is_a_copy_of_its_own() -> None:
    ids = torch.tensor([1, 2, 3])
    stands_in = torch.empty(3, dtype=torch.int64, device="meta")
    store_values(stands_in, ids)
    with ValueTracking():
        stands_in.add_(10)
        assert stands_in.tolist() == [11, 12, 13]
    assert ids.tolist() == [1, 2, 3]
    with ValueTracking():
        assert stands_in.max().item() == 3


def test_a_known_mask_gives_unknown_activations_their_shape() -> None:
    with ValueTracking(), torch.device("meta"):
        activations = torch.randn(4, 6, requires_grad=True)
        mask = torch.tensor([True, False, True, True])
        assert activations[mask].shape == (3, 6)
        picked = activations.masked_select(torch.ones(4, 6, dtype=torch.bool).tril())
        assert picked.shape == (10,)
        picked.sum().backward()
        assert activations.grad is not None
        assert activations.grad.shape == (4, 6)


@pytest.mark.parametrize("batch_first", [False, True])
def test_packed_sequences_have_the_known_lengths_or_no_padding(batch_first: bool) -> None:
    sequences = torch.empty((2, 5, 8) if batch_first else (5, 2, 8), device="meta")
    lengths = torch.empty(2, dtype=torch.int64, device="meta")
    with ValueTracking():
        full = pack_padded_sequence(sequences, lengths, batch_first)
        store_values(lengths, torch.tensor([5, 3]))
        packed = pack_padded_sequence(sequences, lengths, batch_first)
    assert full.data.shape == (10, 8)
    assert packed.batch_sizes.tolist() == [2, 2, 2, 1, 1]

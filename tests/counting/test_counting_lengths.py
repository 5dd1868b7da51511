"""Sequences of different lengths: the real lengths count where their values are known, whatever holds them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.utils.flop_counter import flop_registry

import profiler_kit
from profiler_kit.records.counts import StaticCount

LENGTHS = (10, 6)
HEADS, SIZE = 4, 8
LINEAR = sum(LENGTHS) * (HEADS * SIZE) ** 2
ATTENTION = HEADS * sum(n * n for n in LENGTHS) * 2 * SIZE
BOUND = HEADS * sum(LENGTHS) * max(LENGTHS) * 2 * SIZE  # every query meets as many keys as the longest sequence has


def count(model: nn.Module, *args: Any, **options: Any) -> StaticCount:
    static = profiler_kit.count(model, *args, **options).static
    assert static is not None
    return static


class Varlen(nn.Module):
    """Attention on packed sequences after a linear layer; `offsets` computes the offsets in forward."""

    def __init__(self, offsets: Callable[[Tensor], Tensor] = lambda given: given) -> None:
        super().__init__()
        self.project = nn.Linear(32, 32)
        self.offsets = offsets

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        q = self.project(x).view(-1, HEADS, SIZE)
        return self.attend(q, self.offsets(lengths)).flatten(-2)

    def attend(self, q: Tensor, offsets: Tensor) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        return varlen_attn(q, q, q, offsets, offsets, max(LENGTHS), max(LENGTHS))


class Flash(Varlen):
    def attend(self, q: Tensor, offsets: Tensor) -> Tensor:
        longest = max(LENGTHS)
        return torch.ops.aten._flash_attention_forward(q, q, q, offsets, offsets, longest, longest, 0.0, False, False)[
            0
        ]


class Efficient(Varlen):
    def attend(self, q: Tensor, offsets: Tensor) -> Tensor:
        longest, q = max(LENGTHS), q.unsqueeze(0)
        return torch.ops.aten._efficient_attention_forward(
            q, q, q, None, offsets, offsets, longest, longest, 0.0, 0, True
        )[0].squeeze(0)


def cumulative(lengths: Tensor) -> Tensor:
    return F.pad(lengths.cumsum(0), (1, 0)).int()


def unknown(lengths: Tensor) -> Tensor:
    return (torch.rand(3, device=lengths.device) * 10).int()


KINDS = [*([Varlen] if find_spec("torch.nn.attention.varlen") else []), Flash, Efficient]
OFFSETS = torch.tensor([0, 10, 16], dtype=torch.int32)
TOKENS = torch.randn(16, 32)


@pytest.mark.parametrize(
    ("kind", "convention"),
    [*((kind, "kit") for kind in KINDS), (Flash, "torch"), (Efficient, "torch"), (Flash, "model-flops")],
)
def test_known_offsets_count_the_real_lengths(kind: type[Varlen], convention: str) -> None:
    static = count(kind(), TOKENS, OFFSETS, convention=convention)
    assert static.forward.macs == LINEAR + ATTENTION == 25088
    assert (static.uncounted, static.bounds) == ((), ())
    # the weight gradient, and twice the attention; torch counts the scores of the fused kernel again
    backward = {"kit": LINEAR + 2 * ATTENTION, "torch": LINEAR + ATTENTION * 5 // 2}
    assert static.backward.macs == backward.get(convention, 2 * (LINEAR + ATTENTION))


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_that_follow_from_inputs_are_known(kind: type[Varlen]) -> None:
    static = count(kind(cumulative), TOKENS, torch.tensor(LENGTHS))
    assert (static.forward.macs, static.bounds) == (25088, ())
    assert static.memory is not None
    assert static.saved_bytes == count(kind(), TOKENS, OFFSETS).saved_bytes + 3 * 4  # the offsets are not an input


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_offsets_give_an_upper_bound(kind: type[Varlen]) -> None:
    report = profiler_kit.count(kind(unknown), TOKENS, torch.tensor(LENGTHS))
    assert report.static is not None
    assert report.static.forward.macs == LINEAR + BOUND > 25088
    (bound, *_) = report.static.bounds
    assert bound.kind == "upper"
    assert bound.where.endswith(tuple("0123456789"))
    assert report.static.memory is not None


def test_the_formulas_of_torch_agree() -> None:
    q = torch.randn(16, HEADS, SIZE)
    flops = flop_registry[torch.ops.aten._flash_attention_forward](q, q, q, OFFSETS, OFFSETS, 10, 10, out_val=None)
    assert flops == 2 * ATTENTION


def test_used_keys_limit_the_pairs() -> None:
    class Cached(Varlen):
        def attend(self, q: Tensor, offsets: Tensor) -> Tensor:
            starts = torch.tensor([0, 1, 2], dtype=torch.int32)
            used = torch.tensor([5, 3], dtype=torch.int32)
            options = {} if torch.__version__ < "2.6" else {"seqused_k": used}
            return torch.ops.aten._flash_attention_forward(
                q[:2], q, q, starts, offsets, 1, max(LENGTHS), 0.0, False, False, **options
            )[0]

    static = count(Cached(), TOKENS, OFFSETS, mode="infer")
    assert static.forward.macs == LINEAR + HEADS * (5 + 3) * 2 * SIZE


class Jagged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(32, 32)
        self.out = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        q = self.project(x).unflatten(-1, (HEADS, SIZE)).transpose(1, 2)
        return self.out(F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(-2))


class FromOffsets(Jagged):
    def forward(self, x: Tensor, offsets: Tensor) -> Tensor:
        return super().forward(torch.nested.nested_tensor_from_jagged(x, offsets)).values()


def jagged() -> Tensor:
    return torch.nested.nested_tensor([torch.randn(n, 32) for n in LENGTHS], layout=torch.jagged)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("build", [lambda: (Jagged(), jagged()), lambda: (FromOffsets(), TOKENS, OFFSETS)])
def test_attention_of_jagged_tensors(build: Callable[[], tuple[Any, ...]]) -> None:
    static = count(*build())
    assert static.device == "meta"
    assert static.forward.macs == 2 * LINEAR + ATTENTION
    assert static.backward.macs == 3 * LINEAR + 2 * ATTENTION
    assert static.memory is not None
    assert static.memory.traced_on == "meta"
    # queries, attention by heads and flattened, the log-softmax; the log-sum-exp of 32 positions per sequence; scalars
    activations = 4 * 16 * 32 * 4 + 2 * HEADS * 32 * 4
    assert activations <= static.saved_bytes <= activations + 256


class Recurrent(nn.Module):
    def __init__(
        self, lengths: Callable[[Tensor], Any], kind: Any = nn.LSTM, *, is_sorted: bool = True, **options: Any
    ):
        super().__init__()
        self.layer = kind(5, 8, batch_first=True, **options)
        self.lengths, self.is_sorted = lengths, is_sorted

    def forward(self, x: Tensor, n: Any) -> Tensor:
        packed = pack_padded_sequence(x, self.lengths(n), batch_first=True, enforce_sorted=self.is_sorted)
        return self.layer(packed)[1][0]


SPELLINGS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda n: n,
    "tolist": lambda n: n.tolist(),
    "integers": lambda n: [int(value) for value in n],
    "cpu": lambda n: n.cpu(),
    "constants": lambda n: [7, 4, 2],
    "new tensor": lambda n: torch.tensor([7, 4, 2]),
}
STEPS = 7 + 4 + 2
PADDED = torch.randn(3, 7, 5)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_packed_sequences_have_one_answer(spelling: str) -> None:
    lengths = torch.tensor([7, 4, 2])
    static = count(Recurrent(SPELLINGS[spelling]), PADDED, lengths)
    reference = count(Recurrent(SPELLINGS["constants"]), PADDED, lengths)
    assert static.forward.macs == STEPS * 4 * 8 * (5 + 8) == 5408
    assert (static.backward, static.saved_bytes) == (reference.backward, reference.saved_bytes)
    assert static.memory is not None
    assert reference.memory is not None
    assert static.memory.device is not None
    assert reference.memory.device is not None
    assert abs(static.memory.device.allocated_bytes - reference.memory.device.allocated_bytes) <= 512  # one block
    assert not static.bounds


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_packed_layers_in_two_directions(kind: Any, gates: int) -> None:
    model = Recurrent(SPELLINGS["tolist"], kind, is_sorted=False, bidirectional=True, num_layers=2)
    static = count(model, PADDED, torch.tensor([4, 7, 2]))
    first, second = 2 * gates * 8 * (5 + 8), 2 * gates * 8 * (16 + 8)
    assert static.forward.macs == STEPS * (first + second)


def test_unknown_lengths_are_said_to_be_a_bound() -> None:
    model = Recurrent(lambda n: (torch.rand(3, device=n.device) * 0 + 7).long())
    static = count(model, PADDED, torch.tensor([7, 4, 2]))
    assert static.forward.macs == 3 * 7 * 4 * 8 * (5 + 8)
    assert [(bound.op, bound.kind) for bound in static.bounds] == [("aten._pack_padded_sequence", "upper")]


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(5, 8)

    def forward(self, packed: PackedSequence) -> Tensor:
        return pad_packed_sequence(self.layer(packed)[0])[0]


@pytest.mark.parametrize("order", [(7, 4, 2), (2, 7, 4)])
def test_a_packed_sequence_as_an_input(order: tuple[int, ...]) -> None:
    packed = pack_sequence([torch.randn(n, 5) for n in order], enforce_sorted=False)
    static = count(Packed(), packed)
    assert static.forward.macs == 5408
    assert static.memory is not None
    assert packed.data.device.type == packed.batch_sizes.device.type == "cpu"

"""Properties of the formulas over random shapes, and torch's own counter where it is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import examples
import pytest
import torch
import torch.nn.functional as F
from counting_ops import counted, t
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

small = st.integers(1, 4)
some = settings(max_examples=examples.count(25))


def run_conv(dims: int, transposed: bool, x: Tensor, w: Tensor, **options: Any) -> Tensor:
    kind = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    out: Tensor = getattr(F, kind)(x, w, **options)
    return out


@some
@given(
    dims=st.integers(1, 3),
    transposed=st.booleans(),
    inputs=small,
    outputs=small,
    groups=small,
    kernel=small,
    stride=small,
)
def test_any_grouped_convolution_is_the_sum_of_its_groups(
    dims: int, transposed: bool, inputs: int, outputs: int, groups: int, kernel: int, stride: int
) -> None:
    def cost(count: int) -> tuple[int, int]:
        first, second = (inputs * count, outputs) if transposed else (outputs * count, inputs)
        x = t(2, inputs * count, *[6] * dims, grad=True)
        w = t(first, second, *[kernel] * dims, grad=True)
        found = counted(run_conv, dims, transposed, x, w, stride=stride, groups=count, backward=True)
        return found.forward.macs, found.backward.macs

    forward, backward = cost(1)
    assert cost(groups) == (groups * forward, groups * backward)
    assert backward == 2 * forward


def sdpa(batch: int, heads: int, length: int, width: int) -> tuple[Any, ...]:
    return (F.scaled_dot_product_attention, *(t(batch, heads, length, width, grad=True) for _ in range(3)))


def lstm(batch: int, hidden: int, length: int, width: int) -> tuple[Any, ...]:
    return (lambda m, x: m(x)[0], nn.LSTM(width, hidden, device="meta"), t(length, batch, width, grad=True))


def linear(batch: int, outputs: int, length: int, width: int) -> tuple[Any, ...]:
    return F.linear, t(batch, length, width, grad=True), t(outputs, width, grad=True)


def norm(batch: int, heads: int, length: int, width: int) -> tuple[Any, ...]:
    return (lambda x: F.layer_norm(x, (width,)), t(batch, length, width, grad=True))


@some
@pytest.mark.parametrize("build", [sdpa, lstm, linear, norm], ids=lambda f: f.__name__)
@given(batch=st.integers(2, 6), shape=st.tuples(small, small, small))
def test_forward_and_backward_are_linear_in_the_batch(
    build: Callable[..., tuple[Any, ...]], batch: int, shape: tuple[int, int, int]
) -> None:
    one, many = (counted(*build(size, *shape), backward=True) for size in (1, batch))
    assert many.forward.macs == batch * one.forward.macs
    assert many.forward.flops == batch * one.forward.flops
    assert many.backward.macs == batch * one.backward.macs


@some
@given(heads=small, group=small, length=small, keys=small, width=small, values=small)
def test_grouped_queries_cost_what_repeated_keys_do(
    heads: int, group: int, length: int, keys: int, width: int, values: int
) -> None:
    q = t(2, heads * group, length, width, grad=True)
    k, v = t(2, heads, keys, width, grad=True), t(2, heads, keys, values, grad=True)

    def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        return F.scaled_dot_product_attention(q, k, v)

    def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    one, other = (counted(function, q, k, v, backward=True) for function in (repeated, grouped))
    assert one.forward.macs == other.forward.macs == 2 * heads * group * length * keys * (width + values)
    assert one.backward.macs == other.backward.macs == 2 * one.forward.macs


@some
@given(
    causal=st.booleans(),
    dropout=st.booleans(),
    heads=small,
    length=small,
    width=small,
    wanted=st.tuples(*[st.booleans()] * 3),
)
def test_a_fused_attention_costs_what_its_parts_do(
    causal: bool, dropout: bool, heads: int, length: int, width: int, wanted: tuple[bool, bool, bool]
) -> None:
    """The kernel's formula against bmm and softmax, in MACs and FLOPs, with any of the gradients."""
    assume(any(wanted))

    def tensors() -> list[Tensor]:
        return [t(2, heads, length, width, grad=needed) for needed in wanted]

    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    probability = 0.5 if dropout else 0.0
    fused = counted(lambda q, k, v: kernel(q, k, v, probability, causal)[0], *tensors(), backward=True)
    parts = counted(F.scaled_dot_product_attention, *tensors(), None, probability, causal, backward=True)
    assert any(op.op == "aten.bmm" for op in parts.ops)
    assert (fused.forward.macs, fused.forward.flops) == (parts.forward.macs, parts.forward.flops)
    assert (fused.backward.macs, fused.backward.flops) == (parts.backward.macs, parts.backward.flops)


@some
@given(kind=st.sampled_from(["LSTM", "GRU", "RNN"]), steps=small, batch=small, width=small, hidden=small)
def test_a_layer_of_cells_costs_steps_times_a_cell(kind: str, steps: int, batch: int, width: int, hidden: int) -> None:
    layer = getattr(nn, kind)(width, hidden, device="meta")
    cell = getattr(nn, f"{kind}Cell")(width, hidden, device="meta")
    whole = counted(lambda x: layer(x)[0], t(steps, batch, width))
    one = counted(cell, t(batch, width))
    assert whole.forward.macs == steps * one.forward.macs
    assert whole.forward.flops == steps * one.forward.flops


def differential(function: Callable[..., Any], *args: Any, backward: bool = True) -> None:
    with FlopCounterMode(display=False) as peer:
        out = function(*args)
        forward = peer.get_total_flops()
        if backward:
            out.backward(torch.empty_like(out))
    ours = counted(function, *args, backward=backward)
    assert 2 * ours.forward.macs == forward
    assert 2 * (ours.forward.macs + ours.backward.macs) == peer.get_total_flops()


@some
@given(shape=st.lists(small, max_size=2), n=small, k=small, m=small)
def test_torchs_counter_agrees_on_products(shape: list[int], n: int, k: int, m: int) -> None:
    differential(torch.matmul, t(*shape, n, k, grad=True), t(k, m, grad=True))
    differential(torch.einsum, "...nk,km->...mn", t(*shape, n, k, grad=True), t(k, m, grad=True))
    differential(F.linear, t(*shape, n, k, grad=True), t(m, k, grad=True))


@some
@given(
    dims=st.integers(1, 3), transposed=st.booleans(), inputs=small, outputs=small, kernel=st.integers(1, 3),
    stride=st.integers(1, 2), padding=st.integers(0, 1), dilation=st.integers(1, 2),
)  # fmt: skip
def test_torchs_counter_agrees_on_convolutions_without_groups(
    dims: int, transposed: bool, inputs: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int
) -> None:
    first, second = (inputs, outputs) if transposed else (outputs, inputs)
    x, w = t(2, inputs, *[7] * dims, grad=True), t(first, second, *[kernel] * dims, grad=True)
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    differential(lambda x, w: run_conv(dims, transposed, x, w, **options), x, w)


@some
@given(batch=small, heads=small, length=st.integers(2, 5), width=st.integers(2, 5))
def test_torchs_counter_agrees_on_attention_and_lstm_without_fused_kernels(
    batch: int, heads: int, length: int, width: int
) -> None:
    differential(*sdpa(batch, heads, length, width))
    differential(*lstm(batch, heads, length, width))

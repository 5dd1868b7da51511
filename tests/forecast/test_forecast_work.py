"""The work of op calls, on facts by hand and on real calls."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.devices.cards.data_center import H100
from profiler_kit.forecast.work import Arithmetic, Work, work_of
from profiler_kit.meta.call_signatures import call_signature, op_name
from profiler_kit.meta.emulation.library_calls import facts_of
from profiler_kit.records.calls import OpCall, TensorFacts
from scripts.lab.price_table import parse


class Calls(TorchDispatchMode):
    """Record each call with its facts, and as the text of a recording."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[OpCall] = []
        self.texts: list[OpCall] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        outputs = [
            each for each in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(each, torch.Tensor)
        ]
        name = op_name(func)
        facts = {key: facts_of(value) for key, value in kwargs.items()}
        self.calls.append(OpCall(name, facts_of(args), facts, facts_of(outputs)))
        text = call_signature(args, kwargs)
        self.texts.append(OpCall(name, parse(text), outputs=parse(call_signature(outputs, {}))))
        return out


def works(run: Any) -> dict[str, Work]:
    """The work of the calls of `run`, by op; the last one of each."""
    with Calls() as mode:
        run()
    return {call.op: work for call in mode.calls if (work := work_of(call)) is not None}


def train(model: torch.nn.Module, *inputs: torch.Tensor) -> None:
    """One forward and backward pass."""
    out = model(*inputs)
    (out[0] if isinstance(out, tuple) else out).float().sum().backward()


def meta(*shape: int, **options: Any) -> torch.Tensor:
    """A meta tensor."""
    return torch.empty(*shape, device="meta", **options)


def layer(build: Any, *args: Any, **options: Any) -> torch.nn.Module:
    """A layer on meta tensors."""
    made: torch.nn.Module = build(*args, device="meta", **options)
    return made


def test_a_product_has_the_flops_of_its_sizes_and_the_alignment_of_its_rows() -> None:
    odd = works(
        lambda: train(layer(torch.nn.Linear, 64, 50257, dtype=torch.bfloat16), meta(8, 64, dtype=torch.bfloat16))
    )
    even = works(
        lambda: train(layer(torch.nn.Linear, 64, 50304, dtype=torch.bfloat16), meta(8, 64, dtype=torch.bfloat16))
    )
    assert odd["aten.addmm"].flops == 2 * 8 * 64 * 50257
    assert (odd["aten.addmm"].classes[-1], even["aten.addmm"].classes[-1]) == ("2", "16")
    assert odd["aten.addmm"].math == "bf16"


@pytest.mark.parametrize(("tf32", "math"), [(False, "fp32"), (True, "tf32")])
def test_float32_products_run_in_tf32_only_where_it_is_allowed(tf32: bool, math: str) -> None:
    call = OpCall("aten.mm", facts_of((meta(8, 8), meta(8, 8))), outputs=facts_of((meta(8, 8),)))
    work = work_of(call, Arithmetic(tf32_products=tf32))
    assert work is not None
    assert work.math == math


def test_the_backward_of_a_convolution_has_the_flops_of_the_gradients_that_are_needed() -> None:
    conv = layer(torch.nn.Conv2d, 16, 32, 3, padding=1)
    first = works(lambda: train(conv, meta(4, 16, 10, 10)))
    inner = works(lambda: train(conv, meta(4, 16, 10, 10, requires_grad=True)))
    forward = first["aten.convolution"].flops
    assert forward == 2 * 4 * 100 * 16 * 32 * 9
    assert first["aten.convolution_backward"].flops == forward
    assert inner["aten.convolution_backward"].flops == 2 * forward


def test_groups_strides_and_layouts_are_classes() -> None:
    depthwise = works(lambda: layer(torch.nn.Conv2d, 16, 16, 3, groups=16, stride=2)(meta(4, 16, 10, 10)))[
        "aten.convolution"
    ]
    last = meta(4, 16, 10, 10).to(memory_format=torch.channels_last)
    plain = works(lambda: layer(torch.nn.Conv2d, 16, 16, 3)(last))["aten.convolution"]
    assert "depthwise" in depthwise.classes
    assert "channels_last" in plain.classes
    assert depthwise.flops == 2 * 4 * 16 * 16 * 9


def test_attention_knows_whether_it_is_causal() -> None:
    query = meta(2, 4, 32, 16)
    op = torch.ops.aten._scaled_dot_product_efficient_attention
    for is_causal in (False, True):
        work = works(lambda causal=is_causal: op(query, query, query, None, True, 0.0, causal))[
            "aten._scaled_dot_product_efficient_attention"
        ]
        assert work.classes[-1] == str(is_causal)
        assert work.flops == 4 * 2 * 4 * 32 * 32 * 16


def test_an_expanded_tensor_is_read_once() -> None:
    work = works(lambda: meta(1, 8).expand(1000, 8) + meta(1000, 8))["aten.add"]
    assert work.moved_bytes == 4 * (8 + 8000 + 8000)


def test_the_works_of_a_family_have_the_same_columns() -> None:
    model = torch.nn.Sequential(layer(torch.nn.Conv1d, 4, 8, 3), torch.nn.GELU(), layer(torch.nn.LayerNorm, 6))
    calls = works(lambda: train(model, meta(2, 4, 8))) | works(lambda: train(layer(torch.nn.Linear, 4, 8), meta(2, 4)))
    columns: dict[str, set[tuple[int, int]]] = {}
    for work in calls.values():
        columns.setdefault(work.family, set()).add((len(work.sizes), len(work.classes)))
    assert {"memory", "convolution", "convolution_backward", "product"} <= set(columns)
    assert all(len(each) == 1 for each in columns.values()), columns


def test_a_bias_is_part_of_a_convolutions_work() -> None:
    with_bias, without = (
        works(lambda bias=bias: layer(torch.nn.Conv2d, 8, 8, 3, bias=bias)(meta(2, 8, 9, 9)))["aten.convolution"]
        for bias in (True, False)
    )
    assert with_bias.sizes != without.sizes


@pytest.mark.parametrize(("rows", "fullness"), [(128 * 132, 1.0), (128 * 133, 133 / 264)])
def test_a_product_knows_how_full_its_last_wave_is(rows: int, fullness: float) -> None:
    work = works(lambda: layer(torch.nn.Linear, 64, 128)(meta(rows, 64)))["aten.addmm"]
    assert any(size == pytest.approx(fullness) for size in work.sizes)


@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        (lambda: layer(torch.nn.Conv2d, 6, 9, 3, groups=3, stride=2), (meta(2, 6, 9, 9),)),
        (lambda: layer(torch.nn.ConvTranspose2d, 6, 4, 4, 2, 1), (meta(2, 6, 9, 9),)),
        (lambda: layer(torch.nn.Linear, 7, 5), (meta(3, 7),)),
        (lambda: layer(torch.nn.BatchNorm2d, 6), (meta(2, 6, 9, 9),)),
        (lambda: layer(torch.nn.Embedding, 10, 4), (meta(2, 3, dtype=torch.int64),)),
        (lambda: layer(torch.nn.TransformerEncoderLayer, 8, 2, 16), (meta(5, 2, 8),)),
    ],
)
def test_a_recorded_call_has_the_work_of_the_call(build: Any, inputs: tuple[torch.Tensor, ...]) -> None:
    with Calls() as mode:
        train(build(), *inputs)
    assert len(mode.calls) > 2
    for call, text in zip(mode.calls, mode.texts, strict=True):
        assert work_of(call) == work_of(text), call.op


def test_the_ideal_time_is_arithmetic_and_then_traffic() -> None:
    assert H100.peaks is not None
    big = work_of(
        OpCall("aten.mm", facts_of((meta(4096, 4096), meta(4096, 4096))), outputs=facts_of((meta(4096, 4096),)))
    )
    assert big is not None
    assert big.ideal_ns(H100.peaks) == pytest.approx(
        1500 + (2 * 4096**3 / H100.peaks.fp32 + 3 * 4 * 4096**2 / H100.peaks.bandwidth) * 1e9
    )
    add = works(lambda: meta(1 << 24) + 1)["aten.add"]
    assert add.ideal_ns(H100.peaks) == pytest.approx(1500 + 8 * (1 << 24) / H100.peaks.bandwidth * 1e9)


def float32(*shape: int) -> TensorFacts:
    strides = tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))
    return TensorFacts(shape, strides, "float32", 4)


def test_the_shape_of_elementwise_work_does_not_matter_and_that_of_a_softmax_does() -> None:
    def work(op: str, shape: tuple[int, ...], *rest: object) -> Work | None:
        tensor = float32(*shape)
        return work_of(OpCall(op, (tensor, *rest), outputs=(tensor,)))

    assert work("aten.relu", (64, 1024)) == work("aten.relu", (65536,))
    assert work("aten._softmax", (64, 1024), 1, False) != work("aten._softmax", (1024, 64), 1, False)


def test_flags_select_kernels() -> None:
    image, channels = float32(8, 16, 32, 32), float32(16)
    training, inference = (
        work_of(OpCall("aten.native_batch_norm", (image, *[channels] * 4, trains, 0.1, 1e-5), outputs=(image,)))
        for trains in (True, False)
    )
    assert training is not None
    assert inference is not None
    assert training.classes != inference.classes
    assert training.sizes == inference.sizes

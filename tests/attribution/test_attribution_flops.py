from __future__ import annotations

import json
from typing import Any

import pytest

from profiler_kit.attribution.annotation_counters import has_flop_formula, operator_flops


def flops(name: str, shapes: list[Any], inputs: list[Any] | None = None) -> int | None:
    return operator_flops(name, json.dumps(shapes), None if inputs is None else json.dumps(inputs))


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("aten::mm", [[2, 3], [3, 4]], 2 * 2 * 3 * 4),
        ("aten::bmm", [[5, 2, 3], [5, 3, 4]], 5 * 2 * 2 * 3 * 4),
        ("aten::addmm", [[4], [2, 3], [3, 4], [], []], 2 * 2 * 3 * 4),
        ("aten::baddbmm", [[5, 2, 4], [5, 2, 3], [5, 3, 4], [], []], 5 * 2 * 2 * 3 * 4),
        ("aten::scaled_dot_product_attention", [[2, 4, 7, 8], [2, 4, 9, 8], [2, 4, 9, 6], [], []], 2 * 2 * 4 * 7 * 9 * (8 + 6)),
        (
            "aten::_scaled_dot_product_flash_attention_backward",
            [[2, 4, 7, 8], [2, 4, 7, 8], [2, 4, 7, 8], [2, 4, 7, 8]],
            5 * 2 * 2 * 4 * 7 * 7 * 8,
        ),
    ],
)  # fmt: skip
def test_products_and_attention(name: str, shapes: list[Any], expected: int) -> None:
    assert flops(name, shapes) == expected


CONVOLUTION = [[8, 3, 256, 256], [30, 3, 4, 4], [30]]


def arguments(
    stride: str, padding: str, dilation: str = "[1, 1]", transposed: str = "False", groups: str = "1"
) -> list[str]:
    return ["", "", "", stride, padding, dilation, transposed, "[0, 0]", groups]


def test_convolutions_count_every_output_position() -> None:
    # 257 = (256 + 2*2 - 4) / 1 + 1
    assert flops("aten::convolution", CONVOLUTION, arguments("[1, 1]", "[2, 2]")) == 2 * 8 * 30 * 257**2 * 3 * 16
    assert flops("aten::convolution", CONVOLUTION, arguments("[2]", "[1]")) == 2 * 8 * 30 * 128**2 * 3 * 16
    grouped = [[1, 32, 10, 10], [32, 1, 3, 3], []]
    assert flops("aten::convolution", grouped, arguments("[1, 1]", "[1, 1]", groups="32")) == 2 * 32 * 100 * 9
    dilated = arguments("[1, 1]", "[0, 0]", "[2, 2]")
    assert flops("aten::convolution", [[1, 1, 10, 10], [1, 1, 3, 3], []], dilated) == 2 * 36 * 9
    transposed = arguments("[2, 2]", "[0, 0]", transposed="True")
    assert flops("aten::convolution", [[1, 6, 5, 5], [6, 4, 2, 2], []], transposed) == 2 * 6 * 25 * 4 * 4


@pytest.mark.parametrize(
    ("mask", "gradients"), [("[True, True, True]", 2), ("[False, True, False]", 1), ("[False, False, True]", 0)]
)
def test_the_backward_of_a_convolution_counts_the_gradients_asked_for(mask: str, gradients: int) -> None:
    shapes = [[8, 30, 257, 257], *CONVOLUTION[:2], []]
    inputs = ["", "", "", "[30]", "[1, 1]", "[2, 2]", "[1, 1]", "False", "[0, 0]", "1", mask]
    assert flops("aten::convolution_backward", shapes, inputs) == gradients * 2 * 8 * 30 * 257**2 * 3 * 16


@pytest.mark.parametrize(
    ("name", "shapes", "inputs"),
    [
        ("aten::convolution", "[[8, 3, 256, 256], [30, 3, 4, 4], [30]]", None),  # no arguments in the trace
        ("aten::mm", "[[2, 3], [4, 4]]", None),
        ("aten::mm", "[]", None),
        ("aten::mm", "nonsense", None),
        ("aten::mm", '[["2", 3], [3, 4]]', None),
        ("aten::mm", "[[-2, 3], [3, 4]]", None),
        ("aten::mm", "[" * 100_000, None),
        (
            "aten::convolution",
            "[[8, 3, 9, 9], [30, 3, 4, 4], []]",
            '["", "", "", "[0, 0]", "[1, 1]", "[1, 1]", "False", "", "1"]',
        ),
        ("aten::relu", "[[2, 3]]", None),
    ],
)
def test_what_is_not_known_is_not_guessed(name: str, shapes: str, inputs: str | None) -> None:
    assert operator_flops(name, shapes, inputs) is None


def test_only_operators_with_arithmetic_of_their_own_are_counted() -> None:
    assert has_flop_formula("aten::mm")
    assert not has_flop_formula("aten::linear")  # an addmm is in it

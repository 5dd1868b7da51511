"""Operators of a trace by the shapes of their inputs, in words."""

from __future__ import annotations

import math
from typing import Final

from profiler_kit.diagnosis.convolution import MAX_IMAGE_CHANNELS, Channels, join_sizes
from profiler_kit.diagnosis.phrases import Advice, advise, join_list
from profiler_kit.records.traces import ShapedOperator
from profiler_kit.units import percent

MIN_LARGE_KERNEL: Final = 5  # half of a smaller kernel sees hardly any neighbors


def half_kernel(operator: ShapedOperator) -> Advice:
    """Return the advice to halve a large kernel, with the line of that convolution; empty for other operators."""
    if _convolution(operator) is None or min(sizes := operator.shapes[1][2:]) < MIN_LARGE_KERNEL:
        return Advice("")
    inputs, outputs = operator.shapes[0][1], operator.shapes[1][0]
    half = tuple(size // 2 for size in sizes)
    kernel_size = half[0] if len(set(half)) == 1 else half
    groups = inputs // operator.shapes[1][1]
    grouped = f", groups={groups}" if groups > 1 else ""
    work = math.prod(half) / math.prod(sizes)
    return advise(
        f"Half the kernel, `{{code}}`, does {percent(work)} of its work, with other results.",
        f"torch.nn.Conv{len(sizes)}d({inputs}, {outputs}, kernel_size={kernel_size}{grouped})",
    )


def operator_text(operator: ShapedOperator) -> str:
    """Return the operator and its sizes in words: ``a 16x16 convolution of 30 to 50 channels at 257x257``."""
    shapes = join_list([join_sizes(shape) for shape in operator.shapes[:3]])
    return _convolution(operator) or _linear(operator) or f"{operator.name} of {shapes}"


def shaped_channels(operator: ShapedOperator) -> Channels | None:
    """Return the channels of a convolution or the features of a linear layer.

    None for other operators, for grouped convolutions, and for a first layer on images.
    """
    if len(operator.shapes) < 2 or not operator.name.startswith(("aten::conv", "aten::linear")):
        return None
    data, weight = operator.shapes[:2]
    is_linear = operator.name == "aten::linear"
    if len(weight) < 2 or len(data) < 2 or (data[-1] if is_linear else data[1]) != weight[1]:
        return None
    return Channels(inputs=weight[1], outputs=weight[0]) if weight[1] > MAX_IMAGE_CHANNELS and weight[0] > 1 else None


def _convolution(operator: ShapedOperator) -> str | None:
    if operator.name not in ("aten::conv1d", "aten::conv2d", "aten::conv3d") or len(operator.shapes) < 2:
        return None
    data, weight = operator.shapes[:2]
    if not 3 <= len(weight) == len(data) or not weight[1] or data[1] % weight[1]:
        return None
    kernel = join_sizes(weight[2:]) if len(weight) > 3 else f"{weight[2]}-wide"
    groups = data[1] // weight[1]
    split = f" in {groups} groups" if groups > 1 else ""
    return f"a {kernel} convolution of {data[1]} to {weight[0]} channels{split} at {join_sizes(data[2:])}"


def _linear(operator: ShapedOperator) -> str | None:
    if operator.name != "aten::linear" or len(operator.shapes) < 2 or len(operator.shapes[1]) != 2:
        return None
    data, (features_out, features_in) = operator.shapes[:2]
    if data[-1] != features_in:
        return None
    rows = f" for {join_sizes(data[:-1])} rows" if len(data) > 1 else ""
    return f"a linear layer of {features_in} to {features_out} features{rows}"

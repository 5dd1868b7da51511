"""Sizes of a convolution or linear layer, the share that tensor cores pad, and changes of a convolution."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.phrases import Advice, advise, join_list
from profiler_kit.records.counts import ModuleNode
from profiler_kit.records.traces import ShapedOperator
from profiler_kit.units import percent

# Tensor cores load rows of 16 bytes: 8 values of 2 bytes, or 4 of TF32. The tiles of both are multiples of 8 values.
CHANNEL_MULTIPLE: Final = 8
# Images have up to 4 channels, which a model cannot change. Libraries have kernels for such a first layer.
MAX_IMAGE_CHANNELS: Final = 4
# Half of a smaller kernel is a single pixel (3 -> 1), which is another kind of layer.
MIN_KERNEL_SIZE_TO_HALVE: Final = 5
# Two layers move more bytes than one. A smaller saving of MACs may be lost to that.
MIN_MACS_SAVING: Final = 0.25
_CLASS_NAME_PARTS: Final = ("Conv", "Linear")


@dataclass(frozen=True, slots=True)
class Convolution:
    """Sizes of a convolution. `grid`: spatial size of the output. `images`: batch size times calls."""

    channels_in: int
    channels_out: int
    kernel: tuple[int, ...]
    groups: int
    is_strided: bool
    grid: tuple[int, ...]
    images: int

    @property
    def macs_per_image(self) -> int:
        """MACs for one image: input channels / groups x output channels x kernel x output grid."""
        return self.channels_in // self.groups * self.channels_out * math.prod(self.kernel) * math.prod(self.grid)

    def macs_formula(self) -> str:
        """Return `macs_per_image` as a formula: ``30 x 50 x 16x16 x 256x256``."""
        group_channels = self.channels_in // self.groups
        return f"{group_channels} x {self.channels_out} x {join_sizes(self.kernel)} x {join_sizes(self.grid)}"


def join_sizes(sizes: tuple[int, ...]) -> str:
    """Return sizes joined by "x": ``16x16``."""
    return "x".join(map(str, sizes))


def convolution_of(node: ModuleNode) -> Convolution | None:
    """Return the sizes of the convolution `node`; None if it is not one, or if its counted MACs differ from the formula."""
    sizes, shape = node.layer_sizes, node.output_shape
    if (
        sizes is None
        or not sizes.kernel
        or "Transpose" in node.class_name
        or shape is None
        or len(shape) < 3
        or node.calls < 1
    ):
        return None
    dimensions = len(shape) - 2
    kernel = sizes.kernel * dimensions if len(sizes.kernel) == 1 else sizes.kernel
    if len(kernel) != dimensions or shape[1] != sizes.outputs:
        return None  # an unbatched input, or a subclass that returns something else
    convolution = Convolution(
        channels_in=sizes.inputs,
        channels_out=sizes.outputs,
        kernel=kernel,
        groups=sizes.groups,
        is_strided=sizes.is_strided,
        grid=shape[2:],
        images=shape[0] * node.calls,
    )
    return convolution if 0 < convolution.macs_per_image * convolution.images == node.forward.macs else None


@dataclass(frozen=True, slots=True)
class Channels:
    """Input and output channels (features) of a layer; of one group if it has several."""

    inputs: int
    outputs: int

    @property
    def unaligned(self) -> tuple[int, ...]:
        """The channel counts that are not a multiple of `CHANNEL_MULTIPLE`."""
        return tuple(count for count in (self.inputs, self.outputs) if count % CHANNEL_MULTIPLE)

    @property
    def padded_share(self) -> float:
        """The share of the multiplications that is padding if both counts are rounded up to the next multiple."""
        return 1.0 - self.inputs * self.outputs / (
            round_up_to_multiple(self.inputs) * round_up_to_multiple(self.outputs)
        )


def round_up_to_multiple(count: int) -> int:
    """Return `count` rounded up to the next multiple of `CHANNEL_MULTIPLE`."""
    return -(-count // CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE


def layer_channels(node: ModuleNode) -> Channels | None:
    """Return the channels of the convolution or linear layer `node`.

    None for other layers, for depthwise convolutions, and for a first layer on images.
    """
    sizes = node.layer_sizes
    if sizes is None or not any(part in node.class_name for part in _CLASS_NAME_PARTS):
        return None
    inputs, outputs = sizes.inputs // sizes.groups, sizes.outputs // sizes.groups
    return Channels(inputs, outputs) if inputs > MAX_IMAGE_CHANNELS and outputs > 1 else None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerChange:
    """One change of a convolution.

    `name`: the change in words. `detail`: its sizes. `layer_macs`: forward MACs of the changed layer.
    """

    name: str
    detail: str
    layer_macs: int


def layer_changes(node: ModuleNode, conv: Convolution) -> Iterator[LayerChange]:
    """Yield changes that reduce the work of the convolution `node` and leave the layers around it almost as they are."""
    macs = node.forward.macs
    if min(conv.kernel) >= MIN_KERNEL_SIZE_TO_HALVE:
        half_kernel = tuple(size // 2 for size in conv.kernel)
        new_macs = macs * math.prod(half_kernel) // math.prod(conv.kernel)
        yield LayerChange(
            name="half the kernel size",
            detail=f"{join_sizes(half_kernel)}, same output size",
            layer_macs=new_macs,
        )
    if min(conv.grid) > 1:
        half_grid = tuple(-(-size // 2) for size in conv.grid)
        new_macs = macs * math.prod(half_grid) // math.prod(conv.grid)
        yield LayerChange(
            name="stride 2 before it",
            detail=f"so that its output is {join_sizes(half_grid)}",
            layer_macs=new_macs,
        )
    if len(conv.kernel) == 2 and conv.groups == 1 and not conv.is_strided:
        height, width = conv.kernel
        weights = conv.channels_in * conv.channels_out * height * width
        factorized_weights = conv.channels_in * conv.channels_out * height + conv.channels_out**2 * width
        if factorized_weights <= (1 - MIN_MACS_SAVING) * weights:
            new_macs = macs * factorized_weights // weights
            yield LayerChange(
                name="two layers instead of one",
                detail=f"{height}x1, then 1x{width}, {conv.channels_out} channels between",
                layer_macs=new_macs,
            )

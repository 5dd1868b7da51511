"""Sizes of a convolution or linear layer, and the share that tensor cores pad."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.counts import ModuleNode

# Tensor cores load rows of 16 bytes: 8 values of 2 bytes, or 4 of TF32. The tiles of both are multiples of 8 values.
CHANNEL_MULTIPLE: Final = 8
# Images have up to 4 channels, which a model cannot change. Libraries have kernels for such a first layer.
MAX_IMAGE_CHANNELS: Final = 4
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

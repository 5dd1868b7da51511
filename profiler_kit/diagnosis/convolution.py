"""What a convolution or linear layer multiplies, read from its module node, and what of it tensor cores pad."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.counts import ModuleNode

# Tensor cores load rows of 16 bytes: 8 values of 2 bytes, or 4 of TF32; tiles of both are multiples of 8 values.
MULTIPLE: Final = 8
_CHANNELS: Final = re.compile(r"\A(?P<first>\d+)->(?P<second>\d+)(?:,.*?\bg(?P<groups>\d+))?")
_KINDS: Final = ("Conv", "Linear")
# What the count writes about a convolution module: "30->50, k16, p7", "8->8, k3x5, s2, g8, no bias"
_WRITTEN: Final = re.compile(r"\A(?P<cin>\d+)->(?P<cout>\d+), k(?P<kernel>\d+(?:x\d+)*)(?:,.*?\bg(?P<groups>\d+))?")


@dataclass(frozen=True, slots=True)
class Convolution:
    """Channels, kernel, groups and output grid; `images` is the batch times the calls."""

    channels_in: int
    channels_out: int
    kernel: tuple[int, ...]
    groups: int
    grid: tuple[int, ...]
    images: int

    @property
    def macs_per_image(self) -> int:
        """Cin / groups x Cout x kernel x output grid."""
        return self.channels_in // self.groups * self.channels_out * math.prod(self.kernel) * math.prod(self.grid)

    def product(self) -> str:
        """The closed form in figures: ``30 x 50 x 16x16 x 256x256``."""
        each = self.channels_in // self.groups
        return f"{each} x {self.channels_out} x {by(self.kernel)} x {by(self.grid)}"


def by(sizes: tuple[int, ...]) -> str:
    """Sizes joined as people write them: ``16x16``."""
    return "x".join(map(str, sizes))


def convolution_of(node: ModuleNode) -> Convolution | None:
    """The convolution that `node` is, where its counted MACs are the closed form; None where anything does not fit."""
    written = _WRITTEN.match(node.config)
    shape = node.output_shape
    if written is None or "Transpose" in node.class_name or shape is None or len(shape) < 3 or node.calls < 1:
        return None
    dimensions = len(shape) - 2
    sizes = tuple(int(size) for size in written["kernel"].split("x"))
    kernel = sizes * dimensions if len(sizes) == 1 else sizes
    if len(kernel) != dimensions or shape[1] != int(written["cout"]):
        return None  # an unbatched input, or a subclass that returns something else
    found = Convolution(
        channels_in=int(written["cin"]),
        channels_out=int(written["cout"]),
        kernel=kernel,
        groups=max(1, int(written["groups"] or 1)),
        grid=shape[2:],
        images=shape[0] * node.calls,
    )
    return found if 0 < found.macs_per_image * found.images == node.forward.macs else None


@dataclass(frozen=True, slots=True)
class Channels:
    """What a layer multiplies: channels (features) in and out, of one group where it has several."""

    inputs: int
    outputs: int

    @property
    def uneven(self) -> tuple[int, ...]:
        """Those of the two that are no multiple of `MULTIPLE`."""
        return tuple(count for count in (self.inputs, self.outputs) if count % MULTIPLE)

    @property
    def padded_share(self) -> float:
        """The share of the multiplications that is padding, where both are filled up to the next multiple."""
        return 1.0 - self.inputs * self.outputs / (padded(self.inputs) * padded(self.outputs))


def padded(count: int) -> int:
    """`count` filled up to the next multiple."""
    return -(-count // MULTIPLE) * MULTIPLE


def channels_of(node: ModuleNode) -> Channels | None:
    """The channels of the convolution or linear layer that `node` is; None for anything else, and for depthwise ones."""
    written = _CHANNELS.match(node.config)
    if written is None or not any(kind in node.class_name for kind in _KINDS):
        return None
    groups = max(1, int(written["groups"] or 1))
    inputs, outputs = int(written["first"]) // groups, int(written["second"]) // groups
    return Channels(inputs, outputs) if inputs > 1 and outputs > 1 else None

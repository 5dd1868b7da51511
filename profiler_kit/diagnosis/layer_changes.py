"""Changes of a convolution, and the MACs that they leave."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.convolution import Convolution, join_sizes
from profiler_kit.records.counts import ModuleNode

# Half of a smaller kernel is a single pixel (3 -> 1), which is another kind of layer.
MIN_KERNEL_SIZE_TO_HALVE: Final = 5
# Two layers move more bytes than one. A smaller saving of MACs may be lost to that.
MIN_MACS_SAVING: Final = 0.25


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

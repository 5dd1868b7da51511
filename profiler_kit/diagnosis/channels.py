"""Channels of convolutions and features of linear layers, and what of them tensor cores pad."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.counts import ModuleNode

# Tensor cores load rows of 16 bytes: 8 values of 2 bytes, or 4 of TF32; tiles of both are multiples of 8 values.
MULTIPLE: Final = 8
_WRITTEN: Final = re.compile(r"\A(?P<first>\d+)->(?P<second>\d+)(?:,.*?\bg(?P<groups>\d+))?")
_KINDS: Final = ("Conv", "Linear")


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
    written = _WRITTEN.match(node.config)
    if written is None or not any(kind in node.class_name for kind in _KINDS):
        return None
    groups = max(1, int(written["groups"] or 1))
    inputs, outputs = int(written["first"]) // groups, int(written["second"]) // groups
    return Channels(inputs, outputs) if inputs > 1 and outputs > 1 else None

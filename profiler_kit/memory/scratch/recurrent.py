"""Recurrent layers on cuDNN: its workspace, the same forward and backward.

For each direction of each layer 8 MiB and a copy of its weights; for each row (time step and sample) some multiples of
the hidden and the input size, kept once for all layers; for each sample some multiples of the hidden size. In the
algorithms that cuDNN takes for small hidden sizes, more for each row. Found on an H100 with cuDNN 9.19: hidden sizes of
50 to 1024, one to three layers, one direction and both, with and without projections and packed sequences.
"""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.scratch import LibraryConfig, OpCall, ScratchBytes, on_card, rule

_SOURCE: Final = "H100, cuDNN 9.19: workspace by layer, weight, row and sample"
_PER_LAYER: Final = 8 << 20
_GATES: Final = {"lstm": 4, "gru": 3}
_ROW: Final = {"lstm": (5, 1), "gru": (4, 2)}  # multiples of hidden and input size
_SAMPLE: Final = {"lstm": 10, "gru": 5}
_BOTH_WAYS: Final = {"lstm": 4, "gru": 1}  # multiples of the hidden size more, with both directions
_MORE: Final = {"lstm": 16, "gru": 14}  # multiples of the hidden size more for each row, where it is small
_SMALL: Final = {"lstm": (256, 128), "gru": (128, 128)}  # up to which hidden size: in half precision, in float32
_PLAIN_MORE: Final = {True: 9, False: 4}  # of plain layers, in training and in inference
_PLAIN_SMALL: Final = (300, 300)


@rule("aten._cudnn_rnn", "aten._cudnn_rnn_backward")
def recurrent(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """The workspace of either pass. Half precision is taken for float16, the one that autocast runs these layers in."""
    told = call.kwargs
    kind, size, train = told["kind"], told["element_bytes"], told["train"]
    directions, depth, hidden, inputs = told["directions"], told["depth"], told["hidden"], told["input_size"]
    rows, batch = told["rows"], told["batch"]
    gates = _GATES.get(kind, 1)
    weights = gates * hidden * directions * (inputs + (depth - 1) * directions * hidden + depth * hidden)
    of_hidden, of_inputs = _ROW.get(kind, (4, 2))
    if not train and kind != "lstm":
        of_hidden, of_inputs = (of_hidden if kind == "gru" else 2), 1
    row = directions * (of_hidden * hidden + of_inputs * inputs)
    if directions == 2:
        row += _BOTH_WAYS.get(kind, 0) * hidden
    sample = _SAMPLE.get(kind, 5) * hidden * directions * depth
    base = _PER_LAYER * directions * depth + size * (weights + rows * row + batch * sample)
    more = size * rows * _MORE.get(kind, _PLAIN_MORE[train]) * hidden
    spare = size * rows * inputs + more * (directions - 1)
    if told["packed"]:
        rough = ScratchBytes(base * 4 // 5, base, base * 6 // 5 + more, _SOURCE + "; packed sequences by guess")
        return on_card(rough, device)
    is_small = hidden <= _SMALL.get(kind, _PLAIN_SMALL)[size == 4]
    likely = base + more if is_small else base
    return on_card(ScratchBytes(base * 3 // 4, likely, base + base // 10 + more + spare, _SOURCE), device)

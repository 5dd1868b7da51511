"""Workspace of recurrent layers in cuDNN, equal in forward and backward.

8 MiB and a copy of the weights per layer and direction; multiples of hidden and input size per row (time step and sample),
once for all layers; multiples of the hidden size per sample. Algorithms for small hidden sizes need more per row.

Source: measured on an H100 with cuDNN 9.19: hidden sizes of 50 to 1024, one to three layers, one and two directions, with
and without projections and packed sequences.
"""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.workspace import LibraryConfig, WorkspaceBytes, on_card, rule
from profiler_kit.records.calls import OpCall

_SOURCE: Final = "H100, cuDNN 9.19: workspace per layer, weight, row and sample"
_LAYER_BYTES: Final = 8 << 20
_GATES: Final = {"lstm": 4, "gru": 3}
_ROW_MULTIPLES: Final = {"lstm": (5, 1), "gru": (4, 2)}  # multiples of hidden and input size
_SAMPLE_MULTIPLES: Final = {"lstm": 10, "gru": 5}
_BIDIRECTIONAL_MULTIPLES: Final = {"lstm": 4, "gru": 1}  # extra multiples of the hidden size with both directions
_SMALL_HIDDEN_MULTIPLES: Final = {
    "lstm": 16,
    "gru": 14,
}  # extra multiples of the hidden size per row, for small hidden sizes
_MAX_SMALL_HIDDEN: Final = {
    "lstm": (256, 128),
    "gru": (128, 128),
}  # largest small hidden size: in half precision, in float32
_PLAIN_SMALL_HIDDEN_MULTIPLES: Final = {True: 9, False: 4}  # for plain layers: {training: multiple}
_PLAIN_MAX_SMALL_HIDDEN: Final = (300, 300)


@rule("aten._cudnn_rnn", "aten._cudnn_rnn_backward")
def recurrent(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Workspace of either pass. Half precision means float16, in which autocast runs these layers."""
    options = call.kwargs
    kind, size, train = options["kind"], options["element_bytes"], options["train"]
    directions, depth, hidden, inputs = (
        options["directions"],
        options["depth"],
        options["hidden"],
        options["input_size"],
    )
    rows, batch = options["rows"], options["batch"]
    gates = _GATES.get(kind, 1)
    weights = gates * hidden * directions * (inputs + (depth - 1) * directions * hidden + depth * hidden)
    of_hidden, of_inputs = _ROW_MULTIPLES.get(kind, (4, 2))
    if not train and kind != "lstm":
        of_hidden, of_inputs = (of_hidden if kind == "gru" else 2), 1
    row = directions * (of_hidden * hidden + of_inputs * inputs)
    if directions == 2:
        row += _BIDIRECTIONAL_MULTIPLES.get(kind, 0) * hidden
    sample = _SAMPLE_MULTIPLES.get(kind, 5) * hidden * directions * depth
    base = _LAYER_BYTES * directions * depth + size * (weights + rows * row + batch * sample)
    extra = size * rows * _SMALL_HIDDEN_MULTIPLES.get(kind, _PLAIN_SMALL_HIDDEN_MULTIPLES[train]) * hidden
    margin = size * rows * inputs + extra * (directions - 1)
    if options["packed"]:
        packed = WorkspaceBytes(
            base * 4 // 5, base, base * 6 // 5 + extra, _SOURCE + "; not measured for packed sequences"
        )
        return on_card(packed, device)
    is_small = hidden <= _MAX_SMALL_HIDDEN.get(kind, _PLAIN_MAX_SMALL_HIDDEN)[size == 4]
    likely = base + extra if is_small else base
    return on_card(WorkspaceBytes(base * 3 // 4, likely, base + base // 10 + extra + margin, _SOURCE), device)

"""Recurrent layers on cuDNN: its workspace, the same forward and backward.

For each direction of each layer 8 MiB and a copy of its weights; for each row (time step and sample) some multiples of
the hidden and the input size, kept once for all layers; for each sample some multiples of the hidden size. In the
algorithms that cuDNN takes for small hidden sizes, more for each row. Met within 1 % where one of the two applies, on an
H100 with cuDNN 9.19: hidden sizes of 50 to 1024, one to three layers, both directions, projections, packed sequences.
"""

from __future__ import annotations

from typing import Final

from profiler_kit.memory.profiles import Profile
from profiler_kit.memory.scratch import LibraryConfig, OpCall, ScratchBytes, rule

_SOURCE: Final = "H100, cuDNN 9.19: workspace by layer, weight, row and sample"
_PER_LAYER: Final = 8 << 20
_GATES: Final = {"lstm": 4, "gru": 3}
_ROW: Final = {"lstm": (5, 1), "gru": (4, 2)}  # multiples of hidden and input size
_SAMPLE: Final = {"lstm": 10, "gru": 5}
_BOTH_WAYS: Final = {"lstm": 4, "gru": 1}  # multiples of the hidden size more, with both directions
_SMALL_HIDDEN: Final = {"lstm": (16, 128), "gru": (14, 128)}  # multiples of the hidden size more, up to which size
_OTHERS: Final = (9, 300)


@rule("aten._cudnn_rnn", "aten._cudnn_rnn_backward")
def recurrent(call: OpCall, profile: Profile, config: LibraryConfig) -> ScratchBytes:
    """The workspace of either pass."""
    told = call.kwargs
    kind, element_bytes = told["kind"], told["element_bytes"]
    directions, depth, hidden, inputs = told["directions"], told["depth"], told["hidden"], told["input_size"]
    rows, batch = told["rows"], told["batch"]
    gates = _GATES.get(kind, 1)
    carried = told.get("projection") or hidden
    weights = gates * hidden * directions * (inputs + (depth - 1) * directions * carried + depth * carried)
    of_hidden, of_inputs = _ROW.get(kind, (4, 2))
    row = directions * (of_hidden * hidden + of_inputs * inputs)
    if directions == 2:
        row += _BOTH_WAYS.get(kind, 0) * hidden
    sample = _SAMPLE.get(kind, 5) * hidden * directions * depth
    base = _PER_LAYER * directions * depth + element_bytes * (weights + rows * row + batch * sample)
    multiple, most_hidden = _SMALL_HIDDEN.get(kind, _OTHERS)
    more = element_bytes * rows * directions * (multiple * hidden + inputs)
    if told["packed"]:
        return ScratchBytes(base * 3 // 4, base * 19 // 20, base + more, _SOURCE)
    is_small = element_bytes == 4 and hidden <= most_hidden
    return ScratchBytes(base * 19 // 20, base + more if is_small else base, base + base // 20 + more, _SOURCE)

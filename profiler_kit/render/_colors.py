"""The colors of pages and pictures: a color means one thing in all charts. Needs nothing.

Within a group, colors differ for people with any color vision (most are of Okabe and Ito, and of Tol). Idle time is warm, kernels
are pale, phases are strong.
"""

from __future__ import annotations

from typing import Final

COLORS: Final = {
    "data": "#8a7f00", "transfer": "#56b4e9", "forward": "#0072b2", "loss": "#e69f00", "backward": "#009e73",
    "recompute": "#44bb99", "optimizer": "#cc79a7", "communication": "#b58be0",
    "exposed communication": "#9467bd", "other": "#7f8794",
    "(outside steps)": "#5f6f86", "unattributed": "#a3aab4", "(unattributed)": "#a3aab4",
    "busy": "#5873c4", "computation": "#5873c4", "idle": "#c9a18a",
    "idle: waiting for data": "#b5651d", "idle: synchronization": "#c0392b", "idle: op dispatch": "#e08a5b",
    "idle: python": "#d4b106", "idle: launch latency": "#b98b82", "idle: compilation": "#a04ab8", "idle: cold start": "#5d6d7e",
    "idle: memory allocation": "#2e8b8b", "idle: another stream": "#6b8fb3", "idle: communication": "#d7a6e8",
    "idle: unknown": "#d0d3d8",
    "work: convolution": "#77aadd", "work: matrix products": "#ee8866", "work: attention": "#eedd88",
    "work: recurrent layers": "#c3b1e1", "work: normalization": "#ffaabb", "work: pooling": "#99ddff",
    "work: pointwise operations": "#bbcc33", "work: reductions and sorting": "#aaaa00",
    "work: copies and layout": "#9aa5b1", "work: optimizer": "#e5b8d4", "work: other": "#bdb7a4",
    "parameters": "#4a7d94", "gradients": "#62a87c", "optimizer state": "#a44a7e", "inputs": "#bc9c22",
    "saved activations": "#d1495b", "saved for backward": "#d1495b", "temporaries": "#8d99ae", "workspace": "#8168b8",
}  # fmt: skip
# For names that only one chart has. None of them is a color above.
OTHER_COLORS: Final = ("#2f6f9f", "#c97b2a", "#3c8d5a", "#9c5b94", "#6aa6c9", "#a8552f", "#6f6a2a", "#6d7480")
MORE, LESS = "#c2410c", "#1d6fb8"  # a change; also told apart without red and green


def color_of(name: str | None, index: int) -> str:
    """The color of `name`, or of the entry `index` of a legend for a name of one chart alone."""
    return COLORS.get(name or "") or OTHER_COLORS[index % len(OTHER_COLORS)]

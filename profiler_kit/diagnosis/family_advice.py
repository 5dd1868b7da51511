"""What to do about operators by their family, for work outside the layers of a network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profiler_kit.diagnosis.phrases import Advice, advise
from profiler_kit.records.traces import TraceOperator

# Families whose operators are seldom a network's purpose.
OUTSIDE_LAYERS: Final[dict[str, Advice]] = {
    "sort/scan": Advice(
        "Sort less: torch.topk instead of a full sort, torch.bincount or a mask instead of unique, cumsum over fewer elements."
    ),
    "index": Advice(
        "Index less: gather all rows in one call (index_select, whose backward pass adds rows without sorting them), use "
        "x.unbind(1) instead of x[:, i] in a loop, and torch.where instead of boolean masks."
    ),
    "fft": Advice(
        "Use sizes that are products of 2, 3, 5 and 7, real transforms (torch.fft.rfft2), and plan them once."
    ),
    "interpolate": advise(
        "Resize smaller tensors: interpolate before channels are added, or {code} instead of 'bicubic'.",
        "mode='nearest'",
    ),
    "random": Advice("Draw random numbers in one call; drop dropout layers that do not help."),
    "reduce": advise(
        "Reduce once: combine several sums and means over the same tensor, use one call for a list of tensors "
        "(torch.nn.utils.get_total_norm), or fuse them with {code}.",
        "torch.compile(model)",
    ),
}
COPIES: Final = Advice(
    "Look for contiguous(), clone() and reshape() after permute() or transpose(), and for torch.cat and torch.stack in a loop. "
    "Keep one layout from layer to layer, or write into a buffer that is allocated once."
)
_BY_FAMILY: Final[dict[str, Advice]] = {
    **OUTSIDE_LAYERS,
    "cat/copy": COPIES,
    "sync": Advice("Keep results on the device, and read numbers every few hundred steps only."),
}
MAX_FAMILIES: Final = 2


def advice_for(names: Iterable[str], operators: Iterable[TraceOperator]) -> str:
    """Return what to do about the operators called `names`, whose families `operators` know; empty where nothing is known."""
    families = {operator.name: operator.family for operator in operators}
    known = dict.fromkeys(families.get(name, "") for name in names)
    return " ".join([_BY_FAMILY[family].text for family in known if family in _BY_FAMILY][:MAX_FAMILIES])

"""The words findings are made of: layers, phases, lists, shares and intervals as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from profiler_kit.records.counts import DATA_PATH, LOSS_PATH, OPTIMIZER_PATH, TRANSFER_PATH
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.units import percent, scaled, text  # one of these words, which reports use too
from profiler_kit.units import plural as plural

_OWNERS: Final = {
    "": "the model's own forward code",
    LOSS_PATH: "the loss function",
    OPTIMIZER_PATH: "the optimizer",
    TRANSFER_PATH: "the copy to the device",
    DATA_PATH: "the data loader",
}
_PHASES: Final = {
    "data": "data loading",
    "transfer": "the copy to the device",
    "forward": "the forward pass",
    "loss": "the loss",
    "backward": "the backward pass",
    "recompute": "the recomputation",
    "optimizer": "the optimizer step",
    "other": "the rest of the step",
}


def layer(path: str) -> str:
    """The owner at `path`: its path, with the word before it where it is a mere number, or words for root and pseudo paths.

    A member of an ``nn.Sequential`` is called ``0``, which in a sentence would be read as a figure.
    """
    return _OWNERS.get(path) or (f"layer {path}" if path.replace(".", "").isdecimal() else path)


def opening(path: str) -> str:
    """`layer` as the beginning of a sentence: words get a capital, a path stays as it is written."""
    said = layer(path)
    return said if said == path else capital(said)


def phase(name: str) -> str:
    """The phase called `name`, with its article."""
    return _PHASES.get(name, name)


def threshold(share: float) -> str:
    """A share that is a limit, as ``"20 %"``."""
    return f"{100.0 * share:g} %"


def times(factor: float) -> str:
    """A factor: ``"3.93x"``."""
    return text(factor, "ratio")


def span(low: float, high: float) -> str:
    """Two shares as ``"54.0 % to 95.0 %"``, or one where they read the same."""
    return percent(low) if percent(low) == percent(high) else f"{percent(low)} to {percent(high)}"


def capital(said: str) -> str:
    """`said` as the beginning of a sentence."""
    return said[:1].upper() + said[1:]


def listing(items: Sequence[str], most: int = 4) -> str:
    """`items` as ``"a, b and c"``, with ``"and 3 more"`` past `most`."""
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most} more"
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def quoted(run: ConfigRun) -> str:
    """The configuration's name in quotes, as the configuration table shows it."""
    return f'"{run.config.name}"'


def work(value: float, unit: Literal["FLOP", "MACs"]) -> str:
    """A count of work with its prefix: ``"402.7 GFLOP"``, ``"12 MACs"``."""
    number, _, prefix = scaled(value).partition(" ")
    return f"{number} {prefix}{unit}"


def interval(value: Interval) -> str:
    """A median with its interval: ``"26.2 ms (26.1 ms to 26.3 ms)"``."""
    return f"{text(value.median, 'ns')} ({text(value.low, 'ns')} to {text(value.high, 'ns')})"


def sentences(*parts: str) -> str:
    """The non-empty parts, joined to one paragraph."""
    return " ".join(part for part in parts if part)

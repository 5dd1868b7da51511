"""The text of findings: advice with its line to paste; layers, phases, lists, shares and intervals in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.records.counts import DATA_PATH, LOSS_PATH, OPTIMIZER_PATH, TRANSFER_PATH
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.units import percent, scaled, text
from profiler_kit.units import plural as plural  # rules import it together with the words below

MAX_ADVICE: Final = (
    4_000  # characters that are searched for the end of a sentence: a name from a trace may have millions
)
_STOP: Final = re.compile(r"\.(?:\s|$)")
_COLON: Final = re.compile(r"[.:;](?:\s|$)")
_PSEUDO_LAYERS: Final = {
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


def layer_name(path: str) -> str:
    """Return the layer at `path` in words: its path, or a description of the root and of pseudo paths.

    A numeric path gets the prefix "layer": ``0``, a member of an ``nn.Sequential``, would look like a figure in a sentence.
    """
    return _PSEUDO_LAYERS.get(path) or (f"layer {path}" if path.replace(".", "").isdecimal() else path)


def layers_sentence(paths: Sequence[str]) -> str:
    """Return a sentence that names the layers that kernels belong to; empty without any."""
    return f"They belong to {join_list([layer_name(path) for path in paths])}." if paths else ""


def layer_name_capitalized(path: str) -> str:
    """Return `layer` for the start of a sentence: words get a capital letter, a path stays unchanged."""
    name = layer_name(path)
    return name if name == path else capitalize(name)


def phase_name(name: str) -> str:
    """Return the phase `name` in words, with an article: ``the backward pass``."""
    return _PHASES.get(name, name)


def limit_percent(share: float) -> str:
    """Return a limit as percent: ``20 %`` for 0.2."""
    return f"{100.0 * share:g} %"


def factor_text(factor: float) -> str:
    """Return a factor as text: ``3.93x``."""
    return text(factor, "ratio")


def share_range(low: float, high: float) -> str:
    """Return a range of shares: ``54.0 % to 95.0 %``, or one number if both look the same."""
    return percent(low) if percent(low) == percent(high) else f"{percent(low)} to {percent(high)}"


def capitalize(sentence: str) -> str:
    """Return `sentence` with its first letter in upper case."""
    return sentence[:1].upper() + sentence[1:]


def join_list(items: Sequence[str], most: int = 4) -> str:
    """Return `items` as ``a, b and c``; more than `most` items as ``a, b, c, d and 3 more``."""
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most} more"
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def quoted_name(run: ConfigRun) -> str:
    """Return the configuration's name in quotes."""
    return f'"{run.config.name}"'


def work_text(value: float, unit: Literal["FLOP", "MACs"]) -> str:
    """Return a count of FLOPs or MACs with a prefix: ``402.7 GFLOP``, ``12 MACs``."""
    number, _, prefix = scaled(value).partition(" ")
    return f"{number} {prefix}{unit}"


def interval_text(value: Interval) -> str:
    """Return a median with its interval: ``26.2 ms (26.1 ms to 26.3 ms)``."""
    return f"{text(value.median, 'ns')} ({text(value.low, 'ns')} to {text(value.high, 'ns')})"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, in sentences, and the line to paste that they contain; empty without one."""

    text: str
    code: str = ""

    def then(self, *sentences: str) -> Advice:
        """Return this advice, followed by `sentences`."""
        return Advice(join_sentences(self.text, *sentences), self.code)

    @property
    def action(self) -> str:
        """The first sentence without its full stop; before a line to paste only its part before a colon."""
        masked = (
            self.text[:MAX_ADVICE].replace(self.code, "x" * len(self.code)) if self.code else self.text[:MAX_ADVICE]
        )
        end = (_COLON if self.code else _STOP).search(masked)
        return self.text[: end.start() if end is not None else MAX_ADVICE]


def advise(text: str, code: str) -> Advice:
    """Return the advice `text` with the line `code` in the place of ``{code}``."""
    return Advice(text.replace("{code}", code), code)


def join_sentences(*parts: str) -> str:
    """Return the non-empty parts, joined by spaces."""
    return " ".join(part for part in parts if part)

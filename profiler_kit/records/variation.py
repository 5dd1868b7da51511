"""Changes to a step that ``--what-if`` can predict: one entry of `CHANGES` per kind of change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, Literal

ZeroGrad = Literal["keep", "none"]
_LONGEST_NAMES: Final = 24  # characters of paths that a change names before it says how many there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """The changes to a step. None, () and False leave the step unchanged.

    - `amp`: autocast to this type, or ``off``.
    - `zero_grad`: ``keep`` fills gradients with zeros, ``none`` frees them.
    - `checkpoint`: paths of modules that save only their inputs for backward.
    - `channels_last`: images and weights have this memory format.
    """

    batch: int | None = None
    checkpoint: tuple[str, ...] = ()
    amp: str | None = None
    optimizer: str | None = None
    zero_grad: ZeroGrad | None = None
    channels_last: bool | None = None

    @property
    def of_target(self) -> Mapping[str, Any]:
        """The fields of `TargetSpec` that change; the target is built again with them."""
        words: dict[str, Any] = {
            "batch": self.batch, "optimizer": self.optimizer, "channels_last": self.channels_last,
        }  # fmt: skip
        if self.amp is not None:
            words["amp"] = None if self.amp == "off" else self.amp
        return {name: value for name, value in words.items() if value is not None or name == "amp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One kind of change.

    `values` is the placeholder of its value in help text, `bare` the values that its name alone selects. `read` returns the
    fields of `Variation` for a value and raises ValueError for an invalid one.
    """

    name: str
    values: str
    doc: str
    bare: tuple[str, ...]
    read: Callable[[str], dict[str, Any]]


def read_variations(text: str) -> tuple[Variation, ...]:
    """The variations in a text such as ``amp=bfloat16,zero_grad=keep``; a name without a value selects several.

    Raises ValueError with the problem and the valid choices.
    """
    choices: list[list[dict[str, Any]]] = []
    for part in (part.strip() for part in text.split(",")):
        name, has_value, value = part.partition("=")
        change = next((change for change in CHANGES if change.name == name.strip()), None)
        if change is None:
            raise ValueError(
                f"unknown change {part!r}: choose from {', '.join(change_syntax(change) for change in CHANGES)}"
            )
        if not (value.strip() if has_value else change.bare):
            raise ValueError(f"{part!r} has no value: write {change_syntax(change)}")
        choices.append([change.read(text) for text in ([value.strip()] if has_value else change.bare)])
    variations = []
    for combination in product(*choices):
        variation = Variation()
        for fields in combination:
            variation = replace(variation, **fields)
        variations.append(variation)
    return tuple(variations)


def change_syntax(change: Change) -> str:
    """The syntax of a change: ``batch=N``."""
    return f"{change.name}={change.values}" if change.values else change.name


def variation_text(variation: Variation) -> str:
    """The changes in a few words, for a table row."""
    words = []
    if variation.batch is not None:
        words.append(f"batch {variation.batch}")
    if variation.amp is not None:
        words.append("no autocast" if variation.amp == "off" else f"amp {variation.amp}")
    if variation.optimizer is not None:
        words.append(variation.optimizer)
    if variation.zero_grad is not None:
        words.append("zero_grad to zeros" if variation.zero_grad == "keep" else "zero_grad to None")
    if variation.channels_last is not None:
        words.append("channels last" if variation.channels_last else "contiguous")
    if variation.checkpoint:
        paths = ", ".join(path or "(root)" for path in variation.checkpoint)
        count = len(variation.checkpoint)
        words.append(f"checkpoint {paths if len(paths) <= _LONGEST_NAMES else f'{count} modules'}")
    return ", ".join(words) or "as it is"


def _batch(value: str) -> dict[str, Any]:
    if not (value.isascii() and value.isdigit() and int(value)):
        raise ValueError(f"batch={value}: must be a whole number of at least 1")
    return {"batch": int(value)}


def _one_of(name: str, *choices: str) -> Callable[[str], dict[str, Any]]:
    """A reader of the field `name` with the values `choices`."""

    def read(value: str) -> dict[str, Any]:
        if value not in choices:
            raise ValueError(f"{name}={value}: choose from {', '.join(choices)}")
        return {name: value}

    return read


CHANGES: Final[tuple[Change, ...]] = (
    Change(name="batch", values="N", doc="another batch size", bare=(), read=_batch),
    Change(
        name="amp",
        values="TYPE",
        doc="autocast to bfloat16 or float16, or off; bare: to each of the two",
        bare=("bfloat16", "float16"),
        read=_one_of("amp", "bfloat16", "float16", "off"),
    ),
    Change(
        name="optimizer",
        values="NAME",
        doc="another optimizer, as --optimizer names it; bare: sgd, sgd_momentum, adam, adamw, rmsprop and adagrad",
        bare=("sgd", "sgd_momentum", "adam", "adamw", "rmsprop", "adagrad"),
        read=lambda value: {"optimizer": value},
    ),
    Change(
        name="zero_grad",
        values="keep",
        doc="gradients are filled with zeros, as zero_grad(set_to_none=False) does, instead of let go of",
        bare=("keep",),
        read=_one_of("zero_grad", "keep", "none"),
    ),
    Change(
        name="channels_last",
        values="",
        doc="images and weights in this memory format",
        bare=("on",),
        read=lambda value: {"channels_last": bool(_one_of("channels_last", "on")(value))},
    ),
    Change(
        name="checkpoint",
        values="PATH",
        doc="this module keeps its inputs alone for backward and runs again; PATH+PATH for several",
        bare=(),
        read=lambda value: {
            "checkpoint": tuple("" if path.strip() == "(root)" else path.strip() for path in value.split("+"))
        },
    ),
)

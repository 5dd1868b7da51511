"""What may be different about a step, in the words of ``--what-if``: one entry of `CHANGES` per kind of change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, Literal

ZeroGrad = Literal["keep", "none"]
_LONGEST_NAMES: Final = 24  # characters of paths that a change names before it says how many there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """What is different about a step; None, () and False are as it is.

    `amp`: autocast to this type, or ``off``. `zero_grad`: ``keep`` fills gradients with zeros, ``none`` lets go of them.
    `checkpoint`: modules, by path, that keep their inputs alone. `inplace`: activations overwrite their input where they may.
    """

    batch: int | None = None
    checkpoint: tuple[str, ...] = ()
    amp: str | None = None
    optimizer: str | None = None
    zero_grad: ZeroGrad | None = None
    inplace: bool = False

    @property
    def of_target(self) -> Mapping[str, Any]:
        """The words of a `TargetSpec` that differ: what the target is built anew with."""
        words: dict[str, Any] = {"batch": self.batch, "optimizer": self.optimizer}
        if self.amp is not None:
            words["amp"] = None if self.amp == "off" else self.amp
        return {name: value for name, value in words.items() if value is not None or name == "amp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One kind of change: how it is written, what it means, the values that its bare name stands for, how one is read.

    `read` gives the fields of `Variation` for a value, and raises ValueError for one that is none.
    """

    name: str
    values: str
    doc: str
    bare: tuple[str, ...]
    read: Callable[[str], dict[str, Any]]


def read_variations(text: str) -> tuple[Variation, ...]:
    """The variations that a text such as ``amp=bfloat16,zero_grad=keep`` asks for; a bare name stands for several.

    Raises ValueError that says what is wrong and what there is.
    """
    choices: list[list[dict[str, Any]]] = []
    for part in (part.strip() for part in text.split(",")):
        name, has_value, value = part.partition("=")
        change = next((change for change in CHANGES if change.name == name.strip()), None)
        if change is None:
            raise ValueError(f"{part!r} is no change: take {', '.join(spelled(change) for change in CHANGES)}")
        if not (value.strip() if has_value else change.bare):
            raise ValueError(f"{part!r} says nothing: take {spelled(change)}")
        choices.append([change.read(one) for one in ([value.strip()] if has_value else change.bare)])
    found = []
    for chosen in product(*choices):
        variation = Variation()
        for fields in chosen:
            variation = replace(variation, **fields)
        found.append(variation)
    return tuple(found)


def spelled(change: Change) -> str:
    """How a change is written."""
    return f"{change.name}={change.values}" if change.values else change.name


def told(variation: Variation) -> str:
    """What differs, in a few words for a row of a table."""
    words = []
    if variation.batch is not None:
        words.append(f"batch {variation.batch}")
    if variation.amp is not None:
        words.append("no autocast" if variation.amp == "off" else f"amp {variation.amp}")
    if variation.optimizer is not None:
        words.append(variation.optimizer)
    if variation.zero_grad is not None:
        words.append("zero_grad to zeros" if variation.zero_grad == "keep" else "zero_grad to None")
    if variation.inplace:
        words.append("in-place activations")
    if variation.checkpoint:
        named = ", ".join(path or "(root)" for path in variation.checkpoint)
        count = len(variation.checkpoint)
        words.append(f"checkpoint {named if len(named) <= _LONGEST_NAMES else f'{count} modules'}")
    return ", ".join(words) or "as it is"


def _batch(value: str) -> dict[str, Any]:
    if not (value.isascii() and value.isdigit() and int(value)):
        raise ValueError(f"batch={value}: not a whole number of at least 1")
    return {"batch": int(value)}


def _one_of(name: str, *choices: str) -> Callable[[str], dict[str, Any]]:
    """A reader of the field `name`, whose values are `choices`."""

    def read(value: str) -> dict[str, Any]:
        if value not in choices:
            raise ValueError(f"{name}={value}: take one of {', '.join(choices)}")
        return {name: value}

    return read


def _inplace(value: str) -> dict[str, Any]:
    return {"inplace": bool(_one_of("inplace", "on")(value))}


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
        name="inplace",
        values="",
        doc="activation modules such as nn.ReLU overwrite their input, all of them that may",
        bare=("on",),
        read=_inplace,
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

"""Texts of the command line as values; each raises argparse's error for a text that is none."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from profiler_kit import units

if TYPE_CHECKING:
    from profiler_kit.records.variation import Variation

Value = TypeVar("Value")


def numbers(text: str) -> tuple[int, ...]:
    """The whole numbers of a text such as ``8,16``, each at least 1."""
    return tuple(positive(part.strip()) for part in text.split(","))


def names(text: str) -> tuple[str, ...]:
    """The names of a text such as ``default,benchmark``, at least one."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise argparse.ArgumentTypeError(f"{text!r} names no configuration; write it as default,benchmark")
    return parts


def variations(text: str) -> tuple[Variation, ...]:
    """The variations that a text such as ``amp=bfloat16,zero_grad=keep`` asks for."""
    from profiler_kit.records.variation import read_variations

    return _read(read_variations, text)


def size(text: str) -> int:
    """The bytes that a text such as ``4GiB`` means."""
    return _read(units.parse_bytes, text)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return at_least(1, text)


def whole(text: str) -> int:
    """A whole number of at least 0."""
    return at_least(0, text)


def at_least(least: int, text: str) -> int:
    """A whole number no smaller than `least`."""
    value = int(text) if text.isascii() and text.isdigit() else -1
    if value < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return value


def step_range(text: str) -> tuple[int, int]:
    """The first and the last step of a text such as ``3:5`` or ``4``."""
    first, colon, last = text.partition(":")
    steps = whole(first), whole(last if colon else first)
    if steps[0] > steps[1]:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return steps


def seconds(text: str) -> float:
    """The seconds that a text such as ``30s`` means, more than none."""
    value = _read(units.parse_seconds, text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be greater than zero, not {text!r}")
    return value


def _read(parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error

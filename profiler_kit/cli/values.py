"""Types of command line arguments. Each function raises argparse.ArgumentTypeError for an invalid text."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from profiler_kit import units

if TYPE_CHECKING:
    from profiler_kit.records.parallel import ParallelPlan
    from profiler_kit.records.variation import Variation

Value = TypeVar("Value")


def parse_positive_integers(text: str) -> tuple[int, ...]:
    """Parse a text such as ``8,16`` into whole numbers of at least 1."""
    return tuple(parse_positive(part.strip()) for part in text.split(","))


def parse_names(text: str) -> tuple[str, ...]:
    """Parse a text such as ``default,benchmark`` into at least one name."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise argparse.ArgumentTypeError(f"{text!r} contains no name; write names as default,benchmark")
    return parts


def parse_variations(text: str) -> tuple[Variation, ...]:
    """Parse a text such as ``amp=bfloat16,zero_grad=keep`` into variations."""
    from profiler_kit.records.variation import read_variations

    return _read(read_variations, text)


def parse_parallel(text: str) -> tuple[ParallelPlan, ...]:
    """Parse a text such as ``fsdp2=8,ddp=4`` into plans."""
    return tuple(_parse_plan(part.strip()) for part in text.split(","))


def _parse_plan(text: str) -> ParallelPlan:
    from profiler_kit.records.parallel import STRATEGIES, ParallelPlan

    name, _, ranks = text.partition("=")
    strategy = next((known for known in STRATEGIES if known == name), None)
    if strategy is None or not ranks.isascii() or not ranks.isdigit() or int(ranks) < 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not ddp=N or fsdp2=N with two or more ranks, such as fsdp2=8")
    return ParallelPlan(strategy=strategy, ranks=int(ranks))


def parse_size(text: str) -> int:
    """Parse a text such as ``4GiB`` into bytes, more than 0."""
    return _more_than_zero(_read(units.parse_bytes, text), text)


def parse_positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    return parse_at_least(1, text)


def parse_non_negative(text: str) -> int:
    """Parse a whole number of at least 0."""
    return parse_at_least(0, text)


def parse_at_least(minimum: int, text: str) -> int:
    """Parse a whole number of at least `minimum`."""
    value = int(text) if text.isascii() and text.isdigit() else -1
    if value < minimum:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {minimum}")
    return value


def parse_step_range(text: str) -> tuple[int, int]:
    """Parse a text such as ``3:5`` or ``4`` into the first and the last step."""
    first, colon, last = text.partition(":")
    steps = parse_non_negative(first), parse_non_negative(last if colon else first)
    if steps[0] > steps[1]:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it starts; write FIRST:LAST")
    return steps


def parse_seconds(text: str) -> float:
    """Parse a text such as ``30s`` into seconds, more than 0."""
    return _more_than_zero(_read(units.parse_seconds, text), text)


def parse_tolerance(text: str) -> str:
    """Parse a tolerance: ``0.01``, ``10x``, ``10x,0.01`` or ``any``."""
    from profiler_kit.records.tuning import parse_tolerance as parse

    return _read(parse, text)


def parse_factor(text: str) -> float:
    """A positive number."""
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise argparse.ArgumentTypeError(f"a positive number is needed, such as 0.8, not {text!r}")
    return factor


def parse_percent(text: str) -> float:
    """Parse a text such as ``10%`` or ``10`` into a share of at least 0."""
    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage, such as 10%")
    return value


def _more_than_zero(value: Value, text: str) -> Value:
    if not value:  # the parsers accept no negative number
        raise argparse.ArgumentTypeError(f"must be greater than zero, got {text!r}")
    return value


def _read(parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error

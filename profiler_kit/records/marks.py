"""The names that the worker writes into traces and attribution reads back."""

from __future__ import annotations

from typing import Final

from profiler_kit.records.laboratory import CONVOLUTION_PARTS, ConvolutionPart

STEP: Final = "pk:step:"
PHASE: Final = "pk:phase:"
MODULE: Final = "pk:module:"
CONVOLUTION: Final = "pk:conv:"


def step(index: int) -> str:
    """The mark around traced step `index`."""
    return f"{STEP}{index}"


def phase(name: str) -> str:
    """The mark around a phase of a traced step."""
    return f"{PHASE}{name}"


def module(path: str) -> str:
    """The mark around one call of the module at `path` (the root's is empty)."""
    return f"{MODULE}{path}"


def convolution(part: ConvolutionPart, path: str) -> str:
    """The mark around one part of one convolution that the module at `path` owns."""
    return f"{CONVOLUTION}{part}:{path}"


def convolution_of(name: str) -> tuple[ConvolutionPart, str] | None:
    """The part and the path that a convolution's mark says; None where `name` is another mark or none."""
    said, colon, path = name.removeprefix(CONVOLUTION).partition(":")
    part = next((part for part in CONVOLUTION_PARTS if part == said), None)
    return (part, path) if colon and part is not None and name.startswith(CONVOLUTION) else None

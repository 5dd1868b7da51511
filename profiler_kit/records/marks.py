"""Names that the worker writes into traces, and their parsers."""

from __future__ import annotations

from typing import Final

from profiler_kit.records.experiments import CONVOLUTION_PARTS, ConvolutionPart

STEP: Final = "pk:step:"
PHASE: Final = "pk:phase:"
MODULE: Final = "pk:module:"
CONVOLUTION: Final = "pk:conv:"


def is_mark(name: str) -> bool:
    """Whether `name` is a mark: it says where the host is, not what it runs."""
    return name.startswith((STEP, PHASE, MODULE, CONVOLUTION))


def step(index: int) -> str:
    """The mark around traced step `index`."""
    return f"{STEP}{index}"


def phase(name: str) -> str:
    """The mark around a phase of a traced step."""
    return f"{PHASE}{name}"


def module(path: str) -> str:
    """The mark around one call of the module at `path` (the root's path is empty)."""
    return f"{MODULE}{path}"


def convolution(part: ConvolutionPart, path: str) -> str:
    """The mark around one part of a convolution that the module at `path` calls."""
    return f"{CONVOLUTION}{part}:{path}"


def parse_convolution_mark(name: str) -> tuple[ConvolutionPart, str] | None:
    """The part and the path in the mark `name`; None where `name` is not the mark of a convolution."""
    part_text, colon, path = name.removeprefix(CONVOLUTION).partition(":")
    part = next((part for part in CONVOLUTION_PARTS if part == part_text), None)
    return (part, path) if colon and part is not None and name.startswith(CONVOLUTION) else None

"""The names that `measure` writes into traces and `attribute` reads back."""

from __future__ import annotations

from typing import Final

STEP: Final = "pk:step:"
PHASE: Final = "pk:phase:"
MODULE: Final = "pk:module:"


def step(index: int) -> str:
    """The mark around traced step `index`."""
    return f"{STEP}{index}"


def phase(name: str) -> str:
    """The mark around a phase of a traced step."""
    return f"{PHASE}{name}"


def module(path: str) -> str:
    """The mark around one call of the module at `path` (the root's is empty)."""
    return f"{MODULE}{path}"

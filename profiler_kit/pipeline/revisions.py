"""Sides of a comparison at git revisions."""

from __future__ import annotations

from pathlib import Path

from profiler_kit.gate.revisions import RevisionTarget, is_range, revision_targets, split_range

__all__ = ["RevisionTarget", "revision_targets", "sides_of"]


def sides_of(a: str, b: str, folder: Path) -> tuple[str, str]:
    """The two sides of a command line: those of ``REV..REV TARGET`` in any order, or `a` and `b`. Raises UsageError."""
    if is_range(a, folder):
        return split_range(a, b, folder)
    return split_range(b, a, folder) if is_range(b, folder) else (a, b)

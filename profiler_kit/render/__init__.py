"""Document -> text, one file per format.

A file in this folder that has a ``RENDERER`` is a format: adding one is adding a file. Files whose names begin with ``_``
are shared between formats.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from profiler_kit._family import members
from profiler_kit.errors import UsageError
from profiler_kit.records.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """How the reader wants it: `width` in characters, `color` by ANSI codes, `detail` all rather than what fits a screen.

    A format takes from these what applies to it.
    """

    width: int = 100
    color: bool = False
    detail: bool = False


@dataclass(frozen=True, slots=True)
class Renderer:
    """A format: `name` for ``-f``, `suffixes` of the files it writes, one line of `doc`, and the function that renders."""

    name: str
    suffixes: tuple[str, ...]
    doc: str
    render: Callable[[Document, RenderOptions], str]


def renderers() -> tuple[Renderer, ...]:
    """All formats, in the order of their files' names. A file of this folder without a ``RENDERER`` is no format."""
    found = [vars(member).get("RENDERER") for member in members(sys.modules[__name__])]
    return tuple(renderer for renderer in found if isinstance(renderer, Renderer))


def by_name(name: str) -> Renderer:
    """The format called `name`. Raises UsageError that names the choices."""
    for renderer in renderers():
        if renderer.name == name:
            return renderer
    names = ", ".join(renderer.name for renderer in renderers())
    raise UsageError(f"no format {name!r}", hint=f"one of: {names}")


def by_suffix(file: Path) -> Renderer:
    """The format that writes files named like `file`. Raises UsageError that names the choices."""
    name = file.name.lower()
    fitting = [(suffix, renderer) for renderer in renderers() for suffix in renderer.suffixes if name.endswith(suffix)]
    if fitting:
        return max(fitting, key=lambda pair: len(pair[0]))[1]
    known = ", ".join(suffix for renderer in renderers() for suffix in renderer.suffixes)
    raise UsageError("no format is written to a file of this name", where=str(file), hint=f"end it in one of: {known}")

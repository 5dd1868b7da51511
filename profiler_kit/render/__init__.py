"""Document -> text, one file per format.

A file in this folder with a ``RENDERER`` is a format: to add a format, add a file. Formats share the files whose names begin
with ``_``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler_kit._family import members
from profiler_kit.errors import UsageError, did_you_mean
from profiler_kit.records.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """`width` in characters, `color` by ANSI codes, `detail` for everything instead of a summary that fits a screen.

    `bars`: draw shares as bars of block characters.

    A format ignores the options that do not apply to it.
    """

    width: int = 100
    color: bool = False
    detail: bool = False
    bars: bool = False


@dataclass(frozen=True, slots=True)
class Renderer:
    """A format: `name` and `aliases` for ``-f``, `suffixes` of its files, one line of `doc`, and the function `render`.

    `kinds`: the kinds of saved results that it can show; empty if all.
    """

    name: str
    suffixes: tuple[str, ...]
    doc: str
    render: Callable[[Document, RenderOptions], str]
    aliases: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def require(self, kind: str) -> None:
        """Raise UsageError if the format cannot show results of this `kind`."""
        if self.kinds and kind not in self.kinds:
            raise UsageError(
                f"the format {self.name} is for results of check", hint="use another format, such as json or markdown"
            )


CHECK_KINDS: Final = ("check", "checks")


def renderers() -> tuple[Renderer, ...]:
    """All formats, in the order of their file names. Files of this folder without a ``RENDERER`` are skipped."""
    candidates = [vars(member).get("RENDERER") for member in members(sys.modules[__name__])]
    return tuple(renderer for renderer in candidates if isinstance(renderer, Renderer))


def renderer_by_name(name: str) -> Renderer:
    """The format called `name`. Raises: UsageError for an unknown name."""
    for renderer in renderers():
        if name in (renderer.name, *renderer.aliases):
            return renderer
    near = did_you_mean(name, format_names())
    raise UsageError(f"unknown format {name!r}{near}", hint=f"choose one of: {', '.join(format_names())}")


def format_names() -> tuple[str, ...]:
    """The names and aliases of all formats."""
    return tuple(name for renderer in renderers() for name in (renderer.name, *renderer.aliases))


def renderer_by_suffix(file: Path) -> Renderer:
    """The format for the suffix of `file`. Raises: UsageError for an unknown suffix."""
    name = file.name.lower()
    matches = [(suffix, renderer) for renderer in renderers() for suffix in renderer.suffixes if name.endswith(suffix)]
    if matches:
        return max(matches, key=lambda pair: len(pair[0]))[1]
    suffixes = ", ".join(suffix for renderer in renderers() for suffix in renderer.suffixes)
    raise UsageError(
        "cannot infer a format from the file name", where=str(file), hint=f"use one of these suffixes: {suffixes}"
    )

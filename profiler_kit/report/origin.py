"""Where a record comes from, for the head of a page: a name without folders, device, date and version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from profiler_kit.records.comparison import Comparison
    from profiler_kit.records.report import Tool

_FOLDERS: Final = re.compile(r"^(?:[A-Za-z]:)?[/\\].*[/\\](?=[^/\\])")


def short_path(written: str) -> str:
    """`written` without the folders of an absolute path: ``/home/me/net.py:Net`` becomes ``net.py:Net``."""
    return _FOLDERS.sub("", written)


def origin(device: str, created: str, tool: Tool) -> str:
    """Device, date and version in one line."""
    return " · ".join(part for part in (device, created[:10], f"{tool.name} {tool.version}") if part)


def origin_of_sides(comparison: Comparison) -> str:
    """Devices, dates and versions of both sides in one line, each once."""
    sides = (comparison.a, comparison.b)
    parts = ([side.device for side in sides], [side.created for side in sides], [side.tool for side in sides])
    return " · ".join(" and ".join(dict.fromkeys(filter(None, part))) for part in parts if any(part))

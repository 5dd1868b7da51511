"""The picture of a report on a terminal, for docs/reading.md."""

from __future__ import annotations

import io
import re
from typing import Final

from rich.console import Console
from rich.text import Text

from profiler_kit.records.document import Document
from profiler_kit.records.report import Report
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.report import report_document

WIDTH: Final = 100
SECTIONS: Final = ("Verdict", "What to do", "Findings", "Phases", "Layers")  # so that the picture fits a page
# rich loads its font from the network. The fallback is a monospace font of the reader's machine.
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def terminal_svg(report: Report, command: str) -> str:
    """The summary of `report` on a terminal with color, as SVG; `command` is the title of the window."""
    full = report_document(report)
    document = Document(
        title=full.title,
        sections=tuple(section for section in full.sections if section.title in SECTIONS),
        json=lambda: full.json,
    )
    options = RenderOptions(width=WIDTH, color=True, bars=True)
    text = renderer_by_name("terminal").render(document, options)
    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="standard", no_color=False,
        legacy_windows=False,
    )  # fmt: skip
    console.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=True)
    return _FONT.sub("", console.export_svg(title=command)) + "\n"

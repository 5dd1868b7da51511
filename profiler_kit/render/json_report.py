"""JSON: the complete records, for programs."""

from __future__ import annotations

import re

from profiler_kit.records.document import Document
from profiler_kit.render import Renderer, RenderOptions
from profiler_kit.render._text import without_commands

# Control and format characters, bidirectional overrides, line separators, private use: a terminal would obey them.
_INVISIBLE = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\uf8ff\ufeff\ufff9-\uffff]")


def render(document: Document, options: RenderOptions) -> str:
    """The document's data as JSON."""
    # "##" occurs inside strings only; as an escape, the bracket is the same text for a reader of JSON
    written = without_commands(document.json, ":", "\\u005b")
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", written)


RENDERER = Renderer("json", (".json",), "all data, for programs", render)

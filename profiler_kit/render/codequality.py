"""GitLab's Code Quality report of a result of `check`: a JSON list with one entry per broken budget."""

from __future__ import annotations

import hashlib
import json

from profiler_kit.records.document import Document
from profiler_kit.render import CHECK_KINDS, Renderer, RenderOptions
from profiler_kit.render._check_results import file_of, name_of, problems, target_results
from profiler_kit.render._text import one_line, without_commands


def render(document: Document, options: RenderOptions) -> str:
    """The entries. The fingerprint depends on target and metric only, so a problem keeps its identity. Raises: UsageError."""
    entries = [
        {
            "description": one_line(f"{name_of(result)}: {sentence}"),
            "check_name": f"profiler-kit.{one_line(metric) or 'check'}",
            "fingerprint": hashlib.sha256(f"{name_of(result)}\0{metric}".encode(errors="replace")).hexdigest(),
            "severity": "major" if fails else "minor",
            "location": {"path": one_line(file_of(result)), "lines": {"begin": 1}},
        }
        for result in target_results(document, "codequality")
        for metric, sentence, fails in problems(result)
    ]
    return without_commands(json.dumps(entries, indent=1), ":", "\\u005b") + "\n"


RENDERER = Renderer(
    "codequality", (".codequality.json",), "GitLab Code Quality report of check", render, kinds=CHECK_KINDS
)

"""OpenMetrics text of a result of `check`, for GitLab's metrics report: the value of each limited metric with the change."""

from __future__ import annotations

import re

from profiler_kit.records.document import Document
from profiler_kit.render import CHECK_KINDS, Renderer, RenderOptions
from profiler_kit.render._check_results import name_of, target_results
from profiler_kit.render._text import one_line, without_commands


def render(document: Document, options: RenderOptions) -> str:
    """One gauge per metric with a sample per target; metrics without a value are left out. Raises: UsageError."""
    samples: dict[str, dict[str, int]] = {}
    for result in target_results(document, "openmetrics"):
        for row in result.budgets:
            if row.head is not None:
                name = "profiler_kit_" + re.sub(r"[^a-zA-Z0-9_]", "_", row.metric)
                module = f',module="{_label(row.module)}"' if row.module else ""
                samples.setdefault(name, {})[f'target="{_label(name_of(result))}"{module}'] = row.head
    written = []
    for name, by_labels in samples.items():
        written.append(f"# TYPE {name} gauge")
        written += [f"{name}{{{labels}}} {value}" for labels, value in by_labels.items()]
    return without_commands("\n".join([*written, "# EOF"]), ":", "(") + "\n"


def _label(written: str) -> str:
    return one_line(written).replace("\\", "\\\\").replace('"', '\\"')


RENDERER = Renderer(
    "openmetrics",
    (".prom", ".metrics.txt"),
    "OpenMetrics text of check, for GitLab's metrics report",
    render,
    kinds=CHECK_KINDS,
)

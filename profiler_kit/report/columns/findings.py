"""The columns of findings."""

from __future__ import annotations

from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Finding
from profiler_kit.report.columns.column import Column, ColumnTable

# fmt: off
# ruff: noqa: E501 - one column, one line
FINDING_COLUMNS: tuple[Column[Finding], ...] = (
    Column("rule", "rule", "text", lambda f: f.rule, "the rule that fired"),
    Column("severity", "severity", "text", lambda f: f.severity, "high, medium, low or info"),
    Column("title", "title", "text", lambda f: f.title, "what was found, in one line"),
    Column("explanation", "explanation", "text", lambda f: f.explanation, "why"),
    Column("advice", "advice", "text", lambda f: f.advice, "what to do"),
    Column("paths", "paths", "text", lambda f: " ".join(shown_path(path) for path in f.paths), "the layers it is about"),
    Column("config", "config", "text", lambda f: f.config, "the configuration that tries the advice"),
    Column("verdict", "verdict", "text", lambda f: f.trial.verdict if f.trial else None, "what came of trying the advice"),
    Column("evidence", "evidence", "text", lambda f: "; ".join(f"{e.name} = {e.value} {e.unit}" for e in f.evidence), "the numbers that fired it"),
)

TABLES = (
    ColumnTable("findings", FINDING_COLUMNS, "One row per finding."),
)
# fmt: on

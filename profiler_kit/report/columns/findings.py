"""The columns of findings."""

from __future__ import annotations

from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Finding
from profiler_kit.report.columns.column import Column, ColumnTable

# fmt: off
# ruff: noqa: E501 - one column, one line
FINDING_COLUMNS: tuple[Column[Finding], ...] = (
    Column("rule", "rule", "text", lambda f: f.rule, "the rule that reports the finding"),
    Column("severity", "severity", "text", lambda f: f.severity, "high, medium, low or info"),
    Column("title", "title", "text", lambda f: f.title, "the finding in one line"),
    Column("explanation", "explanation", "text", lambda f: f.explanation, "the reason, with figures"),
    Column("advice", "advice", "text", lambda f: f.advice, "the recommended change"),
    Column("paths", "paths", "text", lambda f: " ".join(shown_path(path) for path in f.paths), "the affected layers"),
    Column("config", "config", "text", lambda f: f.config, "the configuration that tests the advice"),
    Column("verdict", "verdict", "text", lambda f: f.trial.verdict if f.trial else None, "verdict of the trial that tested the advice"),
    Column("claims", "claims", "text", lambda f: ", ".join(map(str, f.claims)), "the parts of the step that the finding explains"),
    Column("share_percent", "share %", "percent", lambda f: 100.0 * f.share if f.share is not None else None, "share of the time (of peak memory for the claim peak) that no finding above explains"),
    Column("evidence", "evidence", "text", lambda f: "; ".join(f"{e.name} = {e.value} {e.unit}" for e in f.evidence), "the figures behind the finding"),
)

TABLES = (
    ColumnTable("findings", FINDING_COLUMNS, "One row per finding."),
)
# fmt: on

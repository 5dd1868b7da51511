"""Neutral content for tools that compare runs over time: series of numbers, settings, texts and charts."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.document import Chart, Section

SettingValue = bool | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Numbers under a `tag` such as ``step/time_ms``: pairs of a step and a value. `doc` explains them in a sentence."""

    tag: str
    points: tuple[tuple[int, float], ...]
    doc: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A series by which runs are compared: its `tag`, and a `title` for people."""

    tag: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardRun:
    """One configuration or trace: its series, and its settings as pairs of name and value.

    `group`: the same text for a run and its repetition, which tools may average, and for no run of another report.
    """

    name: str
    series: tuple[Series, ...] = ()
    settings: tuple[tuple[str, SettingValue], ...] = ()
    group: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A report: `title`, time of creation in s since 1970, figures of the whole report (`series`), runs, texts and charts."""

    title: str
    created_s: float
    series: tuple[Series, ...]
    runs: tuple[DashboardRun, ...]
    texts: tuple[Section, ...]
    charts: tuple[Chart, ...]
    metrics: tuple[Metric, ...] = ()

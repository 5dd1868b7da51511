"""Methods that show a record to people: in notebooks, in a Python shell, as data frames and as charts.

Records import nothing above them, so these methods call the public functions of the package by name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from profiler_kit.records.lanes import StepTimeline

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas


class Plot(Protocol):
    """A chart that shows itself in notebooks. `profiler_kit.plot` returns it."""

    def figure(self) -> matplotlib.figure.Figure:
        """The chart as a matplotlib figure."""

    def save(self, file: str | Path) -> Path:
        """Write the chart to `file`: a page (.html) or an image (.png, .svg). Returns its path."""


class Views:
    """A record that shows itself. The methods call the public functions of the package with the record.

    `print` shows the summary of the command line; a notebook shows the page with charts.
    """

    __slots__ = ()

    def to_dataframe(self, table: str | None = None, *, run: str | None = None) -> pandas.DataFrame:
        """One table as a data frame. The arguments are those of `profiler_kit.dataframe`."""
        frame: pandas.DataFrame = _public("dataframe")(self._record(), table, run=run)
        return frame

    def plot(self, kind: str, *, run: str | None = None, by: str | None = None, trace: str | int | None = None) -> Plot:
        """One chart, which shows itself in notebooks. The arguments are those of `profiler_kit.plot`."""
        plot = _public("plot")
        chart: Plot = plot(self._record(), kind, run=run, by=by, trace=trace, timelines=self._timelines())
        return chart

    def save(self, file: str | Path) -> Path:
        """Write the record to `file` and return the path. The suffix selects the format: .html, .json, .md or .csv."""
        path: Path = _public("save")(self._record(), file, timelines=self._timelines())
        return path

    def _repr_html_(self) -> str:
        html: str = _public("notebook_html")(self._record(), timelines=self._timelines())
        return html

    def __str__(self) -> str:
        summary: str = _public("summary")(self._record())
        return summary

    def _record(self) -> Any:
        """The saved record behind this object."""
        return self

    def _timelines(self) -> Mapping[int, StepTimeline] | None:
        """Steps over time, by the index of the trace; None where there are none."""
        return None


def _public(name: str) -> Any:
    """The public function `name` of the package."""
    package = __name__.partition(".")[0]
    return getattr(sys.modules[package], name)

"""One chart of a record: in a notebook, as a page, as an image, as a matplotlib figure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler_kit import render
from profiler_kit.display.records import frame
from profiler_kit.errors import UsageError
from profiler_kit.records.document import Chart, Document, Section
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.saved import kind_words
from profiler_kit.records.serde import SavedRecord
from profiler_kit.render import figures
from profiler_kit.report.results import result_document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT: Final = 480  # of a chart in a notebook until it has loaded, in pixels
# The names of charts whose data have several sizes to choose from, and the key of these sizes.
_CHOICES: Final = {"icicle": "sizes", "tree": "figures"}


@dataclass(frozen=True, slots=True)
class ChartPlot:
    """A chart that shows itself in notebooks: interactive, or as a picture where pages are not shown.

    `subject`: the name of the report, trace or comparison. Pictures need matplotlib.
    """

    chart: Chart
    subject: str

    def figure(self) -> Figure:
        """The chart as a matplotlib figure. Raises: UsageError if matplotlib is not installed."""
        return figures.figure(self.chart)

    def save(self, file: str | Path) -> Path:
        """Write the chart to `file`: a page (.html) or an image (.png, .svg). Returns its path.

        Raises: UsageError for another suffix, or for an image if matplotlib is not installed.
        """
        path = Path(file)
        match path.suffix.lower():
            case ".html" | ".htm":
                path.write_text(self._page(), encoding="utf-8")
            case ".png":
                path.write_bytes(figures.image(self.chart, "png"))
            case ".svg":
                path.write_bytes(figures.image(self.chart, "svg"))
            case _:
                raise UsageError(
                    "cannot infer a format from the file name", where=str(path), hint="use one of: .html, .png, .svg"
                )
        return path

    def _page(self) -> str:
        document = Document(title=self.subject, sections=(Section(title="", blocks=(self.chart,)),), json="")
        return render.renderer_by_name("html").render(document, render.RenderOptions(detail=True))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The interactive chart, its picture if matplotlib is installed, and its name."""
        title = f"{self.chart.title}, {self.subject}"
        bundle = {"text/plain": repr(self)}
        fallback = f"<p>{escape(title)}</p>"
        if find_spec("matplotlib") is not None:
            picture = b64encode(figures.image(self.chart, "png")).decode("ascii")
            bundle["image/png"] = picture
            fallback = f'<img alt="{escape(title)}" style="max-width: 100%" src="data:image/png;base64,{picture}">'
        bundle["text/html"] = frame(self._page(), title=title, height=HEIGHT, fallback=fallback, resizes=True)
        return bundle

    def __repr__(self) -> str:
        return f"<Plot {self.chart.name!r}: {self.chart.title}, {self.subject}>"


def plot(
    record: SavedRecord,
    kind: str,
    *,
    run: str | None = None,
    by: str | None = None,
    trace: str | int | None = None,
    timelines: Mapping[int, StepTimeline] | None = None,
) -> ChartPlot:
    """The chart `kind` of `record`. The error for an unknown kind lists the charts that the record has.

    - `run`: the configuration of a report's times; None for the baseline.
    - `by`: the figure that a chart of modules (``icicle``, ``tree``) shows first.
    - `trace`: one of several traces, by index or name; None for the first.
    - `timelines`: steps over time, by the index of the trace, for ``timeline``.

    Raises: UsageError for an argument that does not apply.
    """
    if run is not None and not isinstance(record, Report):
        raise UsageError(f"{kind_words(record.kind)} has no configurations to choose from", hint="omit run")
    if trace is not None and not isinstance(record, TraceReport):
        raise UsageError(f"{kind_words(record.kind)} has no traces to choose from", hint="omit trace")
    charts: dict[str, ChartPlot] = {}
    for document in _documents(record, run, trace, timelines or {}):
        for section in document.sections:
            for block in section.blocks:
                if isinstance(block, Chart):
                    charts.setdefault(block.name, ChartPlot(block, document.title))
    if kind not in charts:
        raise UsageError(f"{kind_words(record.kind)} has no chart {kind!r}", hint=_choices(charts))
    return _with_first_size(charts[kind], by) if by is not None else charts[kind]


def _choices(names: Mapping[str, Any]) -> str:
    return f"choose one of: {', '.join(names)}" if names else "this one has no charts"


def _documents(
    record: SavedRecord, run: str | None, trace: str | int | None, timelines: Mapping[int, StepTimeline]
) -> list[Document]:
    """The documents with the charts of `record`: of one trace, and of all of them together."""
    document = result_document(record, run=run, timelines=timelines)
    if not isinstance(record, TraceReport) or not record.traces:
        return [document]
    index = record.index(trace)
    alone = replace(record, traces=(record.traces[index],), ranks=None)
    of_trace = {0: timelines[index]} if index in timelines else None
    return [result_document(alone, timelines=of_trace), document]


def _with_first_size(plotted: ChartPlot, by: str) -> ChartPlot:
    """`plotted` with the size `by` selected."""
    chart = plotted.chart
    key = _CHOICES.get(chart.kind)
    if key is None:
        raise UsageError(f"the chart {chart.name!r} shows one figure", hint="omit by")
    sizes = chart.data[key]
    if by not in (size["key"] for size in sizes):
        raise UsageError(
            f"the chart {chart.name!r} has no figure {by!r}",
            hint=f"choose one of: {', '.join(size['key'] for size in sizes)}",
        )
    ordered = sorted(sizes, key=lambda size: size["key"] != by)
    return replace(plotted, chart=replace(chart, data={**chart.data, key: ordered}))

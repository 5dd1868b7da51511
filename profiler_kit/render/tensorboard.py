"""A dashboard as files for TensorBoard: scalars, hyperparameters, texts and images. The same dashboard gives the same bytes.

TensorBoard is imported on first use. Neither TensorFlow nor torch is needed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from profiler_kit.command_lines import install_command
from profiler_kit.errors import UsageError
from profiler_kit.records.dashboard import Dashboard, DashboardRun, Series
from profiler_kit.records.document import Chart, Document, Section
from profiler_kit.render import RenderOptions, markdown
from profiler_kit.render._text import one_line

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary

EVENTS_FILE: Final = "events.out.tfevents.0.profiler_kit"
REPORT_RUN: Final = "report"  # the run with texts and charts
TRACE_SUFFIX: Final = ".pt.trace.json.gz"  # by which torch-tb-profiler recognizes traces
_UNSAFE: Final = re.compile(r"[^\w.+=() -]")
_LONGEST_NAME: Final = 120
# TensorBoard's Markdown knows no HTML and no escapes of these characters.
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"<": "&lt;", "&": "&amp;", "~": "~", "$": "$"}
_FOLD: Final = re.compile(r"^( *)(?:<details><summary>(.*)</summary>|</details>)$", re.MULTILINE)


def require_tensorboard() -> None:
    """Raise UsageError with the install command if TensorBoard or matplotlib is not installed."""
    for package in ("tensorboard", "matplotlib"):
        try:
            __import__(package)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"--tensorboard needs {package}, which is not installed",
                hint=install_command("profiler-kit[tensorboard]"),
            ) from error


def run_folders(dashboard: Dashboard) -> dict[str, str]:
    """The folder of each run: its name in characters that file systems accept."""
    folders: dict[str, str] = {}
    for run in dashboard.runs:
        name = _UNSAFE.sub("_", one_line(run.name))[:_LONGEST_NAME].strip(". ") or "run"
        used = {REPORT_RUN, *folders.values()}
        folders[run.name] = next(
            free for number in range(len(used) + 1) if (free := f"{name}_{number}" if number else name) not in used
        )
    return folders


def event_files(dashboard: Dashboard) -> Iterator[tuple[str, bytes]]:
    """The path of each event file in the folder, and its content."""
    yield f"{REPORT_RUN}/{EVENTS_FILE}", _records(dashboard.created_s, _report_summaries(dashboard))
    folders = run_folders(dashboard)
    for run in dashboard.runs:
        yield f"{folders[run.name]}/{EVENTS_FILE}", _records(dashboard.created_s, _run_summaries(run, dashboard))


def _records(created_s: float, summaries: Iterable[tuple[int, Summary]]) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    content = io.BytesIO()
    writer = RecordWriter(content)
    writer.write(Event(wall_time=created_s, file_version="brain.Event:2").SerializeToString(deterministic=True))
    for step, summary in summaries:
        event = Event(wall_time=created_s, step=step, summary=summary)
        writer.write(event.SerializeToString(deterministic=True))
    return content.getvalue()


def _report_summaries(dashboard: Dashboard) -> Iterator[tuple[int, Summary]]:
    from tensorboard.plugins.text import summary_v2 as texts

    if any(run.settings for run in dashboard.runs):
        yield 0, _experiment(dashboard)
    yield from _scalars(dashboard.series)
    for number, section in enumerate(dashboard.texts, start=1):
        tag = f"{REPORT_RUN}/{number:02} {one_line(section.title) or 'summary'}"
        yield 0, texts.text_pb(tag, _markdown(dashboard.title, section))
    for number, chart in enumerate(dashboard.charts, start=1):
        yield 0, _image(f"charts/{number:02} {one_line(chart.title)}", chart)


def _run_summaries(run: DashboardRun, dashboard: Dashboard) -> Iterator[tuple[int, Summary]]:
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2

    if run.settings:
        yield 0, summary_v2.hparams_pb(dict(run.settings), run.group, dashboard.created_s)
    yield from _scalars(run.series)
    if run.settings:
        status = api_pb2.STATUS_FAILURE if run.failed else api_pb2.STATUS_SUCCESS
        end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=dashboard.created_s)
        yield (
            0,
            _hyperparameters(metadata.SESSION_END_INFO_TAG, plugin_data_pb2.HParamsPluginData(session_end_info=end)),
        )


def _scalars(series: Iterable[Series]) -> Iterator[tuple[int, Summary]]:
    from tensorboard.plugins.scalar import summary_v2

    for entry in series:
        for step, value in entry.points:
            yield step, summary_v2.scalar_pb(entry.tag, value, entry.doc)


def _experiment(dashboard: Dashboard) -> Summary:
    """The settings and metrics: columns and axes of the HParams tab.

    TensorBoard reads this from one of the reports in its folder, so it lists no values that other reports may not have.
    """
    from google.protobuf.struct_pb2 import ListValue
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    is_switch: dict[str, bool] = {}
    for run in dashboard.runs:
        for name, value in run.settings:
            is_switch[name] = is_switch.get(name, True) and isinstance(value, bool)
    switch_values = ListValue()
    switch_values.extend([False, True])
    settings = [
        api_pb2.HParamInfo(name=name, type=api_pb2.DATA_TYPE_BOOL, domain_discrete=switch_values)
        if switch
        else api_pb2.HParamInfo(name=name, type=api_pb2.DATA_TYPE_STRING)
        for name, switch in is_switch.items()
    ]
    metrics = [
        api_pb2.MetricInfo(name=api_pb2.MetricName(tag=metric.tag), display_name=metric.title)
        for metric in dashboard.metrics
    ]
    experiment = api_pb2.Experiment(
        name=dashboard.title, hparam_infos=settings, metric_infos=metrics, time_created_secs=dashboard.created_s
    )
    return _hyperparameters(metadata.EXPERIMENT_TAG, plugin_data_pb2.HParamsPluginData(experiment=experiment))


def _hyperparameters(tag: str, data: object) -> Summary:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata

    summary = Summary()
    summary.value.add(tag=tag, metadata=metadata.create_summary_metadata(data), tensor=metadata.NULL_TENSOR)
    return summary


def _image(tag: str, chart: Chart) -> Summary:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.image import metadata
    from tensorboard.util import tensor_util

    from profiler_kit.render.figures import image

    png = image(chart)
    width, height = (str(int.from_bytes(png[start : start + 4], "big")).encode() for start in (16, 20))
    summary = Summary()
    summary.value.add(
        tag=tag,
        metadata=metadata.create_summary_metadata(
            display_name=None, description=_plain(markdown.escape(chart.text)), converted_to_tensor=False
        ),
        tensor=tensor_util.make_tensor_proto([width, height, png]),
    )
    return summary


def _markdown(title: str, section: Section) -> str:
    """`section` in TensorBoard's Markdown."""
    document = Document(title=title, sections=(section,), json="")
    return _plain(markdown.render(document, RenderOptions()))


def _plain(written: str) -> str:
    """GitHub's Markdown without folds, and with entities for the characters that only GitHub escapes."""
    unfolded = _FOLD.sub(lambda match: f"{match[1]}{match[2]}:" if match[2] else "", written)
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), unfolded)

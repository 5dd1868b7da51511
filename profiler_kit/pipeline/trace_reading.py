"""Reads traces into summaries, in several processes if worthwhile, and collects errors of unreadable files."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit.errors import KitError, TraceError
from profiler_kit.process import in_processes, workers_for
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.ranks import Ranks
from profiler_kit.records.traces import TraceSummary
from profiler_kit.traces.chunks import without_garbage_collection
from profiler_kit.traces.parts import PART_BYTES, Part, ReadParts, read_part
from profiler_kit.traces.rows import Rows

if TYPE_CHECKING:
    from profiler_kit.attribution.rank_extract import RankExtract
    from profiler_kit.simulation.ranks import RankGraph
    from profiler_kit.simulation.step_model import StepModel


GZIP_RATIO: Final = 15  # size of a trace's text by the size of its .gz, typically
# Peak memory of a process: the package with numpy, plus the columns of a trace as a share of its text.
BASE_BYTES: Final = 90_000_000
PART_PROCESS_BYTES: Final = BASE_BYTES + PART_BYTES  # of a process that reads a part, with its columns
TEXT_SHARE: Final = 1.0
# Below this amount of text, starting processes takes longer than reading.
MIN_PARALLEL_BYTES: Final = 30_000_000
PROGRESS_LINES: Final = 20
MAX_TIMELINES: Final = 8  # the ranks of a machine; with more traces, a page has only the timeline of the slowest rank


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTraces:
    """The summaries `traces` of readable files, the paths `files` of these, and the `errors` of the other files.

    `ranks` combines the traces if they are the ranks of one job, and is None otherwise; if they look like ranks but cannot be
    combined, `notes` gives the reason. `interrupted`: Ctrl-C stopped the reading. `timelines`: those requested, by the index
    of the trace. `models`: of the traces that can be replayed, by their index.
    """

    files: tuple[Path, ...]
    traces: tuple[TraceSummary, ...]
    errors: tuple[TraceError, ...] = ()
    ranks: Ranks | None = None
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    timelines: Mapping[int, StepTimeline] = field(default_factory=dict)
    models: Mapping[int, StepModel] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceExtract:
    """One file: what comparisons of ranks need, its graph if it may be a rank of a job, and the model of its steps."""

    rank: RankExtract
    graph: RankGraph | None = None
    model: StepModel | None = None

    @property
    def summary(self) -> TraceSummary:
        """The summary of the trace."""
        return self.rank.summary

    def with_summary(self, summary: TraceSummary) -> TraceExtract:
        """The same file with another summary."""
        return replace(self, rank=replace(self.rank, summary=summary))


def read_all(
    files: Sequence[Path],
    on_progress: OnProgress,
    names: Mapping[Path, str] | None = None,
    *,
    timelines: bool = False,
) -> ReadTraces:
    """Read `files` and return their summaries, in the same order, and their ranks. Ctrl-C returns the files read so far.

    `names`: the names of files in the summaries and in errors, where they differ from the path. `timelines`: also return
    timelines, of every trace if there are at most `MAX_TIMELINES`, else of the slowest rank.

    Raises:
        TraceError: no file can be read.
    """
    names = names or {}
    with_timeline = timelines and len(files) <= MAX_TIMELINES
    extracts: list[tuple[Path, TraceExtract]] = []
    errors: list[TraceError] = []
    interrupted = False
    try:
        for file, extract in zip(files, _extracts(files, on_progress, with_timeline), strict=True):
            if isinstance(extract, KitError):
                errors.append(_with_file(extract, file, names.get(file)))
            elif (name := names.get(file)) is not None:
                extracts.append((file, extract.with_summary(replace(extract.summary, file=name))))
            else:
                extracts.append((file, extract))
    except KeyboardInterrupt:
        interrupted = True
    if errors and not extracts and not interrupted:
        raise _combined_error(errors)
    ranks = _combine_ranks([extract.rank for _, extract in extracts])
    if ranks is not None and ranks.ranks:
        extracts = _with_job_steps(extracts)
    drawn = _timelines([extract.rank for _, extract in extracts], is_job=ranks is not None and bool(ranks.ranks))
    timeline_of = {i: timeline for i, timeline in enumerate(drawn) if timeline is not None}
    if timelines and len(files) > MAX_TIMELINES and not interrupted:
        timeline_of = _slowest_timeline([file for file, _ in extracts], [e.summary for _, e in extracts], ranks)
    return ReadTraces(
        files=tuple(file for file, _ in extracts),
        traces=tuple(extract.summary for _, extract in extracts),
        errors=tuple(errors),
        ranks=ranks if ranks is not None and ranks.ranks else None,
        notes=ranks.notes if ranks is not None and not ranks.ranks else (),
        interrupted=interrupted,
        timelines=timeline_of,
        models={i: extract.model for i, (_, extract) in enumerate(extracts) if extract.model is not None},
    )


def _slowest_timeline(
    files: Sequence[Path], traces: Sequence[TraceSummary], ranks: Ranks | None
) -> dict[int, StepTimeline]:
    """The timeline of the slowest rank; of the first trace without ranks."""
    index = 0
    if ranks is not None and ranks.ranks:
        index = next((i for i, trace in enumerate(traces) if trace.file == ranks.slowest.file), 0)
    timeline = extract_trace(files[index], timeline=True, of_job=False).rank.timeline
    return {index: timeline} if timeline is not None else {}


def summary(file: Path) -> TraceSummary:
    """Summarize the trace in `file`. Raises TraceError."""
    return extract_trace(file, of_job=False).summary


@without_garbage_collection()
def extract_trace(
    file: Path, *, timeline: bool = False, of_job: bool = True, read_parts: ReadParts | None = None
) -> TraceExtract:
    """The summary of the trace in `file`, what combining ranks needs (with the graph `of_job`), and its `timeline`.

    `read_parts`: as for `read`.

    Raises: TraceError.
    """
    from profiler_kit.traces.reader import read

    table = read(file, details=False, read_parts=read_parts)

    from profiler_kit.attribution.engine import attribute
    from profiler_kit.attribution.rank_extract import extract_rank
    from profiler_kit.simulation.ranks import rank_graph
    from profiler_kit.simulation.replayed_trace import replayed

    attribution = attribute(table)
    extract = extract_rank(attribution)
    replay = replayed(attribution, extract.summary)
    extract = replace(extract, summary=replay.summary)
    if timeline:
        from profiler_kit.attribution.step_lanes import middle_step

        extract = replace(extract, timeline=middle_step(attribution))
    graph = rank_graph(attribution, extract.summary) if of_job else None
    return TraceExtract(rank=extract, graph=graph, model=replay.model)


def _extracts(files: Sequence[Path], on_progress: OnProgress, with_timeline: bool) -> Iterator[TraceExtract | KitError]:
    """Yield the extract or the error of each file. Few small files are read in this process, others in several processes."""
    sizes = [_text_bytes(file) for file in files]
    workers = workers_for(len(files), BASE_BYTES + int(TEXT_SHARE * max(sizes, default=0)))
    if workers < 2 or sum(sizes) < MIN_PARALLEL_BYTES:
        for number, file in enumerate(files, 1):
            on_progress(
                f"reading {file.name}" if len(files) == 1 else f"reading {file.name} ({number} of {len(files)})"
            )
            yield _extract_or_error(file, with_timeline, of_job=len(files) > 1)
        return
    on_progress(f"reading {len(files)} traces in {workers} processes")
    interval = max(1, len(files) // PROGRESS_LINES)
    for number, extract in enumerate(
        in_processes(partial(extract_trace, timeline=with_timeline), files, workers=workers), 1
    ):
        if number % interval == 0:
            on_progress(f"read {number} of {len(files)} traces")
        yield extract


def _extract_or_error(file: Path, with_timeline: bool, *, of_job: bool) -> TraceExtract | TraceError:
    try:
        return extract_trace(file, timeline=with_timeline, of_job=of_job, read_parts=_in_processes)
    except TraceError as error:
        return error


def _in_processes(parts: Sequence[Part]) -> Iterator[Rows | KitError | None]:
    """Read parts of a file in several processes; none of them, if that would not be faster."""
    workers = workers_for(len(parts), PART_PROCESS_BYTES)
    if workers > 1:
        threading.Thread(target=_import_stages, daemon=True).start()  # this process has nothing else to do yet
        yield from in_processes(read_part, parts, workers=workers)


def _import_stages() -> None:
    """Import what a trace needs after it is read."""
    import profiler_kit.attribution.rank_extract
    import profiler_kit.simulation.ranks
    import profiler_kit.simulation.replayed_trace  # noqa: F401
    from profiler_kit.diagnosis.registry import all_rules

    all_rules()


def _text_bytes(file: Path) -> int:
    """The approximate size of a file's text; 0 for a missing file, for which reading reports the error."""
    try:
        size = file.stat().st_size
    except OSError:
        return 0
    return size * GZIP_RATIO if file.name.endswith(".gz") else size


def _combine_ranks(extracts: Sequence[RankExtract]) -> Ranks | None:
    if len(extracts) < 2:
        return None
    from profiler_kit.attribution.ranks import compare_ranks

    return compare_ranks(extracts)


def _timelines(extracts: Sequence[RankExtract], *, is_job: bool) -> Sequence[StepTimeline | None]:
    """The timeline of each extract, where requested; those of the ranks of one job have clocks."""
    drawn = [extract.timeline for extract in extracts]
    if not is_job or not any(drawn):
        return drawn
    from profiler_kit.attribution.ranks import timelines_on_one_clock

    return timelines_on_one_clock(extracts)


def _with_job_steps(extracts: list[tuple[Path, TraceExtract]]) -> list[tuple[Path, TraceExtract]]:
    """`extracts` with the steps that the ranks take together without the profiler, where all of them have a graph."""
    from profiler_kit.simulation.ranks import job_intervals

    graphs = [extract.graph for _, extract in extracts if extract.graph is not None]
    if len(graphs) < len(extracts):
        return extracts
    intervals = job_intervals(graphs, [extract.rank for _, extract in extracts])
    return (
        [
            (file, extract.with_summary(replace(extract.summary, untraced_step_ns=interval)))
            for (file, extract), interval in zip(extracts, intervals, strict=True)
        ]
        if intervals
        else extracts
    )


def _with_file(error: KitError, file: Path, name: str | None) -> TraceError:
    """`error` as a TraceError of `file`, called `name`: the error of a process that died does not name the file."""
    if isinstance(error, TraceError) and name is None:
        return error
    return TraceError(error.message, where=name or str(file), hint=error.hint)


def _combined_error(errors: Sequence[TraceError]) -> TraceError:
    """The first error, with the number of the other unreadable files."""
    first = errors[0]
    if len(errors) == 1:
        return first
    plural = "s" if len(errors) > 2 else ""
    message = f"{first.message} ({len(errors) - 1} other file{plural} cannot be read either)"
    return TraceError(message, where=first.where, hint=first.hint)

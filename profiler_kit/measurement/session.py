"""A session of measuring: configurations in interleaved visits, and each run taken as it comes."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from profiler_kit.errors import UsageError
from profiler_kit.measurement import sweep
from profiler_kit.measurement.plan import Plan
from profiler_kit.measurement.visits import Visit, VisitOrder, reverse_pass
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.laboratory import SweepTime
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.target import TargetSpec

ReadTrace = Callable[[ConfigRun, Path], ConfigRun]

LEAST_RUN_BUDGET_S: Final = 2.0  # a configuration's share below this would leave fast models without a steady state
LONGEST_NAME_BYTES: Final = 160  # of a trace's file; file systems take 255, and some of that are suffixes
# A step that is five times as slow is an answer, and to wait for its figures would take the time that the others need.
SLOWER: Final = 5.0
LEAST_LIMIT_S: Final = 20.0  # an import that stumbles over a cold disk is not slow in this sense
VISITS: Final = 1.5  # of a configuration, in shares of the budget: the second one gets half the time of the first


@dataclass(slots=True, kw_only=True)
class Session:
    """What is measured, where, with how much time, and the runs so far.

    `read_trace` adds to a run what the trace of its steps says, `read_parts_trace` what that of its convolutions' parts
    says. `started`: the configurations of which a process has had the device. `took_s`: how long the first one of each had
    it, and `failed_s` all that failed.
    """

    spec: TargetSpec
    device: str
    budget_s: float
    on_progress: OnProgress
    read_trace: ReadTrace
    read_parts_trace: ReadTrace
    steps: int | None = None
    timeout_s: float | None = None
    keep_traces: bool = False
    runs: list[ConfigRun] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    wall_ns: int = 0
    needed_ns: int = 0
    failed_s: float = 0.0
    started: set[RunConfig] = field(default_factory=set)
    took_s: dict[RunConfig, float] = field(default_factory=dict)

    @property
    def time(self) -> SweepTime | None:
        """How long it all took, and how much of that the device was needed; None where no run told."""
        return SweepTime(wall_ns=self.wall_ns, needed_ns=self.needed_ns) if self.needed_ns else None

    def note(self, text: str) -> None:
        """Adds `text` to the notes, once."""
        if text not in self.notes:
            self.notes.append(text)

    def has_failed(self, config: RunConfig) -> bool:
        """Whether the first process of `config` is known to have failed: a second one would end the same way."""
        return any(run.config == config and run.failure is not None for run in self.runs)


def measure_plan(session: Session, plan: Plan, folder: Path) -> None:
    """Runs the plan's configurations, interleaved, and `plan.optional` among them while there is time. Adds to `session`.

    Ctrl-C ends the run in hand; what had not begun stands in `session.runs` as interrupted.
    """
    first = [config for config in plan.configs if config.repeat_of is None]
    again = [config for config in plan.configs if config.repeat_of is not None]
    share_s = _share_s(session, len(first) + len(plan.optional) + len(again))
    forward = [_visit(session, config, share_s, folder) for config in first]
    chosen = list(first)

    def optional_visit(config: RunConfig) -> Visit | None:
        left = plan.optional[plan.optional.index(config) :]
        if session.has_failed(first[0]):
            session.notes.append(f'Not tried, as "{first[0].name}" failed: {_names(left)}.')
            return None
        if not _has_time(session, len(chosen)):
            session.notes.append(
                f"Not tried, for lack of time ({session.budget_s:g} s): {_names(left)}. Give it more with --budget, or name "
                "them in --also."
            )
            return None
        chosen.append(config)
        return _not_much_slower(session, _visit(session, config, share_s, folder), first[0])

    order = VisitOrder(
        has_failed=session.has_failed,
        forward=forward,
        reverse=reverse_pass(forward[1:]),
        last=[_visit(session, config, share_s, folder) for config in again],
        optional=list(plan.optional),
        optional_visit=optional_visit,
    )
    _measure(session, order)
    if session.interrupted:
        _add_interrupted(session, [*chosen, *again])


def measure_more(session: Session, configs: Sequence[RunConfig], folder: Path) -> None:
    """Runs further configurations, interleaved, after the plan's, with the time that is usual for one."""
    share_s = _share_s(session, len(session.runs) + len(configs))
    forward = [_visit(session, config, share_s, folder) for config in configs]
    _measure(session, VisitOrder(has_failed=session.has_failed, forward=forward, reverse=reverse_pass(forward)))
    if session.interrupted:
        _add_interrupted(session, configs)


def measure_interleaved(
    session: Session, configs: Sequence[RunConfig], folder: Path, *, purpose: str
) -> dict[str, list[ConfigRun]]:
    """Runs `configs` forward and in reverse, those already measured for their steps alone: all runs by configuration.

    Configurations that were not run yet are added to `session`, as if the plan had held them.
    """
    share_s = _share_s(session, len(session.runs) + len(configs))
    measured = {run.config.name for run in session.runs}
    full = [_visit(session, config, share_s, folder) for config in configs]
    forward = [reverse_pass([visit])[0] if visit.config.name in measured else visit for visit in full]
    order = VisitOrder(has_failed=session.has_failed, forward=forward, reverse=reverse_pass(full))
    visits = _measure(session, order, purpose=f"{purpose} ")
    if session.interrupted:
        ended = sum(map(len, visits.values()))
        session.notes.append(f"Interrupted while {purpose}: {ended} of {2 * len(full)} processes had ended.")
    return visits


@contextlib.contextmanager
def trace_folder(wanted: Path | None) -> Iterator[Path]:
    """The folder for traces: the one wanted, or one that goes when the work is done. Raises UsageError."""
    if wanted is None:
        with tempfile.TemporaryDirectory(prefix="profiler_kit_traces_") as temporary:
            yield Path(temporary)
        return
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror}", where=str(wanted), hint="give another folder with --out"
        ) from error
    if not os.access(wanted, os.W_OK | os.X_OK):  # now, rather than by the first trace
        raise UsageError(
            "cannot be written: permission denied", where=str(wanted), hint="give another folder with --out"
        )
    yield wanted.resolve()


def _share_s(session: Session, configs: int) -> float:
    """The time for the steps of one of so many configurations."""
    return max(LEAST_RUN_BUDGET_S, session.budget_s / (VISITS * configs))


def _visit(session: Session, config: RunConfig, share_s: float, folder: Path) -> Visit:
    name = config.name.replace(" ", "_").replace("(", "").replace(")", "").replace("/", "-")
    if len(name.encode()) > LONGEST_NAME_BYTES:  # checkpointing many modules, each by its path
        name = f"{name.encode()[:LONGEST_NAME_BYTES].decode(errors='ignore')}_{zlib.crc32(name.encode()):08x}"
    return Visit(
        config=config,
        budget_s=share_s,
        trace=folder / f"{name}.json.gz",
        steps=session.steps,
        timeout_s=session.timeout_s,
    )


def _not_much_slower(session: Session, visit: Visit, base: RunConfig) -> Visit:
    """`visit` with little patience: nobody asked for it, and one that is much slower than `base` is answered by that."""
    took_s = session.took_s[base]
    limit_s = max(LEAST_LIMIT_S, SLOWER * took_s)
    if visit.timeout_s is not None and visit.timeout_s <= limit_s:
        return visit
    late = (
        f'much slower than "{base.name}": not done after {limit_s:.0f} s, where that process took {took_s:.1f} s, so it was '
        "ended; name it in --also to give it more time"
    )
    return replace(visit, timeout_s=limit_s, late=late)


def _measure(session: Session, order: VisitOrder, *, purpose: str = "") -> dict[str, list[ConfigRun]]:
    """Makes the visits of `order`, and reads each trace while the next run is under way: their runs by configuration.

    Second processes of what `session` knows already stay out of it. Ctrl-C ends it: `session.interrupted`.
    """
    began_ns = time.monotonic_ns()
    # by identity: forward and in reverse two visits may be equal
    labels: dict[int, str] = {}
    starts_ns: dict[int, int] = {}
    visits: dict[str, list[ConfigRun]] = {}

    def on_start(visit: Visit) -> None:
        number = len(labels) + 1
        name = f"{visit.config.name}, again" if visit.again else visit.config.name
        labels[id(visit)] = f"[{number}/{max(number, order.count())}] {purpose}{name}: "
        starts_ns[id(visit)] = time.monotonic_ns()
        session.started.add(visit.config)
        if visit.trace is not None:
            visit.trace.unlink(missing_ok=True)  # an earlier report's, which a failing run would leave in this one

    def on_progress(visit: Visit, text: str) -> None:
        session.on_progress(labels.get(id(visit), "") + text)

    try:
        measured = sweep.measure_visits(
            session.spec, order.visits(), device=session.device, on_start=on_start, on_progress=on_progress
        )
        with contextlib.closing(measured) as finished_visits:
            for finished in finished_visits:
                took_s = (time.monotonic_ns() - starts_ns[id(finished.visit)]) * 1e-9
                session.took_s.setdefault(finished.run.config, took_s)
                session.failed_s += took_s if finished.run.failure is not None else 0.0
                visits.setdefault(finished.run.config.name, []).append(finished.run)
                _add(session, finished, partial(on_progress, finished.visit))
    except KeyboardInterrupt:
        session.interrupted = True
    session.wall_ns += time.monotonic_ns() - began_ns
    return visits


def _add(session: Session, finished: sweep.FinishedVisit, on_progress: OnProgress) -> None:
    """Adds a run to `session`: as a run of its own, or as the second process of one that is there."""
    run, runs = finished.run, session.runs
    session.needed_ns += run.needed_ns or 0
    if run.failure is not None:
        on_progress(f"failed: {run.failure.message}")
    if finished.visit.again:
        at = next(i for i, earlier in enumerate(runs) if earlier.config == run.config)
        if runs[at].repeat is None and runs[at].failure is None:
            runs[at] = sweep.with_repeat(runs[at], run)
        return
    trace = Path(run.trace) if run.trace is not None else None
    runs.append(replace(run, trace=f"traces/{trace.name}" if session.keep_traces and trace is not None else None))
    if run.failure is not None:
        return
    if trace is not None:  # else the traced steps failed, and a note says so
        on_progress("reading the trace")
        runs[-1] = session.read_trace(runs[-1], trace)
    if finished.parts_trace is not None:
        runs[-1] = session.read_parts_trace(runs[-1], finished.parts_trace)


def _has_time(session: Session, visited: int) -> bool:
    """Whether one more configuration fits into the budget, at what those before it took, its second process included."""
    if not session.needed_ns or not visited:
        return False
    spent_s = session.needed_ns * 1e-9 + session.failed_s
    return spent_s + (VISITS * (visited + 1) - visited) * spent_s / visited <= session.budget_s


def _names(configs: Sequence[RunConfig]) -> str:
    return ", ".join(config.name for config in configs)


def _add_interrupted(session: Session, configs: Sequence[RunConfig]) -> None:
    measured = {run.config.name for run in session.runs}
    for config in configs:
        if config.name not in measured:
            message = "interrupted" if config in session.started else "not run: interrupted before"
            session.runs.append(ConfigRun(config=config, failure=Failure(kind="interrupted", message=message)))

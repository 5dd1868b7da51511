"""A measuring session: runs configurations in interleaved visits and collects the runs."""

from __future__ import annotations

import contextlib
import math
import os
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
from profiler_kit.measurement.rank_runs import Ranks, rank_traces
from profiler_kit.measurement.repetition import FurtherPasses
from profiler_kit.measurement.turns import copies_within, rounds
from profiler_kit.measurement.visits import (
    Round,
    RoundProgress,
    Visit,
    VisitOrder,
    further_visit,
    report_round,
    reverse_pass,
)
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.experiments import SweepTime
from profiler_kit.records.progress import OnProcess, ProcessStart, ignore_processes
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.target import TargetSpec
from profiler_kit.statistics.noise import fills_step, noise_of_runs
from profiler_kit.statistics.report_noise import step_difference
from profiler_kit.statistics.sequential import is_open, undecided_runs
from profiler_kit.temporary_files import temporary_folder

ReadTrace = Callable[[ConfigRun, Path], ConfigRun]

MIN_RUN_BUDGET_S: Final = 2.0  # with less time per configuration, fast models do not reach a steady state
MAX_NAME_BYTES: Final = 160  # of a trace's file name; file systems allow 255, including suffixes
# A configuration that is five times slower needs no exact figures. Stopping it leaves time for the others.
MAX_SLOWDOWN: Final = 5.0
MIN_LIMIT_S: Final = 20.0  # a slow import from a cold disk must not count as a slow step
TRIAL_COPIES: Final = 2  # processes of each configuration in a round of trials
BUDGET_SHARES: Final = 1.5  # per configuration: the second process gets half the time of the first


@dataclass(slots=True, kw_only=True)
class Session:
    """The target, the device, the time budget, and the runs so far.

    - `read_trace`, `read_parts_trace`: add to a run the results from its trace, and from the trace of its convolutions' parts.
    - `on_first_results`: called after the first process of the first configuration, and of the last one, of several.
    - `started`: the configurations with a process that has used the device.
    - `planned`: the number of configurations of the plan, without repetitions.
    - `ranks`: the ranks of a job, each of which runs every process; None without a job.
      `rank_traces`: the files of their traces by configuration.
    - `took_s`: how long the first process of each configuration used the device. `again_s`: the same for the second one.
      `failed_s`: the same for all failed processes.
    """

    spec: TargetSpec
    device: str
    budget_s: float
    on_progress: OnProgress
    read_trace: ReadTrace
    read_parts_trace: ReadTrace
    on_process: OnProcess = ignore_processes
    on_first_results: Callable[[], None] = lambda: None
    steps: int | None = None
    timeout_s: float | None = None
    keep_traces: bool = False
    ranks: Ranks | None = None
    rank_traces: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    runs: list[ConfigRun] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    wall_ns: int = 0
    needed_ns: int = 0
    failed_s: float = 0.0
    planned: int = 0
    started: set[RunConfig] = field(default_factory=set)
    took_s: dict[RunConfig, float] = field(default_factory=dict)
    again_s: dict[RunConfig, float] = field(default_factory=dict)

    @property
    def time(self) -> SweepTime | None:
        """The duration of all runs and their need for the device; None where no run reported it."""
        return SweepTime(wall_ns=self.wall_ns, needed_ns=self.needed_ns) if self.needed_ns else None

    def may_overlap(self) -> bool:
        """Whether processes may be prepared beside one that measures: if kernels fill the step of the first run."""
        return any(fills_step(run) for run in self.runs[:1])

    def takes_turns(self) -> bool:
        """Whether processes that only time steps take turns: the step of the first run waits for the host."""
        first = self.runs[0] if self.runs and self.ranks is None else None
        return first is not None and first.failure is None and not fills_step(first)

    def note(self, text: str) -> None:
        """Add `text` to the notes unless it is already there."""
        if text not in self.notes:
            self.notes.append(text)

    def has_failed(self, config: RunConfig) -> bool:
        """Whether the first process of `config` failed. A second process would fail the same way."""
        return any(run.config == config and run.failure is not None for run in self.runs)


def measure_plan(session: Session, plan: Plan, folder: Path) -> None:
    """Run the plan's configurations, interleaved, and the optional ones while there is time. Adds to `session`.

    Ctrl-C stops the current run. Configurations that did not run are added to `session.runs` as interrupted.
    """
    first = [config for config in plan.configs if config.repeat_of is None]
    again = [config for config in plan.configs if config.repeat_of is not None]
    session.planned = len(first) + len(plan.optional)
    share_s = _share_s(session, len(first) + len(plan.optional) + len(again))
    forward = [_visit(session, config, share_s, folder) for config in first]
    configs = list(first)

    def optional_visit(config: RunConfig) -> Visit | None:
        remaining = plan.optional[plan.optional.index(config) :]
        if session.has_failed(first[0]):
            session.notes.append(f'Skipped because "{first[0].name}" failed: {_names(remaining)}.')
            return None
        if not _has_time(session, len(configs)):
            session.notes.append(
                f"Skipped for lack of time (--budget {session.budget_s:g}s): {_names(remaining)}. Raise --budget, or name "
                "them in --also."
            )
            return None
        configs.append(config)
        return _with_short_timeout(session, _visit(session, config, share_s, folder), first[0])

    copies = copies_within(session.budget_s)
    further = FurtherPasses(
        runs=session.runs,
        budget_s=session.budget_s,
        visit_of=lambda config: _visit(session, config, share_s, folder),
        copies=copies,
    )
    order = VisitOrder(
        has_failed=session.has_failed,
        forward=forward,
        reverse=reverse_pass(forward[1:]),
        last=[_visit(session, config, share_s, folder) for config in again],
        optional=list(plan.optional),
        optional_visit=optional_visit,
        further_pass=further.next_pass,
        rounds=lambda visits: _rounds(session, visits, forward[0], further.due_copies if further.passes else copies),
        is_known=lambda: bool(session.runs),
    )
    _measure(session, order)
    if session.interrupted:
        _add_interrupted(session, [*configs, *(visit.config for visit in order.last)])


def measure_more(session: Session, configs: Sequence[RunConfig], folder: Path) -> None:
    """Run further configurations after the plan's, interleaved, with the same budget per configuration."""
    share_s = _share_s(session, len(session.runs) + len(configs))
    forward = [_visit(session, config, share_s, folder) for config in configs]
    _measure(session, VisitOrder(has_failed=session.has_failed, forward=forward, reverse=reverse_pass(forward)))
    if session.interrupted:
        _add_interrupted(session, configs)


def measure_interleaved(
    session: Session, configs: Sequence[RunConfig], folder: Path, *, purpose: str
) -> dict[str, list[ConfigRun]]:
    """The runs of `configs` by name, measured in a forward and a reverse pass. Configurations measured before only time steps.

    Configurations that were not run before are added to `session` like those of the plan. Where processes take turns, they run
    first, and then all configurations in one round, twice each.
    """
    share_s = _share_s(session, len(session.runs) + len(configs))
    measured = {run.config.name for run in session.runs}
    full = [_visit(session, config, share_s, folder) for config in configs]
    forward = [reverse_pass([visit])[0] if visit.config.name in measured else visit for visit in full]
    order = VisitOrder(has_failed=session.has_failed, forward=forward, reverse=reverse_pass(full))
    again = [(visit,) for visit in reverse_pass(full)]
    turns = (
        rounds(again, copies=TRIAL_COPIES, first=session.runs[0], device=session.device, keeps=False)
        if session.takes_turns()
        else []
    )
    if turns:
        order.forward = [visit for visit in full if visit.config.name not in measured]
        order.rounds = lambda _: turns
    visits = _measure(session, order, purpose=f"{purpose} ")
    if session.interrupted:
        finished = sum(map(len, visits.values()))
        session.notes.append(f"Interrupted during a {purpose}: {finished} of {order.count()} processes had finished.")
    return visits


def measure_sides(
    sessions: tuple[Session, Session], configs: Sequence[RunConfig], passes: int, *, further_s: float
) -> None:
    """Run further processes of `configs` for two targets, interleaved, so that drift and load affect both alike.

    In each pass, every configuration runs once per target, or several times where processes take turns. The order is reversed
    from pass to pass. After `passes` processes of each, only the configurations whose comparison is still open run again, for
    `further_s` seconds at most. The results become `further_repeats` of the sessions' runs. Ctrl-C sets `interrupted` of the
    first session.
    """
    started, number, deadline_s = 0, 0, math.inf
    open_configs = list(configs)
    copies = copies_within(sessions[0].budget_s) if all(session.takes_turns() for session in sessions) else 0
    passes = math.ceil(passes / max(1, copies))
    while open_configs:
        pass_start_s = time.monotonic()
        visits = []
        for config in open_configs:
            for session in sessions:
                if session.has_failed(config):
                    continue
                visit = _visit(session, config, _share_s(session, len(configs)), Path())
                visit = reverse_pass([visit])[0] if number < passes else further_visit(visit)
                visits.append(replace(visit, spec=session.spec))
        order = VisitOrder(
            has_failed=lambda _: False,
            forward=[],
            reverse=visits if number % 2 else visits[::-1],
            rounds=partial(_rounds_of_sides, sessions, copies),
        )
        count = max(started + len(visits), passes * len(configs) * len(sessions) * max(1, copies))
        _measure(sessions[0], order, keeps_repeats=True, place=(started + 1, count), second=sessions[1])
        if sessions[0].interrupted:
            return
        started += order.count()
        number += 1
        now_s = time.monotonic()
        if number == passes:
            deadline_s = now_s + further_s
        if number >= passes:
            open_configs = [config for config in open_configs if _is_open(sessions, config)]
            if now_s + (now_s - pass_start_s) > deadline_s:
                return


def _rounds_of_sides(
    sessions: tuple[Session, Session], copies: int, visits: Sequence[Visit]
) -> Sequence[Visit | Round]:
    """`visits` in rounds that have both sides of each configuration `copies` times; as they are for 0 copies."""
    if not copies:
        return visits
    slowest = max((session.runs[0] for session in sessions), key=_step_ns)
    pairs = {
        config: tuple(v for v in visits if v.config == config) for config in dict.fromkeys(v.config for v in visits)
    }
    return rounds(list(pairs.values()), copies=copies, first=slowest, device=sessions[0].device) or visits


def _step_ns(run: ConfigRun) -> float:
    return run.step_ns.median if run.step_ns is not None else 0.0


def _is_open(sessions: tuple[Session, Session], config: RunConfig) -> bool:
    """Whether further processes may change the verdict on the two targets' steps with `config`."""
    before, after = (next((run for run in side.runs if run.config.name == config.name), None) for side in sessions)
    if before is None or after is None:
        return False
    difference = step_difference(sessions[0].runs, sessions[1].runs, before, after)
    return is_open(before, after, difference)


def _rounds(session: Session, visits: Sequence[Visit], baseline: Visit, copies: int) -> Sequence[Visit | Round]:
    """`visits` in rounds with the baseline if the step waits for the host. Configurations that need no comparison run once."""
    if not session.takes_turns():
        return visits
    first = session.runs[0]
    others = [run for run in session.runs[1:] if run.config.repeat_of is None]
    open_configs = {run.config for run in undecided_runs(first, others, noise_of_runs(session.runs))}
    return (
        rounds(
            [(visit,) for visit in visits if visit.config in open_configs],
            anchor=(further_visit(baseline) if first.repeat is not None else reverse_pass([baseline])[0],),
            once=tuple(visit for visit in visits if visit.config not in open_configs | {baseline.config}),
            copies=copies,
            first=first,
            device=session.device,
        )
        or visits
    )


@contextlib.contextmanager
def trace_folder(folder: Path | None) -> Iterator[Path]:
    """The folder for traces: `folder`, or a temporary one if it is None. Raises UsageError if it is not writable."""
    if folder is None:
        with temporary_folder("traces") as temporary:
            yield temporary
        return
    hint = "choose another folder with --out"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=str(folder), hint=hint) from error
    if not os.access(folder, os.W_OK | os.X_OK):  # fail now, not after the first run
        raise UsageError("cannot be written: permission denied", where=str(folder), hint=hint)
    yield folder.resolve()


def _share_s(session: Session, configs: int) -> float:
    """The time for the steps of one configuration out of `configs`."""
    return max(MIN_RUN_BUDGET_S, session.budget_s / (BUDGET_SHARES * configs))


def _visit(session: Session, config: RunConfig, share_s: float, folder: Path) -> Visit:
    name = config.name.replace(" ", "_").replace("(", "").replace(")", "").replace("/", "-")
    if len(name.encode()) > MAX_NAME_BYTES:  # such as a configuration that checkpoints many modules by path
        name = f"{name.encode()[:MAX_NAME_BYTES].decode(errors='ignore')}_{zlib.crc32(name.encode()):08x}"
    return Visit(
        config=config,
        budget_s=share_s,
        trace=folder / f"{name}.json.gz",
        steps=session.steps,
        timeout_s=session.timeout_s,
    )


def _with_short_timeout(session: Session, visit: Visit, base: RunConfig) -> Visit:
    """`visit` with a short timeout: the user did not request it, and being much slower than `base` is a sufficient result."""
    took_s = session.took_s[base]
    limit_s = max(MIN_LIMIT_S, MAX_SLOWDOWN * took_s)
    if visit.timeout_s is not None and visit.timeout_s <= limit_s:
        return visit
    late = (
        f'much slower than "{base.name}": no result after {limit_s:.0f} s, while that process took {took_s:.1f} s. The process '
        "was terminated; name the configuration in --also to give it more time"
    )
    return replace(visit, timeout_s=limit_s, late=late)


def _measure(
    session: Session,
    order: VisitOrder,
    *,
    purpose: str = "",
    keeps_repeats: bool = False,
    place: tuple[int, int] | None = None,
    second: Session | None = None,
) -> dict[str, list[ConfigRun]]:
    """Run the visits of `order` and return their runs by configuration. Reads each trace while the next process runs.

    Further processes of configurations that have two in `session` are added to it with `keeps_repeats` only: those of trials
    must not change the figures that led to the trial. `place`: the number of the first visit in a longer order, and that
    order's length. `second`: the session of the visits whose `spec` is its target. Ctrl-C sets `session.interrupted`.
    """
    start_ns = time.monotonic_ns()
    # keyed by identity: equal visits may occur in both passes
    labels: dict[int, str] = {}
    visits: dict[str, list[ConfigRun]] = {}

    def owner(visit: Visit) -> Session:
        return second if second is not None and visit.spec is second.spec else session

    def number_and_count(started: int) -> tuple[int, int]:
        first, least = place or (1, 0)
        return first + started, max(first + started, least, first - 1 + order.count())

    def on_start(visit: Visit) -> None:
        number, count = number_and_count(len(labels))
        name = f"{visit.config.name}, again" if visit.again else visit.config.name
        labels[id(visit)] = f"[{number}/{count}] {purpose}{name}: "
        owner(visit).started.add(visit.config)
        if visit.turns is None:
            left_ns, is_bound = _time_left(session, [visit, *order.not_started(labels)], optional=len(order.optional))
            owner(visit).on_process(
                ProcessStart(number=number, count=count, name=f"{purpose}{name}", left_ns=left_ns, is_bound=is_bound)
            )
        if visit.trace is not None:
            for trace in (visit.trace, *rank_traces(visit.trace)):
                trace.unlink(missing_ok=True)  # an earlier report's trace must not remain if this run fails

    def on_progress(visit: Visit, text: str) -> None:
        owner(visit).on_progress(labels.get(id(visit), "") + text)

    def on_round(progress: RoundProgress) -> None:
        number, count = number_and_count(len(labels) - sum(id(visit) in labels for visit in progress.visits))
        others_ns, _ = _time_left(session, order.not_started(labels), optional=0)
        report_round(
            progress,
            number=number,
            count=count,
            purpose=purpose,
            later_ns=others_ns or 0,
            on_process=session.on_process,
            on_progress=session.on_progress,
        )

    try:
        measured = sweep.measure_visits(
            session.spec,
            order.visits(),
            device=session.device,
            on_start=on_start,
            on_progress=on_progress,
            on_round=on_round,
            may_overlap=session.may_overlap,
            ranks=session.ranks,
        )
        with contextlib.closing(measured) as finished_visits:
            for finished in finished_visits:
                _add(owner(finished.visit), finished, partial(on_progress, finished.visit), keeps_repeats)
                visits.setdefault(finished.run.config.name, []).append(finished.run)
    except KeyboardInterrupt:
        session.interrupted = True
    session.on_process(None)
    session.wall_ns += time.monotonic_ns() - start_ns
    return visits


def _time_left(session: Session, visits: Sequence[Visit], *, optional: int) -> tuple[int | None, bool]:
    """The estimated duration of `visits` and of `optional` configurations, None if unknown; and whether it is an upper bound.

    A configuration is expected to take what its first process took, or the mean of all first processes. Its second process
    takes the share that second processes took so far, or no longer than the first.
    """
    first_s = {config: took_s for config, took_s in session.took_s.items() if not session.has_failed(config)}
    if not first_s:
        return None, False
    mean_s = math.fsum(first_s.values()) / len(first_s)
    pairs = [(again_s, first_s[config]) for config, again_s in session.again_s.items() if config in first_s]
    share = math.fsum(again for again, _ in pairs) / math.fsum(first for _, first in pairs) if pairs else 1.0
    left_s = optional * mean_s * (1 + share)
    left_s += math.fsum(first_s.get(v.config, mean_s) * (share if v.again else 1.0) for v in visits)
    return round(left_s * 1e9), optional > 0 or (not pairs and any(visit.again for visit in visits))


def _add(session: Session, finished: sweep.FinishedVisit, on_progress: OnProgress, keeps_repeats: bool) -> None:
    """Add a run to `session`, either as a new run or as a further process of an existing one."""
    run, runs = finished.run, session.runs
    session.needed_ns += run.needed_ns or 0
    if not finished.visit.again:
        session.took_s.setdefault(run.config, finished.took_s)
    elif run.failure is None:
        session.again_s.setdefault(run.config, finished.took_s)
    if run.failure is not None:
        session.failed_s += finished.took_s
        on_progress(f"failed: {run.failure.message}")
    if finished.visit.again:
        at = next(i for i, earlier in enumerate(runs) if earlier.config == run.config)
        if runs[at].repeat is None and runs[at].failure is None:
            runs[at] = replace(runs[at], repeat=run.as_repeat, new_thread=run.new_thread)
        elif (keeps_repeats or finished.visit.further) and run.failure is None:
            runs[at] = replace(runs[at], further_repeats=(*runs[at].further_repeats, run.as_repeat))
        return
    trace = Path(run.trace) if run.trace is not None else None
    if run.ranks:
        session.rank_traces[run.config.name] = tuple(Path(rank.trace) for rank in run.ranks if rank.trace is not None)
    kept = replace(run, ranks=tuple(replace(rank, trace=_kept(session, rank.trace)) for rank in run.ranks))
    runs.append(replace(kept, trace=_kept(session, run.trace)))
    if run.failure is not None:
        return
    if trace is not None:  # otherwise the traced steps failed, and the run has a note
        on_progress("reading the trace")
        runs[-1] = session.read_trace(runs[-1], trace)
    if finished.parts_trace is not None:
        runs[-1] = session.read_parts_trace(runs[-1], finished.parts_trace)
    if session.planned > 1 and len(runs) in (1, session.planned):
        session.on_first_results()


def _kept(session: Session, trace: str | None) -> str | None:
    """The place of `trace` in the report's folder; None if it is deleted."""
    return f"traces/{Path(trace).name}" if session.keep_traces and trace is not None else None


def _has_time(session: Session, visited: int) -> bool:
    """Whether one more configuration, including its second process, fits into the budget at the average time so far."""
    if not session.needed_ns or not visited:
        return False
    spent_s = session.needed_ns * 1e-9 + session.failed_s
    return spent_s + (BUDGET_SHARES * (visited + 1) - visited) * spent_s / visited <= session.budget_s


def _names(configs: Sequence[RunConfig]) -> str:
    return ", ".join(config.name for config in configs)


def _add_interrupted(session: Session, configs: Sequence[RunConfig]) -> None:
    measured = {run.config.name for run in session.runs}
    for config in configs:
        if config.name not in measured:
            message = "interrupted" if config in session.started else "not run: the session was interrupted before it"
            session.runs.append(ConfigRun(config=config, failure=Failure(kind="interrupted", message=message)))

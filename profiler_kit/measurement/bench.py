"""Configurations run there and back, and each run taken: its traces read, its second process added."""

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
from typing import TYPE_CHECKING, Final

from profiler_kit.errors import UsageError
from profiler_kit.measurement.visits import Tour
from profiler_kit.pipeline.run_traces import attributed, with_parts
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.laboratory import SweepTime
from profiler_kit.records.runs import ConfigRun, Span
from profiler_kit.records.target import TargetSpec

if TYPE_CHECKING:
    from profiler_kit.measurement.launcher import Order
    from profiler_kit.measurement.plan import Plan
    from profiler_kit.measurement.sweep import Done

Say = Callable[[str], None]

LEAST_RUN_BUDGET_S: Final = 2.0  # a configuration's share below this would leave fast models without a steady state
LONGEST_NAME_BYTES: Final = 160  # of a trace's file; file systems take 255, and some of that are suffixes
# A step that is five times as slow is an answer, and to wait for its figures would take the time that the others need.
SLOWER: Final = 5.0
LEAST_LIMIT_S: Final = 20.0  # an import that stumbles over a cold disk is not slow in this sense
VISITS: Final = 1.5  # of a configuration, in shares of the budget: the second one gets half the time of the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A trace that `analyze` kept: the configuration, the file, and the lanes to annotate it with."""

    config: str
    file: Path
    spans: tuple[Span, ...]


@dataclass(slots=True, kw_only=True)
class Bench:
    """What is measured, where, with how much time, and what came of it so far.

    `begun`: the configurations of which a process has had the device. `took_s`: how long the first one of each had it, and
    `failed_s` all that failed.
    """

    spec: TargetSpec
    device: str
    budget_s: float
    say: Say
    steps: int | None = None
    timeout_s: float | None = None
    keep_traces: bool = False
    runs: list[ConfigRun] = field(default_factory=list)
    traced: list[Traced] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    wall_ns: int = 0
    needed_ns: int = 0
    failed_s: float = 0.0
    begun: set[RunConfig] = field(default_factory=set)
    took_s: dict[RunConfig, float] = field(default_factory=dict)

    @property
    def time(self) -> SweepTime | None:
        """How long it all took, and how much of that the device was needed; None where nothing said so."""
        return SweepTime(wall_ns=self.wall_ns, needed_ns=self.needed_ns) if self.needed_ns else None


def measure_plan(bench: Bench, plan: Plan, folder: Path) -> None:
    """Runs the plan's configurations there and back, `plan.optional` among them while there is time. Adds to `bench`.

    Ctrl-C ends the run in hand; what had not begun stands in `bench.runs` as interrupted.
    """
    from profiler_kit.measurement.sweep import way_back

    first = [config for config in plan.configs if config.repeat_of is None]
    again = [config for config in plan.configs if config.repeat_of is not None]
    share_s = max(LEAST_RUN_BUDGET_S, bench.budget_s / (VISITS * (len(first) + len(plan.optional) + len(again))))
    there = [_order(bench, config, share_s, folder) for config in first]
    chosen = list(first)

    def optional_order(config: RunConfig) -> Order | None:
        left = plan.optional[plan.optional.index(config) :]
        if _has_failed(bench, first[0]):
            bench.notes.append(f'Not tried, as "{first[0].name}" failed: {_names(left)}.')
            return None
        if not _has_time(bench, len(chosen)):
            bench.notes.append(_no_time(left, bench))
            return None
        chosen.append(config)
        return _not_much_slower(bench, _order(bench, config, share_s, folder), first[0])

    tour = Tour(
        failed=partial(_has_failed, bench),
        there=there,
        back=list(way_back(there[1:])),
        last=[_order(bench, config, share_s, folder) for config in again],
        optional=list(plan.optional),
        optional_order=optional_order,
    )
    _run(bench, tour)
    if bench.interrupted:
        _note_what_is_missing(bench, [*chosen, *again])


def measure_more(bench: Bench, configs: Sequence[RunConfig], folder: Path) -> None:
    """Runs further configurations there and back, after the plan's, with the time that is usual for one."""
    from profiler_kit.measurement.sweep import way_back

    share_s = max(LEAST_RUN_BUDGET_S, bench.budget_s / (VISITS * (len(bench.runs) + len(configs))))
    there = [_order(bench, config, share_s, folder) for config in configs]
    _run(bench, Tour(failed=partial(_has_failed, bench), there=there, back=list(way_back(there))))
    if bench.interrupted:
        _note_what_is_missing(bench, configs)


def run_visits(bench: Bench, configs: Sequence[RunConfig], folder: Path, *, what: str) -> dict[str, list[ConfigRun]]:
    """Runs `configs` there and back, those that `bench` knows for their steps alone: every process's run, by configuration.

    Configurations that were not run yet are added to `bench`, as if the plan had held them.
    """
    from profiler_kit.measurement.sweep import way_back

    share_s = max(LEAST_RUN_BUDGET_S, bench.budget_s / (VISITS * (len(bench.runs) + len(configs))))
    known = {run.config.name for run in bench.runs}
    full = [_order(bench, config, share_s, folder) for config in configs]
    there = [next(way_back([order])) if order.config.name in known else order for order in full]
    visits: dict[str, list[ConfigRun]] = {}
    _run(
        bench,
        Tour(failed=partial(_has_failed, bench), there=there, back=list(way_back(full))),
        what=f"{what} ",
        visits=visits,
    )
    if bench.interrupted:
        done = sum(map(len, visits.values()))
        bench.notes.append(f"Interrupted while {what}: {done} of {2 * len(full)} processes had ended.")
    return visits


@contextlib.contextmanager
def trace_folder(given: Path | None) -> Iterator[Path]:
    """The folder for traces: the one given, or one that goes when the work is done. Raises UsageError."""
    if given is None:
        with tempfile.TemporaryDirectory(prefix="profiler_kit_traces_") as made:
            yield Path(made)
        return
    try:
        given.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror}", where=str(given), hint="give another folder with --out"
        ) from error
    if not os.access(given, os.W_OK | os.X_OK):  # now, rather than by the first trace
        raise UsageError(
            "cannot be written: permission denied", where=str(given), hint="give another folder with --out"
        )
    yield given.resolve()


def _order(bench: Bench, config: RunConfig, share_s: float, folder: Path) -> Order:
    from profiler_kit.measurement.launcher import Order

    name = config.name.replace(" ", "_").replace("(", "").replace(")", "").replace("/", "-")
    if len(name.encode()) > LONGEST_NAME_BYTES:  # checkpointing many modules, each by its path
        name = f"{name.encode()[:LONGEST_NAME_BYTES].decode(errors='ignore')}_{zlib.crc32(name.encode()):08x}"
    return Order(
        config=config,
        budget_s=share_s,
        trace=folder / f"{name}.json.gz",
        steps=bench.steps,
        timeout_s=bench.timeout_s,
    )


def _not_much_slower(bench: Bench, order: Order, base: RunConfig) -> Order:
    """`order` with little patience: nobody asked for it, and one that is much slower than `base` is answered by that."""
    took_s = bench.took_s[base]
    limit_s = max(LEAST_LIMIT_S, SLOWER * took_s)
    if order.timeout_s is not None and order.timeout_s <= limit_s:
        return order
    late = (
        f'much slower than "{base.name}": not done after {limit_s:.0f} s, where that process took {took_s:.1f} s, so it was '
        "ended; name it in --also to give it more time"
    )
    return replace(order, timeout_s=limit_s, late=late)


def _run(bench: Bench, tour: Tour, *, what: str = "", visits: dict[str, list[ConfigRun]] | None = None) -> None:
    """Runs the orders of `tour`, and reads each trace while the next run is under way. Ctrl-C ends it: `bench.interrupted`.

    With `visits` every process's run is noted there, and second processes of what `bench` knows already stay out of it.
    """
    from profiler_kit.measurement import sweep

    began_ns = time.monotonic_ns()
    begun: list[_Begun] = []

    def begins(order: Order) -> None:
        number = len(begun) + 1
        name = f"{order.config.name}, again" if order.again else order.config.name
        label = f"[{number}/{max(number, tour.count())}] {what}{name}"
        begun.append(_Begun(order=order, label=label, at_ns=time.monotonic_ns()))
        bench.begun.add(order.config)
        if order.trace is not None:
            order.trace.unlink(missing_ok=True)  # an earlier report's, which a failing run would leave in this one

    def find(order: Order) -> _Begun | None:  # the very one: there and back two orders may be equal
        return next((one for one in reversed(begun) if one.order is order), None)

    def say(order: Order, text: str) -> None:
        one = find(order)
        bench.say(f"{one.label}: {text}" if one is not None else text)

    try:
        asked = tour.orders()
        with contextlib.closing(sweep.runs(bench.spec, asked, device=bench.device, begins=begins, say=say)) as ended:
            for done in ended:
                one = find(done.order)
                took_s = (time.monotonic_ns() - one.at_ns) * 1e-9 if one is not None else 0.0
                bench.took_s.setdefault(done.run.config, took_s)
                bench.failed_s += took_s if done.run.failure is not None else 0.0
                if visits is not None:
                    visits.setdefault(done.run.config.name, []).append(done.run)
                _take(bench, done, lambda text, order=done.order: say(order, text))  # type: ignore[misc]
    except KeyboardInterrupt:
        bench.interrupted = True
    bench.wall_ns += time.monotonic_ns() - began_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """An order whose process may use the device since `at_ns`, and how its progress is told."""

    order: Order
    label: str
    at_ns: int


def _take(bench: Bench, done: Done, say: Say) -> None:
    """Adds a run to `bench`: as a run of its own, or as the second process of one that is there."""
    from profiler_kit.measurement.sweep import repeated

    run = done.run
    bench.needed_ns += run.needed_ns or 0
    if run.failure is not None:
        say(f"failed: {run.failure.message}")
    if done.order.again:
        at = next(i for i, one in enumerate(bench.runs) if one.config == run.config)
        if bench.runs[at].repeat is None and bench.runs[at].failure is None:
            bench.runs[at] = repeated(bench.runs[at], run)
        return
    trace = Path(run.trace) if run.trace is not None else None
    bench.runs.append(replace(run, trace=f"traces/{trace.name}" if bench.keep_traces and trace is not None else None))
    if run.failure is not None:
        return
    if trace is not None:  # else the traced steps failed, and a note says so
        say("reading the trace")
        bench.runs[-1], spans = attributed(bench.runs[-1], trace)
        if bench.keep_traces:
            bench.traced.append(Traced(config=run.config.name, file=trace, spans=spans))
    if done.parts is not None:
        bench.runs[-1] = with_parts(bench.runs[-1], done.parts)


def _has_time(bench: Bench, visited: int) -> bool:
    """Whether one more configuration fits into the budget, at what those before it took, its second process included."""
    if not bench.needed_ns or not visited:
        return False
    spent_s = bench.needed_ns * 1e-9 + bench.failed_s
    return spent_s + (VISITS * (visited + 1) - visited) * spent_s / visited <= bench.budget_s


def _has_failed(bench: Bench, config: RunConfig) -> bool:
    """Whether the first process of `config` is known to have failed: a second one would end the same way."""
    return any(run.config == config and run.failure is not None for run in bench.runs)


def _no_time(left: Sequence[RunConfig], bench: Bench) -> str:
    return (
        f"Not tried, for lack of time ({bench.budget_s:g} s): {_names(left)}. Give it more with --budget, or name them in "
        "--also."
    )


def _names(configs: Sequence[RunConfig]) -> str:
    return ", ".join(config.name for config in configs)


def _note_what_is_missing(bench: Bench, configs: Sequence[RunConfig]) -> None:
    from profiler_kit.measurement.launcher import interrupted

    there = {run.config.name for run in bench.runs}
    missing = [config for config in configs if config.name not in there]
    bench.runs.extend(interrupted(config, started=config in bench.begun) for config in missing)

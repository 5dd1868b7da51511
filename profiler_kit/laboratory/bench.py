"""Configurations run there and back, and each run taken: its traces read, its second process added."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit.errors import UsageError
from profiler_kit.laboratory.reading import attributed, with_parts
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.laboratory import SweepTime
from profiler_kit.records.runs import ConfigRun, Span
from profiler_kit.records.target import TargetSpec

if TYPE_CHECKING:
    from profiler_kit.measure.configs import Plan
    from profiler_kit.measure.launcher import Order
    from profiler_kit.measure.sweep import Done

Say = Callable[[str], None]

LEAST_RUN_BUDGET_S: Final = 2.0  # a configuration's share below this would leave fast models without a steady state
VISITS: Final = 1.5  # of a configuration, in shares of the budget: the second one gets half the time of the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A trace that `analyze` kept: the configuration, the file, and the lanes to annotate it with."""

    config: str
    file: Path
    spans: tuple[Span, ...]


@dataclass(slots=True, kw_only=True)
class Bench:
    """What is measured, where, with how much time, and what came of it so far."""

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

    @property
    def time(self) -> SweepTime | None:
        """How long it all took, and how much of that the device was needed; None where nothing said so."""
        return SweepTime(wall_ns=self.wall_ns, needed_ns=self.needed_ns) if self.needed_ns else None


def measure_plan(bench: Bench, plan: Plan, folder: Path) -> None:
    """Runs the plan's configurations there and back, `plan.optional` among them while there is time. Adds to `bench`.

    Ctrl-C ends the run in hand; what had not begun stands in `bench.runs` as interrupted.
    """
    first = [config for config in plan.configs if config.repeat_of is None]
    again = [config for config in plan.configs if config.repeat_of is not None]
    share_s = max(LEAST_RUN_BUDGET_S, bench.budget_s / (VISITS * (len(first) + len(plan.optional) + len(again))))
    chosen = list(first)

    def orders() -> Iterator[Order]:
        from profiler_kit.measure.sweep import way_back

        there = [_order(bench, config, share_s, folder) for config in first]
        yield from there
        for config in plan.optional:
            if not _has_time(bench, len(chosen)):
                left = plan.optional[plan.optional.index(config) :]
                bench.notes.append(_no_time(left, bench))
                break
            chosen.append(config)
            there.append(_order(bench, config, share_s, folder))
            yield there[-1]
        if len(there) > 1:
            yield from (order for order in way_back(there[1:]) if not _has_failed(bench, order.config))
            for config in again:
                yield _order(bench, config, share_s, folder)

    expected = [*first, *plan.optional, *again] if len(first) + len(plan.optional) > 1 else first
    _run(bench, orders(), len(expected) + len(first) + len(plan.optional) - 1)
    if bench.interrupted:
        _note_what_is_missing(bench, [*first, *again])


def measure_more(bench: Bench, configs: Sequence[RunConfig], folder: Path) -> None:
    """Runs further configurations there and back, after the plan's, with the time that is usual for one."""
    from profiler_kit.measure.sweep import way_back

    share_s = max(LEAST_RUN_BUDGET_S, bench.budget_s / (VISITS * (len(bench.runs) + len(configs))))
    there = [_order(bench, config, share_s, folder) for config in configs]

    def orders() -> Iterator[Order]:
        yield from there
        yield from (order for order in way_back(there) if not _has_failed(bench, order.config))

    _run(bench, orders(), 2 * len(there))
    if bench.interrupted:
        _note_what_is_missing(bench, configs)


def run_visits(bench: Bench, configs: Sequence[RunConfig], folder: Path, *, what: str) -> dict[str, list[ConfigRun]]:
    """Runs `configs` there and back, those that `bench` knows for their steps alone: every process's run, by configuration.

    Configurations that were not run yet are added to `bench`, as if the plan had held them.
    """
    from profiler_kit.measure.sweep import way_back

    share_s = max(LEAST_RUN_BUDGET_S, bench.budget_s / (VISITS * (len(bench.runs) + len(configs))))
    known = {run.config.name for run in bench.runs}
    full = [_order(bench, config, share_s, folder) for config in configs]
    there = [next(iter(way_back([order]))) if order.config.name in known else order for order in full]
    visits: dict[str, list[ConfigRun]] = {}
    _run(bench, [*there, *way_back(full)], 2 * len(full), what=f"{what} ", visits=visits)
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
    yield given.resolve()


def _order(bench: Bench, config: RunConfig, share_s: float, folder: Path) -> Order:
    from profiler_kit.measure.launcher import Order

    name = config.name.replace(" ", "_").replace("(", "").replace(")", "").replace("/", "-")
    return Order(
        config=config,
        budget_s=share_s,
        trace=folder / f"{name}.json.gz",
        steps=bench.steps,
        timeout_s=bench.timeout_s,
    )


def _run(
    bench: Bench,
    orders: Iterable[Order],
    count: int,
    *,
    what: str = "",
    visits: dict[str, list[ConfigRun]] | None = None,
) -> None:
    """Runs `orders`, and reads each trace while the next run is under way. Ctrl-C ends it: `bench.interrupted`.

    With `visits` every process's run is noted there, and second processes of what `bench` knows already stay out of it.
    """
    from profiler_kit.measure import sweep

    began_ns = time.monotonic_ns()
    labels: dict[Order, str] = {}

    def begins(order: Order) -> None:
        name = f"{order.config.name}, again" if order.again else order.config.name
        labels[order] = f"[{len(labels) + 1}/{count}] {what}{name}"
        if order.trace is not None:
            order.trace.unlink(missing_ok=True)  # an earlier report's, which a failing run would leave in this one

    def say(order: Order, text: str) -> None:
        bench.say(f"{labels[order]}: {text}" if order in labels else text)

    try:
        with contextlib.closing(sweep.runs(bench.spec, orders, device=bench.device, begins=begins, say=say)) as ended:
            for done in ended:
                if visits is not None:
                    visits.setdefault(done.run.config.name, []).append(done.run)
                _take(bench, done, lambda text, order=done.order: say(order, text))  # type: ignore[misc]
    except KeyboardInterrupt:
        bench.interrupted = True
    bench.wall_ns += time.monotonic_ns() - began_ns


def _take(bench: Bench, done: Done, say: Say) -> None:
    """Adds a run to `bench`: as a run of its own, or as the second process of one that is there."""
    from profiler_kit.measure.sweep import repeated

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
    each_s = bench.needed_ns / visited * 1e-9
    return bench.needed_ns * 1e-9 + (VISITS * (visited + 1) - visited) * each_s <= bench.budget_s


def _has_failed(bench: Bench, config: RunConfig) -> bool:
    """Whether the first process of `config` is known to have failed: a second one would end the same way."""
    return any(run.config == config and run.failure is not None for run in bench.runs)


def _no_time(left: Sequence[RunConfig], bench: Bench) -> str:
    names = ", ".join(config.name for config in left)
    return f"Not tried, for lack of time ({bench.budget_s:g} s): {names}. Give it more with --budget, or name them in --also."


def _note_what_is_missing(bench: Bench, configs: Sequence[RunConfig]) -> None:
    from profiler_kit.measure.launcher import interrupted

    there = {run.config.name for run in bench.runs}
    missing = [config for config in configs if config.name not in there]
    bench.runs.extend(interrupted(config, started=i == 0) for i, config in enumerate(missing))

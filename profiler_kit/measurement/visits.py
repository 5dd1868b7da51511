"""Visits: one process for one configuration each, and their order."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import Turns
from profiler_kit.records.progress import OnProcess, ProcessStart
from profiler_kit.records.target import TargetSpec
from profiler_kit.units import plural

START_UP_S: Final = 180.0  # importing torch and the model, creating the context, the first step with algorithm search
TIMEOUT_BUDGETS: Final = 10.0  # budgets that a run may take before it counts as a hang; a slow step is not a hang
REPEAT_BUDGET_SHARE: Final = 0.5  # share of the first process's budget: the second process only estimates the median
FURTHER_BUDGET_S: Final = 2.0  # several processes tell more than one that is measured for longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One process to run: the configuration, its time budget, and the file for its trace (None: no trace).

    - `timeout_s`: the limit of the process from the moment it may use the device (default: 180 s and ten budgets).
    - `late`: the failure message after this limit (None: the default message).
    - `again`: the second process of a configuration, which only times steps and hashes results.
    - `further`: a third or later process of a configuration, which is `again` too and hashes nothing. Its steps are added to
      the run.
    - `parts`: also measure the parts of convolutions, unless `again`.
    - `building_threads`: as in `RunJob`.
    - `turns`: how the process takes turns with the others of its round; None outside a round.
    - `spec`: the target; None for the one of the sweep.
    """

    config: RunConfig
    budget_s: float
    trace: Path | None = None
    steps: int | None = None
    timeout_s: float | None = None
    late: str | None = None
    checks: bool = True
    again: bool = False
    further: bool = False
    parts: bool = True
    building_threads: int | None = None
    turns: Turns | None = None
    spec: TargetSpec | None = None

    @property
    def limit_s(self) -> float:
        """The time limit of the process."""
        return self.timeout_s if self.timeout_s is not None else START_UP_S + TIMEOUT_BUDGETS * self.budget_s


# Visits whose processes exist at the same time and take turns on the device.
Round = tuple[Visit, ...]
# No visit is requested before it is true, or before all requested ones have finished.
Condition = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundProgress:
    """How far a round is: `turns` of `count` are over; 0 while its processes start. `left_s`: for the others; None if unknown."""

    visits: Round
    turns: int
    count: int
    left_s: float | None


def ignore_rounds(_: RoundProgress) -> None:
    """Ignore the progress of rounds."""


def report_round(
    progress: RoundProgress,
    *,
    number: int,
    count: int,
    purpose: str,
    later_ns: int,
    on_process: OnProcess,
    on_progress: OnProgress,
) -> None:
    """Report the start of a round's processes, then that of its turns with the time left, and then each turn.

    `number`: the place of its first process among `count`. `later_ns`: the estimated time for what follows the round.
    """
    visits = progress.visits
    start = ProcessStart(number=number, count=count, last=number - 1 + len(visits), name="")
    if progress.turns == 0:
        name = f"{purpose}starting {plural(len(visits), 'process', 'processes')} that take turns"
        on_process(replace(start, name=name))
        on_progress(f"[{start.place}] {name}")
        return
    if progress.turns == 1:
        configs = ", ".join(dict.fromkeys(visit.config.name for visit in visits))
        left_ns = round((progress.left_s or 0.0) * 1e9) + later_ns
        on_process(replace(start, name=f"{purpose}{configs}: {progress.count} turns each", left_ns=left_ns))
    if progress.turns < progress.count:
        on_progress(f"[{start.place}] {purpose}turn {progress.turns + 1} of {progress.count}")


def reverse_pass(visits: Sequence[Visit]) -> list[Visit]:
    """The second processes of `visits` in reverse order: with half the budget, and without a trace or checks."""
    return [
        replace(visit, budget_s=visit.budget_s * REPEAT_BUDGET_SHARE, trace=None, checks=False, again=True)
        for visit in reversed(visits)
    ]


def further_visit(visit: Visit) -> Visit:
    """A further short process of the configuration of `visit`."""
    (second,) = reverse_pass([visit])
    return replace(second, budget_s=min(FURTHER_BUDGET_S, second.budget_s), further=True)


def never() -> bool:
    """A condition that waits for the results of all earlier visits."""
    return False


def as_round(entry: Visit | Round) -> Round:
    """The visits of `entry`."""
    return entry if isinstance(entry, tuple) else (entry,)


@dataclass(slots=True, kw_only=True)
class VisitOrder:
    """An interleaved order of visits: the `forward` pass, `optional` configurations, the `reverse` pass, `last`, further passes.

    `optional_visit` returns the visit of an optional configuration when it is due; None skips it and all later ones. The
    reverse pass skips configurations that failed in the forward pass (`has_failed`). `last` and further passes only run if
    there is more than one configuration, and `last` only without rounds: in a round, the baseline runs again with all others.
    `further_pass` returns the visits of one more pass; the first empty one ends the order.
    `rounds` divides the visits of the reverse pass and of further passes into rounds; it may add further ones, and is not called
    before `is_known`.
    """

    has_failed: Callable[[RunConfig], bool]
    forward: list[Visit]
    reverse: list[Visit]
    last: list[Visit] = field(default_factory=list)
    optional: list[RunConfig] = field(default_factory=list)
    optional_visit: Callable[[RunConfig], Visit | None] = lambda config: None
    further_pass: Callable[[], list[Visit]] = list
    rounds: Callable[[Sequence[Visit]], Iterable[Visit | Round]] = iter
    is_known: Condition = lambda: True
    revisited: set[RunConfig] = field(default_factory=set)
    further: list[Visit] = field(default_factory=list)

    def visits(self) -> Iterator[Visit | Round | Condition]:
        """The visits and rounds one by one, each computed when it is requested.

        A condition comes before what depends on results of earlier visits.
        """
        yield from list(self.forward)  # a copy: the list grows below
        while self.optional:
            visit = self.optional_visit(self.optional[0])
            if visit is None:
                self.optional.clear()
                break
            del self.optional[0]
            self.forward.append(visit)
            self.reverse = [*reverse_pass([visit]), *self.reverse]
            yield visit
        yield self.is_known
        entries = list(self.rounds(self.reverse))
        listed = [visit for entry in entries for visit in as_round(entry)]
        self.reverse = [visit for visit in listed if not visit.further]
        self.further = [visit for visit in listed if visit.further]
        if any(isinstance(entry, tuple) for entry in entries):
            self.last = []
        for entry in entries:
            due = [visit for visit in as_round(entry) if not self.has_failed(visit.config)]
            self.revisited.update(visit.config for visit in due if not visit.further)
            if due:
                yield tuple(due) if isinstance(entry, tuple) else due[0]
        if len(self.forward) > 1:
            yield from self.last
            yield never
            while added := self.further_pass():
                for entry in self.rounds(added):
                    self.further += as_round(entry)
                    yield entry
                yield never

    def not_started(self, started: Container[int]) -> list[Visit]:
        """The listed visits whose identity (`id`) is not in `started`, without those of configurations that failed."""
        several = len(self.forward) + len(self.optional) > 1
        listed = [
            *self.forward,
            *(v for v in self.reverse if not self.has_failed(v.config)),
            *(self.last if several else ()),
            *self.further,
        ]
        return [visit for visit in listed if id(visit) not in started]

    def count(self) -> int:
        """The expected number of visits; it changes as configurations fail or are skipped."""
        reverse = [v for v in self.reverse if v.config in self.revisited or not self.has_failed(v.config)]
        several = len(self.forward) + len(self.optional) > 1
        last = len(self.last) if several else 0
        return len(self.forward) + 2 * len(self.optional) + len(reverse) + last + len(self.further)

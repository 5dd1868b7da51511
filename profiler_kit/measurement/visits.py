"""Visits: one process for one configuration each, and their order."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from profiler_kit.records.configs import RunConfig

START_UP_S: Final = 180.0  # importing torch and the model, creating the context, the first step with algorithm search
TIMEOUT_BUDGETS: Final = 10.0  # budgets that a run may take before it counts as a hang; a slow step is not a hang
REPEAT_BUDGET_SHARE: Final = 0.5  # share of the first process's budget: the second process only estimates the median
FURTHER_BUDGET_S: Final = (
    0.5  # processes differ more than the steps of one of them: many short ones tell more than few long ones
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One process to run: the configuration, its time budget, and the file for its trace (None: no trace).

    - `timeout_s`: the limit of the process from the moment it may use the device (default: 180 s and ten budgets).
    - `late`: the failure message after this limit (None: the default message).
    - `again`: the second process of a configuration, which only times steps and hashes results.
    - `further`: a third or later process of a configuration, which is `again` too. Its steps are added to the run.
    - `parts`: also measure the parts of convolutions, unless `again`.
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

    @property
    def limit_s(self) -> float:
        """The time limit of the process."""
        return self.timeout_s if self.timeout_s is not None else START_UP_S + TIMEOUT_BUDGETS * self.budget_s


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


@dataclass(slots=True, kw_only=True)
class VisitOrder:
    """An interleaved order of visits: the `forward` pass, `optional` configurations, the `reverse` pass, `last`, further passes.

    `optional_visit` returns the visit of an optional configuration when it is due; None skips it and all later ones. The
    reverse pass skips configurations that failed in the forward pass (`has_failed`). `last` and further passes only run if
    there is more than one configuration. `further_pass` returns the visits of one more pass; the first empty one ends the order.
    """

    has_failed: Callable[[RunConfig], bool]
    forward: list[Visit]
    reverse: list[Visit]
    last: list[Visit] = field(default_factory=list)
    optional: list[RunConfig] = field(default_factory=list)
    optional_visit: Callable[[RunConfig], Visit | None] = lambda config: None
    further_pass: Callable[[], list[Visit]] = list
    revisited: set[RunConfig] = field(default_factory=set)
    further: list[Visit] = field(default_factory=list)

    def visits(self) -> Iterator[Visit]:
        """The visits one by one, each computed when it is requested."""
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
        for visit in self.reverse:
            if not self.has_failed(visit.config):
                self.revisited.add(visit.config)
                yield visit
        if len(self.forward) > 1:
            yield from self.last
            while added := self.further_pass():
                self.further += added
                yield from added

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

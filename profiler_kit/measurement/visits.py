"""Visits: one process for one configuration each, and the order in which an analysis makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from profiler_kit.records.configs import RunConfig

START_UP_S: Final = 180.0  # importing torch and the model, creating the context, the first step with its tuning
PATIENCE: Final = 10.0  # budgets a run may take before it counts as hanging: a slow step is no hang
AGAIN_SHARE: Final = 0.5  # of the first process's time for steps: the second one only has to show where its median lies


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One run to make: the configuration, the time for its steps, and where to keep its trace (None: nowhere).

    `timeout_s` limits the process from the moment it may use the device (default: 180 s and ten budgets); `late` is the
    message of one that was not done by then. `again`: a second process of a configuration, which only times steps and
    compares bits.
    """

    config: RunConfig
    budget_s: float
    trace: Path | None = None
    steps: int | None = None
    timeout_s: float | None = None
    late: str | None = None
    checks: bool = True
    again: bool = False

    @property
    def limit_s(self) -> float:
        """The limit for the process."""
        return self.timeout_s if self.timeout_s is not None else START_UP_S + PATIENCE * self.budget_s


def reverse_pass(visits: Sequence[Visit]) -> list[Visit]:
    """The second processes of `visits`, last first: shorter, and without a trace. The A/A run of the first is its own."""
    return [
        replace(visit, budget_s=visit.budget_s * AGAIN_SHARE, trace=None, checks=False, again=True)
        for visit in reversed(visits)
    ]


@dataclass(slots=True, kw_only=True)
class VisitOrder:
    """Interleaved visits: the `forward` pass, `optional` ones as long as they are wanted, the `reverse` pass, `last`.

    `optional_visit` makes the visit of an optional configuration, when its turn has come; None: it and those after it are
    left out. What `has_failed` in the forward pass is not visited in the reverse pass. `last` follows where there is more
    than one configuration.
    """

    has_failed: Callable[[RunConfig], bool]
    forward: list[Visit]
    reverse: list[Visit]
    last: list[Visit] = field(default_factory=list)
    optional: list[RunConfig] = field(default_factory=list)
    optional_visit: Callable[[RunConfig], Visit | None] = lambda config: None
    revisited: set[RunConfig] = field(default_factory=set)

    def visits(self) -> Iterator[Visit]:
        """Each visit as it is asked for."""
        yield from list(self.forward)  # as it is now: it grows below
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

    def count(self) -> int:
        """How many visits there will be, as far as it is known now."""
        reverse = [v for v in self.reverse if v.config in self.revisited or not self.has_failed(v.config)]
        several = len(self.forward) + len(self.optional) > 1
        return len(self.forward) + 2 * len(self.optional) + len(reverse) + (len(self.last) if several else 0)

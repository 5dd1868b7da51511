"""Solves for unknown values by trials: inputs of a forward pass, labels of a loss, arguments of a constructor.

A state gives each unknown a value. Its trial has a result, or fails at an operation. The failure shows which values to change,
and the states that got furthest are changed first. The number of trials is fixed, so that the result does not depend on the
speed of the machine; the time limit is for trials that take seconds.
"""

from __future__ import annotations

import heapq
import itertools
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

MAX_REPEATS: Final = 8  # of one failure that depends on no unknown
_FIRST: Final = (-1, -1)  # the progress of states that follow from no trial

Progress = tuple[int, int]


class Failed(Protocol):
    """Why a trial failed: `progress` compares how far it got, and `signature` is the same for failures that differ in nothing."""

    @property
    def progress(self) -> Progress:
        """What the trial did before it failed."""

    @property
    def signature(self) -> tuple[object, ...]:
        """The same for failures that differ in nothing."""


V = TypeVar("V")
S = TypeVar("S")  # a state: hashable
O = TypeVar("O")  # noqa: E741 - an outcome of a trial
F = TypeVar("F", bound=Failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved(Generic[S, O]):
    """A state whose trial has no problem, and its outcome."""

    state: S
    outcome: O


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsolved(Generic[S, F]):
    """The state that got furthest, and why it failed."""

    state: S
    failure: F


MAX_CHANGED: Final = 11  # values of one unknown that are tried with the first values of the others


def combinations(domains: Sequence[Sequence[V]]) -> Iterator[tuple[V, ...]]:
    """States to begin with, of the ordered values of each unknown: the first of all, and then others.

    Those with the values of the same place come early: two images, two sentences.
    """
    if not domains:
        yield ()
        return
    first = tuple(values[0] for values in domains)
    yield first
    if len(domains) > 1:
        for index in range(1, min(map(len, domains))):
            yield tuple(values[index] for values in domains)
    for position, values in enumerate(domains):
        for value in values[1 : MAX_CHANGED + 1]:
            yield (*first[:position], value, *first[position + 1 :])


class Solver(ABC, Generic[S, O, F]):
    """A search for a state whose trial has no problem."""

    def __init__(self, *, max_trials: int, seconds: float) -> None:
        self.outcomes: dict[S, O] = {}
        self.max_trials = max_trials
        self.deadline = time.thread_time() + seconds  # CPU time, so that a busy machine gives the same result
        self._order = itertools.count()
        self._queue: list[tuple[tuple[int, int, int], S]] = []
        self._queued: dict[S, Progress] = {}  # with the progress of the best state that led to it
        self._expanded: set[S] = set()
        self._repeats: Counter[tuple[object, ...]] = Counter()

    @abstractmethod
    def attempt(self, state: S) -> O:
        """The outcome of a trial of `state`."""

    @abstractmethod
    def problem(self, state: S, outcome: O) -> F | None:
        """Why `outcome` is not a solution; None if it is."""

    @abstractmethod
    def changes(self, state: S, failure: F) -> Iterable[S]:
        """The states that may repair `failure`, the most certain first."""

    def ignores_unknowns(self, failure: F) -> bool:
        """Whether no state avoids `failure`, because its code looks at no unknown."""
        return False

    def solve(self, states: Iterable[S]) -> Solved[S, O] | Unsolved[S, F] | None:
        """The first solution, beginning with `states`; else the failure that got furthest, None without a trial."""
        for state in states:
            self._push(state, _FIRST)
        best: Unsolved[S, F] | None = None
        limit = self.max_trials // 2  # trials, before only the states that got furthest are changed
        while self._queue and not self.is_over:
            _, state = heapq.heappop(self._queue)
            if state in self._expanded:
                continue
            self._expanded.add(state)
            failure = self.problem(state, self.outcome(state))
            if failure is None:
                return Solved(state=state, outcome=self.outcomes[state])
            if best is None or failure.progress > best.failure.progress:
                best = Unsolved(state=state, failure=failure)
            if self._is_repeated(failure) and failure.progress == best.failure.progress:
                self._keep_first_states()
                limit = 0
            elif failure.progress == best.failure.progress or len(self.outcomes) <= limit:
                for changed in self.changes(state, failure):
                    self._push(changed, failure.progress)
        return best

    def outcome(self, state: S) -> O:
        """The outcome of `state`; each state is tried once."""
        if state not in self.outcomes:
            self.outcomes[state] = self.attempt(state)
        return self.outcomes[state]

    @property
    def is_over(self) -> bool:
        """Whether the trials or the time are used up."""
        return len(self.outcomes) >= self.max_trials or time.thread_time() > self.deadline

    def is_queued(self, state: S) -> bool:
        """Whether `state` has been suggested before."""
        return state in self._queued

    def _push(self, state: S, progress: Progress) -> None:
        if state in self.outcomes:
            failure = self.problem(state, self.outcomes[state])
            progress = (1 << 30, 0) if failure is None else max(progress, failure.progress)
        if state not in self._expanded and progress > self._queued.get(state, (-2, -2)):
            self._queued[state] = progress
            heapq.heappush(self._queue, ((-progress[0], -progress[1], next(self._order)), state))

    def _keep_first_states(self) -> None:
        self._queue = [entry for entry in self._queue if entry[0][:2] == (1, 1)]
        heapq.heapify(self._queue)

    def _is_repeated(self, failure: F) -> bool:
        """Whether so many different states failed as `failure` that others will, too."""
        self._repeats[failure.signature] += 1
        return self._repeats[failure.signature] >= MAX_REPEATS and self.ignores_unknowns(failure)

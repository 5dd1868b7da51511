"""The search by trials that inputs, labels and constructor arguments share, on numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from profiler_kit.loading.solve import MAX_REPEATS, Solved, Solver, Unsolved, combinations

State = tuple[int, ...]


@dataclass(frozen=True)
class Wrong:
    """The place of the first wrong digit, which is the progress."""

    place: int
    progress: tuple[int, int]
    signature: tuple[object, ...]


class Digits(Solver[State, State, Wrong]):
    """Searches the digits of `wanted`; a failure shows the place, and no digit repairs place `broken`."""

    def __init__(self, wanted: State, *, broken: int | None = None, max_trials: int = 100) -> None:
        super().__init__(max_trials=max_trials, seconds=60.0)
        self.wanted, self.broken = wanted, broken

    def attempt(self, state: State) -> State:
        return state

    def problem(self, state: State, outcome: State) -> Wrong | None:
        pairs = enumerate(zip(state, self.wanted, strict=True))
        place = next((place for place, (got, need) in pairs if got != need or place == self.broken), None)
        return Wrong(place, (place, 0), (place,)) if place is not None else None

    def changes(self, state: State, failure: Wrong) -> Iterator[State]:
        for digit in range(10):
            yield (*state[: failure.place], digit, *state[failure.place + 1 :])

    def ignores_unknowns(self, failure: Wrong) -> bool:
        return failure.place == self.broken


def test_the_states_that_got_furthest_are_changed_first() -> None:
    solver = Digits((7, 3, 9, 1))
    result = solver.solve([(0, 0, 0, 0)])
    assert isinstance(result, Solved)
    assert result.state == (7, 3, 9, 1)
    assert len(solver.outcomes) <= 4 * 10  # of 10,000 states


def test_each_state_is_tried_once_and_the_trials_are_limited() -> None:
    solver = Digits((9, 9, 9, 9), max_trials=12)
    result = solver.solve([(0, 0, 0, 0), (0, 0, 0, 0)])
    assert isinstance(result, Unsolved)
    assert result.failure.place < 3
    assert len(solver.outcomes) == 12


def test_a_failure_that_looks_at_no_unknown_ends_the_search() -> None:
    solver = Digits((0, 0, 0), broken=1)
    result = solver.solve([(0, digit, 0) for digit in range(3)])
    assert isinstance(result, Unsolved)
    assert result.failure.place == 1
    assert len(solver.outcomes) <= 2 * MAX_REPEATS
    assert Digits(()).solve([]) is None


def test_first_states_have_the_first_values_then_those_of_one_place() -> None:
    states = list(combinations([["a", "b"], ["c", "d", "e"]]))
    assert states[:2] == [("a", "c"), ("b", "d")]
    assert set(states[2:]) == {("b", "c"), ("a", "d"), ("a", "e")}
    assert list(combinations([])) == [()]

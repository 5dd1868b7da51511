"""Searches over simulations: the largest batch that fits, and the cheapest set of modules to checkpoint.

A simulation decides whether a set of modules reaches the memory goal. The search is greedy over several families of disjoint
modules. It then tries to remove each member, or to replace it by a cheaper module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from profiler_kit.records.counts import PSEUDO_PATHS, ModuleMemory, ModuleNode, StaticCount, WhatIf

Paths = tuple[str, ...]

MAX_BATCH: Final = 1 << 20

# Modules that free less than this share of the saved bytes are not candidates.
MIN_SAVED_SHARE: Final = 0.002
# Simulations to improve a set. A model with many modules gets fewer, since each simulation takes tenths of a second.
MAX_TRIALS: Final = 40
MIN_TRIALS: Final = 6
TRIALS_TIMES_MODULES: Final = 300
MIN_GOAL_SHARE: Final = 0.9  # a set can save more than its bytes, since the allocator frees segments as well


def largest_batch(at: Callable[[int], WhatIf], bytes_of: Callable[[WhatIf], int], goal: int) -> WhatIf | None:
    """The answer for the largest batch with ``bytes_of(answer) <= goal``; None if batch 1 exceeds it.

    ``at(batch)`` simulates a batch. Bytes are nearly linear in the batch, so two answers give the next guess.
    """
    low = at(1)
    if bytes_of(low) > goal:
        return None
    high = at(2)
    while bytes_of(high) <= goal:
        guess = _crossing(low, high, bytes_of, goal)
        low, high = high, at(min(max(guess, (high.batch or 0) + 1), 2 * MAX_BATCH))
        if (low.batch or 0) >= MAX_BATCH:
            return low
    bisect = False
    while (high.batch or 0) - (low.batch or 0) > 1:
        smallest, largest = (low.batch or 0) + 1, (high.batch or 0) - 1
        guess = (smallest + largest) // 2 if bisect else _crossing(low, high, bytes_of, goal)
        answer = at(min(max(guess, smallest), largest))
        low, high = (answer, high) if bytes_of(answer) <= goal else (low, answer)
        bisect = not bisect  # linear interpolation alone can converge slowly from one side
    return low


def _crossing(low: WhatIf, high: WhatIf, bytes_of: Callable[[WhatIf], int], goal: int) -> int:
    """The largest batch within `goal` on the straight line through two answers."""
    first, second = low.batch or 0, high.batch or 0
    rise = bytes_of(high) - bytes_of(low)
    if rise <= 0:
        return 2 * second
    return first + (goal - bytes_of(low)) * (second - first) // rise


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A module that runs once. `inside_bytes`: bytes that checkpointing frees. `flops`: work that it repeats."""

    path: str
    inside_bytes: int
    flops: int

    def overlaps(self, other: Candidate) -> bool:
        """Whether one of the two modules contains the other."""
        return f"{self.path}.".startswith(f"{other.path}.") or f"{other.path}.".startswith(f"{self.path}.")


def candidates(static: StaticCount, saved: Sequence[ModuleMemory]) -> tuple[Candidate, ...]:
    """The modules that would save less for backward with checkpointing, in the model's order."""
    inside = {module.path: module.inside_bytes for module in saved}
    min_bytes = MIN_SAVED_SHARE * sum(module.created_bytes for module in saved)
    flops = _totals(static.modules, lambda node: node.forward.flops)
    return tuple(
        Candidate(path=node.path, inside_bytes=inside[node.path], flops=flops[node.path])
        for node in static.modules
        if node.path and node.path not in PSEUDO_PATHS and node.calls == 1 and inside.get(node.path, 0) > min_bytes
    )


def families(modules: Sequence[Candidate]) -> Iterator[tuple[Candidate, ...]]:
    """Sets of disjoint modules, largest modules first: the modules of each depth, then the innermost ones."""
    depths = sorted({module.path.count(".") for module in modules})
    sets = [[module for module in modules if module.path.count(".") == depth] for depth in depths]
    sets.append([outer for outer in modules if not any(_contains(outer, inner) for inner in modules)])
    yield from dict.fromkeys(tuple(members) for members in sets if members)


def cheapest(modules: Sequence[Candidate], reaches: Callable[[Paths], bool], needed_bytes: int) -> Paths | None:
    """The set of disjoint modules with the least recomputation that `reaches` the goal; None if no family reaches it.

    `needed_bytes`: estimate of the bytes to free. Sets with much less are not simulated.
    """
    search = _Search(modules=modules, reaches=reaches, needed_bytes=needed_bytes)
    starts = [start for family in families(modules) if (start := search.prefix(family)) is not None]
    if not starts:
        return None
    return search.in_order(search.improved(min(starts, key=_flops)))


@dataclass(slots=True, eq=False)
class _Search:
    modules: Sequence[Candidate]
    reaches: Callable[[Paths], bool]
    needed_bytes: int
    trials: int = 0
    results: dict[frozenset[str], bool] = field(default_factory=dict)

    def reach(self, members: Sequence[Candidate]) -> bool:
        """Whether the set reaches the goal; simulated once per set."""
        key = frozenset(member.path for member in members)
        if key not in self.results:
            self.trials += 1
            self.results[key] = self.reaches(self.in_order(members))
        return self.results[key]

    def prefix(self, family: Sequence[Candidate]) -> tuple[Candidate, ...] | None:
        """The fewest members of `family` that reach the goal, by bytes saved per FLOP; None if the family does not."""
        ordered = sorted(family, key=lambda member: member.flops / member.inside_bytes)
        if not self.reach(ordered):
            return None
        low, high, inside = 0, len(ordered), ordered[0].inside_bytes
        while low < len(ordered) - 2 and inside < MIN_GOAL_SHARE * self.needed_bytes:
            low += 1
            inside += ordered[low].inside_bytes  # the sum of the first low + 1 members
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.reach(ordered[:middle]) else (middle, high)
        return tuple(ordered[:high])

    def improved(self, start: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """`start` with members removed or replaced by cheaper modules, until no step is cheaper."""
        limit = self.trials + max(MIN_TRIALS, min(MAX_TRIALS, TRIALS_TIMES_MODULES // len(self.modules)))
        members = start
        while self.trials < limit:
            better = next((step for step in self._cheaper(members) if self.trials < limit and self.reach(step)), None)
            if better is None:
                break
            members = better
        return members

    def _cheaper(self, members: tuple[Candidate, ...]) -> list[tuple[Candidate, ...]]:
        """The cheaper sets one step away that may reach the goal, the cheapest first."""
        steps = []
        for member in members:
            remaining = tuple(other for other in members if other is not member)
            steps.append(remaining)
            for module in self.modules:
                if module.flops < member.flops and not any(module.overlaps(other) for other in remaining):
                    steps.append((*remaining, module))
        for module in self.modules:  # one module instead of several that overlap with it
            remaining = tuple(member for member in members if not member.overlaps(module))
            if len(members) - len(remaining) > 1:
                steps.append((*remaining, module))
        min_bytes = MIN_GOAL_SHARE * self.needed_bytes
        possible = [step for step in steps if step and sum(module.inside_bytes for module in step) >= min_bytes]
        return sorted((step for step in possible if _flops(step) < _flops(members)), key=_flops)

    def in_order(self, members: Sequence[Candidate]) -> Paths:
        """The paths of `members` in the model's order."""
        paths = {member.path for member in members}
        return tuple(module.path for module in self.modules if module.path in paths)


def _contains(outer: Candidate, inner: Candidate) -> bool:
    return inner.path.startswith(f"{outer.path}.")


def _flops(members: Sequence[Candidate]) -> int:
    return sum(member.flops for member in members)


def _totals(modules: Sequence[ModuleNode], figure: Callable[[ModuleNode], int]) -> Mapping[str, int]:
    """Total of `figure` per module including children, by path."""
    sums: dict[str, int] = {}
    for node in modules:
        parts = node.path.split(".") if node.path else []
        for end in range(len(parts) + 1):
            path = ".".join(parts[:end])
            sums[path] = sums.get(path, 0) + figure(node)
    return sums

"""What to propose: the largest batch that fits, and the modules whose checkpointing reaches a goal at the least cost.

Sets of modules are told good or bad by simulating them. The search is greedy over several families of disjoint modules,
then every member is tried for leaving out and for a cheaper stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from profiler_kit.records.counts import PSEUDO_PATHS, ModuleMemory, ModuleNode, StaticCount, WhatIf

Paths = tuple[str, ...]

MOST_BATCH: Final = 1 << 20

# A module that lets go of less than this share of what is kept is not worth a row of a training script.
LEAST_SHARE: Final = 0.002
# Simulations that may be spent on improving a set: fewer for a model of many modules, where each takes tenths of a second.
MOST_TRIALS: Final = 40
LEAST_TRIALS: Final = 6
TRIALS_BY_MODULES: Final = 300
SLACK: Final = 0.9  # the allocator's segments let a set save somewhat more than its bytes, so that this much may do


def largest_batch(at: Callable[[int], WhatIf], bytes_of: Callable[[WhatIf], int], goal: int) -> WhatIf | None:
    """The answer for the largest batch whose `bytes_of` are at most `goal`; None where not even one sample's are.

    They are nearly linear in it: each guess follows from two known answers, which `at` gives.
    """
    low = at(1)
    if bytes_of(low) > goal:
        return None
    high = at(2)
    while bytes_of(high) <= goal:
        guess = _crossing(low, high, bytes_of, goal)
        low, high = high, at(min(max(guess, (high.batch or 0) + 1), 2 * MOST_BATCH))
        if (low.batch or 0) >= MOST_BATCH:
            return low
    between = False
    while (high.batch or 0) - (low.batch or 0) > 1:
        least, most = (low.batch or 0) + 1, (high.batch or 0) - 1
        guess = (least + most) // 2 if between else _crossing(low, high, bytes_of, goal)
        found = at(min(max(guess, least), most))
        low, high = (found, high) if bytes_of(found) <= goal else (low, found)
        between = not between  # a straight line may creep along one side
    return low


def _crossing(low: WhatIf, high: WhatIf, bytes_of: Callable[[WhatIf], int], goal: int) -> int:
    """The last batch below `goal` on the straight line through two answers."""
    first, second = low.batch or 0, high.batch or 0
    rise = bytes_of(high) - bytes_of(low)
    if rise <= 0:
        return 2 * second
    return first + (goal - bytes_of(low)) * (second - first) // rise


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A module that runs once: what it would let go of, and the FLOPs it would compute again."""

    path: str
    inside_bytes: int
    flops: int

    def overlaps(self, other: Candidate) -> bool:
        """Whether one of the two holds the other."""
        return f"{self.path}.".startswith(f"{other.path}.") or f"{other.path}.".startswith(f"{self.path}.")


def candidates(static: StaticCount, kept: Sequence[ModuleMemory]) -> tuple[Candidate, ...]:
    """The modules that checkpointing would make keep less, in the model's order."""
    inside = {module.path: module.inside_bytes for module in kept}
    least = LEAST_SHARE * sum(module.created_bytes for module in kept)
    flops = _below(static.modules, lambda node: node.forward.flops)
    return tuple(
        Candidate(path=node.path, inside_bytes=inside[node.path], flops=flops[node.path])
        for node in static.modules
        if node.path and node.path not in PSEUDO_PATHS and node.calls == 1 and inside.get(node.path, 0) > least
    )


def families(found: Sequence[Candidate]) -> Iterator[tuple[Candidate, ...]]:
    """Sets of disjoint modules, largest modules first: those of each depth, and the innermost ones."""
    depths = sorted({one.path.count(".") for one in found})
    seen = set()
    sets = [[one for one in found if one.path.count(".") == depth] for depth in depths]
    sets.append([one for one in found if not any(other is not one and _holds(one, other) for other in found)])
    for members in sets:
        key = tuple(one.path for one in members)
        if members and key not in seen:
            seen.add(key)
            yield tuple(members)


def cheapest(found: Sequence[Candidate], reaches: Callable[[Paths], bool], needed_bytes: int) -> Paths | None:
    """The set of disjoint modules that computes least again and `reaches` the goal; None where no family does.

    `needed_bytes`: what has to be let go of, about. Sets that hold much less are not tried.
    """
    search = _Search(found=found, reaches=reaches, needed_bytes=needed_bytes)
    starts = [start for family in families(found) if (start := search.prefix(family)) is not None]
    if not starts:
        return None
    return search.in_order(search.improved(min(starts, key=_flops)))


@dataclass(slots=True, eq=False)
class _Search:
    found: Sequence[Candidate]
    reaches: Callable[[Paths], bool]
    needed_bytes: int
    trials: int = 0
    known: dict[frozenset[str], bool] = field(default_factory=dict)

    def reach(self, members: Sequence[Candidate]) -> bool:
        """Whether the set reaches the goal; asked once per set."""
        key = frozenset(one.path for one in members)
        if key not in self.known:
            self.trials += 1
            self.known[key] = self.reaches(self.in_order(members))
        return self.known[key]

    def prefix(self, family: Sequence[Candidate]) -> tuple[Candidate, ...] | None:
        """The fewest of `family` that reach the goal, taken by what they save per FLOP; None where all of them don't."""
        ordered = sorted(family, key=lambda one: one.flops / one.inside_bytes)
        if not self.reach(ordered):
            return None
        low, high, inside = 0, len(ordered), ordered[0].inside_bytes
        while low < len(ordered) - 2 and inside < SLACK * self.needed_bytes:
            low += 1
            inside += ordered[low].inside_bytes  # of the first low + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.reach(ordered[:middle]) else (middle, high)
        return tuple(ordered[:high])

    def improved(self, start: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """`start` without the members it can do without, then with cheaper ones in their place, as long as it gets cheaper."""
        last = self.trials + max(LEAST_TRIALS, min(MOST_TRIALS, TRIALS_BY_MODULES // len(self.found)))
        members = start
        while self.trials < last:
            better = next((other for other in self._cheaper(members) if self.trials < last and self.reach(other)), None)
            if better is None:
                break
            members = better
        return members

    def _cheaper(self, members: tuple[Candidate, ...]) -> list[tuple[Candidate, ...]]:
        """The sets one step away that cost less and may do: the cheapest first."""
        steps = []
        for one in members:
            rest = tuple(other for other in members if other is not one)
            steps.append(rest)
            for other in self.found:
                if other.flops < one.flops and not any(other.overlaps(kept) for kept in rest):
                    steps.append((*rest, other))
        for other in self.found:  # one module in place of several that it holds, or that are dearer together
            rest = tuple(one for one in members if not one.overlaps(other))
            if len(members) - len(rest) > 1:
                steps.append((*rest, other))
        may = [step for step in steps if step and sum(one.inside_bytes for one in step) >= SLACK * self.needed_bytes]
        return sorted((step for step in may if _flops(step) < _flops(members)), key=_flops)

    def in_order(self, members: Sequence[Candidate]) -> Paths:
        """The paths of `members` in the model's order."""
        chosen = {one.path for one in members}
        return tuple(one.path for one in self.found if one.path in chosen)


def _holds(outer: Candidate, inner: Candidate) -> bool:
    return inner.path.startswith(f"{outer.path}.")


def _flops(members: Sequence[Candidate]) -> int:
    return sum(one.flops for one in members)


def _below(modules: Sequence[ModuleNode], figure: Callable[[ModuleNode], int]) -> Mapping[str, int]:
    """`figure` of every module with all below it, by path."""
    sums: dict[str, int] = {}
    for node in modules:
        parts = node.path.split(".") if node.path else []
        for end in range(len(parts) + 1):
            path = ".".join(parts[:end])
            sums[path] = sums.get(path, 0) + figure(node)
    return sums

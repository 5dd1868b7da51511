"""What if: other batch sizes, the largest one that fits, modules checkpointed. Every answer is a simulation of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from profiler_kit.errors import UsageError
from profiler_kit.memory.profiles import Profile
from profiler_kit.memory.steps import Setup
from profiler_kit.records.counts import MemoryEstimate, MemoryQuestions, ModuleNode, StaticCount, WhatIf
from profiler_kit.target import Target

AUTO: Final = "auto"
MOST_BATCH: Final = 1 << 20
_NAMED: Final = 3  # paths that a change names before it says how many there are

Simulate = Callable[[Target, Profile, Setup], MemoryEstimate]
Count = Callable[[Target, tuple[str, ...]], StaticCount]


@dataclass(slots=True, eq=False)
class Study:
    """One target under question. `again` builds it with another batch size; `count` counts it with modules checkpointed."""

    target: Target
    profile: Profile
    static: StaticCount
    again: Callable[[int], Target]
    simulate: Simulate
    count: Count
    fits_bytes: int | None = None
    _known: dict[tuple[int | None, tuple[str, ...]], WhatIf] = field(default_factory=dict)

    def answers(self, asked: MemoryQuestions) -> Iterator[WhatIf]:
        """One row per question; that of the step as it is comes first.

        Raises UsageError for a profile without a device's figures, or a path that is no module's.
        """
        if not self.profile.is_cuda:
            raise UsageError("a CPU has no memory of its own to fit into", hint="name a GPU with --gpu, such as sm90")
        yield self.at()
        for batch in asked.batches:
            yield self.at(batch=batch)
        paths = tuple(path for path in asked.checkpoint if path != AUTO)
        if paths:
            yield self._priced(paths)
        if AUTO in asked.checkpoint:
            yield from self._proposed()
        if self.fits_bytes is not None:
            yield from self._largest()

    def at(self, *, batch: int | None = None, checkpoint: tuple[str, ...] = ()) -> WhatIf:
        """The memory with another batch size or with modules checkpointed."""
        key = (batch, checkpoint)
        if key not in self._known:
            self._known[key] = self._simulated(batch, checkpoint)
        return self._known[key]

    def _simulated(self, batch: int | None, checkpoint: tuple[str, ...]) -> WhatIf:
        target = self.target if batch is None else self.again(batch)
        memory = self.simulate(target, self.profile, Setup(checkpoint=checkpoint))
        device = memory.device
        assert device is not None
        context = device.context_bytes or 0
        total = device.reserved_bytes + context
        total_high = max(device.reserved_high_bytes or 0, device.reserved_bytes) + context
        return WhatIf(
            change=_told(batch, checkpoint),
            allocated_bytes=device.allocated_bytes,
            allocated_low_bytes=device.allocated_low_bytes,
            allocated_high_bytes=device.allocated_high_bytes,
            total_bytes=total,
            total_high_bytes=total_high,
            saved_bytes=memory.saved_bytes,
            batch=batch,
            checkpoint=checkpoint,
            fits=self._fits(total, total_high),
        )

    def _fits(self, total: int, total_high: int) -> Literal["yes", "likely", "no"] | None:
        if self.fits_bytes is None:
            return None
        if total > self.fits_bytes:
            return "no"
        return "yes" if total_high <= self.fits_bytes else "likely"

    def _largest(self) -> Iterator[WhatIf]:
        """The largest batch that fits even with the most scratch, then the largest that likely does."""
        sure = self._largest_where(lambda answer: answer.total_high_bytes)
        likely = self._largest_where(lambda answer: answer.total_bytes)
        if sure is not None:
            yield sure
        if likely is not None and likely != sure:
            yield likely
        if likely is None:
            yield self.at(batch=1)

    def _largest_where(self, bytes_of: Callable[[WhatIf], int]) -> WhatIf | None:
        """The largest batch whose `bytes_of` fit. They are nearly linear in it: each guess follows from two known ones."""
        goal = self.fits_bytes or 0
        low, high = self.at(batch=1), self.at(batch=2)
        if bytes_of(low) > goal:
            return None
        while bytes_of(high) <= goal:
            guess = _crossing(low, high, bytes_of, goal)
            low, high = high, self.at(batch=min(max(guess, (high.batch or 0) + 1), 2 * MOST_BATCH))
            if (low.batch or 0) >= MOST_BATCH:
                return low
        between = False
        while (high.batch or 0) - (low.batch or 0) > 1:
            least, most = (low.batch or 0) + 1, (high.batch or 0) - 1
            guess = (least + most) // 2 if between else _crossing(low, high, bytes_of, goal)
            found = self.at(batch=min(max(guess, least), most))
            low, high = (found, high) if bytes_of(found) <= goal else (low, found)
            between = not between  # a straight line may creep along one side
        return low

    def _proposed(self) -> Iterator[WhatIf]:
        """At each depth, the fewest modules that make it fit, those that cost least first; all of them without a goal.

        Of several depths that make it fit, the one that computes least again comes first.
        """
        if self.at().fits == "yes":
            return
        found = []
        for paths in _by_depth(self.static):
            everything = self.at(checkpoint=paths)
            if self.fits_bytes is None or everything.fits == "no":
                found.append(self._priced(paths))
                continue
            low, high = 0, len(paths)
            while high - low > 1:
                middle = (low + high) // 2
                if self.at(checkpoint=paths[:middle]).fits == "no":
                    low = middle
                else:
                    high = middle
            found.append(self._priced(paths[:high]))
        yield from sorted(found, key=lambda answer: (answer.fits == "no", answer.recompute_flops or 0))

    def _priced(self, paths: tuple[str, ...]) -> WhatIf:
        flops = self.count(self.target, paths).recompute.flops
        return replace(self.at(checkpoint=paths), recompute_flops=flops)


def _crossing(low: WhatIf, high: WhatIf, bytes_of: Callable[[WhatIf], int], goal: int) -> int:
    """The last batch below `goal` on the straight line through two answers."""
    first, second = low.batch or 0, high.batch or 0
    rise = bytes_of(high) - bytes_of(low)
    if rise <= 0:
        return 2 * second
    return first + (goal - bytes_of(low)) * (second - first) // rise


def _by_depth(static: StaticCount) -> Iterator[tuple[str, ...]]:
    """The modules of each depth that are worth checkpointing, those that keep most per FLOP first.

    Worth it are modules that run once, have parts, and keep something.
    """
    kept = _subtree_sums(static, lambda node: node.saved_bytes)
    flops = _subtree_sums(static, lambda node: node.forward.flops)
    depths: dict[int, list[str]] = {}
    parents = {node.path.rpartition(".")[0] for node in static.modules if node.path}
    for node in static.modules:
        if node.path and node.path in parents and node.calls == 1 and kept[node.path] > 0:
            depths.setdefault(node.path.count("."), []).append(node.path)
    for depth in sorted(depths):
        yield tuple(sorted(depths[depth], key=lambda path: flops[path] / kept[path]))


def _subtree_sums(static: StaticCount, figure: Callable[[ModuleNode], int]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for node in static.modules:
        parts = node.path.split(".") if node.path else []
        for end in range(len(parts) + 1):
            path = ".".join(parts[:end])
            sums[path] = sums.get(path, 0) + figure(node)
    return sums


def _told(batch: int | None, checkpoint: tuple[str, ...]) -> str:
    words = []
    if batch is not None:
        words.append(f"batch {batch}")
    if checkpoint:
        more = len(checkpoint) - _NAMED
        named = ", ".join(checkpoint[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        words.append(f"checkpoint {named}")
    return ", ".join(words) or "as it is"

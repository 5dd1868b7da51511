"""What if: other batch sizes, the largest one that fits, modules checkpointed, and more. Every answer is a simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from profiler_kit.devices.device import Device
from profiler_kit.devices.registry import DEFAULT
from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading import Target
from profiler_kit.loading.in_place import refused, switchable
from profiler_kit.loading.place import first_line
from profiler_kit.memory.proposal import Candidate, candidates, cheapest, families, largest_batch
from profiler_kit.memory.steps import Setup
from profiler_kit.records.counts import MemoryEstimate, MemoryQuestions, StaticCount, WhatIf
from profiler_kit.records.variation import Variation, told
from profiler_kit.units import text

AUTO: Final = "auto"
AS_IT_IS: Final = Variation()
_STEP_FAILURES: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip

Simulate = Callable[[Target, Device, Setup], MemoryEstimate]
Count = Callable[[Target, tuple[str, ...]], StaticCount]
Price = Callable[[StaticCount], "float | None"]


@dataclass(slots=True, eq=False)
class Study:
    """One target under question.

    `again` builds it with other words of its spec; `count` counts it with modules checkpointed; `price` is the least time of
    a count's recomputing, in ns, None where no hardware is named. `batch`: that of the step as it is, if it is known.
    `say` is told what is simulated. `notes`: what to know about the answers.
    """

    target: Target
    device: Device
    static: StaticCount
    again: Callable[[Mapping[str, Any]], Target]
    simulate: Simulate
    count: Count
    fits_bytes: int | None = None
    batch: int | None = None
    price: Price = lambda static: None
    say: Callable[[str], None] = lambda text: None
    notes: list[str] = field(default_factory=list)
    _known: dict[Variation, WhatIf] = field(default_factory=dict)
    _kept: tuple[Candidate, ...] | None = None

    def answers(self, asked: MemoryQuestions) -> Iterator[WhatIf]:
        """One row per question; that of the step as it is comes first.

        Raises UsageError for the CPU, or a path that is no module's or is never called.
        """
        if not self.device.is_cuda:
            raise UsageError(
                "a CPU has no memory of its own to fit into", hint=f"name a GPU with --gpu, such as {DEFAULT.short[0]}"
            )
        yield self.at(AS_IT_IS)
        for batch in asked.batches:
            yield self.at(Variation(batch=batch))
        paths = tuple(dict.fromkeys(path for path in asked.checkpoint if path != AUTO))
        if paths:
            yield self._priced(Variation(checkpoint=paths))
        if AUTO in asked.checkpoint:
            yield from self._proposed()
        for variation in asked.variations:
            answer = self._varied(variation)
            if answer is not None:
                yield answer
        if self.fits_bytes is not None:
            yield from self._largest()

    def at(self, variation: Variation) -> WhatIf:
        """The memory of the step with this variation."""
        if variation not in self._known:
            self._known[variation] = self._simulated(variation)
        return self._known[variation]

    def _simulated(self, variation: Variation, in_place: tuple[str, ...] = ()) -> WhatIf:
        self._check(variation.checkpoint)
        self.say(f"simulating the step {told(variation)}")
        words = variation.of_target
        target = self.again(words) if words else self.target
        zero_grad: Literal["zero", "none"] = "zero" if variation.zero_grad == "keep" else "none"
        setup = Setup(checkpoint=variation.checkpoint, zero_grad=zero_grad, in_place=in_place)
        try:
            memory = self.simulate(target, self.device, setup)
        except TargetError as error:
            if variation == AS_IT_IS:
                raise
            raise TargetError(
                f"with {told(variation)} the step can't run: {error.message}",
                where=error.where,
                hint="a checkpointed module has to compute the same when it runs again"
                if variation.checkpoint
                else error.hint,
            ) from error
        except _STEP_FAILURES as error:
            raise TargetError(
                f"with {told(variation)} the step can't run: {first_line(error)}",
                hint="the step as it is can: leave this question out",
            ) from error
        if variation == AS_IT_IS:
            self._kept = candidates(self.static, memory.modules)
        device = memory.device
        assert device is not None
        context = device.context_bytes or 0
        total = device.reserved_bytes + context
        total_high = max(device.reserved_high_bytes or 0, device.reserved_bytes) + context
        base = self._known.get(AS_IT_IS)
        return WhatIf(
            change=self._named(variation),
            allocated_bytes=device.allocated_bytes,
            allocated_low_bytes=device.allocated_low_bytes,
            allocated_high_bytes=device.allocated_high_bytes,
            total_bytes=total,
            total_high_bytes=total_high,
            saved_bytes=memory.saved_bytes,
            difference_bytes=device.allocated_bytes - base.allocated_bytes if base is not None else None,
            batch=variation.batch,
            checkpoint=variation.checkpoint,
            amp=variation.amp,
            optimizer=variation.optimizer,
            zero_grad=variation.zero_grad,
            in_place=in_place,
            fits=self._fits(total, total_high),
        )

    def _note(self, said: str) -> None:
        if said not in self.notes:
            self.notes.append(said)

    def _named(self, variation: Variation) -> str:
        if variation == AS_IT_IS and self.batch is not None:
            return f"as it is (batch {self.batch})"
        return told(variation)

    def _check(self, paths: tuple[str, ...]) -> None:
        """Raises UsageError for a path whose module is never called: checkpointing it would change nothing."""
        calls = {alias: node.calls for node in self.static.modules for alias in (node.path, *node.aliases)}
        for path in paths:
            if calls.get(path) == 0:
                below = [name for name in calls if name.startswith(f"{path}.") and calls[name]]
                raise UsageError(
                    f"module {path!r} is never called by itself, so it can't be checkpointed",
                    hint=f"name one that is, such as {', '.join(below[:3])}" if below else "leave it out",
                )

    def _fits(self, total: int, total_high: int) -> Literal["yes", "likely", "no"] | None:
        if self.fits_bytes is None:
            return None
        if total > self.fits_bytes:
            return "no"
        return "yes" if total_high <= self.fits_bytes else "likely"

    def _largest(self) -> Iterator[WhatIf]:
        """The largest batch that fits even with the most scratch, then the largest that likely does."""
        goal = self.fits_bytes or 0
        sure, likely = (
            largest_batch(lambda batch: self.at(Variation(batch=batch)), bytes_of, goal)
            for bytes_of in (lambda answer: answer.total_high_bytes, lambda answer: answer.total_bytes)
        )
        if sure is not None:
            yield sure
        if likely is not None and likely != sure:
            yield likely
        if likely is None:
            smallest = self.at(Variation(batch=1))
            yield smallest
            self._note(
                f"Not even batch 1 fits in {text(self.fits_bytes, 'bytes')}: it takes {text(smallest.total_bytes, 'bytes')}, "
                f"of which {text(self.device.architecture.context.value, 'bytes')} are the context."
            )

    def _proposed(self) -> Iterator[WhatIf]:
        """The cheapest set of modules that makes the step fit; without a goal the modules of every depth, cheapest first.

        Where only luck makes the cheapest set fit, a second row has the cheapest that surely does.
        """
        now = self.at(AS_IT_IS)
        found = self._checkpointable(self._kept or ())
        if not found:
            self._note(
                "No module keeps anything that checkpointing would let go of: what each needs for backward is its own input "
                "or another module's. It would only cost time."
                if now.saved_bytes
                else "Nothing is kept for backward, so there is nothing to checkpoint."
            )
            return
        if self.fits_bytes is None:
            each = [self._priced(Variation(checkpoint=tuple(one.path for one in family))) for family in families(found)]
            yield from sorted(each, key=lambda answer: (answer.recompute_flops or 0, answer.allocated_bytes))
        elif now.fits == "yes":
            self._note(f"The step fits in {text(self.fits_bytes, 'bytes')} without checkpointing.")
        else:
            yield from self._reaching(found, now, self.fits_bytes)

    def _checkpointable(self, found: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """Those of `found` that compute the same when they run again."""
        refused = {path for family in families(found) for path in self._failing(tuple(one.path for one in family))}
        if refused:
            self._note(f"Not the same when they run again, so left out: {', '.join(sorted(refused))}.")
        return tuple(one for one in found if one.path not in refused)

    def _failing(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        try:
            self.at(Variation(checkpoint=paths))
        except TargetError:
            half = len(paths) // 2
            return (*self._failing(paths[:half]), *self._failing(paths[half:])) if half else paths
        return ()

    def _reaching(self, found: tuple[Candidate, ...], now: WhatIf, goal: int) -> Iterator[WhatIf]:
        def fit(paths: tuple[str, ...]) -> Literal["yes", "likely", "no"] | None:
            return self.at(Variation(checkpoint=paths)).fits

        chosen = []
        if now.fits == "no":
            chosen.append(cheapest(found, lambda paths: fit(paths) != "no", now.total_bytes - goal))
        if not chosen or (chosen[0] is not None and fit(chosen[0]) != "yes"):
            chosen.append(cheapest(found, lambda paths: fit(paths) == "yes", now.total_high_bytes - goal))
        for paths in dict.fromkeys(paths for paths in chosen if paths is not None):
            yield self._priced(Variation(checkpoint=paths))
        if chosen[0] is None and now.fits == "no":
            each = [self.at(Variation(checkpoint=tuple(one.path for one in family))) for family in families(found)]
            least = min(each, key=lambda answer: answer.total_bytes)
            yield self._priced(Variation(checkpoint=least.checkpoint))
            self._note(
                f"No set of modules that was tried makes it fit in {text(goal, 'bytes')}; the one shown takes least of them."
            )

    def _varied(self, variation: Variation) -> WhatIf | None:
        """The answer for a free variation; None where a note says why there is none."""
        if variation.inplace:
            paths = self._switched(variation)
            if not paths:
                return None
            answer = self._simulated(variation, paths)
        else:
            answer = self.at(variation)
        return self._with_price(answer, variation) if variation.checkpoint else answer

    def _switched(self, variation: Variation) -> tuple[str, ...]:
        """The activations that may work in place: neither would results change, nor does autograd object."""
        every = switchable(self.target.model)
        reasons = dict(refused(self.target, every))
        paths = tuple(path for path in every if path not in reasons)
        legal = self._accepted(variation, paths, reasons)
        if not every:
            self._note(
                "No activation module could work in place: they do already, or they are functions that the code calls."
            )
        elif reasons:
            why = "; ".join(f"{path}: {reason}" for path, reason in list(reasons.items())[:3])
            more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
            self._note(f"In place are {len(legal)} of {len(every)} activations. Not: {why}{more}.")
        return legal

    def _accepted(self, variation: Variation, paths: tuple[str, ...], reasons: dict[str, str]) -> tuple[str, ...]:
        """Those of `paths` that autograd lets work in place, all together; halved until the others are found."""
        if not paths:
            return ()
        try:
            self._simulated(variation, paths)
        except TargetError:
            if len(paths) == 1:
                reasons[paths[0]] = "backward needs what it would overwrite"
                return ()
            half = len(paths) // 2
            return (
                *self._accepted(variation, paths[:half], reasons),
                *self._accepted(variation, paths[half:], reasons),
            )
        return paths

    def _priced(self, variation: Variation) -> WhatIf:
        return self._with_price(self.at(variation), variation)

    def _with_price(self, answer: WhatIf, variation: Variation) -> WhatIf:
        words = variation.of_target
        counted = self.count(self.again(words) if words else self.target, variation.checkpoint)
        again, step = counted.recompute.flops, counted.step.flops - counted.recompute.flops
        return replace(
            answer,
            recompute_flops=again,
            recompute_percent=100 * again / step if step else None,
            recompute_ns=self.price(counted),
        )

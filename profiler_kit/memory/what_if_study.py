"""What-if questions about memory: batch sizes, the largest batch that fits, checkpointing and more. Each is simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from profiler_kit.devices.device import Device
from profiler_kit.devices.registry import DEFAULT_DEVICE
from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading import Target
from profiler_kit.memory.search import Candidate, candidates, cheapest, families, largest_batch
from profiler_kit.memory.steps import Setup
from profiler_kit.records.counts import Forecast, MemoryEstimate, MemoryOptions, StaticCount, WhatIf
from profiler_kit.records.variation import Variation, variation_text
from profiler_kit.units import percent, text
from profiler_kit.user_code.locations import one_line_message

AUTO: Final = "auto"
UNCHANGED: Final = Variation()
AS_FAST: Final = 0.97  # of the best throughput: a smaller batch this close to it is preferred
_STEP_FAILURES: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip

Simulate = Callable[[Target, Device, Setup], tuple[MemoryEstimate, "Forecast | None"]]
Count = Callable[[Target, tuple[str, ...]], StaticCount]
Price = Callable[[StaticCount], "float | None"]


@dataclass(slots=True, eq=False)
class WhatIfStudy:
    """What-if questions about one target.

    `simulate`: the memory of a step, and its time where that can be predicted. `rebuild(words)`: builds the target with
    other fields of its spec. `count(target, paths)`: counts it with checkpointed modules. `recompute_ns(count)`: minimum
    time of the recomputation in ns, None without hardware. `batch`: the batch size of the unchanged step, if known.
    `on_progress(text)`: reports progress. `notes`: notes about the answers.
    """

    target: Target
    device: Device
    static: StaticCount
    rebuild: Callable[[Mapping[str, Any]], Target]
    simulate: Simulate
    count: Count
    fits_bytes: int | None = None
    batch: int | None = None
    recompute_ns: Price = lambda static: None
    on_progress: Callable[[str], None] = lambda text: None
    notes: list[str] = field(default_factory=list)
    _answers: dict[Variation, WhatIf] = field(default_factory=dict)
    _candidates: tuple[Candidate, ...] | None = None

    def answers(self, memory_options: MemoryOptions) -> Iterator[WhatIf]:
        """One row per question, after the row of the unchanged step.

        Raises UsageError for the CPU, and for a path that is not a module or is never called.
        """
        if not self.device.is_cuda:
            raise UsageError(
                "what-if questions need a GPU: a CPU has no device memory",
                hint=f"add --gpu {DEFAULT_DEVICE.short_names[0]}",
            )
        yield self.at(UNCHANGED)
        for batch in memory_options.batches:
            yield self.at(Variation(batch=batch))
        paths = tuple(dict.fromkeys(path for path in memory_options.checkpoint if path != AUTO))
        if paths:
            yield self._priced(Variation(checkpoint=paths))
        if AUTO in memory_options.checkpoint:
            yield from self._proposed()
        for variation in memory_options.variations:
            yield self._priced(variation) if variation.checkpoint else self.at(variation)
        if self.fits_bytes is not None:
            yield from self._largest()

    def at(self, variation: Variation) -> WhatIf:
        """The memory of the step with this variation; simulated once."""
        if variation not in self._answers:
            self._answers[variation] = self._simulate(variation)
        return self._answers[variation]

    def _simulate(self, variation: Variation) -> WhatIf:
        self._check(variation.checkpoint)
        self.on_progress(f"simulating the step: {variation_text(variation)}")
        words = variation.of_target
        target = self.rebuild(words) if words else self.target
        zero_grad: Literal["zero", "none"] = "zero" if variation.zero_grad == "keep" else "none"
        setup = Setup(checkpoint=variation.checkpoint, zero_grad=zero_grad)
        try:
            memory, forecast = self.simulate(target, self.device, setup)
        except TargetError as error:
            if variation == UNCHANGED:
                raise
            hint = "a checkpointed module must compute the same result again" if variation.checkpoint else error.hint
            raise TargetError(
                f"the step fails with {variation_text(variation)}: {error.message}", where=error.where, hint=hint
            ) from error
        except _STEP_FAILURES as error:
            raise TargetError(
                f"the step fails with {variation_text(variation)}: {one_line_message(error)}",
                hint="the unchanged step runs: remove this question",
            ) from error
        if variation == UNCHANGED:
            self._candidates = candidates(self.static, memory.modules)
        device = memory.device
        assert device is not None
        context = device.context_bytes or 0
        total = device.reserved_bytes + context
        total_high = max(device.reserved_high_bytes or 0, device.reserved_bytes) + context
        base = self._answers.get(UNCHANGED)
        return WhatIf(
            change=self._label(variation),
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
            fits=self._fits(total, total_high),
            kernel_ns=forecast.kernel_ns.median if forecast is not None else None,
            step_ns=forecast.step_ns.median if forecast is not None else None,
        )

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _label(self, variation: Variation) -> str:
        if variation == UNCHANGED and self.batch is not None:
            return f"as it is (batch {self.batch})"
        return variation_text(variation)

    def _check(self, paths: tuple[str, ...]) -> None:
        """Raise UsageError for a module that is never called: checkpointing it has no effect."""
        calls = {alias: node.calls for node in self.static.modules for alias in (node.path, *node.aliases)}
        for path in paths:
            if calls.get(path) == 0:
                children = [name for name in calls if name.startswith(f"{path}.") and calls[name]]
                raise UsageError(
                    f"cannot checkpoint module {path!r}: the model never calls it",
                    hint=f"checkpoint a module inside it, such as {', '.join(children[:3])}"
                    if children
                    else "remove it",
                )

    def _fits(self, total_bytes: int, total_high_bytes: int) -> Literal["yes", "likely", "no"] | None:
        if self.fits_bytes is None:
            return None
        if total_bytes > self.fits_bytes:
            return "no"
        return "yes" if total_high_bytes <= self.fits_bytes else "likely"

    def _largest(self) -> Iterator[WhatIf]:
        """The largest batch that fits with the maximum workspace, then with the likely workspace."""
        goal = self.fits_bytes or 0
        certain, likely = (
            largest_batch(lambda batch: self.at(Variation(batch=batch)), bytes_of, goal)
            for bytes_of in (lambda answer: answer.total_high_bytes, lambda answer: answer.total_bytes)
        )
        if certain is not None:
            yield certain
        if likely is not None and likely != certain:
            yield likely
        if likely is None:
            smallest = self.at(Variation(batch=1))
            yield smallest
            self._note(
                f"Batch 1 does not fit in {text(self.fits_bytes, 'bytes')}. It needs {text(smallest.total_bytes, 'bytes')}, "
                f"including {text(self.device.architecture.context.value, 'bytes')} for the CUDA context."
            )
        else:
            yield from self._fastest(certain if certain is not None else likely)

    def _fastest(self, largest: WhatIf) -> Iterator[WhatIf]:
        """The smallest batch with nearly the best predicted throughput, and a note that names it; nothing without a forecast."""
        fastest, best, batch = largest, largest.examples_per_s, largest.batch or 1
        if best is None:
            return
        while batch := _power_of_two_below(batch):
            answer = self.at(Variation(batch=batch))
            best = max(best, answer.examples_per_s or 0)
            if (answer.examples_per_s or 0) < AS_FAST * best:
                break
            fastest = answer
        if fastest is not largest:
            yield fastest
        larger = f"; larger ones are at most {percent(1 - AS_FAST)} faster" if fastest is not largest else ""
        self._note(
            f"Best predicted throughput: batch {fastest.batch}, {fastest.examples_per_s:,.0f} examples per second{larger}."
        )

    def _proposed(self) -> Iterator[WhatIf]:
        """The cheapest set of modules that makes the step fit; without a goal, the modules of each depth, cheapest first.

        If the cheapest set is only likely to fit, a second row has the cheapest set that certainly fits.
        """
        unchanged = self.at(UNCHANGED)
        modules = self._checkpointable(self._candidates or ())
        if not modules:
            self._note(
                "Checkpointing saves no memory: each module saves only its own input or a tensor that another module saves."
                if unchanged.saved_bytes
                else "There is nothing to checkpoint: no tensor is saved for backward."
            )
            return
        if self.fits_bytes is None:
            rows = [self._priced(_checkpointing(family)) for family in families(modules)]
            yield from sorted(rows, key=lambda answer: (answer.recompute_flops or 0, answer.allocated_bytes))
        elif unchanged.fits == "yes":
            self._note(f"The step fits in {text(self.fits_bytes, 'bytes')} without checkpointing.")
        else:
            yield from self._cheapest_fitting(modules, unchanged, self.fits_bytes)

    def _checkpointable(self, modules: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """The `modules` that compute the same result when they run again."""
        failing = {path for family in families(modules) for path in self._failing(_checkpointing(family).checkpoint)}
        if failing:
            self._note(
                f"These modules compute another result when they run again, and are skipped: {', '.join(sorted(failing))}."
            )
        return tuple(module for module in modules if module.path not in failing)

    def _failing(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        try:
            self.at(Variation(checkpoint=paths))
        except TargetError:
            half = len(paths) // 2
            return (*self._failing(paths[:half]), *self._failing(paths[half:])) if half else paths
        return ()

    def _cheapest_fitting(self, modules: tuple[Candidate, ...], unchanged: WhatIf, goal: int) -> Iterator[WhatIf]:
        def fit(paths: tuple[str, ...]) -> Literal["yes", "likely", "no"] | None:
            return self.at(Variation(checkpoint=paths)).fits

        sets = []
        if unchanged.fits == "no":
            sets.append(cheapest(modules, lambda paths: fit(paths) != "no", unchanged.total_bytes - goal))
        if not sets or (sets[0] is not None and fit(sets[0]) != "yes"):
            sets.append(cheapest(modules, lambda paths: fit(paths) == "yes", unchanged.total_high_bytes - goal))
        for paths in dict.fromkeys(paths for paths in sets if paths is not None):
            yield self._priced(Variation(checkpoint=paths))
        if sets[0] is None and unchanged.fits == "no":
            answers = [self.at(_checkpointing(family)) for family in families(modules)]
            smallest = min(answers, key=lambda answer: answer.total_bytes)
            yield self._priced(Variation(checkpoint=smallest.checkpoint))
            self._note(
                f"The step does not fit in {text(goal, 'bytes')} with any of the simulated sets of modules. "
                "The table shows the smallest."
            )

    def _priced(self, variation: Variation) -> WhatIf:
        return self._with_recompute(self.at(variation), variation)

    def _with_recompute(self, answer: WhatIf, variation: Variation) -> WhatIf:
        words = variation.of_target
        static = self.count(self.rebuild(words) if words else self.target, variation.checkpoint)
        recompute_flops, step_flops = static.recompute.flops, static.step.flops - static.recompute.flops
        return replace(
            answer,
            recompute_flops=recompute_flops,
            recompute_percent=100 * recompute_flops / step_flops if step_flops else None,
            recompute_ns=self.recompute_ns(static),
        )


def _power_of_two_below(batch: int) -> int:
    """The largest power of two below `batch`; 0 for a batch of 1."""
    return 1 << (batch - 1).bit_length() - 1 if batch > 1 else 0


def _checkpointing(family: tuple[Candidate, ...]) -> Variation:
    return Variation(checkpoint=tuple(module.path for module in family))

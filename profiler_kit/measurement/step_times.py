"""The step time of two targets, in interleaved fresh processes, until a limit is surely kept or surely exceeded."""

from __future__ import annotations

import contextlib
import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Final, Literal

from profiler_kit.command_lines import kit_command
from profiler_kit.errors import TargetError
from profiler_kit.measurement.worker_process import run_worker, worker_forks
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.check import StepTimeCheck
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference, Interval
from profiler_kit.records.target import TargetSpec
from profiler_kit.statistics.differences import HOST_BOUND, compare_times, spread_of
from profiler_kit.temporary_files import temporary_folder
from profiler_kit.units import percent

LOOKS: Final = (4, 6, 8, 12, 16, 20)  # processes a side after which the result may be final
PROCESS_BUDGET_S: Final = 1.0  # for the steps of one process
TIMEOUT_S: Final = 600.0
DEFAULT: Final = RunConfig(name="default")
Side = Literal[0, 1]  # the base, the change


def compare_steps(
    base: TargetSpec, change: TargetSpec, *, device: str, allowed: float, on_progress: OnProgress
) -> StepTimeCheck:
    """The step time of `change` against that of `base`. `allowed`: the largest relative change.

    Both sides run in pairs of processes, in random order, so that no rhythm of the machine's load can favor one of them.

    Raises:
        TargetError: a side failed.
    """
    count = 0

    def measured_step(side: Side) -> Interval:
        nonlocal count
        count += 1
        on_progress(f"step time: process {count}, {('base', 'change')[side]}")
        return _step((base, change)[side], device)

    # Forks of one process share its hash seed and memory layout, so they are not independent of each other. With one parent for
    # all pairs, every step of one of two equal sides was sometimes 40 % longer. So each pair gets a parent of its own.
    steps = measured_until_sure(measured_step, allowed, pair=lambda: worker_forks(base, change))
    return verdict_on_steps(*steps, allowed, device)


def measured_until_sure(
    step_of: Callable[[Side], Interval],
    allowed: float,
    *,
    pair: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    chance: random.Random | None = None,
) -> tuple[list[Interval], list[Interval]]:
    """The steps of both sides, one for each process that `step_of` runs, until the verdict is sure or after the last look.

    `pair` is entered around each process of the base and the one of the change that belongs to it. `chance` decides which
    of the two runs first.
    """
    chance = chance or random.Random()
    sides: tuple[list[Interval], list[Interval]] = ([], [])
    for number in range(LOOKS[-1]):
        order: tuple[Side, Side] = (0, 1) if chance.random() < 0.5 else (1, 0)
        with pair():
            for side in order:
                sides[side].append(step_of(side))
        if number + 1 in LOOKS and against_limit(*sides, allowed).is_sure:
            break
    return sides


def against_limit(base: Sequence[Interval], change: Sequence[Interval], allowed: float) -> Difference:
    """The steps of `change` compared with the longest ones that are allowed."""
    pooled = spread_of(base) + spread_of(change)
    return compare_times(base, change, pooled, HOST_BOUND, factor=1 / (1 + allowed))


def verdict_on_steps(
    base: Sequence[Interval], change: Sequence[Interval], allowed: float, device: str
) -> StepTimeCheck:
    """The verdict on the processes of both sides: within the limit, beyond it, or neither for sure."""
    limited = against_limit(base, change, allowed)
    plain = against_limit(base, change, 0.0)
    visible = plain.smallest_visible
    outcome: Literal["pass", "fail", "inconclusive"] = "inconclusive"
    if limited.is_sure:
        outcome = "pass" if limited.outcome == "better" else "fail"
    reason = ""
    if outcome == "fail":
        reason = f"the step takes {percent(plain.ratio - 1, 2)} more, and {percent(allowed, 2)} is allowed"
    elif outcome == "inconclusive" and visible is not None and allowed < visible:
        reason = (
            f"the limit of {percent(allowed, 2)} is below the smallest change that {len(base)} processes a side can show "
            f"here, {percent(visible, 2)}: raise it, or use a quieter machine"
        )
    elif outcome == "inconclusive":
        reason = f"{len(base)} processes a side cannot tell the change from the limit"
    medians = [
        round(math.exp(statistics.fmean(math.log(max(1, step.median)) for step in side))) for side in (base, change)
    ]
    return StepTimeCheck(
        outcome=outcome,
        device=device,
        processes=len(base),
        base_ns=medians[0],
        head_ns=medians[1],
        change=plain.ratio - 1,
        low=plain.low - 1,
        high=plain.high - 1,
        smallest_visible=visible,
        allowed=allowed,
        reason=reason,
    )


def _step(spec: TargetSpec, device: str) -> Interval:
    """The median step of one fresh process. Raises TargetError."""
    job = RunJob(spec=spec, config=DEFAULT, device=device, budget_s=PROCESS_BUDGET_S, checks=False, again=True)
    with temporary_folder("step") as folder:
        run, outcome = run_worker("run", job, folder, ConfigRun, timeout_s=TIMEOUT_S)
    if run is not None and run.step_ns is not None:
        return run.step_ns
    message = run.failure.message if run is not None and run.failure is not None else outcome.ending
    raise TargetError(
        f"the step could not be timed: {message}",
        where=spec.spec,
        hint=f"run it once: {kit_command('analyze', spec.spec)}",
    )

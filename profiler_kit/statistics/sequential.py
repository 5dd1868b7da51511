"""How many fresh processes a comparison needs: more while a verdict is open, none once it is sure or precise.

A step that waits for the host differs by 1 to 20 % between processes, so two of each configuration often see nothing. Further
passes over the configurations add one process to each that is undecided, and to the baseline, up to `MAX_PROCESSES`.

Each look at the data is a chance for a false alarm. The levels of the test (`statistics.differences`) are so strict that all
looks together stay below 1 % (`python -m scripts.bench.decisions`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference
from profiler_kit.statistics.differences import MAX_PROCESSES
from profiler_kit.statistics.noise import MIN_DEVICE_SPREAD_SHARE, Noise, fills_step, is_host_difference

# Of the step. Where smaller changes count already, more processes change no decision.
PRECISE_LIMIT: Final = 0.05


def is_decided(difference: Difference) -> bool:
    """Whether more processes are superfluous: a difference is established, or a small one would count."""
    return difference.is_sure or (difference.limit is not None and difference.limit <= PRECISE_LIMIT)


def undecided_runs(baseline: ConfigRun, others: Iterable[ConfigRun], noise: Noise) -> tuple[ConfigRun, ...]:
    """The runs that need further processes to be compared with `baseline`, which needs them too then; empty if none does.

    Steps that kernels fill are decided by two processes, and configurations that run the same kernels for the same time by none.
    """
    return tuple(run for run in others if is_open(baseline, run, noise.difference(baseline, run)))


def is_open(before: ConfigRun, after: ConfigRun, difference: Difference | None) -> bool:
    """Whether a further process of both runs may change the verdict `difference` on them."""
    return (
        difference is not None
        and after.failure is None
        and min(difference.before_processes, difference.after_processes) < MAX_PROCESSES
        and not all(fills_step(side, MIN_DEVICE_SPREAD_SHARE) for side in (before, after))
        and not is_host_difference(before, after)
        and not is_decided(difference)
    )

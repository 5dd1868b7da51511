"""Bitwise reproducibility of outputs, loss and gradients, within one process and between two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.experiments import Repeat
from profiler_kit.records.runs import ConfigRun


@dataclass(frozen=True, slots=True)
class PassResult:
    """One result of a pass.

    `repeats`: whether it is bitwise reproducible within the process of a run. `digest`: its hash in a process.
    """

    name: str
    repeats: Callable[[ConfigRun], bool | None]
    digest: Callable[[ConfigRun | Repeat], str | None]


PASS_RESULTS: Final = (
    PassResult("outputs", lambda run: run.repeatable_outputs, lambda run: run.output_digest),
    PassResult("loss", lambda run: run.repeatable_loss, lambda run: run.loss_digest),
    PassResult("gradients", lambda run: run.repeatable_gradients, lambda run: run.gradient_digest),
)


def differs_between_passes(run: ConfigRun) -> bool:
    """Return whether the passes of one process differed in any part."""
    return run.repeatable is False or bool(parts_that_differ(run))


def parts_that_differ(run: ConfigRun) -> tuple[str, ...]:
    """Return the names of the parts that differed between the passes of one process."""
    return tuple(part.name for part in PASS_RESULTS if part.repeats(run) is False)


def parts_that_differ_between_processes(first: ConfigRun, second: ConfigRun | Repeat) -> tuple[PassResult, ...]:
    """Return the parts that are reproducible within each process but differ between the two.

    A second process that is only a `Repeat` has no record of its own reproducibility, and is assumed to be reproducible.
    """
    parts = []
    for part in PASS_RESULTS:
        runs = [run for run in (first, second) if isinstance(run, ConfigRun)]
        # older reports record one value for the run instead of one per part
        repeats = [run.repeatable if part.repeats(run) is None else part.repeats(run) for run in runs]
        digests = (part.digest(first), part.digest(second))
        if all(repeats) and None not in digests and digests[0] != digests[1]:
            parts.append(part)
    return tuple(parts)

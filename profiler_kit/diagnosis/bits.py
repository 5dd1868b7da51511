"""Which parts of a pass repeat to the bit: outputs, the loss, gradients; in one process, and from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.laboratory import Repeat
from profiler_kit.records.runs import ConfigRun


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a pass: its name, whether it repeats in one process, its hash there and in the second process."""

    name: str
    repeats: Callable[[ConfigRun], bool | None]
    digest: Callable[[ConfigRun | Repeat], str | None]


PARTS: Final = (
    Part("outputs", lambda run: run.repeatable_outputs, lambda run: run.output_digest),
    Part("loss", lambda run: run.repeatable_loss, lambda run: run.loss_digest),
    Part("gradients", lambda run: run.repeatable_gradients, lambda run: run.gradient_digest),
)


def differing(run: ConfigRun) -> bool:
    """Whether three passes of one process differed in anything."""
    return run.repeatable is False or bool(parts_that_differ(run))


def parts_that_differ(run: ConfigRun) -> tuple[str, ...]:
    """The names of the parts that differed between three passes of one process."""
    return tuple(part.name for part in PARTS if part.repeats(run) is False)


def only_within(first: ConfigRun, second: ConfigRun | Repeat) -> tuple[Part, ...]:
    """The parts that repeat within the first process (and the second, where it says), and differ between the two."""
    parts = []
    for part in PARTS:
        runs = [run for run in (first, second) if isinstance(run, ConfigRun)]
        # what holds for all of a run where the part alone is not known
        repeats = [run.repeatable if part.repeats(run) is None else part.repeats(run) for run in runs]
        a, b = part.digest(first), part.digest(second)
        if all(repeats) and a is not None and b is not None and a != b:
            parts.append(part)
    return tuple(parts)

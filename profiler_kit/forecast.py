"""The part of the pipeline where `counting` meets `memory`: a count with the memory of its step, and what-ifs about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from profiler_kit.errors import KitError
from profiler_kit.records.counts import MemoryQuestions, StaticCount
from profiler_kit.records.target import TargetSpec

if TYPE_CHECKING:
    from profiler_kit.target import Target

# What a second and third run of the user's code, or an optimizer, may raise. The count stands without the memory.
EXPECTED: Final = (
    ArithmeticError, AssertionError, AttributeError, KitError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


def with_memory(
    shown: StaticCount, by_kit: StaticCount, target: Target, *, gpu: str | None = None, device: str | None = None
) -> tuple[StaticCount, StaticCount]:
    """Both counts of `target` with the memory of its step; without it where that can't be simulated, and a note says why.

    `gpu` names the simulated device, else it is `device`, else what is here. Raises UsageError for an unknown `gpu`.
    """
    from profiler_kit.memory import profile_for, simulate
    from profiler_kit.target.place import first_line

    profile = profile_for(gpu, device)
    try:
        memory, notes = simulate(target, profile), shown.notes
    except EXPECTED as error:
        memory, notes = None, (*shown.notes, f"memory is not predicted: {first_line(error)}")
    made = replace(shown, memory=memory, notes=notes)
    return made, made if shown is by_kit else replace(by_kit, memory=memory)


def with_what_ifs(
    static: StaticCount,
    target: Target,
    spec: TargetSpec,
    *,
    gpu: str | None,
    asked: MemoryQuestions,
    price: Callable[[StaticCount], float | None],
    say: Callable[[str], None],
) -> StaticCount:
    """The count with the answers to what is `asked` about its memory; `price`: the least time of recomputing,
    in ns; `say` is told what is done.

    Raises UsageError for a path that is no module's.
    """
    from profiler_kit.counting import count_target
    from profiler_kit.memory import profile_for, simulate
    from profiler_kit.memory.what_if import Study
    from profiler_kit.target import load
    from profiler_kit.target.checkpointing import checkpointed

    def counted(one: Target, paths: tuple[str, ...]) -> StaticCount:
        with checkpointed(one.model, paths):
            return count_target(one)

    if static.memory is None:
        return static  # a note says why
    study = Study(
        target=target,
        profile=profile_for(gpu),
        static=static,
        again=lambda words: load(replace(spec, **words), device="meta"),
        simulate=simulate,
        count=counted,
        fits_bytes=asked.fits_bytes,
        batch=spec.batch,
        price=price,
        say=say,
    )
    answers = tuple(study.answers(asked))
    return replace(static, memory=replace(static.memory, what_ifs=answers, what_if_notes=tuple(study.notes)))

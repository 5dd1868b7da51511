"""The part of the pipeline where `counting` meets `memory`: a count with its step's memory, what-ifs, and measured scratch."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit.devices.device import Device
from profiler_kit.devices.registry import architecture_names, devices, find
from profiler_kit.errors import KitError, TargetError
from profiler_kit.records.counts import MemoryQuestions, StaticCount
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetInfo, TargetSpec

if TYPE_CHECKING:
    from profiler_kit.loading import Target

# What a second and third run of the user's code, or an optimizer, may raise. The count stands without the memory.
EXPECTED: Final = (
    ArithmeticError, AssertionError, AttributeError, KitError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip

_MEASURED_STANDS: Final = "the peaks measured on the device stand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A target before anything is measured: its facts, its count as shown and by the kit's convention, and itself.

    There are no counts, and no `target`, where it loads and can't be counted; a note of `info` says why.
    """

    info: TargetInfo
    shown: StaticCount | None = None
    by_kit: StaticCount | None = None
    target: Target | None = None


def counted_if_possible(spec: TargetSpec, convention: str, device: str) -> Counted:
    """What can be said of the target before it is measured on `device`; one that can't be counted may still be measured.

    That is a model whose control flow depends on values, and one on which the counting itself breaks: the measured half of
    the report must not be lost with a bug of ours. What is wrong with the target is raised: it would fail measured as well.
    """
    from profiler_kit.counting import count_both
    from profiler_kit.loading import NeedsDataError, load
    from profiler_kit.loading.place import first_line, is_out_of_memory

    with ends_told(spec.spec):
        target = load(spec, device="meta")
        try:
            simulated = simulated_device(place=device)
            shown, by_kit = with_memory(*count_both(target, convention), target, simulated, measures=True)
        except NeedsDataError as error:
            note = f"Not counted, what is measured stands: {error}".replace("\nhint: ", "; ")
        except KitError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            note = (
                f"Not counted, because of an error in profiler_kit itself (please report it): {first_line(error)} "
                f"at {Path(place.filename).name}:{place.lineno}. What was measured stands."
            )
        else:
            info = target.info  # only now: the first output settles the loss
            return Counted(info=info, shown=shown, by_kit=by_kit, target=target)
    return Counted(info=replace(target.info, notes=(*target.info.notes, note)))


def with_memory(
    shown: StaticCount, by_kit: StaticCount, target: Target, simulated: Device, *, measures: bool = False
) -> tuple[StaticCount, StaticCount]:
    """Both counts of `target` with the memory of its step; without it where that can't be simulated, and a note says why.

    `measures`: the step will be run on the device as well, and where the simulation is rough, a note says that this stands.
    """
    from profiler_kit.memory import simulate

    try:
        memory, notes = simulate(target, simulated), shown.notes
        if measures and simulated.is_cuda and memory.traced_on != "meta":
            memory = replace(memory, notes=(*memory.notes, _MEASURED_STANDS))
    except EXPECTED as error:
        why = f"memory is not predicted: {_told(error)}"
        if measures and simulated.is_cuda:
            why += f"; {_MEASURED_STANDS}"
        memory, notes = None, (*shown.notes, why)
    with_estimate = replace(shown, memory=memory, notes=notes)
    return with_estimate, with_estimate if shown is by_kit else replace(by_kit, memory=memory)


def with_measured_scratch(runs: Sequence[ConfigRun], counted: Counted, device: str) -> list[ConfigRun]:
    """`runs` with the step's memory simulated again for each, with the scratch that its probe saw on `device`.

    The probe's single calls, which nothing else needs, are dropped. Runs without a probe stay as they are, and so do all
    where the step can't be simulated: a note of the count says so then.
    """
    from profiler_kit.memory import LibraryConfig, simulate_measured

    target, static = counted.target, counted.by_kit
    probes = [
        (run.memory, LibraryConfig(cudnn=run.config.enabled is not False))
        for run in runs
        if run.memory is not None and run.memory.calls and run.config.is_plain  # another step is not this one
    ]
    probed = simulated_device(place=device)
    predicted_memories = []
    why = ""
    if probes and probed.is_cuda and target is not None and static is not None and static.memory is not None:
        try:
            predicted_memories = list(simulate_measured(target, probed, probes))
        except EXPECTED as error:
            why = f"memory is not predicted with measured scratch: {_told(error)}"
    runs_with_scratch, predictions = [], iter(predicted_memories)
    for run in runs:
        if run.memory is not None and run.memory.calls:
            predicted = next(predictions, None) if run.config.is_plain else None
            slim = replace(predicted, timeline=()) if predicted is not None else None
            notes = (*run.notes, why) if why else run.notes
            run = replace(run, predicted=slim, memory=replace(run.memory, calls=()), notes=notes)
        runs_with_scratch.append(run)
    return runs_with_scratch


def with_what_ifs(
    static: StaticCount,
    target: Target,
    simulated: Device,
    *,
    asked: MemoryQuestions,
    price: Callable[[StaticCount], float | None],
    say: Callable[[str], None],
) -> StaticCount:
    """The count with the answers to what is `asked` about its memory; `price`: the least time of recomputing,
    in ns; `say` is told what is done.

    Raises UsageError for a path that is no module's.
    """
    from profiler_kit.counting import count_target
    from profiler_kit.loading.checkpointing import checkpointed
    from profiler_kit.memory import simulate
    from profiler_kit.memory.what_if import Study

    def counted(one: Target, paths: tuple[str, ...]) -> StaticCount:
        with checkpointed(one.model, paths):
            return count_target(one)

    if static.memory is None:
        return static  # a note says why
    again = target.again
    assert again is not None  # it was loaded by its words
    study = Study(
        target=target,
        device=simulated,
        static=static,
        again=lambda words: again("meta", **words),
        simulate=simulate,
        count=counted,
        fits_bytes=asked.fits_bytes,
        batch=target.spec.batch,
        price=price,
        say=say,
    )
    answers = tuple(study.answers(asked))
    return replace(static, memory=replace(static.memory, what_ifs=answers, what_if_notes=tuple(study.notes)))


def simulated_device(gpu: str | None = None, place: str | None = None) -> Device:
    """The device whose memory is predicted: the one that a person calls `gpu`, else that of `place`, else what is here.

    Raises UsageError that lists the choices where no device is called `gpu`; imports nothing slow for a named one.
    """
    if gpu is not None:
        return find(gpu, "--gpu", devices(), also=f"; or an architecture: {architecture_names()}")
    from profiler_kit.memory import device_here

    return device_here(place)


@contextlib.contextmanager
def ends_told(target: str) -> Iterator[None]:
    """Turns what ends a process, sys.exit() in the user's code and exhausted memory, into a TargetError."""
    from profiler_kit.loading.place import exit_line, first_line, is_out_of_memory, user_place

    try:
        yield
    except SystemExit as error:
        raise TargetError(
            exit_line(error),
            where=user_place(error) or target,
            hint="raise an exception instead, so that it can be told",
        ) from error
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise TargetError(
            f"memory ran out before anything was measured: {first_line(error)}",
            where=user_place(error) or target,
            hint="build the model on the device it runs on (nothing needs memory on meta), or make it smaller",
        ) from error


def _told(error: BaseException) -> str:
    """`error` in a line: its own words where it has some for people, else with its type."""
    from profiler_kit.loading.place import first_line

    return str(error).partition("\n")[0] if isinstance(error, KitError) else first_line(error)

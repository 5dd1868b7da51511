"""The final measurement of `tune`: both answers against the baseline, in fresh processes that the search does not share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Final

from profiler_kit.configurations.script_lines import code_blocks
from profiler_kit.measurement.tuning import FINAL_PASSES, Search, Track
from profiler_kit.measurement.tuning_candidates import configuration_name, runs_fresh, without_change
from profiler_kit.measurement.tuning_verdicts import MIN_USEFUL, completed, product, screened_gain
from profiler_kit.measurement.turns import copies_within
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.report import Tool
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference
from profiler_kit.records.tuning import (
    CodeBlock,
    Contribution,
    PrecisionError,
    Tuning,
    TuningAnswer,
    TuningOutcome,
    TuningSide,
)
from profiler_kit.statistics.host_load import disturbance_of
from profiler_kit.statistics.intervals import median_interval
from profiler_kit.units import percent

PASSES: Final = 3  # processes of each side where they do not take turns
MAX_TURN_COPIES: Final = 5  # processes of each side in a round, where they do
MORE_PASSES: Final = 3  # while an answer is not sure
PRECISIONS: Final = ("no-tf32", "matmul_tf32")  # whose errors are shown beside those of reduced precision
PURPOSE: Final = "final measurement"


def measure_result(search: Search, *, tool: Tool, created: str) -> Tuning:
    """The result of a finished or interrupted `search`, after the final measurement."""
    errors = tuple(_errors(search)) if search.has_reduced else ()
    alone = {change: gain for track in search.answers for change, gain in _leave_one_out(search, track)}
    group = _measure_again(search)
    base = search.verdicts.checked_run(search.baseline)
    assert base is not None
    every_run = [run for runs in search.verdicts.groups for run in runs] or [base]
    tuning = Tuning(
        tool=tool,
        created=created,
        target=search.info,
        options=search.options,
        outcome="interrupted" if search.processes.interrupted else "nothing better",
        baseline=_side(search, search.baseline, group or every_run),
        attempts=tuple(search.attempts),
        error_limit=_limit(search, base, reduced=False),
        reduced=_answer(search, search.reduced, group, every_run, alone) if search.has_reduced else None,
        errors=errors,
        processes=search.processes.count,
        notes=tuple(dict.fromkeys([*_failures(search, group), *_load_notes(search, group or every_run), *base.notes])),
    )
    if not search.same.accepted:
        return tuning
    same = _answer(search, search.same, group, every_run, alone)
    return replace(tuning, **{field.name: getattr(same, field.name) for field in fields(same)})


def _errors(search: Search) -> Iterator[PrecisionError]:
    """The errors of float32 and TF32, where the baseline is another, and of the changes that reduce the precision."""
    for name in PRECISIONS:
        config = search.read_config(name)
        if isinstance(config, str) or config == search.baseline:
            continue
        reserve = PASSES * (1 + len(search.answers))
        run = search.verdicts.screened.get(config.name)
        if run is None and search.can_screen and search.processes.has_room_to_compare(reserve=reserve):
            answer = search.processes.compare(None, config)
            run = answer.run if answer is not None else None
        if run is not None and run.max_relative_error is not None:
            yield PrecisionError(config=config.name, max_relative_error=run.max_relative_error)
    for attempt in search.attempts:
        if attempt.reduced and attempt.max_relative_error is not None and attempt.change not in PRECISIONS:
            yield PrecisionError(config=attempt.config, max_relative_error=attempt.max_relative_error)


def _leave_one_out(search: Search, track: Track) -> Iterator[tuple[tuple[bool, str], Contribution]]:
    """What each of several changes contributes beside the others, compared in one process, as far as there is time."""
    if len(track.accepted) < 2 or not search.can_screen or search.options.goal == "memory":
        return
    if any(runs_fresh(change) for change in track.accepted):
        return
    for change in track.accepted:
        config = search.read_config(configuration_name(without_change(track.accepted, change)))
        reserve = PASSES * (1 + len(search.answers))
        if isinstance(config, str):
            continue
        gain = search.alone.get((config.name, track.config.name))
        if gain is None and search.processes.has_room_to_compare(reserve=reserve):
            answer = search.processes.compare(config, track.config)
            gain = screened_gain(answer) if answer is not None else None
        if gain is not None:
            yield (
                (track.reduced, change),
                Contribution(
                    change=change,
                    without=config.name,
                    method="leave-one-out",
                    gain=gain,
                    without_peak_bytes=_peak(search, config),
                ),
            )


def _measure_again(search: Search) -> list[ConfigRun]:
    """Fresh processes of the baseline and of each answer, interleaved: until the answers are sure, or the time is used up."""
    group: list[ConfigRun] = []
    if not search.answers or search.processes.interrupted:
        return group
    search.verdicts.groups.append(group)
    configs = [search.baseline, *(track.config for track in search.answers)]
    copies = min(MAX_TURN_COPIES, copies_within(search.processes.budget_s))
    for number in range(1 + MORE_PASSES):
        is_first = number == 0
        more = None
        if search.takes_turns:
            more = search.processes.measure_in_turns(configs, PURPOSE, copies=copies, final=is_first)
        if more is None and (is_first or search.processes.has_room(0, reserve=len(configs))):
            has_room = search.processes.has_room(0, reserve=PASSES * len(configs))
            passes = (PASSES if has_room else FINAL_PASSES) if is_first else 1
            order = [config for n in range(passes) for config in (configs[::-1] if (n + number) % 2 else configs)]
            more = search.processes.measure(order, PURPOSE, checks=False, final=is_first)
        group += more or []
        if not more or all(_is_sure(search, track, group) for track in search.answers):
            break
    return group


def _is_sure(search: Search, track: Track, group: Sequence[ConfigRun]) -> bool:
    gain = _final_gain(search, track, group)
    return gain is not None and gain.outcome in ("better", "worse")


def _final_gain(search: Search, track: Track, group: Sequence[ConfigRun]) -> Difference | None:
    """The gain over the baseline in `group`.

    The search has established it, in other processes and with a level of its own. Only this one hypothesis is left, so its 95 %
    interval decides.
    """
    gain = search.verdicts.gain(search.baseline, track.config, group) if group else None
    if gain is None or gain.high >= 1.0 or gain.ratio > 1 - MIN_USEFUL:
        return gain
    return replace(gain, outcome="better", reason="")


def _answer(
    search: Search,
    track: Track,
    group: Sequence[ConfigRun],
    every_run: Sequence[ConfigRun],
    alone: dict[tuple[bool, str], Contribution],
) -> TuningAnswer:
    """The answer of `track`, with the lines to paste if the final measurement confirms it."""
    gain = _final_gain(search, track, group)
    outcome: TuningOutcome = "interrupted" if search.processes.interrupted else "not confirmed"
    has_failed = any(run.failure is not None for run in group if run.config == track.config)
    if outcome != "interrupted" and gain is not None and gain.outcome == "better" and not has_failed:
        outcome = "better"
    chosen = _side(search, track.config, group or every_run)
    code: tuple[CodeBlock, ...] = ()
    if outcome == "better":
        device = search.processes.device
        code = code_blocks(track.accepted, track.config, search.info, device=device, rows=chosen.samples)
    base = search.verdicts.checked_run(search.baseline)
    return TuningAnswer(
        outcome=outcome,
        chosen=chosen,
        gain=gain,
        estimate=product(list(track.gains.values())),
        changes=track.accepted,
        contributions=tuple(_contributions(search, track, gain, alone)),
        code=code,
        error_limit=_limit(search, base, reduced=track.reduced),
    )


def _limit(search: Search, base: ConfigRun | None, *, reduced: bool) -> float | None:
    """The largest accepted error; None where it is unknown or without a limit."""
    limit = search.options.error_limit(base.max_relative_error if base is not None else None, reduced=reduced)
    return limit if limit != float("inf") else None


def _failures(search: Search, group: Sequence[ConfigRun]) -> list[str]:
    """The failures of the answers in the final measurement."""
    failures = [run.failure for run in group if run.config != search.baseline and run.failure is not None]
    return [f"A process of the final measurement failed: {failure.message}" for failure in failures]


def _load_notes(search: Search, group: Sequence[ConfigRun]) -> Iterator[str]:
    """A warning if other work on the host may have decided the length of the steps."""
    side = search.verdicts.side(search.baseline, group)
    disturbance = disturbance_of(side) if side is not None else None
    if disturbance is not None and disturbance.is_large:
        yield (
            f"The cores were not free: threads of the baseline waited for one for {percent(disturbance.waiting_share)} of "
            "their time. On a free host, smaller gains can be seen."
        )


def _peak(search: Search, config: RunConfig) -> int | None:
    run = search.verdicts.checked_run(config)
    return run.peak_allocated_bytes if run is not None else None


def _side(search: Search, config: RunConfig, group: Sequence[ConfigRun]) -> TuningSide:
    runs = completed(config, group)
    checked = search.verdicts.checked_run(config)
    assert checked is not None
    steps = [ns for run in runs or [checked] for ns in run.steps_ns]
    peaks = [run.peak_allocated_bytes for run in runs if run.peak_allocated_bytes is not None]
    return TuningSide(
        config=config,
        step_ns=median_interval(steps) if steps else None,
        process_ns=tuple(run.step_ns.median for run in runs if run.step_ns is not None),
        samples=checked.samples,
        peak_bytes=max(peaks, default=checked.peak_allocated_bytes),
        max_relative_error=checked.max_relative_error,
        gradient_l2_relative_error=checked.gradient_l2_relative_error,
        repeatable=checked.repeatable,
    )


def _contributions(
    search: Search, track: Track, total: Difference | None, alone: dict[tuple[bool, str], Contribution]
) -> Iterator[Contribution]:
    for change in track.accepted:
        if (track.reduced, change) in alone:
            yield alone[track.reduced, change]
            continue
        attempts = (a for a in reversed(search.attempts) if a.change == change and a.outcome == "accepted")
        attempt = next(attempts, None)  # None: accepted with others, and there was no time to compare it alone
        is_only = len(track.accepted) == 1 and total is not None
        yield Contribution(
            change=change,
            without=search.baseline.name if is_only or attempt is None else attempt.base,
            method="leave-one-out" if is_only else "incremental",
            gain=total if is_only else attempt.gain if attempt is not None else None,
            without_peak_bytes=_peak(search, search.baseline) if is_only else None,
        )

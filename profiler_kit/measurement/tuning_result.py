"""The final measurement of `tune`: the chosen configuration against the baseline, in processes that the search does not share.

Without each accepted change, it runs too, so that its contribution is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from profiler_kit.configurations.script_lines import code_blocks
from profiler_kit.measurement.tuning import FINAL_PASSES, Search
from profiler_kit.measurement.tuning_candidates import configuration_name, without_change
from profiler_kit.measurement.tuning_verdicts import completed, product
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.tuning import Attempt, CodeBlock, Contribution, Gain, TuningOutcome, TuningSide
from profiler_kit.statistics.host_load import disturbance_of
from profiler_kit.statistics.intervals import median_interval
from profiler_kit.statistics.noise import MIN_DEVICE_SPREAD_SHARE, fills_step
from profiler_kit.units import percent

HOST_FINAL_PASSES: Final = 5  # where the host decides the length of the step, processes differ more
FINAL_TURN_COPIES: Final = 6  # processes of each configuration, where they take turns
MORE_PASSES: Final = 2  # while the outcome is not sure
LEAVE_ONE_OUT_PASSES: Final = 2
PURPOSE: Final = "final measurement"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The measured parts of a `Tuning`."""

    outcome: TuningOutcome
    baseline: TuningSide
    chosen: TuningSide | None
    gain: Gain | None
    estimate: Gain | None
    changes: tuple[str, ...]
    contributions: tuple[Contribution, ...]
    attempts: tuple[Attempt, ...]
    code: tuple[CodeBlock, ...]
    error_limit: float | None
    notes: tuple[str, ...]


def measure_result(search: Search) -> SearchResult:
    """The result of a finished or interrupted `search`, after the final measurement."""
    group, without = _measure_again(search)
    return _result(search, group, without)


def _final_passes(search: Search) -> int:
    """The passes of the final measurement: more where the host decides, if there is room."""
    is_device_bound = fills_step(search.processes.first_runs[search.baseline.name], MIN_DEVICE_SPREAD_SHARE)
    if is_device_bound or search.options.goal == "memory" or not search.processes.has_room(2 * HOST_FINAL_PASSES):
        return FINAL_PASSES
    return HOST_FINAL_PASSES


def _measure_again(search: Search) -> tuple[list[ConfigRun], dict[str, RunConfig]]:
    """Fresh processes of the baseline and the chosen configuration, interleaved, and of it without each change.

    Returns the runs, and the configurations without one change by that change.
    """
    group: list[ConfigRun] = []
    if not search.accepted or search.processes.interrupted:
        return group, {}
    search.verdicts.groups.append(group)
    without = _configs_without(search)
    if search.takes_turns:
        configs = [search.baseline, search.config, *without.values()]
        in_turns = partial(search.processes.measure_in_turns, purpose=PURPOSE, copies=FINAL_TURN_COPIES)
        runs = in_turns(configs, final=True)
        if runs is None and without:  # too many processes
            without = {}
            runs = in_turns(configs[:2], final=True)
        if runs is not None:
            group += runs
            for _ in range(MORE_PASSES):
                more = in_turns(configs[:2]) if not _is_sure(search, group) else None
                if more is None:
                    break
                group += more
            return group, without
    passes = _final_passes(search)
    if not search.processes.has_room(0, reserve=2 * passes + LEAVE_ONE_OUT_PASSES * len(without)):
        without = {}
    order: list[RunConfig] = []
    for number in range(passes):
        middle = list(without.values()) if number < LEAVE_ONE_OUT_PASSES else []
        turn = [search.baseline, *middle, search.config]
        order += turn[::-1] if number % 2 else turn
    group += search.processes.measure(
        order, PURPOSE, checks=False, final=True
    )  # one call: the next ones prepare meanwhile
    for _ in range(MORE_PASSES):
        if _is_sure(search, group) or not search.processes.has_room(2):
            break
        pair = [search.config, search.baseline]
        group += search.processes.measure(pair, PURPOSE, checks=False, final=True)
    return group, without


def _configs_without(search: Search) -> dict[str, RunConfig]:
    if len(search.accepted) < 2:
        return {}
    configs: dict[str, RunConfig] = {}
    for change in search.accepted:
        config = search.read_config(configuration_name(without_change(search.accepted, change)))
        if not isinstance(config, str) and config.name != search.config.name:
            configs[change] = config
    return configs


def _is_sure(search: Search, group: Sequence[ConfigRun]) -> bool:
    gain = search.verdicts.gain(search.baseline, search.config, group)
    return gain is not None and gain.outcome in ("better", "worse")


def _result(search: Search, group: Sequence[ConfigRun], without: dict[str, RunConfig]) -> SearchResult:
    gain = search.verdicts.gain(search.baseline, search.config, group) if group else None
    outcome: TuningOutcome = "nothing better"
    if search.processes.interrupted:
        outcome = "interrupted"
    elif search.accepted:
        is_better = gain is not None and gain.outcome == "better" and not _failures(search, group)
        outcome = "better" if is_better else "not confirmed"
    base = search.processes.first_runs[search.baseline.name]
    every_run = [run for runs in search.verdicts.groups for run in runs] or [base]
    limit = search.options.error_limit(base.max_relative_error)
    chosen = _final_side(search, search.config, group or every_run) if search.accepted else None
    code: tuple[CodeBlock, ...] = ()
    if outcome == "better" and chosen is not None:
        device = search.processes.device
        code = code_blocks(search.accepted, search.config, search.info, device=device, rows=chosen.samples)
    return SearchResult(
        outcome=outcome,
        baseline=_final_side(search, search.baseline, group or every_run),
        chosen=chosen,
        gain=gain,
        estimate=product([a.gain for a in search.attempts if a.outcome == "accepted" and a.gain is not None]),
        changes=search.accepted,
        contributions=tuple(_contributions(search, group, without, gain)),
        attempts=tuple(search.attempts),
        code=code,
        error_limit=limit if limit != float("inf") else None,
        notes=tuple(dict.fromkeys([*_failures(search, group), *_load_notes(search, group or every_run), *base.notes])),
    )


def _failures(search: Search, group: Sequence[ConfigRun]) -> list[str]:
    """The failures of the chosen configuration in the final measurement."""
    failures = [run.failure for run in group if run.config == search.config and run.failure is not None]
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


def _final_side(search: Search, config: RunConfig, group: Sequence[ConfigRun]) -> TuningSide:
    runs = completed(config, group)
    first = search.processes.first_runs[config.name]
    steps = [ns for run in runs for ns in run.steps_ns]
    peaks = [run.peak_allocated_bytes for run in runs if run.peak_allocated_bytes is not None]
    return TuningSide(
        config=config,
        step_ns=median_interval(steps) if steps else None,
        process_ns=tuple(run.step_ns.median for run in runs if run.step_ns is not None),
        samples=first.samples,
        peak_bytes=max(peaks, default=first.peak_allocated_bytes),
        max_relative_error=first.max_relative_error,
        gradient_l2_relative_error=first.gradient_l2_relative_error,
        repeatable=first.repeatable,
    )


def _contributions(
    search: Search, group: Sequence[ConfigRun], without: dict[str, RunConfig], total: Gain | None
) -> Iterator[Contribution]:
    for change in search.accepted:
        config = without.get(change)
        gain = search.verdicts.gain(config, search.config, group) if config is not None else None
        if config is not None and gain is not None:
            runs = completed(config, group)
            peaks = [run.peak_allocated_bytes for run in runs if run.peak_allocated_bytes is not None]
            yield Contribution(
                change=change,
                without=config.name,
                method="leave-one-out",
                gain=gain,
                without_peak_bytes=max(peaks, default=None),
            )
            continue
        attempt = next(a for a in search.attempts if a.change == change and a.outcome == "accepted")
        alone = len(search.accepted) == 1 and total is not None
        without_name = search.baseline.name if alone else attempt.base
        base = search.processes.first_runs.get(without_name)
        yield Contribution(
            change=change,
            without=without_name,
            method="leave-one-out" if alone else "incremental",
            gain=total if alone else attempt.gain,
            without_peak_bytes=base.peak_allocated_bytes if base is not None else None,
        )

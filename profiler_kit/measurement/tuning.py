"""The search of `tune`: greedy, with confirmation, and a final measurement that shares no run with the search.

A round runs each candidate, the accepted configuration with one further change, in one fresh process between processes of the
accepted configuration. The most promising candidates run again, interleaved with it, until the verdict of `statistics` is sure.
The best one that is surely better and accurate enough is accepted, and the next round starts from it. Picking the best of many
is partly luck, so the gain is measured again afterwards, in fresh processes interleaved with the baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from profiler_kit.configurations.script_lines import code_blocks
from profiler_kit.measurement.tuning_candidates import (
    are_alternatives,
    are_partners,
    configuration_name,
    is_slow_to_start,
    refinements,
    with_change,
    without_change,
)
from profiler_kit.measurement.tuning_processes import TuningProcesses
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.tuning import (
    ANY_ERROR,
    Attempt,
    AttemptOutcome,
    CodeBlock,
    Contribution,
    Gain,
    TuningOptions,
    TuningOutcome,
    TuningSide,
    error_text,
)
from profiler_kit.statistics.differences import Spread, spread_of
from profiler_kit.statistics.intervals import median_interval
from profiler_kit.statistics.noise import MIN_DEVICE_SPREAD_SHARE, Noise, fills_step
from profiler_kit.statistics.trials import MIN_USEFUL_GAIN_PERCENT
from profiler_kit.units import percent, text

MIN_USEFUL: Final = MIN_USEFUL_GAIN_PERCENT / 100
BASE_EVERY: Final = (
    5  # candidates between two processes of the accepted configuration, so that drift affects both alike
)
MAX_CONFIRMED: Final = 2  # candidates of a round that run again
MAX_PASSES: Final = 3  # further processes of such a candidate
MIN_PROCESSES: Final = 2  # of an accepted configuration: it runs again in a fresh process
RETRIED_LOSS: Final = 1.05  # a candidate that was worse than this is not tried on top of another change
FINAL_PASSES: Final = 3
HOST_FINAL_PASSES: Final = 5  # where the host decides the length of the step, processes differ more
MORE_PASSES: Final = 2  # of the final measurement, while its outcome is not sure
LEAVE_ONE_OUT_PASSES: Final = 2
MIN_TUNING_PROCESSES: Final = 10  # the baseline, a candidate, its confirmation, and the final measurement

ReadConfig = Callable[[str], "RunConfig | str"]  # the configuration of a name, or why it does not apply


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The measured parts of a `Tuning`."""

    outcome: TuningOutcome
    baseline: TuningSide
    chosen: TuningSide | None
    gain: Gain | None
    changes: tuple[str, ...]
    contributions: tuple[Contribution, ...]
    attempts: tuple[Attempt, ...]
    code: tuple[CodeBlock, ...]
    error_limit: float | None
    notes: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Search:
    """The state of a search.

    - `groups`: the runs of each round with its confirmations, and of the final measurement. Only runs of one group are compared.
    - `accepted`: the accepted changes. `config`: the configuration with all of them.
    """

    processes: TuningProcesses
    options: TuningOptions
    info: TargetInfo
    baseline: RunConfig
    read_config: ReadConfig
    config: RunConfig = field(init=False)
    accepted: tuple[str, ...] = ()
    attempts: list[Attempt] = field(default_factory=list)
    groups: list[list[ConfigRun]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = self.baseline

    def measure_baseline(self) -> ConfigRun | None:
        """The first process of the baseline; None if Ctrl-C stopped it."""
        runs = self.processes.measure([self.baseline], "baseline", final=True)
        return runs[0] if runs else None

    def run(self, changes: Sequence[str]) -> SearchResult:
        """Search `changes` and measure the result again. `measure_baseline` must have succeeded."""
        number = 0
        for is_slow in (False, True):
            candidates = [change for change in dict.fromkeys(changes) if is_slow_to_start(change) is is_slow]
            while candidates and not self.processes.interrupted:
                number += 1
                candidates = self._round(number, candidates)
        return self._result(self._measure_again())

    # The search

    def _round(self, number: int, changes: Sequence[str]) -> list[str]:
        """One round over `changes`. Returns the changes for the next one; empty if nothing was accepted."""
        configs = dict(self._configs(number, changes))
        group: list[ConfigRun] = []
        self.groups.append(group)
        reserve = 2 * FINAL_PASSES
        purpose = f"round {number}"
        if configs:
            group += self.processes.measure(
                list(_with_base(self.config, list(configs.values()))), purpose, reserve=reserve + MIN_PROCESSES
            )
        names = {run.config.name for run in group}
        for change, config in configs.items():
            if config.name not in names:
                reason = (
                    "interrupted" if self.processes.interrupted else "the time or the number of processes was used up"
                )
                self._add(number, change, config, "not tried", reason)
        measured = {change: config for change, config in configs.items() if config.name in names}
        winner = self._confirm(measured, group, purpose, reserve)
        for change, config in measured.items():
            gain = self._gain(self.config, config, group)
            outcome, reason = self._judge(config, gain, group)
            if change == winner:
                outcome, reason = "accepted", ""
            elif outcome == "better":
                reason = f"{winner} was better" if winner is not None else "not run again: the limits were reached"
            self._add(number, change, config, outcome, reason, gain)
        if winner is None:
            return []
        self.accepted = with_change(self.accepted, winner)
        self.config = measured[winner]
        return self._next_changes(number, winner)

    def _configs(self, number: int, changes: Sequence[str]) -> Iterator[tuple[str, RunConfig]]:
        """The configurations of `changes` on top of the accepted ones. Those that do not apply become attempts."""
        names = {self.config.name, self.baseline.name}
        for change in changes:
            config = self.read_config(configuration_name(with_change(self.accepted, change)))
            if isinstance(config, str):
                if all(attempt.change != change for attempt in self.attempts):
                    self.attempts.append(
                        Attempt(round=0, change=change, base="", config="", outcome="not applicable", reason=config)
                    )
            elif config.name not in names:
                names.add(config.name)
                yield change, config

    def _confirm(self, configs: dict[str, RunConfig], group: list[ConfigRun], purpose: str, reserve: int) -> str | None:
        """The change of the best candidate that is surely better; the most promising ones run again. None without any."""
        promising = sorted(
            (gain.ratio, change)
            for change, config in configs.items()
            if (gain := self._gain(self.config, config, group)) is not None
            and gain.ratio <= 1 - MIN_USEFUL
            and self._judge(config, gain, group)[0] in ("better", "same")
        )
        for _, change in promising[:MAX_CONFIRMED]:
            config = configs[change]
            for number in range(MAX_PASSES):
                if self._is_accepted(config, group):
                    break
                pair = [config, self.config] if number % 2 else [self.config, config]
                runs = self.processes.measure(pair, f"{purpose}, again", reserve=reserve)
                group += runs
                if len(runs) < len(pair) or any(run.failure is not None for run in runs):
                    break
            if self._is_accepted(config, group):
                return change
        return None

    def _is_accepted(self, config: RunConfig, group: Sequence[ConfigRun]) -> bool:
        """Whether `config` is surely better than the accepted configuration, accurate, and ran in `MIN_PROCESSES`."""
        gain = self._gain(self.config, config, group)
        if gain is None or gain.after_processes < MIN_PROCESSES:
            return False
        return self._judge(config, gain, group)[0] == "better"

    def _next_changes(self, number: int, winner: str) -> list[str]:
        """The changes for the next round, the most promising ones first."""
        ranked = []
        for attempt in self.attempts:
            if attempt.round != number or attempt.outcome in ("inaccurate", "failed"):
                continue
            if are_alternatives(attempt.change, winner):
                continue  # the winner itself, or a worse alternative to it
            ratio = attempt.gain.ratio if attempt.gain is not None else 1.0
            is_partner = are_partners(attempt.change, winner)
            is_open = attempt.outcome == "not tried" or ratio <= 1 - MIN_USEFUL
            is_retried = number == 1 and attempt.outcome == "same" and ratio < RETRIED_LOSS
            if is_partner or is_open or is_retried:
                ranked.append((ratio, attempt.change))
        earlier = {change: 1.0 for change in self._partners_of(winner) if change not in {word for _, word in ranked}}
        ranked += [(ratio, change) for change, ratio in earlier.items()]
        return [*refinements(winner), *(change for _, change in sorted(ranked))]

    def _partners_of(self, winner: str) -> Iterator[str]:
        """Changes that lost in an earlier round and may gain beside `winner`."""
        for attempt in self.attempts:
            is_measured = attempt.outcome in ("same", "worse", "better")
            if is_measured and are_partners(attempt.change, winner) and attempt.change not in self.accepted:
                yield attempt.change

    def _add(
        self,
        number: int,
        change: str,
        config: RunConfig,
        outcome: AttemptOutcome,
        reason: str,
        gain: Gain | None = None,
    ) -> None:
        run = self.processes.first_runs.get(config.name)
        self.attempts.append(
            Attempt(
                round=number,
                change=change,
                base=self.config.name,
                config=config.name,
                outcome=outcome,
                reason=reason,
                gain=gain,
                peak_bytes=run.peak_allocated_bytes if run is not None else None,
                max_relative_error=run.max_relative_error if run is not None else None,
            )
        )

    def _judge(self, config: RunConfig, gain: Gain | None, group: Sequence[ConfigRun]) -> tuple[AttemptOutcome, str]:
        """The outcome of a candidate so far, and the reason where it is not better."""
        failure = next(
            (run.failure for run in group if run.config.name == config.name and run.failure is not None), None
        )
        if failure is not None:
            return "failed", failure.message.partition("\n")[0]
        if gain is None:
            return "failed", "no samples"
        if gain.outcome == "worse":
            return "worse", f"{gain.saved} {self._figure}"
        problem = self._error_problem(config)
        if problem:
            return "inaccurate", problem
        slowdown = self._slowdown(config, group)
        if slowdown:
            return "too slow", slowdown
        if gain.outcome == "better" and gain.ratio > 1 - MIN_USEFUL:
            return "same", f"the gain is below {percent(MIN_USEFUL)}"
        return ("better", "") if gain.outcome == "better" else ("same", gain.reason)

    @property
    def _figure(self) -> str:
        return "memory" if self.options.goal == "memory" else "time"

    def _error_problem(self, config: RunConfig) -> str:
        """Why the error of `config` is not accepted; empty if it is."""
        if self.options.tolerance == ANY_ERROR:
            return ""
        base, run = (self.processes.first_runs[name] for name in (self.baseline.name, config.name))
        limit = self.options.error_limit(base.max_relative_error)
        error = run.max_relative_error
        if limit is None:
            return "the error of the baseline against float64 is unknown, so none can be accepted (--tolerance any accepts all)"
        if error is None:
            reason = next((note for note in run.notes if "float64" in note), "")
            return f"its error against float64 is unknown. {reason}".strip()
        if error > limit:
            allowed = f"the limit of {error_text(limit)} (baseline {error_text(base.max_relative_error)})"
            return f"error {error_text(error)}, above {allowed}"
        return ""

    def _slowdown(self, config: RunConfig, group: Sequence[ConfigRun]) -> str:
        """With the goal memory: by how much `config` is surely slower than allowed; empty if it is not."""
        if self.options.goal != "memory":
            return ""
        time = self._time_gain(self.config, config, group)
        accepted = self._time_gain(self.baseline, self.config, [run for runs in self.groups for run in runs])
        factor = accepted.ratio if accepted is not None and self.config != self.baseline else 1.0
        if time is None or time.low * factor <= 1 + self.options.max_slowdown:
            return ""
        return f"{percent(time.ratio * factor - 1)} more time, above the limit of {percent(self.options.max_slowdown)}"

    # Comparisons

    def _gain(self, before: RunConfig, after: RunConfig, group: Sequence[ConfigRun]) -> Gain | None:
        if self.options.goal == "memory":
            return _memory_gain(_completed(before, group), _completed(after, group))
        return self._time_gain(before, after, group)

    def _time_gain(self, before: RunConfig, after: RunConfig, group: Sequence[ConfigRun]) -> Gain | None:
        sides = self._side(before, group), self._side(after, group)
        if sides[0] is None or sides[1] is None:
            return None
        difference = Noise(spread=self._spread()).difference(sides[0], sides[1])
        if difference is None:
            return None
        return Gain(
            ratio=difference.ratio,
            low=difference.low,
            high=difference.high,
            limit=difference.limit,
            outcome=difference.outcome,
            reason=difference.reason,
            before_processes=difference.processes[0],
            after_processes=difference.processes[1],
        )

    def _side(self, config: RunConfig, group: Sequence[ConfigRun]) -> ConfigRun | None:
        """The processes of `config` in `group` as one run with repeats, with the kernels of its first process."""
        runs = _completed(config, group)
        if not runs:
            return None
        repeats = tuple(Repeat(step_ns=run.step_ns) for run in runs[1:])
        first = self.processes.first_runs[config.name]
        return replace(first, step_ns=runs[0].step_ns, samples=runs[0].samples, repeat=None, further_repeats=repeats)

    def _spread(self) -> Spread:
        """The spread between processes of all configurations without benchmark, each within its group."""
        total = Spread()
        for group in self.groups:
            for config in dict.fromkeys(run.config for run in group):
                if not config.benchmark:
                    total += spread_of([run.step_ns for run in _completed(config, group) if run.step_ns is not None])
        return total

    # The final measurement

    @property
    def _final_passes(self) -> int:
        """The passes of the final measurement: more where the host decides, if there is room."""
        is_device_bound = fills_step(self.processes.first_runs[self.baseline.name], MIN_DEVICE_SPREAD_SHARE)
        if is_device_bound or self.options.goal == "memory" or not self.processes.has_room(2 * HOST_FINAL_PASSES):
            return FINAL_PASSES
        return HOST_FINAL_PASSES

    def _measure_again(self) -> tuple[list[ConfigRun], dict[str, RunConfig]]:
        """Fresh processes of the baseline and the chosen configuration, interleaved, and of it without each change.

        Returns the runs, and the configurations without one change by that change.
        """
        group: list[ConfigRun] = []
        if not self.accepted or self.processes.interrupted:
            return group, {}
        self.groups.append(group)
        without = self._configs_without()
        passes = self._final_passes
        if not self.processes.has_room(2 * passes + LEAVE_ONE_OUT_PASSES * len(without)):
            without = {}
        for number in range(passes + MORE_PASSES):
            if number >= passes and (self._is_sure(group) or not self.processes.has_room(2)):
                break
            middle = list(without.values()) if number < LEAVE_ONE_OUT_PASSES else []
            order = [self.baseline, *middle, self.config]
            runs = self.processes.measure(
                order[::-1] if number % 2 else order, "final measurement", checks=False, final=True
            )
            group += runs
            if self.processes.interrupted or len(runs) < len(order):
                break
        return group, without

    def _configs_without(self) -> dict[str, RunConfig]:
        if len(self.accepted) < 2:
            return {}
        configs: dict[str, RunConfig] = {}
        for change in self.accepted:
            config = self.read_config(configuration_name(without_change(self.accepted, change)))
            if not isinstance(config, str) and config.name != self.config.name:
                configs[change] = config
        return configs

    def _is_sure(self, group: Sequence[ConfigRun]) -> bool:
        gain = self._gain(self.baseline, self.config, group)
        return gain is not None and gain.outcome in ("better", "worse")

    def _result(self, measured: tuple[list[ConfigRun], dict[str, RunConfig]]) -> SearchResult:
        group, without = measured
        gain = self._gain(self.baseline, self.config, group) if group else None
        outcome: TuningOutcome = "nothing better"
        if self.processes.interrupted:
            outcome = "interrupted"
        elif self.accepted:
            outcome = "better" if gain is not None and gain.outcome == "better" else "not confirmed"
        base = self.processes.first_runs[self.baseline.name]
        every_run = [run for runs in self.groups for run in runs] or [base]
        limit = self.options.error_limit(base.max_relative_error)
        chosen = self._final_side(self.config, group or every_run) if self.accepted else None
        code: tuple[CodeBlock, ...] = ()
        if outcome == "better" and chosen is not None:
            device = self.processes.device
            code = code_blocks(self.accepted, self.config, self.info, device=device, rows=chosen.samples)
        return SearchResult(
            outcome=outcome,
            baseline=self._final_side(self.baseline, group or every_run),
            chosen=chosen,
            gain=gain,
            changes=self.accepted,
            contributions=tuple(self._contributions(group, without, gain)),
            attempts=tuple(self.attempts),
            code=code,
            error_limit=limit if limit != float("inf") else None,
            notes=tuple(dict.fromkeys([*self.notes, *base.notes])),
        )

    def _final_side(self, config: RunConfig, group: Sequence[ConfigRun]) -> TuningSide:
        runs = _completed(config, group)
        first = self.processes.first_runs[config.name]
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
        self, group: Sequence[ConfigRun], without: dict[str, RunConfig], total: Gain | None
    ) -> Iterator[Contribution]:
        for change in self.accepted:
            config = without.get(change)
            gain = self._gain(config, self.config, group) if config is not None else None
            if config is not None and gain is not None:
                runs = _completed(config, group)
                peaks = [run.peak_allocated_bytes for run in runs if run.peak_allocated_bytes is not None]
                yield Contribution(
                    change=change,
                    without=config.name,
                    method="leave-one-out",
                    gain=gain,
                    without_peak_bytes=max(peaks, default=None),
                )
                continue
            attempt = next(a for a in self.attempts if a.change == change and a.outcome == "accepted")
            alone = len(self.accepted) == 1 and total is not None
            without_name = self.baseline.name if alone else attempt.base
            base = self.processes.first_runs.get(without_name)
            yield Contribution(
                change=change,
                without=without_name,
                method="leave-one-out" if alone else "incremental",
                gain=total if alone else attempt.gain,
                without_peak_bytes=base.peak_allocated_bytes if base is not None else None,
            )


def _with_base(base: RunConfig, candidates: Sequence[RunConfig]) -> Iterator[RunConfig]:
    """`candidates` between processes of `base`."""
    for start in range(0, len(candidates), BASE_EVERY):
        yield base
        yield from candidates[start : start + BASE_EVERY]
    yield base


def _completed(config: RunConfig, runs: Sequence[ConfigRun]) -> list[ConfigRun]:
    return [run for run in runs if run.config == config and run.failure is None and run.step_ns is not None]


def _memory_gain(before: Sequence[ConfigRun], after: Sequence[ConfigRun]) -> Gain | None:
    """The peak of `after` compared with that of `before`, by the worst process of each. Peaks hardly vary between processes."""
    sides = [[run.peak_allocated_bytes for run in runs if run.peak_allocated_bytes] for runs in (before, after)]
    if not all(sides):
        return None
    old, new = sides
    ratio, low, high = max(new) / max(old), min(new) / max(old), max(new) / min(old)
    reason = "" if high < 1 - MIN_USEFUL or low > 1 else f"{text(max(old), 'bytes')} -> {text(max(new), 'bytes')}"
    return Gain(
        ratio=ratio,
        low=min(low, ratio),
        high=max(high, ratio),
        limit=MIN_USEFUL,
        outcome="better" if high < 1 - MIN_USEFUL else "worse" if low > 1 else "same",
        reason=reason,
        before_processes=len(old),
        after_processes=len(new),
    )

"""The search of `tune`: greedy, with confirmation.

A round runs each candidate, the accepted configuration with one further change, in one fresh process between processes of the
accepted configuration. The most promising candidates run again, interleaved with it, until the verdict of `statistics` is sure.
The best one that is surely better and accurate enough is accepted, and the next rounds start from it: first with single changes
that were surely better before, then with all others. Picking the best of many is partly luck, so `tuning_result` measures the
gain again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from profiler_kit.measurement.tuning_candidates import (
    are_alternatives,
    are_partners,
    configuration_name,
    is_slow_to_start,
    refinements,
    with_change,
)
from profiler_kit.measurement.tuning_processes import TuningProcesses
from profiler_kit.measurement.tuning_verdicts import MIN_USEFUL, Verdicts
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.tuning import Attempt, AttemptOutcome, Gain, TuningOptions

BASE_EVERY: Final = 5  # candidates between two processes of the accepted one, so that drift affects both alike
MAX_ROUNDS: Final = 50
MAX_CONFIRMED: Final = 2  # candidates of a round that run again
MAX_PASSES: Final = 3  # further processes of such a candidate, or rounds of processes that take turns
MAX_IN_TURNS: Final = 4  # candidates of a round that run again in turns, with so many processes each
TURN_COPIES: Final = 3
MIN_PROCESSES: Final = 2  # of an accepted configuration: it runs again in a fresh process
RETRIED_LOSS: Final = 1.05  # a candidate that was worse than this is not tried on top of another change
FINAL_PASSES: Final = 3  # of the final measurement, for which processes are reserved
MIN_TUNING_PROCESSES: Final = 12  # the baseline, a candidate, its confirmation, and the final measurement

ReadConfig = Callable[[str], "RunConfig | str"]  # the configuration of a name, or why it does not apply


@dataclass(slots=True, kw_only=True)
class Search:
    """The state of a search.

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
    verdicts: Verdicts = field(init=False)

    def __post_init__(self) -> None:
        self.config = self.baseline
        self.verdicts = Verdicts(options=self.options, baseline=self.baseline, first_runs=self.processes.first_runs)

    def measure_baseline(self) -> ConfigRun | None:
        """The first process of the baseline; None if Ctrl-C stopped it."""
        runs = self.processes.measure([self.baseline], "baseline", final=True)
        return runs[0] if runs else None

    def run(self, changes: Sequence[str]) -> None:
        """Search `changes`. `measure_baseline` must have succeeded."""
        number = 0
        for is_slow in (False, True):
            candidates = [change for change in dict.fromkeys(changes) if is_slow_to_start(change) is is_slow]
            while candidates and number < MAX_ROUNDS and not self.processes.interrupted:
                number += 1
                candidates = self._round(number, candidates)

    def _round(self, number: int, changes: Sequence[str]) -> list[str]:
        """One round over `changes`. Returns the changes for the next one."""
        changes, later, is_likely = self._due(changes)
        configs = dict(self._configs(number, changes))
        group: list[ConfigRun] = []
        self.verdicts.groups.append(group)
        reserve = 2 * FINAL_PASSES
        purpose = f"round {number}"
        if configs:
            candidates = list(configs.values())
            confirmations = MIN_PROCESSES
            if is_likely and not self.takes_turns:
                candidates, confirmations = candidates * MIN_PROCESSES, 0
            order = list(_with_base(self.config, candidates))
            group += self.processes.measure(order, purpose, reserve=reserve + confirmations)
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
            gain = self.verdicts.gain(self.config, config, group)
            outcome, reason = self.verdicts.judge(self.config, config, gain, group)
            if change == winner:
                outcome, reason = "accepted", ""
            elif outcome == "better":
                reason = f"{winner} was better" if winner is not None else "not run again: the limits were reached"
            self._add(number, change, config, outcome, reason, gain)
        if winner is None:
            return later
        self.accepted = with_change(self.accepted, winner)
        self.config = measured[winner]
        return list(dict.fromkeys([*self._next_changes(number, winner), *later]))

    def _due(self, changes: Sequence[str]) -> tuple[list[str], list[str], bool]:
        """The changes of the next round, those of later rounds, and whether the next round has a single, likely one.

        A change that was surely better in an earlier round runs alone: it is likely to be accepted, and the others then start
        from it.
        """
        last = {attempt.change: attempt.outcome for attempt in self.attempts}
        likely = next((change for change in changes if last.get(change) == "better"), None)
        if likely is None:
            return list(changes), [], False
        return [likely], [change for change in changes if change != likely], True

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

    @property
    def takes_turns(self) -> bool:
        """Whether processes that are compared take turns. Peaks of memory need none."""
        return self.options.goal != "memory" and self.processes.takes_turns()

    def _confirm(self, configs: dict[str, RunConfig], group: list[ConfigRun], purpose: str, reserve: int) -> str | None:
        """The change of the best candidate that is surely better; the most promising ones run again. None without any."""
        purpose = f"{purpose}, again"
        if self.takes_turns:
            runs = self._in_turns(self._promising(configs, group, highest="low"), purpose, reserve)
            if runs is not None:
                return self._best_in_turns(configs, group, purpose, reserve, runs)
        for change, config in self._promising(configs, group)[:MAX_CONFIRMED]:
            for number in range(MAX_PASSES):
                if self._is_accepted(config, group):
                    break
                pair = [config, self.config] if number % 2 else [self.config, config]
                runs = self.processes.measure(pair, purpose, reserve=reserve)
                group += runs
                if len(runs) < len(pair) or any(run.failure is not None for run in runs):
                    break
            if self._is_accepted(config, group):
                return change
        return None

    def _best_in_turns(
        self, configs: dict[str, RunConfig], group: list[ConfigRun], purpose: str, reserve: int, runs: list[ConfigRun]
    ) -> str | None:
        """The change of the best candidate that is surely better after `runs`, the first round; more rounds follow if none is."""
        for number in range(MAX_PASSES):
            group += runs
            promising = self._promising(configs, group)
            accepted = [change for change, config in promising if self._is_accepted(config, group)]
            if accepted:
                return accepted[0]
            more = self._in_turns(promising, purpose, reserve) if number < MAX_PASSES - 1 else None
            if more is None:
                break
            runs = more
        return None

    def _in_turns(
        self, promising: Sequence[tuple[str, RunConfig]], purpose: str, reserve: int
    ) -> list[ConfigRun] | None:
        """A round of the accepted configuration and the best candidates; None if it is not possible or needed."""
        due = [config for _, config in promising[:MAX_IN_TURNS]]
        return self.processes.measure_in_turns([self.config, *due], purpose, copies=TURN_COPIES, reserve=reserve)

    def _promising(
        self, configs: dict[str, RunConfig], group: Sequence[ConfigRun], highest: Literal["ratio", "low"] = "ratio"
    ) -> list[tuple[str, RunConfig]]:
        """The candidates that seem to be better by a useful gain, the best ones first; with `low`, those that may be better.

        A single process of a step that waits for the host says little about a change.
        """
        ranked = []
        for change, config in configs.items():
            gain = self.verdicts.gain(self.config, config, group)
            if gain is None or (gain.low if highest == "low" else gain.ratio) > 1 - MIN_USEFUL:
                continue
            if self.verdicts.judge(self.config, config, gain, group)[0] in ("better", "same"):
                ranked.append((gain.ratio, change))
        return [(change, configs[change]) for _, change in sorted(ranked)]

    def _is_accepted(self, config: RunConfig, group: Sequence[ConfigRun]) -> bool:
        """Whether `config` is surely better than the accepted configuration, accurate, and ran in `MIN_PROCESSES`."""
        gain = self.verdicts.gain(self.config, config, group)
        if gain is None or gain.after_processes < MIN_PROCESSES:
            return False
        return self.verdicts.judge(self.config, config, gain, group)[0] == "better"

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


def _with_base(base: RunConfig, candidates: Sequence[RunConfig]) -> Iterator[RunConfig]:
    """`candidates` between processes of `base`, two of them early: a round may end for lack of time."""
    yield base
    yield from candidates[:1]
    for start in range(1, len(candidates), BASE_EVERY):
        yield base
        yield from candidates[start : start + BASE_EVERY]
    yield base

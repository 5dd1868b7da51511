"""The search of `tune`: one change after the other on top of the accepted ones, and two answers.

Most changes are compared in one process, whose steps with and without the change take turns (`screening`). A change that is
surely better and accurate enough is accepted, and the next one is tried on top of it. Changes that need a process of their own,
such as torch.compile, follow in fresh processes. The search has two tracks: the changes that keep the precision make the first
answer, and those that reduce it, on top of the first, the second. Picking the best of many is partly luck, so `tuning_result`
measures both answers again, in fresh processes.

The changes that are usually used together are tried at once first. If that is surely better, it is compared with the same without
each of them, and those that do not contribute are dropped: most of the gain is found early, and what only helps beside another
change is found at all. Before that, the most promising change with less precision is tried on top of them, so that a search that
runs out of time has both answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from profiler_kit.measurement.tuning_candidates import (
    are_alternatives,
    are_partners,
    configuration_name,
    is_slow_to_start,
    negligible,
    reduces_precision,
    refinements,
    runs_fresh,
    used_together,
    with_changes,
    without_change,
)
from profiler_kit.measurement.tuning_processes import TuningProcesses
from profiler_kit.measurement.tuning_verdicts import MIN_USEFUL, Verdicts, screened_gain
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.tuning import Attempt, AttemptOutcome, TuningOptions

MAX_COMPARISONS: Final = 60
FEWEST_TOGETHER: Final = 3  # changes that are tried at once; fewer are compared one by one in the same time
MAX_PASSES: Final = 3  # further processes of a change that needs its own, or rounds of processes that take turns
TURN_COPIES: Final = 2
MIN_PROCESSES: Final = 2  # of such a change, if it is accepted
LONGER: Final = 3  # the time of a second comparison, where the first saw a useful gain and was not sure
HOPELESS_LOSS: Final = 1.05  # a change whose first process was worse than this does not run again
FINAL_PASSES: Final = 2  # of the final measurement, for which processes are reserved
MIN_TUNING_PROCESSES: Final = 8  # the baseline, the screen, and the final measurement
NO_TIME: Final = "the time or the number of processes was used up"
UNCONFIRMED: Final = "its first step is too long to measure it again in fresh processes within the time"

ReadConfig = Callable[[str], "RunConfig | str"]  # the configuration of a name, or why it does not apply


@dataclass(slots=True, kw_only=True)
class Track:
    """The accepted changes of one answer, their configuration, and their gains over each other.

    `reduced`: whether changes that reduce the precision belong to it.
    """

    config: RunConfig
    reduced: bool
    accepted: tuple[str, ...] = ()
    gains: dict[str, Difference] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """The goal's figure over that of the baseline, as the search saw it."""
        ratio = 1.0
        for gain in self.gains.values():
            ratio *= gain.ratio
        return ratio


@dataclass(slots=True, kw_only=True)
class Search:
    """The state of a search.

    - `same`, `reduced`: the answers with the precision of the baseline, and with less.
    - `expected`: the share of the step that a change may save, by its name, as the diagnosis expects.
    - `can_screen`: whether the target can be built several times in one process.
    - `alone`: the gains of configurations over the same without one of their changes, by the names of the latter and the former.
    """

    processes: TuningProcesses
    options: TuningOptions
    info: TargetInfo
    baseline: RunConfig
    read_config: ReadConfig
    expected: Mapping[str, float] = field(default_factory=dict)
    can_screen: bool = True
    attempts: list[Attempt] = field(default_factory=list)
    same: Track = field(init=False)
    reduced: Track = field(init=False)
    verdicts: Verdicts = field(init=False)
    alone: dict[tuple[str, str], Difference] = field(default_factory=dict)
    _later: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.same = Track(config=self.baseline, reduced=False)
        self.reduced = replace(self.same, reduced=True, gains={})
        self.processes.answers = lambda: [track.config for track in self.answers]
        self.verdicts = Verdicts(
            options=self.options,
            baseline=self.baseline,
            first_runs=self.processes.first_runs,
            screened=self.processes.screened,
        )

    def measure_baseline(self) -> ConfigRun | None:
        """The first process of the baseline; None if Ctrl-C stopped it."""
        runs = self.processes.measure([self.baseline], "baseline", final=True)
        return runs[0] if runs else None

    def run(self, changes: Sequence[str]) -> None:
        """Search `changes`. `measure_baseline` must have succeeded."""
        ordered = sorted(dict.fromkeys(changes), key=lambda change: -self.expected.get(change, 0.0))
        self._later = [change for change in ordered if self._runs_fresh(change)]
        quick = [change for change in ordered if change not in self._later]
        self._know_error()
        exact, reduced = _exact(quick), _reduced(quick)
        together = self._try_together(self.same, exact)
        if together:
            self._branch(reduced[:1])
            self._drop_useless(self.same)
            exact = [change for change in exact if change not in together]
            for change in self.same.accepted:
                self._follow(change, self.same, exact)
        self._try_all(self.same, exact)
        self._bring_up_to_date()
        self._branch(reduced)
        later = _exact(self._later)
        for track in (self.reduced, self.same) if self.has_reduced else (self.same,):
            self._try_all(track, later)
            later = [change for change in later if change in track.accepted]
        self._branch(_reduced(self._later))

    @property
    def has_reduced(self) -> bool:
        """Whether the second answer is another one than the first."""
        return any(map(reduces_precision, self.reduced.accepted))

    @property
    def answers(self) -> tuple[Track, ...]:
        """The answers with accepted changes."""
        return (*([self.same] if self.same.accepted else []), *([self.reduced] if self.has_reduced else []))

    def _branch(self, changes: Sequence[str]) -> None:
        """Try `changes`, which reduce the precision, on the second answer. It starts as the first one."""
        if not self.has_reduced:
            self.reduced = replace(self.same, reduced=True, gains=dict(self.same.gains))
        self._try_all(self.reduced, changes)

    def _runs_fresh(self, change: str) -> bool:
        return not self.can_screen or self.options.goal == "memory" or runs_fresh(change)

    def _know_error(self) -> None:
        """Measure the baseline's error if its first process had no time for it."""
        base = self.processes.first_runs[self.baseline.name]
        if base.max_relative_error is None and not base.error_note and self.can_screen:
            self.processes.compare(None, self.baseline)

    def _bring_up_to_date(self) -> None:
        """Let the second answer have what the first one gained or dropped since, unless that makes it worse."""
        words = [change for change in self.reduced.accepted if reduces_precision(change)]
        accepted = with_changes(self.same.accepted, words)
        config = self.read_config(configuration_name(accepted))
        is_new = isinstance(config, RunConfig) and config != self.reduced.config
        if (
            not words
            or not is_new
            or any(map(self._runs_fresh, accepted))
            or not self._has_room(self.reduced, words[0])
        ):
            return
        assert isinstance(config, RunConfig)
        gain, _, _ = self._compare(self.reduced.config, config, accepted, self._reserve(self.reduced))
        gains = {**self.same.gains, **{word: self.reduced.gains[word] for word in words}}
        track = replace(self.reduced, accepted=accepted, config=config, gains=gains)
        if gain is not None and gain.outcome != "worse" and self._is_accurate(track):
            self.reduced = track

    def _try_together(self, track: Track, changes: Sequence[str]) -> list[str]:
        """Try those of `changes` at once that are usually used together; returns them if they are accepted."""
        words: list[str] = []
        for change in used_together(changes):
            is_free = all(not are_alternatives(change, word) for word in words)
            if is_free and self._config_of(track, [change]) is not None:
                words.append(change)
        return words if len(words) >= FEWEST_TOGETHER and self._try(track, *words) else []

    def _drop_useless(self, track: Track) -> None:
        """Drop each accepted change, the least promising first, unless it is surely better than the same without it."""
        before = replace(track)
        for change in before.accepted[::-1]:
            if len(track.accepted) > 1 and self._has_room(track, change):
                self._drop_if_useless(track, change)
        if track.config != before.config and not self._is_accurate(track):
            track.accepted, track.config, track.gains = before.accepted, before.config, before.gains

    def _drop_if_useless(self, track: Track, change: str) -> None:
        config, rest = track.config, without_change(track.accepted, change)
        base = self.read_config(configuration_name(rest))
        assert isinstance(base, RunConfig)  # all of its changes apply
        gain, run, group = self._compare(base, config, [change], self._reserve(track))
        if run is None or gain is None:
            return
        outcome, reason = self.verdicts.judge(base, config, gain, group or [run], reduced=track.reduced)
        if outcome == "better":
            self.alone[base.name, config.name] = gain
            outcome = "accepted"
        else:
            track.accepted, track.config = rest, base
            track.gains = {**track.gains, change: _inverse(gain)}
        self._add(change, base, config, outcome, reason, gain)

    def _is_accurate(self, track: Track) -> bool:
        """Whether the configuration of `track`, which was not checked yet, is accurate enough."""
        self.processes.compare(None, track.config)
        return not self.verdicts.error_problem(track.config, track.reduced)

    def _try_all(self, track: Track, changes: Sequence[str]) -> None:
        """Try `changes` on `track`; after each accepted one also its refinements, and what lost before and may gain beside it."""
        queue = list(changes)
        while queue and len(self.attempts) < MAX_COMPARISONS:
            change = queue.pop(0)
            if self._try(track, change):
                self._follow(change, track, queue)

    def _follow(self, change: str, track: Track, queue: list[str]) -> None:
        """Add to `queue` what to try because `change` was accepted."""
        new = [word for word in refinements(change) if word not in queue]
        is_fresh = self._runs_fresh(change)
        self._later += [word for word in new if self._runs_fresh(word) and not is_fresh]
        queue[:0] = [word for word in new if self._runs_fresh(word) == is_fresh]
        queue += [word for word in self._partners_of(change, track) if word not in queue]

    def _try(self, track: Track, *changes: str) -> bool:
        """Whether `changes` are accepted on top of `track`, which they then belong to."""
        config, change, base = self._config_of(track, changes), configuration_name(changes), track.config
        if config is None:
            return False
        if self.processes.interrupted or not self._has_room(track, change):
            self._add(change, base, config, "not tried", "interrupted" if self.processes.interrupted else NO_TIME)
            return False
        gain, run, group = self._compare(base, config, changes, self._reserve(track))
        if run is None:
            self._add(change, base, config, "not tried", "interrupted" if self.processes.interrupted else NO_TIME)
            return False
        outcome, reason = self.verdicts.judge(base, config, gain, group or [run], reduced=track.reduced)
        if outcome == "better" and (not group or (gain is not None and gain.after_processes >= MIN_PROCESSES)):
            answers = [config, *(answer.config for answer in self.answers if answer is not track)]
            if self.processes.has_room_to_confirm(answers, reserve=self._reserve(track)):
                outcome = "accepted"
            else:
                reason = f"{gain.saved_text}; {UNCONFIRMED}" if gain is not None else UNCONFIRMED
        self._add(change, base, config, outcome, reason, gain, track.ratio)
        if outcome != "accepted":
            return False
        assert gain is not None
        replaced = [word for word in track.accepted if any(are_alternatives(new, word) for new in changes)]
        kept = {word: value for word, value in track.gains.items() if word not in replaced}
        # a change that replaces another one was compared with it
        lost = [track.gains[word] for word in replaced if word in track.gains]
        track.gains = {**kept, change: _after(lost, gain)}
        track.accepted = with_changes(track.accepted, changes)
        track.config = config
        self.processes.on_progress(f"so far: {config.name}, {gain.saved_text} with {change}")
        return True

    def _config_of(self, track: Track, changes: Sequence[str]) -> RunConfig | None:
        """The configuration of `changes` on top of `track`; None if it was tried, or does not apply, which becomes an attempt."""
        config = self.read_config(configuration_name(with_changes(track.accepted, changes)))
        change = configuration_name(changes)
        if isinstance(config, str):
            reason: str | None = config
        elif config.name in (track.config.name, self.baseline.name):
            reason = "no effect here"
        else:
            base = self.processes.first_runs[self.baseline.name]
            reason = negligible(change, base) if not self.options.changes and len(changes) == 1 else None
        if reason is None:
            assert isinstance(config, RunConfig)
            tried = any(a.config == config.name and a.base == track.config.name and a.round for a in self.attempts)
            return None if tried else config
        if all(attempt.change != change for attempt in self.attempts):
            attempt = Attempt(round=0, change=change, base="", config="", outcome="not applicable", reason=reason)
            self.attempts.append(attempt)
        return None

    def _reserve(self, track: Track) -> int:
        """The processes that must remain for the final measurement of all answers, with one of `track`."""
        has_two = self.has_reduced or (track.reduced and bool(self.same.accepted))
        return (2 + has_two) * FINAL_PASSES

    def _has_room(self, track: Track, change: str) -> bool:
        """Whether the limits allow to try `change`, and to measure the answers with it afterwards."""
        reserve = self._reserve(track)
        if self._runs_fresh(change):
            is_slow = is_slow_to_start(change)
            return self.processes.has_room(MIN_PROCESSES, reserve=reserve, starts_slowly=is_slow)
        return self.processes.has_room_to_compare(reserve=reserve)

    def _compare(
        self, base: RunConfig, config: RunConfig, changes: Sequence[str], reserve: int
    ) -> tuple[Difference | None, ConfigRun | None, list[ConfigRun]]:
        """The gain of `config` over `base`, the run of `config`, and the fresh processes behind it, if any.

        What fails beside another model may work alone. Several changes at once are not worth processes of their own.
        """
        if not any(map(self._runs_fresh, changes)):
            answer = self.processes.compare(base, config)
            has_room = self.processes.has_room_to_compare(reserve=reserve, budgets=LONGER)
            if answer is not None and has_room and _is_open(screened_gain(answer)):
                answer = self.processes.compare(base, config, budgets=LONGER)
            failure = answer.run.failure if answer is not None else None
            if answer is None or failure is None or failure.kind == "target" or len(changes) > 1:
                return (screened_gain(answer) if answer else None), (answer.run if answer else None), []
        group = self._fresh_processes(base, config, configuration_name(changes), reserve)
        run = next((run for run in group if run.config == config), None)
        return self.verdicts.gain(base, config, group), run, group

    def _fresh_processes(self, base: RunConfig, config: RunConfig, purpose: str, reserve: int) -> list[ConfigRun]:
        """Fresh processes of both configurations, until the difference is sure or hopeless."""
        group: list[ConfigRun] = []
        self.verdicts.groups.append(group)
        group += self.processes.measure([base, config], purpose, reserve=reserve)
        for number in range(MAX_PASSES):
            gain = self.verdicts.gain(base, config, group)
            if gain is None or gain.ratio > HOPELESS_LOSS or any(run.failure is not None for run in group):
                break
            if gain.after_processes >= MIN_PROCESSES and gain.outcome in ("better", "worse"):
                break
            more = None
            if self.takes_turns:
                turns = self.processes.measure_in_turns
                more = turns([base, config], purpose, copies=TURN_COPIES, reserve=reserve)
            if more is None:
                pair = [base, config] if number % 2 else [config, base]
                more = self.processes.measure(pair, purpose, reserve=reserve)
            if not more:
                break
            group += more
        return group

    @property
    def takes_turns(self) -> bool:
        """Whether processes that are compared take turns. Peaks of memory need none."""
        return self.options.goal != "memory" and self.processes.takes_turns()

    def _partners_of(self, winner: str, track: Track) -> Iterator[str]:
        """Changes that were not accepted and may gain beside `winner`, each once."""
        for change in dict.fromkeys(attempt.change for attempt in self.attempts):
            is_measured = any(a.change == change and a.outcome in ("same", "worse", "better") for a in self.attempts)
            if is_measured and are_partners(change, winner) and change not in track.accepted:
                yield change

    def _add(
        self,
        change: str,
        base: RunConfig,
        config: RunConfig,
        outcome: AttemptOutcome,
        reason: str,
        gain: Difference | None = None,
        base_ratio: float | None = None,
    ) -> None:
        run = self.verdicts.checked_run(config)
        self.attempts.append(
            Attempt(
                round=1 + max((attempt.round for attempt in self.attempts), default=0),
                change=change,
                base=base.name,
                config=config.name,
                outcome=outcome,
                reason=reason if outcome != "accepted" else "",
                gain=gain,
                ratio=base_ratio * gain.ratio if gain is not None and base_ratio is not None else None,
                expected=self.expected.get(change),
                reduced=reduces_precision(change),
                peak_bytes=run.peak_allocated_bytes if run is not None else None,
                max_relative_error=run.max_relative_error if run is not None else None,
            )
        )


def _is_open(gain: Difference | None) -> bool:
    """Whether a gain is useful and not sure."""
    return gain is not None and gain.outcome == "same" and gain.ratio <= 1 - MIN_USEFUL


def _inverse(gain: Difference) -> Difference:
    """The gain of the side before over the side after."""
    return replace(gain, ratio=1 / gain.ratio, low=1 / gain.high, high=1 / gain.low)


def _exact(changes: Sequence[str]) -> list[str]:
    return [change for change in changes if not reduces_precision(change)]


def _reduced(changes: Sequence[str]) -> list[str]:
    return [change for change in changes if reduces_precision(change)]


def _after(lost: Sequence[Difference], gain: Difference) -> Difference:
    """`gain` over the configuration without the changes of `lost`, which it replaces."""
    for earlier in lost:
        gain = replace(
            gain, ratio=gain.ratio * earlier.ratio, low=gain.low * earlier.low, high=gain.high * earlier.high
        )
    return gain

"""A device in place of processes: every configuration has a time, a peak and an error, and processes differ by noise.

Processes that take turns share the noise of their round, and differ by less. The turns of one process share the process's noise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from traced_runs import with_traced

from profiler_kit.configurations.naming import parse_config
from profiler_kit.measurement import sweep
from profiler_kit.measurement.tuning import Search
from profiler_kit.measurement.tuning_processes import TuningProcesses
from profiler_kit.measurement.tuning_result import measure_result
from profiler_kit.measurement.visits import Round, Visit, as_round
from profiler_kit.records.configs import Environment, RunConfig
from profiler_kit.records.jobs import Screened
from profiler_kit.records.progress import ignore_processes
from profiler_kit.records.report import Tool
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.samples import Interval
from profiler_kit.records.target import InputInfo, TargetInfo, TargetSpec
from profiler_kit.records.traces import TraceModule
from profiler_kit.records.tuning import Tuning, TuningOptions

PLAIN = RunConfig(name="default", enabled=True, benchmark=False, deterministic=False, allow_tf32=True)
INFO = TargetInfo(
    spec="net.py",
    name="Net",
    inputs=(InputInfo(name="x", shape=(8, 3, 32, 32), dtype="float32"),),
    mode="train",
    loss="cross_entropy",
    optimizer="AdamW",
)


@dataclass(kw_only=True)
class SimulatedDevice:
    """Times, peaks and errors of configurations, from the factor of each word of their names.

    - `times`, `peaks`: factors by word, or by a pair ``a+b`` of words that both occur. `errors`: the error of each word.
    - `first_steps_s`: by how much the first step with a word is longer.
    - `failures`: the message of each word that fails. `noise`: the relative deviation between processes. `turn_noise`: the same
      between those that take turns in one round.
    - `memory_bytes`: of the device, which limits how many processes exist at the same time.
    - `device_share`: the share of the step that kernels take. `has_traces`: the first processes write one.
    - `interrupt_at`: the process that Ctrl-C stops, from 1. `interrupt_comparison`: the comparison that it stops, from 1.
    - `pair_noise`: the relative deviation between turns of one process. `broken`: words that fail beside another model only.
    """

    times: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    first_steps_s: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    noise: float = 0.003
    turn_noise: float = 0.003
    memory_bytes: int = 80 * 10**9
    device_share: float = 0.98
    interrupt_at: int | None = None
    interrupt_comparison: int | None = None
    pair_noise: float = 0.004
    broken: frozenset[str] = frozenset()
    lucky: str | None = None  # this word looks better in the process that compares configurations only
    has_traces: bool = True
    step_ns: int = 10_000_000
    clock_s: float = 0.0  # of the simulated machine: a first process takes 7 s, a checked one 4 s, others 2.5 s
    started: list[str] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    compared: list[tuple[str, str]] = field(default_factory=list)
    ready_s: float = 0.0
    is_running: bool = False  # whether the process that compares configurations exists
    _level: float = 1.0  # how slow the host is during the current round
    generator: random.Random = field(default_factory=lambda: random.Random(1))

    def _factor(self, factors: dict[str, float], words: set[str]) -> float:
        product = 1.0
        for key, factor in factors.items():
            if set(key.split("+")) <= words:
                product *= factor
        return product

    def close(self) -> None:
        """End the process that compares configurations."""
        self.is_running = False

    def compare(self, base: RunConfig | None, config: RunConfig, *, budget_s: float, checks: bool = True) -> Screened:
        """Both in turns of one process, as `Screen.compare`."""
        self.is_running = True
        self.compared.append((base.name if base is not None else "", config.name))
        if len(self.compared) == self.interrupt_comparison:
            raise KeyboardInterrupt
        words = set(config.name.split("+"))
        self.clock_s += 1.0 + self._first_step_s(words)
        if self.broken & words:
            return Screened(run=ConfigRun(config=config, failure=Failure(kind="error", message="not beside another")))
        run = self.run(Visit(config=config, budget_s=budget_s))
        if run.failure is not None:
            return Screened(run=replace(run, failure=replace(run.failure, kind="target")))
        level = 0.8 if self.lucky in words else 1.0
        sides = [
            tuple(round(exact * (1 + self.generator.gauss(0, self.pair_noise))) for _ in range(12))
            for exact in (self._exact_ns(base or config), level * self._exact_ns(config))
        ]
        before = self.run(Visit(config=base or config, budget_s=budget_s))
        return Screened(run=run, before_ns=sides[0], after_ns=sides[1], before_samples=before.samples)

    def _first_step_s(self, words: set[str]) -> float:
        return sum(self.first_steps_s.get(word, 0.0) for word in words)

    def _exact_ns(self, config: RunConfig) -> float:
        return self.step_ns * self._factor(self.times, set(config.name.split("+")))

    def run(self, visit: Visit) -> ConfigRun:
        config = visit.config
        words = set(config.name.split("+"))
        failure = next((message for word, message in self.failures.items() if word in words), None)
        if failure is not None:
            return ConfigRun(config=config, failure=Failure(kind="error", message=failure))
        exact_ns = self._exact_ns(config)
        noise = self.noise if visit.turns is None else self.turn_noise
        level = self._level if visit.turns is not None else 1.0
        step_ns = exact_ns * level * (1 + self.generator.gauss(0, noise))
        median = round(step_ns)
        batch = next((int(word[6:-1]) for word in words if word.startswith("batch=")), 1)
        error = max([1e-4, *(self.errors[word] for word in words if word in self.errors)])
        run = ConfigRun(
            config=config,
            environment=Environment(
                device="cuda",
                device_name="simulated",
                torch="2",
                python="3",
                platform="Linux",
                device_memory_bytes=self.memory_bytes,
            ),
            round_ns=visit.turns.round_ns if visit.turns is not None else None,
            steps_ns=(median, median + 10, median - 10),
            step_ns=Interval(median=median, low=median - 10, high=median + 10),
            first_step_ns=round(1e9 * self._first_step_s(words)),
            samples=8 * batch,
            peak_allocated_bytes=round(2**30 * self._factor(self.peaks, words)),
            trace=str(visit.trace) if visit.trace is not None and self.has_traces else None,
        )
        run = replace(run, needed_ns=round(5e9))
        return replace(run, max_relative_error=error, repeatable=True) if visit.checks else run

    def read_trace(self, run: ConfigRun, trace: Path) -> ConfigRun:
        assert run.step_ns is not None
        kernel_ns = round(run.step_ns.median * self.device_share)
        layer = TraceModule(path="", phase="forward", kernel_ns=kernel_ns)
        return with_traced(run, clock="kernel", modules=(layer,), unattributed_ns=0)

    def measure_visits(
        self,
        spec: TargetSpec,
        visits: Iterable[Visit | Round],
        *,
        on_start: Callable[[Visit], None],
        **_: Any,
    ) -> Generator[sweep.FinishedVisit, None, None]:
        for entry in visits:
            if isinstance(entry, tuple):
                self._level = 1 + self.generator.gauss(0, self.noise)
            for visit in as_round(entry):
                on_start(visit)
                self.started.append(visit.config.name)
                self.visits.append(visit)
                if len(self.started) == self.interrupt_at:
                    raise KeyboardInterrupt
                self.clock_s += 7.0 if len(self.started) == 1 else 4.0 if visit.checks else 2.5
                self.clock_s += self._first_step_s(set(visit.config.name.split("+")))
                yield sweep.FinishedVisit(visit=visit, run=self.run(visit), took_s=1.0, parts_trace=None)

    def search(self, folder: Path, options: TuningOptions | None = None) -> Search:
        """A search on this device; `measure_baseline` has run."""
        options = options or TuningOptions()
        processes = TuningProcesses(
            spec=TargetSpec(spec="net.py"),
            screen=self,  # type: ignore[arg-type]
            device="cuda",
            folder=folder,
            budget_s=options.budget_s,
            read_trace=self.read_trace,
            on_progress=lambda _: None,
            on_process=ignore_processes,
            max_count=options.processes,
        )

        def read_config(name: str) -> RunConfig | str:
            return "the model has no convolution" if "no_onednn" in name else parse_config(name, PLAIN)

        search = Search(processes=processes, options=options, info=INFO, baseline=PLAIN, read_config=read_config)
        assert search.measure_baseline() is not None
        return search

    def tune(self, folder: Path, changes: tuple[str, ...], options: TuningOptions | None = None) -> Tuning:
        """The result of a search over `changes` on this device."""
        search = self.search(folder, options)
        search.run(changes)
        tool = Tool(name="profiler_kit", version="1")
        return replace(measure_result(search, tool=tool, created="2026-11-23T00:00:00+00:00"), wall_ns=61 * 10**9)

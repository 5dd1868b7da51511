"""Findings' advice, run: what is tried, in which order, and what a finding says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.measurement.trials import MAX_TRIALS  # noqa: E402
from profiler_kit.pipeline.analyze import analyze_spec  # noqa: E402
from profiler_kit.process.protocol import ignore_progress  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.experiments import ExperimentOptions  # noqa: E402
from profiler_kit.records.report import Finding, Report  # noqa: E402
from profiler_kit.records.runs import ConfigRun, Failure  # noqa: E402
from profiler_kit.records.serde import dumps, loads_report  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402
from profiler_kit.statistics.intervals import median_interval  # noqa: E402

NET = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Conv2d(4, 4, 3)
    def forward(self, x):
        return self.fc(x)
example_inputs = torch.zeros(2, 4, 8, 8)
"""
MeasuredBy = Callable[[Callable[..., Any]], None]
STEP_NS = {"default": 20_000_000, "amp_bf16": 10_000_000, "no_onednn": 26_000_000, "batch=2x": 30_000_000}


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TargetSpec:
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return TargetSpec(spec="net.py")


class Processes:
    """Stands for processes: steps as long as `STEP_NS` says, one percent apart from process to process."""

    def __init__(self, failing: str = "") -> None:
        self.asked: list[tuple[str, bool]] = []
        self._failing = failing

    def __call__(self, spec: TargetSpec, config: RunConfig, *, again: bool, **_: Any) -> ConfigRun:
        self.asked.append((config.name, again))
        if config.name == self._failing:
            return ConfigRun(config=config, failure=Failure(kind="error", message="no"))
        offset = 1.0 + 0.002 * (len(self.asked) % 3)
        base = STEP_NS.get(config.name, 20_000_000) * offset
        steps = tuple(round(base * (1 + 0.001 * (i % 5))) for i in range(20))
        return ConfigRun(
            config=config,
            steps_ns=steps,
            step_ns=median_interval(steps),
            first_step_ns=50_000_000,
            samples=4 if config.name == "batch=2x" else 2,
            output_digest="a" if config.name != "amp_bf16" else "b",
            max_relative_error=1e-3,
            needed_ns=1_000_000,
        )


def advises(monkeypatch: pytest.MonkeyPatch, *tries: tuple[str, ...]) -> None:
    """Findings whose advice is `tries`, one finding each, whatever the report says."""

    def diagnose(report: Report, models: object = None) -> tuple[Finding, ...]:
        return tuple(
            Finding(
                rule=f"rule{i}", severity="high", title="t", explanation="e.", advice="a.", evidence=(),
                config=names[0], tries=names,
            )
            for i, names in enumerate(tries)
        )  # fmt: skip

    monkeypatch.setattr("profiler_kit.diagnosis.diagnose", diagnose)


def tried(spec: TargetSpec, said: list[str] | None = None) -> Report:
    return analyze_spec(
        spec,
        device="cpu",
        configs=["default"],
        experiments=ExperimentOptions(trials=True),
        on_progress=said.append if said is not None else ignore_progress,
    ).report


def test_what_is_new_runs_first_and_then_all_take_turns_twice(
    spec: TargetSpec, measured_by: MeasuredBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    advises(monkeypatch, ("amp_bf16", "batch=2x"), ("no_onednn",))
    processes = Processes()
    measured_by(processes)
    report = tried(spec)
    assert processes.asked[-11:-8] == [("amp_bf16", False), ("no_onednn", False), ("batch=2x", False)]
    names = ["default", "amp_bf16", "no_onednn", "batch=2x"]
    assert sorted(processes.asked[-8:]) == sorted([(name, True) for name in names] * 2)
    faster, slower = (finding.trial for finding in report.findings)
    assert faster is not None
    assert (faster.config, faster.verdict, faster.tried) == ("amp_bf16", "better", True)
    assert faster.gain_percent == pytest.approx(50, abs=1)
    assert faster.gain_low_percent is not None
    assert faster.gain_high_percent is not None
    assert faster.gain_low_percent < 50.2 < faster.gain_high_percent + 1
    assert faster.same_bits is False
    assert slower is not None
    assert (slower.config, slower.verdict) == ("no_onednn", "worse")
    assert slower.same_bits is True
    runs = {run.config.name: run for run in report.runs}
    assert set(runs) == {"default", "amp_bf16", "no_onednn", "batch=2x"}
    assert runs["amp_bf16"].repeat is not None
    assert loads_report(dumps(report), "again") == report


def test_other_batches_are_compared_by_example(
    spec: TargetSpec, measured_by: MeasuredBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    advises(monkeypatch, ("batch=2x",))
    measured_by(Processes())
    (finding,) = tried(spec).findings
    assert finding.trial is not None
    assert finding.trial.per_example
    assert finding.trial.gain_percent == pytest.approx(25, abs=1)
    assert finding.trial.verdict == "better"


def test_what_fails_is_told_and_the_rest_stands(
    spec: TargetSpec, measured_by: MeasuredBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    advises(monkeypatch, ("amp_bf16",), ("no_onednn",))
    measured_by(Processes(failing="amp_bf16"))
    failed, other = (finding.trial for finding in tried(spec).findings)
    assert failed is not None
    assert (failed.verdict, failed.note) == ("failed", "no")
    assert other is not None
    assert other.verdict == "worse"


def test_advice_that_means_nothing_is_a_note_and_too_much_of_it_too(
    spec: TargetSpec, measured_by: MeasuredBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = tuple(f"batch={n}" for n in range(3, 4 + MAX_TRIALS))
    advises(monkeypatch, ("no_such_thing",), ("cuda_graph",), many)
    processes = Processes()
    measured_by(processes)
    report = tried(spec)
    names = [name for name, again in processes.asked if not again and name != "default"]
    assert names == list(many[:MAX_TRIALS])
    assert any("no_such_thing" in note for note in map(str, report.notes))
    assert any(f"batch={3 + MAX_TRIALS}" in note and "--also" in note for note in map(str, report.notes))


def test_nothing_to_try_is_said(spec: TargetSpec, measured_by: MeasuredBy, monkeypatch: pytest.MonkeyPatch) -> None:
    advises(monkeypatch)
    measured_by(Processes())
    said: list[str] = []
    tried(spec, said)
    assert "no trials: no finding advises a configuration" in said


def test_what_processes_disagree_about_is_tried_once_more(
    spec: TargetSpec, measured_by: MeasuredBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    advises(monkeypatch, ("amp_bf16",), ("no_onednn",))
    processes = Processes()

    def lottery(target: TargetSpec, config: RunConfig, **rest: Any) -> ConfigRun:
        run = processes(target, config, **rest)
        if config.name != "amp_bf16":
            return run
        first = sum(name == "amp_bf16" for name, _ in processes.asked) == 1
        steps = tuple(ns * 19 // 10 for ns in run.steps_ns) if first else run.steps_ns
        return replace(run, steps_ns=steps, step_ns=median_interval(steps))

    measured_by(lottery)
    report = tried(spec)
    asked = [name for name, _ in processes.asked]
    assert asked.count("amp_bf16") == 5
    assert asked.count("no_onednn") == 3
    trial = report.findings[0].trial
    assert trial is not None
    assert "4 and 5 fresh processes" in trial.note


def test_what_was_tried_may_leave_advice_of_its_own(
    spec: TargetSpec, measured_by: MeasuredBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Advice that appears once something was tried is tried too; what was left out before is not."""
    processes = Processes()
    measured_by(processes)

    def diagnose(report: Report, models: object = None) -> tuple[Finding, ...]:
        first = Finding(
            rule="r", severity="high", title="t", explanation="e.", advice="a.", evidence=(), config="amp_bf16"
        )
        on_top = replace(first, config="amp_bf16+no_onednn")
        return (first, on_top) if report.run("amp_bf16") is not None else (first,)

    monkeypatch.setattr("profiler_kit.diagnosis.diagnose", diagnose)
    trials = [finding.trial for finding in tried(spec).findings]
    assert [one.config if one is not None else None for one in trials] == ["amp_bf16", "amp_bf16+no_onednn"]

"""Tests of the noise benchmark: the planted code, and the count of correct verdicts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from profiler_kit.counting import count_target
from profiler_kit.loading import load
from profiler_kit.measurement.plan import make_plan
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.report import Report, Tool
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.target import TargetInfo, TargetSpec
from profiler_kit.statistics.intervals import median_interval
from profiler_kit.worker.run import run_job
from scripts.bench import noise as bench_noise

MS = 1_000_000
NET = (
    "import torch\nfrom torch import nn\nclass Net(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(4, 3)\n"
    "    def forward(self, x):\n        return self.fc(x)\n"
    "example_inputs = torch.linspace(-1, 1, 8).reshape(2, 4)\n"
    "def loss_fn(out):\n    return out.square().sum()\n"
)
INFO = TargetInfo(spec="net.py", name="Net", inputs=(), mode="train", loss="loss_fn", optimizer="SGD")


@pytest.fixture
def target(tmp_path: Path) -> str:
    file = tmp_path / "net.py"
    file.write_text(NET)
    return str(file)


@contextlib.contextmanager
def restored_flags() -> Iterator[None]:
    """Restore the torch flags of the CPU configurations on exit."""
    flags = torch.are_deterministic_algorithms_enabled(), torch.backends.mkldnn.enabled
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(flags[0])
        torch.backends.mkldnn.enabled = flags[1]  # type: ignore[assignment]


def load_planted(target: str, folder: Path, spin_ns: int) -> Any:
    text = bench_noise.plant(target, folder, kind="cpu", spin_ns=spin_ns, spin="host")
    return load(TargetSpec(spec=text), device="cpu")


def call_ns(planted: Any) -> int:
    begin = time.perf_counter_ns()
    planted.step_module(*planted.batch.args)
    return time.perf_counter_ns() - begin


def test_the_copy_has_the_results_and_the_count_of_the_target(target: str, tmp_path: Path) -> None:
    plain = load(TargetSpec(spec=target), device="cpu")
    planted = load_planted(target, tmp_path, MS)
    assert torch.equal(planted.step_module(*planted.batch.args), plain.step_module(*plain.batch.args))
    counted = [count_target(load(TargetSpec(spec=spec))) for spec in (target, f"{tmp_path / 'planted_net.py'}:Planted")]
    assert counted[0].forward == counted[1].forward
    assert counted[0].backward == counted[1].backward


def test_the_flag_of_the_identical_configuration_is_reset_without_cost(target: str, tmp_path: Path) -> None:
    planted = load_planted(target, tmp_path, 30 * MS)
    with restored_flags():
        torch.use_deterministic_algorithms(True)
        assert min(call_ns(planted) for _ in range(3)) < 30 * MS
        assert not torch.are_deterministic_algorithms_enabled()


def test_the_flag_of_the_slower_configuration_is_reset_and_the_model_spins(target: str, tmp_path: Path) -> None:
    planted = load_planted(target, tmp_path, 30 * MS)
    with restored_flags():
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        assert all(call_ns(planted) >= 30 * MS for _ in range(3))
        assert torch.backends.mkldnn.enabled


def test_the_code_planted_for_cuda_resets_both_flags(target: str, tmp_path: Path) -> None:
    text = bench_noise.plant(target, tmp_path, kind="cuda", spin_ns=5, spin="device")
    code = (tmp_path / "planted_net.py").read_text()
    compile(code, "planted_net.py", "exec")
    assert "cudnn.benchmark = False" in code
    assert "cudnn.deterministic = False" in code
    assert "torch.cuda._sleep(_cycles(5))" in code
    planted = load(TargetSpec(spec=text), device="cpu")
    deterministic = torch.backends.cudnn.deterministic
    try:
        torch.backends.cudnn.deterministic = True
        planted.step_module(*planted.batch.args)  # the device is not CUDA, so the planted code does nothing
        assert torch.backends.cudnn.deterministic
    finally:
        torch.backends.cudnn.deterministic = deterministic


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_the_configurations_exist_on_their_device(kind: bench_noise.Kind) -> None:
    configs = ["default", bench_noise.IDENTICAL[kind].config, bench_noise.SLOWER[kind].config]
    planned = make_plan("cudnn" if kind == "cuda" else "cpu", only=configs)
    assert sorted(config.name for config in planned.configs) == sorted([*configs, bench_noise.AGAIN])
    assert planned.notes == () or kind == "cpu"


def test_a_target_without_the_class_of_its_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "lambda_model.py"
    file.write_text("import torch\nmodel = torch.nn.Linear(4, 3)\nexample_inputs = torch.ones(2, 4)\n")
    with pytest.raises(SystemExit, match="class Linear"):
        bench_noise.plant(str(file), tmp_path, kind="cpu", spin_ns=0, spin="host")


def run(name: str, step_ms: float, second_ms: float | None = None, repeat_of: str | None = None) -> ConfigRun:
    def steps(ms: float) -> tuple[int, ...]:
        return tuple(round(ms * MS * share) for share in (0.999, 1.0, 1.001) * 5)

    repeat = None
    if second_ms is not None:
        repeat = Repeat(steps_ns=steps(second_ms), step_ns=median_interval(steps(second_ms)))
    return ConfigRun(
        config=RunConfig(name=name, repeat_of=repeat_of),
        steps_ns=steps(step_ms), step_ns=median_interval(steps(step_ms)), repeat=repeat,
    )  # fmt: skip


def report(*runs: ConfigRun) -> Report:
    tool = Tool(name="profiler_kit", version="0")
    return Report(tool=tool, created="2026-01-01", target=INFO, static=None, runs=runs)


def test_verdicts_are_compared_with_the_truth() -> None:
    base, aa_run = run("default", 10), run(bench_noise.AGAIN, 10.01, repeat_of="default")
    equal = report(base, aa_run, run("other", 10.01, 10.02))
    slower = report(base, aa_run, run("other", 20, 20.01))
    same = bench_noise.compare_configs([equal, slower], "other", 0.0)
    assert (same.claims, same.correct) == (("same", "worse"), 1)
    worse = bench_noise.compare_configs([equal, slower], "other", 100.0)
    assert (worse.claims, worse.correct) == (("same", "worse"), 1)
    assert worse.gaps_percent[1] == pytest.approx(100, abs=0.2)
    assert bench_noise.compare_configs([equal], bench_noise.AGAIN, 0.0).correct == 1


def test_a_report_that_says_that_it_cannot_see_the_difference_is_correct() -> None:
    noisy = report(run("default", 10, 14), run("other", 11, 15))
    pair = bench_noise.compare_configs([noisy], "other", 10.0)
    assert pair.claims == ("same",)
    assert pair.limits_percent[0] > 10.0
    assert pair.correct == 1


def test_a_missing_or_failed_run_stops_the_benchmark() -> None:
    failed = ConfigRun(config=RunConfig(name="other"), failure=Failure(kind="crash", message="gone"))
    with pytest.raises(SystemExit, match=r"other.*gone"):
        bench_noise.compare_configs([report(run("default", 10), failed)], "other", 0.0)
    with pytest.raises(SystemExit, match="other"):
        bench_noise.compare_configs([report(run("default", 10))], "other", 0.0)


def test_the_benchmark_detects_the_planted_slowdown(target: str) -> None:
    """Runs in one process, whereas `analyze` starts one per run. The slowdown is three steps, since other tests may run."""
    Path(target).write_text(
        NET.replace("return self.fc(x)", "time.sleep(0.004); return self.fc(x)").replace("import", "import time,", 1)
    )

    def run_analysis(spec: str, *, device: str, configs: list[str], budget_s: float) -> Report:
        runs = []
        for config in make_plan("cpu", only=configs).configs:
            job = RunJob(
                spec=TargetSpec(spec=spec), config=config, device=device, budget_s=0.1, steps=20, checks=False
            )  # fmt: skip
            first, second = (run_job(job, lambda _: None) for _ in range(2))
            assert first.failure is None, first.failure
            runs.append(replace(first, repeat=Repeat(steps_ns=second.steps_ns, step_ns=second.step_ns)))
        return report(*runs)

    with restored_flags():
        result = bench_noise.measure(
            target, device="cpu", times=1, slow_percent=300, spin="host", budget_s=1, run_analysis=run_analysis
        )
    slower = result.pairs[-1]
    assert (slower.after, slower.expected, slower.correct) == ("no_onednn", "worse", 1)
    assert result.spin_ns == pytest.approx(3 * result.step_ns, abs=1)
    assert slower.gaps_percent[0] > 150
    assert "300 % of the step" in bench_noise.format_result(result)
    assert [pair.after for pair in result.pairs] == [bench_noise.AGAIN, "deterministic_algorithms", "no_onednn"]

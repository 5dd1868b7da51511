"""Tests of the noise benchmark: the planted code, and the count of correct verdicts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from simulated_clock import READING_NS, SimulatedClock

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
from scripts.bench import planted_models

pytestmark = pytest.mark.jobs

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
    text = planted_models.plant(target, folder, kind="cpu", spin_ns=spin_ns, spin="host")
    return load(TargetSpec(spec=text), device="cpu")


def call_ns(planted: Any, clock: SimulatedClock) -> int:
    begin_ns = clock.now_ns
    planted.step_module(*planted.batch.args)
    return clock.now_ns - begin_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    return SimulatedClock().install(monkeypatch)


def test_the_copy_has_the_results_and_the_count_of_the_target(target: str, tmp_path: Path) -> None:
    plain = load(TargetSpec(spec=target), device="cpu")
    planted = load_planted(target, tmp_path, MS)
    assert torch.equal(planted.step_module(*planted.batch.args), plain.step_module(*plain.batch.args))
    counted = [count_target(load(TargetSpec(spec=spec))) for spec in (target, f"{tmp_path / 'planted_net.py'}:Planted")]
    assert counted[0].forward == counted[1].forward
    assert counted[0].backward == counted[1].backward


def test_the_flag_of_the_identical_configuration_is_reset_without_cost(
    target: str, tmp_path: Path, clock: SimulatedClock
) -> None:
    planted = load_planted(target, tmp_path, 30 * MS)
    with restored_flags():
        torch.use_deterministic_algorithms(True)
        assert [call_ns(planted, clock) for _ in range(3)] == [0, 0, 0]
        assert not torch.are_deterministic_algorithms_enabled()


def test_the_flag_of_the_slower_configuration_is_reset_and_the_model_spins(
    target: str, tmp_path: Path, clock: SimulatedClock
) -> None:
    planted = load_planted(target, tmp_path, 30 * MS)
    with restored_flags():
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        spun = pytest.approx(30 * MS, abs=10 * READING_NS)
        assert [call_ns(planted, clock) for _ in range(3)] == [spun] * 3
        assert torch.backends.mkldnn.enabled


def test_the_code_planted_for_cuda_resets_the_flag_and_spins(target: str, tmp_path: Path) -> None:
    text = planted_models.plant(target, tmp_path, kind="cuda", spin_ns=5, spin="device")
    code = (tmp_path / "planted_net.py").read_text()
    compile(code, "planted_net.py", "exec")
    assert "matmul.allow_tf32 = False" in code
    assert "torch.cuda._sleep(_cycles(5))" in code
    planted = load(TargetSpec(spec=text), device="cpu")
    allow_tf32 = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        planted.step_module(*planted.batch.args)  # the device is not CUDA, so the planted code does nothing
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allow_tf32


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_the_configurations_exist_on_their_device(kind: planted_models.Kind) -> None:
    configs = ["default", planted_models.IDENTICAL[kind].config, planted_models.SLOWER[kind].config]
    planned = make_plan("cudnn" if kind == "cuda" else "cpu", only=configs)
    assert sorted(config.name for config in planned.configs) == sorted([*configs, bench_noise.AGAIN])
    assert planned.notes == () or kind == "cpu"


def test_a_target_without_the_class_of_its_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "lambda_model.py"
    file.write_text("import torch\nmodel = torch.nn.Linear(4, 3)\nexample_inputs = torch.ones(2, 4)\n")
    with pytest.raises(SystemExit, match="class Linear"):
        planted_models.plant(str(file), tmp_path, kind="cpu", spin_ns=0, spin="host")


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
    same = [bench_noise.analyzed_pair(source, "other", 0.0) for source in (equal, slower)]
    assert [(pair.outcome, pair.is_correct) for pair in same] == [("same", True), ("worse", False)]
    worse = [bench_noise.analyzed_pair(source, "other", 100.0) for source in (equal, slower)]
    assert [(pair.outcome, pair.is_correct) for pair in worse] == [("same", False), ("worse", True)]
    assert worse[1].gap_percent == pytest.approx(100, abs=0.2)
    assert worse[1].processes == (2, 2)
    assert bench_noise.analyzed_pair(equal, bench_noise.AGAIN, 0.0).is_correct


def test_a_report_that_says_that_it_cannot_see_the_difference_is_correct() -> None:
    noisy = report(run("default", 10, 14), run("other", 11, 15))
    pair = bench_noise.analyzed_pair(noisy, "other", 10.0)
    assert pair.outcome == "same"
    assert pair.limit_percent is not None
    assert pair.limit_percent > 10.0
    assert pair.is_correct
    assert replace(pair, limit_percent=None).is_correct
    assert not replace(pair, limit_percent=9.0).is_correct
    assert not replace(pair, outcome="better").is_correct


def test_a_finding_about_an_identical_configuration_is_false() -> None:
    pair = bench_noise.analyzed_pair(report(run("default", 10, 10), run("other", 10, 10)), "other", 0.0)
    assert pair.is_correct
    assert not replace(pair, findings=1).is_correct


def test_a_missing_or_failed_run_stops_the_benchmark() -> None:
    failed = ConfigRun(config=RunConfig(name="other"), failure=Failure(kind="crash", message="gone"))
    with pytest.raises(SystemExit, match=r"other.*gone"):
        bench_noise.analyzed_pair(report(run("default", 10), failed), "other", 0.0)
    with pytest.raises(SystemExit, match="other"):
        bench_noise.analyzed_pair(report(run("default", 10)), "other", 0.0)


def in_this_process(spec: str, *, device: str, configs: list[str], budget_s: float) -> Report:
    """The runs of `configs`, in this process instead of fresh ones."""
    runs = []
    for config in make_plan("cpu", only=configs).configs:
        job = RunJob(spec=TargetSpec(spec=spec), config=config, device=device, budget_s=0.1, steps=20, checks=False)
        first, second = (run_job(job, lambda _: None) for _ in range(2))
        assert first.failure is None, first.failure
        runs.append(replace(first, repeat=Repeat(steps_ns=second.steps_ns, step_ns=second.step_ns), host_load=None))
    return report(*runs)


@pytest.fixture
def slow_case(target: str, monkeypatch: pytest.MonkeyPatch) -> bench_noise.Case:
    """A case whose step takes four milliseconds."""
    Path(target).write_text(
        NET.replace("return self.fc(x)", "time.sleep(0.004); return self.fc(x)").replace("import", "import time,", 1)
    )
    monkeypatch.setattr(bench_noise, "MODELS", Path(target).parent)
    return bench_noise.Case(file=Path(target).name, device="cpu")


@pytest.mark.usefixtures("clock")
def test_the_benchmark_detects_the_planted_slowdown(slow_case: bench_noise.Case) -> None:
    with restored_flags():
        analysis = bench_noise.analyze_case(
            "slow", slow_case, plant_percent=50, spin="host", step_ns=None, budget_s=1, run=in_this_process
        )
    again, identical, slower = analysis.pairs
    assert (again.after, identical.after) == (bench_noise.AGAIN, "deterministic_algorithms")
    assert (slower.after, slower.outcome) == ("no_onednn", "worse")
    assert slower.planted_percent == pytest.approx(50, abs=1)
    assert slower.gap_percent == pytest.approx(50, abs=1)
    assert (again.outcome, identical.outcome) == ("same", "same")
    assert analysis.step_ns > 4 * MS
    assert f"{slower.planted_percent:.1f} % (host)" in bench_noise.format_log([analysis])


def test_the_log_continues_where_it_stopped(
    slow_case: bench_noise.Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[float, int | None]] = []
    pair = bench_noise.analyzed_pair(report(run("default", 10, 10), run("other", 10, 10)), "other", 0.0)

    def analyze_case(name: str, case: bench_noise.Case, **options: Any) -> bench_noise.Analysis:
        calls.append((options["plant_percent"], options["step_ns"]))
        return bench_noise.Analysis(
            case=name, device="a", torch="b", plant_percent=options["plant_percent"], spin="host", step_ns=7, seconds=2.0,
            waiting_percent=None, pairs=(pair,),
        )  # fmt: skip

    monkeypatch.setattr(bench_noise, "analyze_case", analyze_case)
    log = ["--log", str(tmp_path / "log.jsonl")]
    assert bench_noise.main(["--case", "mnist", "gpt", "--count", "2", *log]) == 0
    assert calls == [(0.0, None), (0.0, None), (0.0, 7), (0.0, 7)]
    bench_noise.main(["--case", "mnist", "--count", "3", *log])
    assert len(calls) == 5
    bench_noise.main(["--case", "mnist", "--count", "1", "--plant", "10%", *log])
    assert calls[-1] == (10.0, None)
    bench_noise.main(["--case", "mnist", "--count", "9", "--for", "1", *log])  # an analysis takes two seconds
    assert len(calls) == 6
    assert len(bench_noise.read_log(tmp_path / "log.jsonl")) == 6
    capsys.readouterr()
    bench_noise.main(log)
    assert "3/3" in capsys.readouterr().out
    false = replace(pair, outcome="worse")
    analysis = replace(bench_noise.read_log(tmp_path / "log.jsonl")[0], pairs=(false,))
    bench_noise.append(analysis, tmp_path / "log.jsonl")
    assert bench_noise.main(log) == 1


def test_both_files_of_a_comparison_are_the_same_unless_one_is_slower(
    slow_case: bench_noise.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[tuple[str, str]] = []

    def sides(a: str, b: str, **_: object) -> tuple[Report, Report]:
        texts.append((Path(a.partition(":")[0]).read_text(), Path(b.partition(":")[0]).read_text()))
        return report(run("default", 10, 10.01)), report(run("default", 10, 10.02))

    monkeypatch.setattr(bench_noise, "compare_sides", sides)
    case = replace(slow_case, compares=True)
    same = bench_noise.analyze_case("x", case, plant_percent=0, spin="host", step_ns=None, budget_s=1)
    assert texts[0][0] == texts[0][1]
    assert [(pair.after, pair.outcome) for pair in same.pairs] == [("second file", "same")]
    bench_noise.analyze_case("x", case, plant_percent=10, spin="host", step_ns=50 * MS, budget_s=1)
    assert "_spin_on_host(0)" in texts[1][0]
    assert f"_spin_on_host({5 * MS})" in texts[1][1]
    assert "_slow = True" in texts[1][1]

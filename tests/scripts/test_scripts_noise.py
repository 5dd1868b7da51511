"""The benchmark of noise: what it plants does what it says and no more, and claims are counted against the truth."""

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
from profiler_kit.measurement.plan import plan
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.laboratory import Repeat
from profiler_kit.records.report import Report, Tool
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.target import TargetInfo, TargetSpec
from profiler_kit.statistics.intervals import median_interval
from profiler_kit.worker.run import run_job
from scripts.bench import intervals as bench_intervals
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
def switched() -> Iterator[None]:
    """Whatever is switched inside is as it was after."""
    kept = torch.are_deterministic_algorithms_enabled(), torch.backends.mkldnn.enabled
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(kept[0])
        torch.backends.mkldnn.enabled = kept[1]  # type: ignore[assignment]


def planted(target: str, folder: Path, spin_ns: int) -> Any:
    text = bench_noise.planted(target, folder, kind="cpu", spin_ns=spin_ns, spin="host")
    return load(TargetSpec(spec=text), device="cpu")


def call_ns(made: Any) -> int:
    begin = time.perf_counter_ns()
    made.runs(*made.batch.args)
    return time.perf_counter_ns() - begin


def test_the_copy_computes_and_counts_what_the_target_does(target: str, tmp_path: Path) -> None:
    plain = load(TargetSpec(spec=target), device="cpu")
    made = planted(target, tmp_path, MS)
    assert torch.equal(made.runs(*made.batch.args), plain.runs(*plain.batch.args))
    counted = [count_target(load(TargetSpec(spec=spec))) for spec in (target, f"{tmp_path / 'planted_net.py'}:Planted")]
    assert counted[0].forward == counted[1].forward
    assert counted[0].backward == counted[1].backward


def test_the_switch_of_the_same_one_is_put_back_and_costs_nothing(target: str, tmp_path: Path) -> None:
    made = planted(target, tmp_path, 30 * MS)
    with switched():
        torch.use_deterministic_algorithms(True)
        assert min(call_ns(made) for _ in range(3)) < 30 * MS
        assert not torch.are_deterministic_algorithms_enabled()


def test_the_slow_one_is_put_back_too_and_spins_from_then_on(target: str, tmp_path: Path) -> None:
    made = planted(target, tmp_path, 30 * MS)
    with switched():
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        assert all(call_ns(made) >= 30 * MS for _ in range(3))
        assert torch.backends.mkldnn.enabled


def test_what_is_planted_for_cuda_is_a_program_with_both_switches(target: str, tmp_path: Path) -> None:
    text = bench_noise.planted(target, tmp_path, kind="cuda", spin_ns=5, spin="device")
    code = (tmp_path / "planted_net.py").read_text()
    compile(code, "planted_net.py", "exec")
    assert "cudnn.benchmark = False" in code
    assert "cudnn.deterministic = False" in code
    assert "torch.cuda._sleep(_cycles(5))" in code
    made = load(TargetSpec(spec=text), device="cpu")
    kept = torch.backends.cudnn.deterministic
    try:
        torch.backends.cudnn.deterministic = True
        made.runs(*made.batch.args)  # not on its device: nothing is planted
        assert torch.backends.cudnn.deterministic
    finally:
        torch.backends.cudnn.deterministic = kept


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_the_configurations_exist_on_their_device(kind: bench_noise.Kind) -> None:
    only = ["default", bench_noise.SAME[kind].config, bench_noise.SLOW[kind].config]
    planned = plan("cudnn" if kind == "cuda" else "cpu", only=only)
    assert sorted(config.name for config in planned.configs) == sorted([*only, bench_noise.AGAIN])
    assert planned.notes == () or kind == "cpu"


def test_a_target_whose_model_is_no_class_of_its_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "made.py"
    file.write_text("import torch\nmodel = torch.nn.Linear(4, 3)\nexample_inputs = torch.ones(2, 4)\n")
    with pytest.raises(SystemExit, match="no class of this file"):
        bench_noise.planted(str(file), tmp_path, kind="cpu", spin_ns=0, spin="host")


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


def test_claims_are_counted_against_the_truth() -> None:
    base, again = run("default", 10), run(bench_noise.AGAIN, 10.01, repeat_of="default")
    equal = report(base, again, run("other", 10.01, 10.02))
    slower = report(base, again, run("other", 11, 11.01))
    same = bench_noise.pair([equal, slower], "other", "same")
    assert (same.claims, same.right) == (("same", "worse"), 1)
    worse = bench_noise.pair([equal, slower], "other", "worse")
    assert (worse.claims, worse.right, worse.sure) == (("same", "worse"), 1, 1)
    assert worse.gaps_percent[1] == pytest.approx(10, abs=0.2)
    noise = bench_noise.pair([equal], bench_noise.AGAIN, "same")
    assert (noise.right, noise.sure) == (1, None)  # a process a side: no interval that knows processes


def test_a_run_that_is_missing_or_failed_ends_it() -> None:
    failed = ConfigRun(config=RunConfig(name="other"), failure=Failure(kind="crash", message="gone"))
    with pytest.raises(SystemExit, match="other failed: gone"):
        bench_noise.pair([report(run("default", 10), failed)], "other", "same")
    with pytest.raises(SystemExit, match="no run of other"):
        bench_noise.pair([report(run("default", 10))], "other", "same")


def test_the_whole_of_it_finds_what_was_planted(target: str) -> None:
    """In one process, where `analyze` takes one for each run. Three steps' worth is planted: other tests may use the machine."""
    Path(target).write_text(
        NET.replace("return self.fc(x)", "time.sleep(0.004); return self.fc(x)").replace("import", "import time,", 1)
    )

    def analyzed(spec: str, *, device: str, configs: list[str], budget_s: float) -> Report:
        runs = []
        for config in plan("cpu", only=configs).configs:
            job = RunJob(
                spec=TargetSpec(spec=spec), config=config, device=device, budget_s=0.1, steps=20, checks=False
            )  # fmt: skip
            first, second = (run_job(job, lambda _: None) for _ in range(2))
            assert first.failure is None, first.failure
            runs.append(replace(first, repeat=Repeat(steps_ns=second.steps_ns, step_ns=second.step_ns)))
        return report(*runs)

    with switched():
        found = bench_noise.measured(
            target, device="cpu", times=1, slow_percent=300, spin="host", budget_s=1, analyzed=analyzed
        )
    slow = found.pairs[-1]
    assert (slow.after, slow.expected, slow.right) == ("no_onednn", "worse", 1)
    assert found.spin_ns == pytest.approx(3 * found.step_ns, abs=1)
    assert slow.gaps_percent[0] > 150
    assert "300 % of the step" in bench_noise.shown(found)
    assert [pair.after for pair in found.pairs] == [bench_noise.AGAIN, "deterministic_algorithms", "no_onednn"]


def test_of_the_intervals_only_the_one_that_is_used_holds_what_it_says() -> None:
    found = bench_intervals.coverage(40, 0.005, 0.02)
    steps, hierarchical, used = found.values()
    assert used >= 0.9 > hierarchical > steps

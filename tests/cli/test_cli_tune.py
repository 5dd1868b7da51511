"""The command `tune`: its output, files, exit codes and options; processes are simulated except in one test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulated_device import SimulatedDevice

torch = pytest.importorskip("torch")

import profiler_kit  # noqa: E402
from profiler_kit import process  # noqa: E402
from profiler_kit.cli import main  # noqa: E402
from profiler_kit.errors import UsageError  # noqa: E402
from profiler_kit.measurement import sweep, tuning_processes  # noqa: E402
from profiler_kit.measurement.screening import Screen  # noqa: E402
from profiler_kit.pipeline import tune  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.jobs import Screened  # noqa: E402
from profiler_kit.records.samples import Interval  # noqa: E402
from profiler_kit.records.serde import dumps, loads_saved, read_saved  # noqa: E402
from profiler_kit.records.tuning import Tuning  # noqa: E402
from profiler_kit.worker.steps import MIN_STEPS  # noqa: E402

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))

example_inputs = torch.zeros(4, 3, 8, 8)
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "net.py"
    file.write_text(NET)
    return file


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> SimulatedDevice:
    simulated = SimulatedDevice(
        times={"no_onednn": 0.5, "channels_last": 1.6},
        failures={"fused_optimizer": "no \x1b[31mfused"},
        noise=0.001,
        has_traces=False,
    )
    monkeypatch.setattr(sweep, "measure_visits", simulated.measure_visits)
    monkeypatch.setattr(tune, "Screen", lambda **_: simulated)
    monkeypatch.setattr(process, "processes_in_memory", lambda items, _: items)
    return simulated


COMMAND = ("tune", "net.py", "--device", "cpu", "--changes", "no_onednn,channels_last,fused_optimizer,benchmark")


def test_the_answer_comes_first_with_the_lines(
    net: Path, device: SimulatedDevice, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, "-o", "tuned.json"]) == 0
    printed = capfd.readouterr()
    out = " ".join(printed.out.split())
    assert re.match(r"Net: tuned for time Use no_onednn: (49|50)\.\d % less ", out)
    assert "\ntorch.backends.mkldnn.enabled = False\n" in printed.out
    assert "channels_last on top of no_onednn: worse" in out
    assert "fused_optimizer on top of no_onednn: failed, no" in out
    assert "benchmark: not applicable, " in out
    assert "\x1b" not in printed.out
    assert "comparing: no_onednn" in printed.err
    assert json.loads((net.parent / "tuned.json").read_text())["kind"] == "tuning"


def test_the_file_is_shown_again_in_every_format_without_losses(
    net: Path, device: SimulatedDevice, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, "-q", "-o", "tuned.json"]) == 0
    first = capfd.readouterr().out
    assert main(["show", "tuned.json"]) == 0
    assert capfd.readouterr().out == first
    saved = read_saved("tuned.json")
    assert isinstance(saved, Tuning)
    assert loads_saved(dumps(saved), "again") == saved
    assert dumps(saved) == Path("tuned.json").read_text()
    for form in ("markdown", "html", "csv", "json"):
        assert main(["show", "tuned.json", "-f", form]) == 0
        assert "no_onednn" in capfd.readouterr().out.replace("\\_", "_"), form
    assert repr(saved).startswith("<Tuning Net: no_onednn, 0.")
    assert "Use no_onednn" in str(saved)
    assert set(saved.to_dataframe()["change"]) == {"benchmark", "no_onednn", "channels_last", "fused_optimizer"}
    assert list(saved.to_dataframe("tuned_sides")["config"]) == ["default", "no_onednn"]


def test_other_commands_refuse_the_file(net: Path, device: SimulatedDevice, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "-q", "-o", "tuned.json"]) == 0
    capfd.readouterr()
    assert main(["compare", "tuned.json", "tuned.json"]) == 3
    assert "tuned.json: a tuning, not a report" in capfd.readouterr().err
    assert main(["show", "tuned.json", "--finding", "1"]) == 2
    assert "a tuning has no findings" in capfd.readouterr().err


def test_nothing_better_is_no_error(net: Path, device: SimulatedDevice, capfd: pytest.CaptureFixture[str]) -> None:
    device.times = {}
    assert main([*COMMAND, "-q"]) == 0
    out = capfd.readouterr().out
    assert "Nothing better was found" in out
    assert "Lines to paste" not in out
    assert "not sure, measured" in out


def test_ctrl_c_prints_what_was_measured(net: Path, device: SimulatedDevice, capfd: pytest.CaptureFixture[str]) -> None:
    device.interrupt_comparison = 2
    assert main([*COMMAND, "-o", "part.json"]) == 130
    printed = capfd.readouterr()
    assert "Interrupted: the search has not ended" in " ".join(printed.out.split())
    assert "no_onednn" in printed.out
    assert "interrupted: the result contains" in printed.err
    saved = read_saved("part.json")
    assert isinstance(saved, Tuning)
    assert saved.outcome == "interrupted"
    assert saved.attempts


def test_ctrl_c_in_the_baseline_has_nothing_to_show(
    net: Path, device: SimulatedDevice, capfd: pytest.CaptureFixture[str]
) -> None:
    device.interrupt_at = 1
    assert main([*COMMAND]) == 130
    assert capfd.readouterr().out == ""


def test_a_failing_baseline_is_an_error_of_the_target(
    net: Path, device: SimulatedDevice, capfd: pytest.CaptureFixture[str]
) -> None:
    device.failures = {"default": "forward raised ValueError\nhint: pass -i"}
    assert main([*COMMAND]) == 3
    assert "the baseline failed: forward raised ValueError\nhint: pass -i" in capfd.readouterr().err
    assert main(["tune", "missing.py"]) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--goal", "memory"], "needs a CUDA device"),
        (["--processes", "3"], "too few"),
        (["--changes", "warp_speed"], "unknown word 'warp_speed'"),
        (["--tolerance", "small"], "not a tolerance"),
        (["--tolerance", "-1"], "not a tolerance"),
        (["--tolerance", "0.5x"], "not a tolerance"),
        (["--budget", "0s"], "greater than zero"),
        (["--max-slowdown", "a lot"], "not a percentage"),
        (["-o", "net.py"], "cannot infer a format"),
    ],
)
def test_wrong_options_stop_before_anything_is_measured(
    words: list[str], message: str, net: Path, device: SimulatedDevice, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "net.py", "--device", "cpu", *words]) == 2
    assert message in capfd.readouterr().err
    assert device.started == []


def test_a_model_in_python_is_tuned(device: SimulatedDevice) -> None:
    device.failures, device.times = {}, {"fused_optimizer": 0.5}
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5))
    before = [parameter.clone() for parameter in model.parameters()]
    tuning = profiler_kit.tune(
        model,
        torch.zeros(2, 3, 4),
        labels=torch.tensor([0, 1]),
        loss_fn=torch.nn.functional.cross_entropy,
        device="cpu",
        changes=["fused_optimizer"],
        tolerance=0.5,
    )
    assert tuning.changes == ("fused_optimizer",)
    assert tuning.options.tolerance == "0.5"
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    with pytest.raises(UsageError, match="unknown goal 'speed'"):
        profiler_kit.tune(model, torch.zeros(2, 3, 4), goal="speed")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="need a model"):
        profiler_kit.tune("net.py", labels=(1,))


@pytest.mark.parametrize(("inputs", "goal"), [("", "throughput"), ("example_inputs = torch.zeros(4, 3, 8, 8)", "time")])
def test_the_goal_is_throughput_where_nothing_states_the_batch(
    inputs: str, goal: str, net: Path, device: SimulatedDevice
) -> None:
    net.write_text(NET.replace("example_inputs = torch.zeros(4, 3, 8, 8)", inputs))
    device.times = {}
    assert main([*COMMAND, "-q", "-o", "tuned.json"]) == 0
    saved = read_saved("tuned.json")
    assert isinstance(saved, Tuning)
    assert saved.options.goal == goal
    assert main([*COMMAND, "-q", "--goal", "time", "-o", "tuned.json"]) == 0
    saved = read_saved("tuned.json")
    assert isinstance(saved, Tuning)
    assert saved.options.goal == "time"


def test_reasons_from_python_name_arguments(device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    device.failures = {"amp_bf16": "too slow; raise --budget"}
    tuning = profiler_kit.tune(torch.nn.Linear(4, 2), torch.zeros(2, 4), device="cpu", changes=["amp_bf16"])
    assert [attempt.reason for attempt in tuning.attempts] == ["too slow; raise budget_s"]


@pytest.mark.jobs
@pytest.mark.timeout(900)  # about ten processes, which share the cores with other tests
def test_processes_of_a_real_model(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the workers, but for their clocks: half of the step with autocast, and an optimizer without a fused form."""
    measure_visits, compare = sweep.measure_visits, Screen.compare

    def step_ns(config: RunConfig) -> int:
        return 5_000_000 if "amp_bf16" in config.name else 10_000_000

    def timed(*args: Any, **options: Any) -> Iterator[sweep.FinishedVisit]:
        for done in measure_visits(*args, **options):
            assert done.run.failure is not None or len(done.run.steps_ns) >= MIN_STEPS
            ns = step_ns(done.visit.config)
            interval = Interval(median=ns, low=ns - 1000, high=ns + 1000)
            run = done.run if done.run.failure is not None else replace(done.run, steps_ns=(ns,) * 20, step_ns=interval)
            yield replace(done, run=run)

    def screened(screen: Screen, base: RunConfig | None, config: RunConfig, **options: Any) -> Screened:
        answer = compare(screen, None, config, **options)  # with checks
        if base is None or answer.run.failure is not None:
            return answer
        return replace(answer, before_ns=(step_ns(base),) * 12, after_ns=(step_ns(config),) * 12)

    monkeypatch.setattr(sweep, "measure_visits", timed)
    monkeypatch.setattr(Screen, "compare", screened)
    monkeypatch.setattr(tuning_processes, "STEPS_S", 120.0)  # for the checks too, on a busy machine
    words = ["--changes", "fused_optimizer,amp_bf16", "--processes", "18", "--optimizer", "rmsprop", "--budget", "60m"]
    assert main(["tune", "net.py", "--device", "cpu", "-q", "-o", "tuned.json", *words]) == 0
    saved = read_saved("tuned.json")
    assert isinstance(saved, Tuning)
    assert 0 < (saved.baseline.max_relative_error or 0) < 1e-4
    assert saved.baseline.repeatable is not None
    failed = next(attempt for attempt in saved.attempts if attempt.change == "fused_optimizer")
    assert failed.outcome == "failed"
    assert "no fused implementation" in failed.reason
    assert saved.changes == ()
    reduced = saved.reduced
    assert reduced is not None
    assert (reduced.outcome, reduced.changes) == ("better", ("amp_bf16",))
    assert reduced.gain is not None
    assert reduced.gain.ratio == pytest.approx(0.5)
    assert reduced.gain.after_processes >= 2
    assert 1e-5 < (reduced.chosen.max_relative_error or 0) < 1e-2
    assert saved.environment is not None
    assert saved.processes <= 18

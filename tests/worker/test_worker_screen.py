"""The process that compares configurations: its turns, its checks, what fails, and that settings do not leak."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.configurations.naming import parse_config  # noqa: E402
from profiler_kit.measurement.screening import Screen as Parent  # noqa: E402
from profiler_kit.measurement.tuning_verdicts import screened_gain  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.jobs import Screened, ScreenJob, ScreenRequest  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402
from profiler_kit.user_code.process_settings import settings_restored  # noqa: E402
from profiler_kit.worker import screen  # noqa: E402
from profiler_kit.worker.screen import LOOKS, Screen, _applied, _Side  # noqa: E402

NET = """
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, x):
        if torch.is_autocast_enabled("cpu") and "CRASH" in os.environ:
            os._exit(7)
        return self.head(self.conv(x).mean((2, 3)))

example_inputs = torch.zeros(4, 3, 8, 8)
"""
DEFAULT = RunConfig(name="default")


@pytest.fixture(autouse=True)
def unfrozen_objects() -> Iterator[None]:
    """A screen has its process for itself and freezes the objects of it; here other tests follow."""
    yield
    gc.unfreeze()


@pytest.fixture
def spec(tmp_path: Path) -> TargetSpec:
    file = tmp_path / "net.py"
    file.write_text(NET)
    return TargetSpec(spec=str(file))


@pytest.fixture
def compared(spec: TargetSpec) -> Iterator[Screen]:
    return Screen(ScreenJob(spec=spec, config=DEFAULT, device="cpu", answers=""), lambda _: None)


def request(change: str, base: RunConfig | None = DEFAULT, budget_s: float = 0.2) -> ScreenRequest:
    return ScreenRequest(base=base, config=parse_config(change, DEFAULT), budget_s=budget_s)


def test_both_sides_take_turns(compared: Screen) -> None:
    answer = compared.answer(request("channels_last"))
    assert answer.run.failure is None
    assert 2 <= len(answer.before_ns) == len(answer.after_ns) <= LOOKS[-1]
    assert min(*answer.before_ns, *answer.after_ns) > 0
    assert len(answer.run.steps_ns) >= len(answer.after_ns)
    assert answer.run.samples == answer.before_samples == 4


def test_a_larger_batch_is_compared_per_example(compared: Screen) -> None:
    answer = compared.answer(request("batch=8x"))
    assert (answer.before_samples, answer.run.samples) == (4, 32)
    gain = screened_gain(answer)
    assert gain is not None
    assert gain.ratio < 0.7  # eight times the examples do not take eight times as long in so small a step


def test_without_a_base_the_results_are_checked(compared: Screen) -> None:
    run = compared.answer(request("amp_bf16", base=None)).run
    assert run.max_relative_error is not None
    assert 1e-5 < run.max_relative_error < 0.1
    assert run.repeatable is True
    exact = compared.answer(request("channels_last", base=None)).run.max_relative_error
    assert exact is not None
    assert exact < 1e-5  # the weights are those of the baseline


def test_a_change_that_fails_leaves_the_process_usable(spec: TargetSpec) -> None:
    rmsprop = TargetSpec(spec=spec.spec, optimizer="rmsprop")
    compared = Screen(ScreenJob(spec=rmsprop, config=DEFAULT, device="cpu", answers=""), lambda _: None)
    failed = compared.answer(request("fused_optimizer"))
    assert failed.run.failure is not None
    assert failed.run.failure.kind == "target"
    assert not failed.is_over
    assert screened_gain(failed) is None
    assert compared.answer(request("channels_last")).run.failure is None


def test_settings_of_a_side_apply_to_its_turns_only(compared: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[bool]] = {}
    turn = _Side.turn

    def watched(side: _Side, step_ns: int) -> list[int]:
        seen.setdefault(side.config.name, set()).add(side.call(lambda: bool(torch.backends.mkldnn.enabled)))
        return turn(side, step_ns)

    monkeypatch.setattr(_Side, "turn", watched)
    was_enabled = torch.backends.mkldnn.enabled
    compared.answer(request("no_onednn"))
    assert seen == {"default": {was_enabled}, "no_onednn": {False}}
    assert torch.backends.mkldnn.enabled is was_enabled


def test_an_accepted_side_is_the_next_base(compared: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = Screen._built

    def watched(process: Screen, config: RunConfig):  # type: ignore[no-untyped-def]
        built.append(config.name)
        return build(process, config)

    monkeypatch.setattr(Screen, "_built", watched)
    compared.answer(request("channels_last"))
    compared.answer(request("channels_last+no_onednn", base=parse_config("channels_last", DEFAULT)))
    assert built[:2] == ["default", "channels_last"]
    assert len(built) == 3


def test_sides_in_a_thread_for_each_choice_of_algorithms_measure_the_same(
    compared: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sides have threads on CUDA only. Here they have them on the CPU."""
    monkeypatch.setattr(screen, "needs_thread", lambda device: True)
    answer = compared.answer(request("channels_last"))
    assert answer.run.failure is None
    assert len(answer.after_ns) >= 2
    assert compared.answer(request("amp_bf16", base=None)).run.max_relative_error is not None
    assert len(compared._threads) == 1
    benchmark = RunConfig(name="benchmark", enabled=True, benchmark=True)
    assert compared.answer(ScreenRequest(base=DEFAULT, config=benchmark, budget_s=0.2)).run.failure is None
    assert len(compared._threads) == 2


@pytest.mark.timeout(300)
def test_the_parent_replaces_a_process_that_crashes(spec: TargetSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRASH", "1")
    parent = Parent(spec=spec, device="cpu", baseline=DEFAULT, on_progress=lambda _: None)
    try:
        crashed = parent.compare(DEFAULT, parse_config("amp_bf16", DEFAULT), budget_s=0.2)
        assert crashed.run.failure is not None
        assert crashed.run.failure.kind == "crash"
        assert not parent.is_running
        answer: Screened = parent.compare(DEFAULT, parse_config("channels_last", DEFAULT), budget_s=0.2)
        assert answer.run.failure is None
        assert parent.is_running
    finally:
        parent.close()


def test_the_precision_that_a_file_sets_by_the_newer_flags_survives_a_side_with_the_older_ones() -> None:
    def precisions() -> tuple[str, ...]:
        return cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision, torch.backends.cuda.matmul.fp32_precision

    cudnn = torch.backends.cudnn
    config = RunConfig(name="tf32", allow_tf32=True)
    with settings_restored():
        cudnn.conv.fp32_precision = "ieee"  # cudnn.allow_tf32 cannot be read from now on
        before = precisions()
        with _applied(config, "cpu"):
            during = precisions()
        assert (during[0], precisions()) == ("tf32", before)

"""GPU tests of numerics: bitwise reproducibility, errors against float64 and their cost, device state, planted slowdown."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from profiler_kit.loading import load  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402
from profiler_kit.worker import accuracy, checks, environment  # noqa: E402
from profiler_kit.worker.device_state import device_state  # noqa: E402
from profiler_kit.worker.pieces import PIECE_ELEMENTS  # noqa: E402
from profiler_kit.worker.steps import Runner  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
V0 = str(ROOT / "models" / "convnet_v0.py")


@pytest.fixture(autouse=True)
def _restore_flags() -> Iterator[None]:
    cudnn = torch.backends.cudnn
    flags = (cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32)
    yield
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = flags


def runner(spec: str, **fields: object) -> Runner:
    return Runner(load(TargetSpec(spec=spec, **fields), device="cuda"))  # type: ignore[arg-type]


def write_net(folder: Path, forward: str, inputs: str, init: str = "pass") -> str:
    file = folder / "net.py"
    file.write_text(
        "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {init}\n    def forward(self, x):\n        return {forward}\n"
        f"example_inputs = {inputs}\ndef loss_fn(out):\n    return out.square().mean()\n"
    )
    return str(file)


def test_results_are_reproducible_across_runners() -> None:
    torch.backends.cudnn.deterministic = True
    of = runner(V0)
    start = checks.seeded_state(of)
    comparison = checks.compare_passes(of, start)
    assert comparison.outputs is True
    assert None not in (comparison.loss, comparison.gradients, comparison.digests.loss, comparison.digests.gradient)
    other_runner = runner(V0)
    assert checks.pass_digests(other_runner, checks.seeded_state(other_runner)).output == comparison.digests.output


def test_atomics_make_outputs_irreproducible(tmp_path: Path) -> None:
    """index_add adds with atomics, so the outputs of three passes of one program differ."""
    spec = write_net(
        tmp_path,
        "torch.zeros(7, device=x.device).index_add(0, torch.arange(len(x), device=x.device) % 7, x)",
        "torch.rand(2_000_000)",
    )
    of = runner(spec, mode="infer")
    comparison = checks.compare_passes(of, checks.seeded_state(of))
    assert (comparison.outputs, comparison.loss, comparison.gradients) == (False, None, None)


def test_tf32_errors_exceed_float32_errors_in_outputs_and_gradients() -> None:
    errors = {}
    for tf32 in (True, False):
        torch.backends.cudnn.allow_tf32 = tf32
        of = runner(V0)
        start = checks.seeded_state(of)
        of.step()
        begin = time.perf_counter()
        checks.compare_passes(of, start)
        bits_s = time.perf_counter() - begin
        errors[tf32] = accuracy.error_against_float64(of, start, gradient_limit_ns=60_000_000_000)
        all_s = time.perf_counter() - begin
        print(f"TF32 {tf32}: bits {bits_s:.2f} s, errors {all_s - bits_s:.2f} s, {errors[tf32]}")
        assert all_s < 10
    if environment.has_tf32("cuda"):
        for key, limit in (("max_relative", 1e-4), ("l2_relative", 1e-4), ("gradient_l2_relative", 1e-3)):
            assert 0 < getattr(errors[False], key) < limit
            assert getattr(errors[False], key) < getattr(errors[True], key) < 0.05


def test_the_time_limit_covers_both_errors() -> None:
    of = runner(V0)
    start = checks.seeded_state(of)
    of.step()
    begin = time.perf_counter()
    error = accuracy.error_against_float64(of, start)
    duration_s = time.perf_counter() - begin
    print(f"errors within the limit: {duration_s:.2f} s, {error}")
    assert error.l2_relative is not None
    assert duration_s < 4


def test_dropout_is_off_in_the_float64_comparison(tmp_path: Path) -> None:
    init = "self.fc, self.drop = nn.Linear(64, 64), nn.Dropout(0.5)"
    of = runner(write_net(tmp_path, "self.drop(self.fc(x))", "torch.randn(32, 64)", init))
    error = accuracy.error_against_float64(of, checks.seeded_state(of))
    assert error.l2_relative is not None
    assert error.l2_relative < 1e-2
    assert error.note is not None
    assert "dropout" in error.note


def test_checks_need_little_memory_besides_the_output(tmp_path: Path) -> None:
    of = runner(write_net(tmp_path, "x * 1.5", "torch.randn(96 * 2**20)"), mode="infer")  # 384 MiB in, 384 MiB out
    start = checks.seeded_state(of)
    device = of.target.device
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    assert checks.compare_passes(of, start).outputs is True
    assert torch.cuda.max_memory_allocated(device) - before <= 400 * 2**20 + 8 * PIECE_ELEMENTS
    torch.cuda.reset_peak_memory_stats(device)
    error = accuracy.error_against_float64(of, start)
    assert error.max_relative is not None
    # the output, two inputs and one output in float64, and a few pieces
    assert torch.cuda.max_memory_allocated(device) - before <= (384 + 2 * 768 + 16) * 2**20 + 6 * 8 * PIECE_ELEMENTS
    assert torch.cuda.memory_allocated(device) <= before + 2**20


@pytest.mark.skipif(importlib.util.find_spec("pynvml") is None, reason="needs nvidia-ml-py")
def test_the_device_state_has_clock_and_temperature() -> None:
    heat = torch.randn(4096, 4096, device="cuda")
    for _ in range(50):
        heat = torch.nn.functional.normalize(heat @ heat)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    state = device_state("cuda")
    print(f"{state} in {1e3 * (time.perf_counter() - begin):.1f} ms")
    assert state is not None
    assert state.sm_clock_hz is not None
    assert state.temperature_celsius is not None
    assert 1e8 < state.sm_clock_hz < 4e9
    assert 10 < state.temperature_celsius < 110
    assert not any(reason.startswith("reason") for reason in state.throttled_by)

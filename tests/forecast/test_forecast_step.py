"""The forecast of a step: sums, intervals, the host in front of the kernels, and `count --gpu`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
import torch

import profiler_kit
from profiler_kit import errors
from profiler_kit.cli import main
from profiler_kit.devices.cards.data_center import H100
from profiler_kit.devices.registry import devices
from profiler_kit.forecast.host import KIND_NS
from profiler_kit.forecast.step import forecast_step, spread_of
from profiler_kit.forecast.work import Arithmetic
from profiler_kit.records.calls import OpCall, StepCall, TensorFacts
from profiler_kit.records.counts import Forecast
from profiler_kit.worker.host_speed import host_factor, host_step_ns

MODEL = """
import torch
from torch import nn

def build():
    model = nn.Sequential(nn.Conv2d(3, WIDTH, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(WIDTH * 256, 10))
    return model, torch.randn(BATCH, 3, 16, 16)
"""


def sums(count: int, numel: int) -> list[StepCall]:
    """`count` pointwise sums in two modules."""
    tensor = TensorFacts((numel,), (1,), "float32", 4)
    call = OpCall("aten.add", (tensor, tensor), outputs=(tensor,))
    return [StepCall(call, "forward", "ab"[place % 2]) for place in range(count)]


def forecast_of(calls: list[StepCall]) -> Forecast:
    """The forecast on an H100."""
    forecast = forecast_step(calls, H100, Arithmetic())
    assert forecast is not None
    return forecast


def test_modules_sum_to_the_kernel_time() -> None:
    forecast = forecast_of(sums(7, 1 << 20))
    assert sum(layer.kernel_ns for layer in forecast.modules) == forecast.kernel_ns.median
    assert {layer.path for layer in forecast.modules} == {"a", "b"}


def test_intervals_contain_their_medians() -> None:
    for calls in (sums(3, 100), sums(50, 1 << 24)):
        forecast = forecast_of(calls)
        for time in (forecast.kernel_ns, forecast.host_ns, forecast.step_ns):
            assert time.low < time.median < time.high


def test_small_kernels_wait_for_the_host_and_large_ones_hide_it() -> None:
    small, large = forecast_of(sums(100, 100)), forecast_of(sums(100, 1 << 26))
    assert small.step_ns.median == pytest.approx(small.host_ns.median, rel=0.05)
    assert large.step_ns.median == pytest.approx(large.kernel_ns.median, rel=0.05)
    assert small.host_ns == large.host_ns


def test_errors_of_one_op_add_up_and_those_of_different_ops_partly_cancel() -> None:
    assert spread_of([("a", 1.0, 0.2), ("a", 1.0, 0.2)]) == pytest.approx(0.2)
    assert spread_of([("a", 1.0, 0.2), ("b", 1.0, 0.2)]) == pytest.approx(0.2 / 2**0.5)
    assert spread_of([]) == 0


def test_ops_without_recorded_calls_are_listed() -> None:
    tensor = TensorFacts((1 << 20,), (1,), "float32", 4)
    calls = [*sums(2, 100), StepCall(OpCall("my.op", (tensor,), outputs=(tensor,)), "forward", "a")]
    (estimated,) = forecast_of(calls).estimated
    assert (estimated.op, estimated.calls) == ("my.op", 1)


def test_a_device_without_peaks_and_a_step_without_calls_have_no_forecast() -> None:
    assert forecast_step([], H100, Arithmetic()) is None
    assert forecast_step(sums(1, 8), next(device for device in devices() if not device.is_cuda), Arithmetic()) is None


def write_model(folder: Path, name: str = "net.py", width: int = 8, batch: int = 4) -> Path:
    """A model file."""
    path = folder / name
    path.write_text(MODEL.replace("WIDTH", str(width)).replace("BATCH", str(batch)))
    return path


def counted(path: Path, *options: str) -> dict[str, object]:
    """The JSON of `count`."""
    out = path.with_suffix(".json")
    assert main(["count", str(path), *options, "-f", "json", "-o", str(out), "-q"]) == 0
    static: dict[str, object] = json.loads(out.read_text())["static"]
    return static


def forecast_in(path: Path, *options: str) -> Forecast:
    """The forecast of `count` for an H100."""
    counted(path, "--gpu", "h100", *options)
    static = profiler_kit.read_report(str(path.with_suffix(".json"))).static
    assert static is not None
    assert static.forecast is not None
    return static.forecast


def test_count_has_a_forecast_for_the_device_that_the_user_names(tmp_path: Path) -> None:
    path = write_model(tmp_path)
    assert counted(path)["forecast"] is None
    report = profiler_kit.read_report(str(path.with_suffix(".json")))
    assert report.static is not None
    forecast = forecast_in(path)
    assert {layer.phase for layer in forecast.modules} == {"forward", "loss", "backward", "optimizer"}
    assert {"0", "3", "(optimizer)"} <= {layer.path for layer in forecast.modules}
    assert not forecast.estimated


@pytest.fixture
def precision() -> Iterator[None]:
    """Set the precision of products back after a test."""
    flags = torch.backends.cuda.matmul
    name = "fp32_precision" if hasattr(flags, "fp32_precision") else "allow_tf32"
    before = getattr(flags, name)
    yield
    setattr(flags, name, before)


@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize(
    "line",
    ["torch.backends.cuda.matmul.allow_tf32 = True", 'torch.backends.cuda.matmul.fp32_precision = "tf32"'],
)
def test_products_have_the_precision_that_the_file_sets(tmp_path: Path, line: str) -> None:
    if "fp32_precision" in line and not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has the old switch only")
    times = []
    for name, text in (("plain.py", ""), ("tf32.py", line)):
        path = write_model(tmp_path, name, width=256, batch=256)
        path.write_text(path.read_text().replace("from torch import nn\n", f"from torch import nn\n{text}\n"))
        counted(path, "--gpu", "h100", "--mode", "infer")
        static = profiler_kit.read_report(str(path.with_suffix(".json"))).static
        assert static is not None
        assert static.forecast is not None
        times.append(next(layer.kernel_ns for layer in static.forecast.modules if layer.path == "3"))
    assert times[1] < times[0]


def test_more_work_takes_longer_and_another_card_is_scaled(tmp_path: Path) -> None:
    small = write_model(tmp_path, "small.py", batch=64)
    large = write_model(tmp_path, "large.py", batch=1024)
    times = []
    for path, gpu in ((small, "h100"), (large, "h100"), (large, "a100")):
        counted(path, "--gpu", gpu)
        static = profiler_kit.read_report(str(path.with_suffix(".json"))).static
        assert static is not None
        assert static.forecast is not None
        assert static.forecast.is_scaled == (gpu == "a100")
        times.append(static.forecast.kernel_ns.median)
    assert times == sorted(times)


def test_a_slower_host_lengthens_a_step_that_the_host_limits(tmp_path: Path) -> None:
    path = write_model(tmp_path)
    reference, slow = (forecast_in(path, "--host", factor) for factor in ("1", "3"))
    assert (reference.host_factor, slow.host_factor) == (1.0, 3.0)
    assert slow.kernel_ns == reference.kernel_ns
    assert slow.host_ns.median == pytest.approx(3 * reference.host_ns.median, rel=1e-3)
    assert slow.step_ns.median > 2 * reference.step_ns.median


@pytest.mark.parametrize("factor", ["0", "-1", "inf", "much"])
def test_a_factor_is_a_positive_number(tmp_path: Path, factor: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", str(write_model(tmp_path)), "--gpu", "h100", f"--host={factor}"]) == errors.USAGE
    assert "--host" in capsys.readouterr().err


def test_every_family_of_calls_has_a_time_on_the_host() -> None:
    data = (resources.files("profiler_kit.devices") / "prices" / str(H100.prices)).read_bytes()
    assert set(json.loads(gzip.decompress(data))["families"]) <= set(KIND_NS)


def test_the_speed_of_the_host_is_measured() -> None:
    assert 1e5 < host_step_ns() < 1e9
    assert host_factor() > 0

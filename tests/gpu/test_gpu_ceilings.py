"""GPU tests of measured peaks: below the datasheet, measured in seconds, and above the layers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

import profiler_kit  # noqa: E402
from profiler_kit.devices.registry import peaks_of  # noqa: E402
from profiler_kit.measurement.worker_process import worker_forks  # noqa: E402
from profiler_kit.pipeline import rooflines  # noqa: E402
from profiler_kit.pipeline.analyze import analyze  # noqa: E402
from profiler_kit.records.machine import Ceilings, Machine  # noqa: E402
from profiler_kit.records.serde import from_json, to_json  # noqa: E402
from profiler_kit.report import machine_document  # noqa: E402
from profiler_kit.worker import environment  # noqa: E402

MODELS = Path(__file__).resolve().parents[2] / "models"


@pytest.fixture(scope="module")
def reached() -> Ceilings:
    ceilings, notes = rooflines.ceilings_of("cuda", fresh=True)
    assert ceilings is not None, notes
    return ceilings


def test_every_arithmetic_is_measured_and_tensor_cores_are_faster(reached: Ceilings) -> None:
    rates = {rate.math: rate.flops_per_s for rate in reached.rates}
    assert reached.notes == ()
    assert reached.driver
    if environment.has_tf32("cuda"):
        assert set(rates) == {"fp32", "tf32", "f16", "bf16"}
        assert rates["tf32"] > 1.2 * rates["fp32"]
        assert rates["bf16"] > 1.2 * rates["tf32"]
    assert all(rate.spread_percent < 10 for rate in reached.rates)


def test_no_ceiling_is_above_the_datasheet_nor_far_below(reached: Ceilings) -> None:
    sheet = peaks_of(reached.device_name)
    if sheet is None:
        pytest.skip("the datasheet of this device is unknown")
    for rate in reached.rates:
        peak = sheet.for_math(rate.math)
        assert peak is not None
        assert 0.4 * peak < rate.flops_per_s < 1.05 * peak, rate
    assert reached.bandwidth_bytes_per_s is not None
    assert 0.6 * sheet.bandwidth < reached.bandwidth_bytes_per_s < 1.02 * sheet.bandwidth


def test_analyze_can_wait_for_the_measurement(reached: Ceilings) -> None:
    assert reached.rates  # also: the libraries are in the page cache, as after the processes that analyze runs before
    with worker_forks():  # as in analyze: a process of its own imports torch for up to ten seconds
        rooflines.ceilings_of("cuda", fresh=True)
        start = time.perf_counter()
        ceilings, notes = rooflines.ceilings_of("cuda", fresh=True, limit_s=rooflines.ANALYZE_LIMIT_S)
        elapsed_s = time.perf_counter() - start
    assert elapsed_s < rooflines.ANALYZE_LIMIT_S + 3
    assert ceilings is not None, notes


def test_two_measurements_agree(reached: Ceilings) -> None:
    second, _ = rooflines.ceilings_of("cuda", fresh=True)
    assert second is not None
    assert second.bandwidth_bytes_per_s == pytest.approx(reached.bandwidth_bytes_per_s, rel=0.1)
    first_rates = {rate.math: rate.flops_per_s for rate in reached.rates}
    for rate in second.rates:
        assert rate.flops_per_s == pytest.approx(first_rates[rate.math], rel=0.15), rate


def test_layers_lie_under_the_measured_roof(reached: Ceilings) -> None:
    report = analyze(str(MODELS / "convnet_v0.py"), configs=["default"], budget_s=4)
    line = report.roofline_of(report.baseline())
    assert line is not None
    assert line.roof.source == "measured"
    assert line.step is not None
    assert line.step.attained_percent is not None
    assert 5 < line.step.attained_percent < 110
    conv2 = [layer for layer in line.layers if layer.path == "conv2"]
    assert {layer.binds for layer in conv2} == {"compute"}
    assert {layer.math for layer in conv2} == {"tf32" if environment.has_tf32("cuda") else "fp32"}
    for layer in conv2:
        assert layer.time_ns is not None
        assert layer.floor_ns < 1.1 * layer.time_ns
    sources = [roofline.roof.source for roofline in report.roofline if roofline.config == "default"]
    assert sources == (["measured", "datasheet"] if peaks_of(reached.device_name) else ["measured"])


def test_env_knows_the_device_and_its_configurations() -> None:
    machine = profiler_kit.env()
    assert machine.environment is not None
    assert machine.environment.device == "cuda"
    assert machine.devices[0].id == "cuda:0"
    assert len(machine.configs) == (9 if environment.has_tf32("cuda") else 5)
    assert machine.torch_cuda is not None
    assert from_json(Machine, to_json(machine)) == machine
    table = next(table for table in machine_document(machine).full if table.name == "ceilings")
    assert len(table.rows) >= 3

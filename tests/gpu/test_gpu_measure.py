"""GPU tests of measurement: configurations of the case study, three clocks, attribution, memory and failures."""

from __future__ import annotations

from pathlib import Path

import pytest
from measure_models import measure

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from profiler_kit.measurement import plan as configs  # noqa: E402
from profiler_kit.pipeline.analyze import analyze  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.report import Report  # noqa: E402
from profiler_kit.records.runs import ConfigRun  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402

MODELS = Path(__file__).resolve().parents[2] / "models"
DEFAULT = configs.make_plan("cudnn").configs[0]
NO_TF32 = next(c for c in configs.make_plan("cudnn").configs if c.name == "no-tf32")


@pytest.fixture(scope="module")
def v0(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return analyze(
        str(MODELS / "convnet_v0.py"),
        configs=["default", "no-tf32"],
        budget_s=9,
        traces=tmp_path_factory.mktemp("v0"),
    )


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return analyze(
        str(MODELS / "convnet_v1.py"),
        configs=["default", "no-tf32"],
        budget_s=9,
        traces=tmp_path_factory.mktemp("v1"),
    )


def good(report: Report, name: str) -> ConfigRun:
    run = report.run(name)
    assert run is not None
    assert run.failure is None, run.failure
    return run


def share(run: ConfigRun, phase: str, clock: str) -> float:
    values = {p.phase: getattr(p, clock) or 0 for p in run.phases}
    return 100 * values[phase] / sum(values.values())


def test_the_stopwatch_blames_the_loss_and_the_kernels_do_not(v0: Report) -> None:
    run = good(v0, "default")
    assert share(run, "loss", "stopwatch_ns") > 42
    assert share(run, "loss", "kernel_ns") < 1
    assert "wrong_phase" in {f.rule for f in v0.findings}


def test_kernel_shares_of_v0_on_hopper(v0: Report) -> None:
    if "H100" not in good(v0, "default").environment.device_name:  # type: ignore[union-attr]
        pytest.skip("figures are an H100's")
    run = good(v0, "default")
    assert share(run, "forward", "kernel_ns") == pytest.approx(37, abs=3)
    assert share(run, "backward", "kernel_ns") == pytest.approx(63, abs=3)


@pytest.mark.parametrize("name", ["default", "no-tf32"])
def test_the_three_clocks_of_each_phase_exist_and_events_agree_with_kernels(v0: Report, name: str) -> None:
    run = good(v0, name)
    assert [p.phase for p in run.phases] == ["forward", "loss", "backward", "optimizer"]
    for timing in run.phases:
        assert timing.stopwatch_ns is not None
        assert timing.event_ns is not None
        assert timing.kernel_ns is not None
    heavy = [p for p in run.phases if p.phase in ("forward", "backward")]
    for timing in heavy:
        assert timing.kernel_ns == pytest.approx(timing.event_ns, rel=0.1)


def test_device_time_is_attributed_to_layers_and_the_rest_is_shown(v0: Report) -> None:
    run = good(v0, "default")
    assert run.device_ns is not None
    assert run.unattributed_ns is not None
    assert run.unattributed_ns <= 0.01 * run.device_ns
    assert run.device_ns == sum(layer.kernel_ns for layer in run.modules) + run.unattributed_ns
    conv2 = {layer.phase: layer.kernel_ns for layer in run.modules if layer.path == "conv2"}
    assert set(conv2) == {"forward", "backward"}
    assert sum(conv2.values()) > 0.85 * run.device_ns


def test_every_timed_path_is_counted(v0: Report) -> None:
    assert v0.static is not None
    counted = {m.path for m in v0.static.modules} | {"(loss)", "(optimizer)", "(transfer)", "(data)"}
    for run in v0.runs:
        assert {layer.path for layer in run.modules} <= counted


def test_v1_without_tf32_peaks_by_its_fft_workspace(v1: Report) -> None:
    run = good(v1, "no-tf32")
    assert run.memory is not None
    assert run.memory.peak_path == "conv_r1"
    assert run.memory.workspace > 1_000_000_000
    assert run.memory.workspace > 5 * run.memory.saved_activations
    families = {k.family for layer in run.modules if layer.path == "conv_r1" for k in layer.kernels}
    assert "conv:fft" in families
    assert "workspace_peak" in {f.rule for f in v1.findings}


def test_memory_parts_sum_to_the_probe_s_peak(v0: Report, v1: Report) -> None:
    for report in (v0, v1):
        for run in report.runs:
            m = run.memory
            assert m is not None
            parts = (
                m.parameters + m.gradients + m.optimizer_state + m.inputs + m.saved_activations + m.workspace + m.rest
            )
            assert parts == m.peak_bytes
            assert m.rest >= 0
            assert run.peak_allocated_bytes == pytest.approx(m.peak_bytes, rel=0.02)


def test_saved_activations_agree_with_the_count(v0: Report) -> None:
    assert v0.static is not None
    memory = good(v0, "no-tf32").memory
    assert memory is not None
    assert memory.saved_activations >= 0.9 * v0.static.saved_bytes or memory.peak_phase == "backward"


def test_the_repetition_of_the_baseline_is_there_and_bits_can_be_compared(v0: Report) -> None:
    again = next(r for r in v0.runs if r.config.repeat_of == "default")
    assert again.failure is None
    assert again.step_ns is not None
    assert again.output_digest is not None
    tf32, full = good(v0, "default"), good(v0, "no-tf32")
    assert tf32.max_relative_error is not None
    assert full.max_relative_error is not None
    assert full.max_relative_error < 1e-5 < tf32.max_relative_error


def test_running_out_of_memory_is_a_result(tmp_path: Path) -> None:
    run = measure(TargetSpec(spec=str(MODELS / "convnet_v0.py"), batch=100_000), DEFAULT, device="cuda", budget_s=2)
    assert run.failure is not None
    assert run.failure.kind == "out_of_memory"


def test_a_device_side_assert_is_a_result(tmp_path: Path) -> None:
    file = tmp_path / "bad_index.py"
    file.write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.table = nn.Embedding(4, 8)\n"
        "    def forward(self, ids):\n        return self.table(ids + 100)\n"
        "example_inputs = torch.zeros(2, 3, dtype=torch.int64)\n"
    )
    run = measure(TargetSpec(spec=str(file)), DEFAULT, device="cuda", budget_s=2)
    assert run.failure is not None
    assert "assert" in (run.failure.message + run.failure.log_tail).lower()


def test_inference_is_measured_too() -> None:
    run = measure(TargetSpec(spec=str(MODELS / "convnet_v1.py"), mode="infer"), NO_TF32, device="cuda", budget_s=3)
    assert run.failure is None, run.failure
    assert {p.phase for p in run.phases} == {"forward", "other"}


@pytest.mark.parametrize("model", ["mnist_cnn.py", "transformer.py", "resnet.py:resnet18"])
def test_the_other_models_give_a_whole_report(model: str, tmp_path: Path) -> None:
    report = analyze(str(MODELS / model), configs=["default"], budget_s=4, traces=tmp_path)
    run = good(report, "default")
    assert run.device_ns
    assert run.unattributed_ns is not None
    assert run.unattributed_ns <= 0.02 * run.device_ns
    phases = {p.phase for p in run.phases}
    assert ({"data", "transfer"} <= phases) == ("mnist" in model)


def test_a_flag_reaches_torch() -> None:
    config = RunConfig(name="x", enabled=True, benchmark=True, deterministic=True, allow_tf32=False)
    run = measure(TargetSpec(spec=str(MODELS / "convnet_v1.py"), batch=1), config, device="cuda", budget_s=1)
    assert run.environment is not None
    flags = {f.name: f.value for f in run.environment.flags}
    assert (flags["cudnn.benchmark"], flags["cudnn.deterministic"], flags["cudnn.allow_tf32"]) == (
        "True",
        "True",
        "False",
    )

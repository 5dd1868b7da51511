"""GPU tests of convolution parts: their times against the layer's time in a traced step; CUDA graphs and compiled models."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


from profiler_kit.attribution.convolutions import with_macs  # noqa: E402
from profiler_kit.counting import count_target  # noqa: E402
from profiler_kit.loading import load  # noqa: E402
from profiler_kit.pipeline.run_traces import attribute_run_trace, with_convolution_parts  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.experiments import CONVOLUTION_PARTS, ConvolutionTiming, PartWorkspace  # noqa: E402
from profiler_kit.records.families import is_convolution  # noqa: E402
from profiler_kit.records.runs import ConfigRun  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402
from profiler_kit.worker import parts  # noqa: E402
from profiler_kit.worker.steps import Runner  # noqa: E402
from profiler_kit.worker.tracing import traced_steps  # noqa: E402

V0 = str(Path(__file__).resolve().parents[2] / "models" / "convnet_v0.py")


class Recorded(NamedTuple):
    timings: dict[tuple[str, str], ConvolutionTiming]
    workspaces: tuple[PartWorkspace, ...]
    plain: ConfigRun


@pytest.fixture(scope="module")
def v0(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("parts")
    spec = TargetSpec(spec=V0)
    runner = Runner(load(spec, device="cuda"))
    for _ in range(5):
        runner.step()
    traced_steps(runner, 3, folder / "plain.json")
    workspaces = parts.record_parts(runner, folder / "parts.json")
    config = RunConfig(name="x", enabled=None, benchmark=None, deterministic=None, allow_tf32=None)
    run = attribute_run_trace(ConfigRun(config=config, part_workspaces=workspaces), folder / "plain.json").run
    run = with_convolution_parts(run, folder / "parts.json")
    timings = with_macs(run.convolutions, count_target(load(spec)))
    assert not list(folder.glob("partial*"))
    return Recorded({(t.path, t.part): t for t in timings}, workspaces, run)


def test_every_convolution_has_its_parts(v0: Recorded) -> None:
    expected = {(f"conv{i}", part) for i in (1, 2, 3, 4) for part in CONVOLUTION_PARTS} - {("conv1", "dgrad")}
    assert set(v0.timings) == expected
    assert {(w.path, w.part) for w in v0.workspaces} == expected
    assert all(t.calls == 1 and is_convolution(t.family) for t in v0.timings.values())
    assert all(0 <= t.layout_ns < t.kernel_ns for t in v0.timings.values())


def test_the_parts_of_the_large_one_take_the_layer_s_time(v0: Recorded) -> None:
    parts = [v0.timings["conv2", part] for part in CONVOLUTION_PARTS]
    layer_ns = sum(layer.kernel_ns for layer in v0.plain.modules if layer.path == "conv2")
    assert sum(t.kernel_ns for t in parts) == pytest.approx(layer_ns, rel=0.05)
    assert all(t.math is not None for t in parts)
    kernels = {k.name for layer in v0.plain.modules if layer.path == "conv2" for k in layer.kernels}
    assert {t.kernel for t in parts} <= kernels  # the same algorithms as in a plain step


def test_busy_and_idle_time_are_the_span_of_the_traced_steps(v0: Recorded) -> None:
    run = v0.plain
    assert run.device_ns is not None
    assert run.device_ns + sum(part.ns for part in run.idle) == run.span_ns
    assert run.mean_step is not None
    assert run.mean_step.queue is not None
    assert "aten::item" in {wait.name for wait in run.mean_step.syncs}
    assert all(timing.host_ns is not None for timing in run.phases)


def test_its_rate_and_its_scratch(v0: Recorded) -> None:
    for part in CONVOLUTION_PARTS:
        rate = v0.timings["conv2", part].flops_per_s
        assert rate is not None
        assert 1e12 < rate < 2e15
    backward = [v0.timings["conv2", part].workspace_bytes or 0 for part in ("dgrad", "wgrad")]
    assert max(backward) > 100 * 2**20


def test_nothing_is_recorded_of_a_graph_that_is_replayed(tmp_path: Path) -> None:
    target = load(TargetSpec(spec=V0, mode="infer"), device="cuda")
    runner = Runner(target)
    with torch.no_grad():
        target.step_module = torch.cuda.make_graphed_callables(target.model, target.batch.args)
    runner.step()
    assert parts.record_parts(runner, tmp_path / "parts.json") == ()
    assert not list(tmp_path.iterdir())

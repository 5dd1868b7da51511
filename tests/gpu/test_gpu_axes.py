"""GPU tests of the axes: compiled and captured steps, memory limits, and the clock of steps that read no loss."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measure_models import measure

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from profiler_kit.configurations.naming import parse_config  # noqa: E402
from profiler_kit.errors import UsageError  # noqa: E402
from profiler_kit.loading import load  # noqa: E402
from profiler_kit.measurement import plan as configs  # noqa: E402
from profiler_kit.records.jobs import ScreenJob, ScreenRequest  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402
from profiler_kit.worker import accuracy, checks, environment, variant  # noqa: E402
from profiler_kit.worker.screen import Screen  # noqa: E402
from profiler_kit.worker.steps import Runner, synced_step_ns, timed_steps  # noqa: E402

MODELS = Path(__file__).resolve().parents[2] / "models"
DEFAULT = configs.make_plan("cudnn").configs[0]
RESNET = TargetSpec(spec=f"{MODELS / 'resnet.py'}:resnet18", batch=4, optimizer="sgd")
V1 = TargetSpec(spec=str(MODELS / "convnet_v1.py"))


@pytest.fixture(autouse=True)
def _restore_flags() -> Iterator[None]:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    flags = (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, cudnn.benchmark_limit)
    tf32 = matmul.allow_tf32
    yield
    cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, cudnn.benchmark_limit = flags
    matmul.allow_tf32 = tf32
    torch.use_deterministic_algorithms(False)
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def prepared(name: str, spec: TargetSpec = RESNET) -> Runner:
    config = parse_config(name, DEFAULT)
    environment.apply_flags(config)
    variant.apply_to_process(config, "cuda")
    runner = Runner(load(variant.apply_to_spec(config, spec), device="cuda", compiled=True))
    environment.apply_flags(config)
    variant.apply_to_process(config, "cuda")
    variant.apply_to_steps(config, runner)
    return runner


def after_steps(runner: Runner, steps: int = 2) -> dict[str, Any]:
    for _ in range(steps):
        runner.step()
    runner.synchronize()
    return {name: value.detach().clone() for name, value in runner.target.model.state_dict().items()}


@pytest.mark.parametrize(
    "name", ["cuda_graph", "compile", "compile+cuda_graph", "benchmark+cuda_graph", "compile=reduce-overhead"]
)
def test_a_captured_or_compiled_training_step_is_the_eager_one(name: str) -> None:
    """Parameters and running statistics after two steps: the warm-ups before a capture leave nothing behind."""
    eager, other = after_steps(prepared("no-tf32")), after_steps(prepared(f"no-tf32+{name}"))
    torch.testing.assert_close(other, eager, rtol=1e-3, atol=1e-3)  # a compiler adds in another order
    counted = [value for key, value in other.items() if key.endswith("num_batches_tracked")]
    assert counted
    assert {int(value) for value in counted} == {2}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_replayed_step_trains_as_the_eager_one(optimizer: str) -> None:
    """The warm-up before the capture trains three steps; then one replay is one step."""
    spec = replace(RESNET, optimizer=optimizer)
    eager = after_steps(prepared("no-tf32", spec), 5)
    replayed = after_steps(prepared("no-tf32+cuda_graph=step", spec), 2)  # 3 + 2
    torch.testing.assert_close(replayed, eager, rtol=1e-2, atol=1e-2)
    assert {int(v) for k, v in replayed.items() if k.endswith("num_batches_tracked")} == {5}


@pytest.mark.parametrize("name", ["benchmark", "cuda_graph=step", "cuda_graph", "amp_bf16", "channels_last", "no_item"])
def test_sides_of_one_process_take_turns_on_cuda(name: str) -> None:
    job = ScreenJob(spec=RESNET, config=DEFAULT, device="cuda", answers="")
    request = ScreenRequest(base=DEFAULT, config=parse_config(name, DEFAULT), budget_s=2.0)
    answer = Screen(job, lambda _: None).answer(request)
    assert answer.run.failure is None
    assert len(answer.before_ns) == len(answer.after_ns) >= 4


@pytest.mark.parametrize("name", ["cuda_graph", "compile", "cuda_graph+amp_bf16", "cuda_graph+channels_last"])
def test_checks_hold_for_what_is_captured_or_compiled(name: str) -> None:
    runner = prepared(name)
    start = checks.seeded_state(runner)
    runner.step()
    bits = checks.compare_passes(runner, start)
    assert bits.outputs is True
    error = accuracy.error_against_float64(runner, start).max_relative
    assert error is not None
    assert 0 < error < (0.5 if "bf16" in name else 0.1)
    assert runner.unobservable_reason


def test_gradients_of_a_graph_are_those_of_a_plain_pass() -> None:
    gradients = []
    for name in ("no-tf32", "no-tf32+cuda_graph"):
        runner = prepared(name)
        runner.forward_backward(runner.fetch())
        gradients.append(
            {key: p.grad.clone() for key, p in runner.target.model.named_parameters() if p.grad is not None}
        )
    assert list(gradients[0]) == list(gradients[1])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["cuda_graph", "compile"])
def test_inference_too(name: str) -> None:
    spec = TargetSpec(spec=RESNET.spec, batch=4, mode="infer")
    outputs = []
    for config in ("no-tf32", f"no-tf32+{name}"):
        runner = prepared(config, spec)
        runner.step()
        with torch.no_grad():
            outputs.append(runner.target.step_module(*runner.target.batch.args).clone())
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-3, atol=1e-4)


def test_a_graph_launches_faster_where_launching_is_what_takes_time() -> None:
    times = {}
    for name in ("default", "cuda_graph"):
        runner = prepared(name)
        for _ in range(5):
            runner.step()
        times[name] = min(synced_step_ns(runner) for _ in range(10))
    assert times["cuda_graph"] < 0.9 * times["default"]


def test_a_step_that_waits_cannot_be_captured(tmp_path: Path) -> None:
    file = tmp_path / "waits.py"
    file.write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(4, 4)\n"
        "    def forward(self, x):\n        y = self.fc(x)\n        return y / y.abs().max().item()\n"
        "example_inputs = torch.ones(2, 4)\n"
    )
    # in a process of its own, as configurations are: a capture that failed leaves torch's random state unusable
    run = measure(
        TargetSpec(spec=str(file)), parse_config("cuda_graph", DEFAULT), device="cuda", budget_s=1.0, checks=False
    )
    assert run.failure is not None
    assert "CUDA graph" in run.failure.message
    assert "waits.py:9" in run.failure.message


def test_a_limit_on_memory_changes_the_algorithm_or_ends_in_out_of_memory() -> None:
    peaks = {}
    for name in ("no-tf32", "no-tf32+memory_limit=1GiB"):
        runner = prepared(name, V1)
        gc.collect()  # graphs of earlier tests keep pools of memory
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        after_steps(runner)
        peaks[name] = torch.cuda.max_memory_reserved()
        del runner
    free, capped = peaks.values()
    assert free > 2**30 > capped
    # cuDNN reports another error if no algorithm gets its workspace
    with pytest.raises(RuntimeError, match=r"out of memory|unable to find an engine"):
        after_steps(prepared("memory_limit=60MiB", V1))


def test_a_limit_above_the_device_memory_is_refused() -> None:
    with pytest.raises(UsageError, match="memory_limit"):
        prepared("memory_limit=900GiB")


def test_the_number_of_tuned_algorithms_reaches_torch() -> None:
    prepared("benchmark_limit=1", V1)
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit) == (True, 1)


def test_a_fused_optimizer_steps_as_the_other_does() -> None:
    plain, fused = (
        after_steps(prepared(name, V1), 1)
        for name in ("deterministic+no-tf32", "deterministic+no-tf32+fused_optimizer")
    )
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-6)


def test_steps_that_read_no_loss_are_timed_as_long_as_they_take() -> None:
    """V1's step takes milliseconds, its launches less than one: the host's own clock would call the first steps short."""
    runner = prepared("no_item", V1)
    after_steps(runner, 5)
    began = time.perf_counter_ns()
    timed = timed_steps(runner, 10)
    whole_ns = time.perf_counter_ns() - began
    assert sum(timed.steps_ns) == pytest.approx(
        whole_ns * 10 / 12, rel=0.1
    )  # a step before and one after are not timed
    assert max(timed.steps_ns) < 1.3 * min(timed.steps_ns)

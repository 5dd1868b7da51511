"""Each axis does what it says, seen from inside a model's forward or from what a step leaves."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from measure_models import job, net

torch = pytest.importorskip("torch")

from profiler_kit.configurations.naming import parse_config  # noqa: E402
from profiler_kit.errors import TargetError, UsageError  # noqa: E402
from profiler_kit.loading import load  # noqa: E402
from profiler_kit.records.configs import NamedValue, RunConfig  # noqa: E402
from profiler_kit.worker import accuracy, checks, variant  # noqa: E402
from profiler_kit.worker.graphed import Graphed  # noqa: E402
from profiler_kit.worker.steps import Runner, timed_steps  # noqa: E402

SEEN = "self.seen = x"
IMAGES = "example_inputs = torch.linspace(-1, 1, 8 * 3 * 6 * 6).reshape(8, 3, 6, 6)\n"
CONV = (
    "import torch\nfrom torch import nn\n"
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.block = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())\n"
    "        self.out = nn.Conv2d(4, 2, 1)\n"
    "        self.out.register_forward_hook(lambda *call: setattr(self, 'seen', (call[0].weight, call[1][0], call[2])))\n"
    "    def forward(self, x):\n        return self.out(self.block(x))\n"
    f"{IMAGES}"
)


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    """What axes set for a whole process is set for the tests after these too."""
    cudnn: Any = torch.backends.cudnn
    mkldnn: Any = torch.backends.mkldnn
    matmul: Any = torch.backends.cuda.matmul
    kept = (torch.get_num_threads(), mkldnn.enabled, matmul.allow_tf32, torch.are_deterministic_algorithms_enabled())
    limit = cudnn.benchmark_limit
    variable = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    yield
    torch.set_num_threads(kept[0])
    mkldnn.enabled, matmul.allow_tf32 = kept[1], kept[2]
    torch.use_deterministic_algorithms(kept[3])
    if limit is not None:
        cudnn.benchmark_limit = limit
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    if variable is not None:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = variable


def prepared(folder: Path, text: str, name: str, **words: object) -> Runner:
    """A runner of the network in `text` under the configuration `name`, as the worker makes it."""
    config = parse_config(name, RunConfig(name="default"))
    spec = job(folder, text, **words).spec
    variant.apply_to_process(config, "cpu")
    runner = Runner(load(variant.apply_to_spec(config, spec), device="cpu"))
    variant.apply_to_process(config, "cpu")
    variant.apply_to_steps(config, runner)
    return runner


def seen(runner: Runner) -> Any:
    model: Any = runner.target.model
    return model.seen


def test_channels_last_reaches_the_convolution(tmp_path: Path) -> None:
    for name in ("default", "channels_last"):
        runner = prepared(tmp_path, CONV.replace("Conv2d(4, 2, 1)", "Conv2d(4, 2, 3)"), name)
        runner.step()
        expected = name == "channels_last"
        assert [t.is_contiguous(memory_format=torch.channels_last) for t in seen(runner)] == [expected] * 3


@pytest.mark.parametrize(("name", "dtype"), [("amp_bf16", "bfloat16"), ("amp_fp16", "float16"), ("default", "float32")])
def test_autocast_narrows_what_layers_give(name: str, dtype: str, tmp_path: Path) -> None:
    runner = prepared(tmp_path, net(result="self.out(self.keep(self.fc(x)))").replace(
        "    def forward", "    def keep(self, t):\n        self.seen = t\n        return t\n    def forward", 1
    ), name, mode="infer")  # fmt: skip
    runner.step()
    assert seen(runner).dtype == getattr(torch, dtype)
    assert runner.target.model.fc.weight.dtype == torch.float32  # type: ignore[union-attr]


def test_dtype_casts_model_and_inputs(tmp_path: Path) -> None:
    runner = prepared(tmp_path, net(SEEN), "dtype=bfloat16")
    runner.step()
    assert {seen(runner).dtype, *(p.dtype for p in runner.target.model.parameters())} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("name", "rows"), [("batch=5", 5), ("batch=2x", 4), ("batch=0.5x", 1), ("batch=0.1x", 1), ("batch=1.75x", 4)]
)
def test_the_batch_has_as_many_rows(name: str, rows: int, tmp_path: Path) -> None:
    runner = prepared(tmp_path, net(SEEN), name)
    runner.step()
    assert seen(runner).shape == (rows, 4)
    assert runner.notes == []


def test_a_factor_is_of_the_batch_that_was_asked_for(tmp_path: Path) -> None:
    assert prepared(tmp_path, net(), "batch=2x", batch=6).target.batch.args[0].shape == (12, 4)
    assert prepared(tmp_path, net(), "batch=3", batch=6).target.batch.args[0].shape == (3, 4)


def test_a_factor_of_no_rows_is_told(tmp_path: Path) -> None:
    scalar = net(result="self.out(self.fc(x.expand(2, 4)))", after="example_inputs = torch.tensor(1.0)\n")
    with pytest.raises(UsageError, match="no batch dimension"):
        prepared(tmp_path, scalar, "batch=2x")


def test_a_loader_that_is_not_used_is_noted(tmp_path: Path) -> None:
    loader = "train_loader = [(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long))]\n"
    runner = prepared(tmp_path, net(SEEN, after=loader), "batch=2x")
    runner.step()
    assert seen(runner).shape == (4, 4)
    assert ["loader was not used" in note for note in runner.notes] == [True]


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("default", 1),
        ("checkpoint=block", 2),
        ("checkpoint=block.0", 2),
        ("checkpoint=out", 1),
        ("checkpoint=block+checkpoint=out", 2),
    ],
)
def test_a_checkpointed_module_runs_again_in_backward(name: str, calls: int, tmp_path: Path) -> None:
    counting = CONV.replace("nn.Sequential(nn.Conv2d(3, 4, 3),", "nn.Sequential(Counted(3, 4, 3),").replace(
        "class Net",
        "class Counted(nn.Conv2d):\n    calls = 0\n    def forward(self, x):\n        self.calls += 1\n"
        "        return super().forward(x)\nclass Net",
    )
    runner = prepared(tmp_path, counting, name)
    model: Any = runner.target.model
    runner.step()
    assert model.block[0].calls == calls
    runner.lasting.close()
    runner.step()
    assert model.block[0].calls == calls + 1


def test_checkpointing_gives_the_same_gradients_and_the_same_distance_to_float64(tmp_path: Path) -> None:
    found = []
    for name in ("default", "checkpoint=block"):
        runner = prepared(tmp_path, CONV, name)
        start = checks.seeded_state(runner)
        found.append((checks.compare_passes(runner, start), accuracy.error_against_float64(runner, start).max_relative))
    assert found[0] == found[1]
    assert found[0][1]


def test_a_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no module 'nowhere' to checkpoint"):
        prepared(tmp_path, net(), "checkpoint=nowhere")


@pytest.mark.parametrize("name", ["sgd", "sgd_momentum", "adam", "adamw"])
def test_a_fused_optimizer_is_the_same_with_fused(name: str, tmp_path: Path) -> None:
    after = {}
    for config in ("default", "fused_optimizer"):
        runner = prepared(tmp_path, net(), config, optimizer=name)
        optimizer: Any = runner.optimizer
        plain = {
            key: value for key, value in optimizer.param_groups[0].items() if key not in ("params", "fused", "foreach")
        }
        fused = bool(optimizer.param_groups[0].get("fused"))
        for _ in range(3):
            runner.step()
        after[config] = (type(optimizer), plain, fused, [p.detach().clone() for p in runner.target.model.parameters()])
    assert after["default"][:2] == after["fused_optimizer"][:2]
    assert [after[config][2] for config in after] == [False, True]
    torch.testing.assert_close(after["default"][3], after["fused_optimizer"][3])


def test_parameter_groups_keep_their_own_settings(tmp_path: Path) -> None:
    groups = (
        "def configure_optimizer(model):\n"
        "    return torch.optim.AdamW([{'params': model.fc.parameters(), 'lr': 0.5}, {'params': model.out.parameters()}],"
        " lr=0.1, betas=(0.5, 0.6), foreach=True)\n"
    )
    runner = prepared(tmp_path, net(after="example_inputs = torch.ones(2, 4)\n" + groups), "fused_optimizer")
    optimizer: Any = runner.optimizer
    assert [(g["lr"], g["betas"], g["fused"], g["foreach"]) for g in optimizer.param_groups] == [
        (0.5, (0.5, 0.6), True, False), (0.1, (0.5, 0.6), True, False),
    ]  # fmt: skip
    runner.step()


@pytest.mark.parametrize(("name", "said"), [("rmsprop", "RMSprop has no fused"), ("adadelta", "Adadelta has no fused")])
def test_a_class_without_a_fused_one_is_told(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=said) as caught:
        prepared(tmp_path, net(), "fused_optimizer", optimizer=name)
    assert "Adam and AdamW" in str(caught.value.hint)


def test_what_is_fused_already_or_cannot_be_is_told(tmp_path: Path) -> None:
    own = "example_inputs = torch.ones(2, 4)\ndef configure_optimizer(model):\n    return torch.optim.{}\n"
    with pytest.raises(TargetError, match="AdamW is fused already"):
        prepared(tmp_path, net(after=own.format("AdamW(model.parameters(), fused=True)")), "fused_optimizer")
    with pytest.raises(TargetError, match="SGD can't be fused here: RuntimeError"):
        prepared(tmp_path, net(after=own.format("SGD(model.parameters(), differentiable=True)")), "fused_optimizer")


def test_the_loss_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    item = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda tensor: read.append(tensor.grad_fn) or item(tensor))
    for name, times in (("default", 1), ("no_item", 0)):
        runner = prepared(tmp_path, net(), name, optimizer="sgd")
        read.clear()
        runner.step()
        assert len([grad_fn for grad_fn in read if grad_fn is not None]) == times


def test_threads_are_as_many_as_asked_after_what_the_file_sets(tmp_path: Path) -> None:
    sets = net(after="torch.set_num_threads(6)\nexample_inputs = torch.ones(2, 4)\n")
    for name, count in (("threads=half", 3), ("threads=2", 2), ("default", 6)):
        prepared(tmp_path, sets, name)
        assert torch.get_num_threads() == count


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch is built without oneDNN")
def test_without_onednn_convolutions_run_elsewhere(tmp_path: Path) -> None:
    ops: dict[str, set[str]] = {}
    for name in ("default", "no_onednn"):
        runner = prepared(
            tmp_path,
            CONV.replace("8 * 3 * 6 * 6).reshape(8, 3, 6, 6)", "32 * 3 * 64 * 64).reshape(32, 3, 64, 64)"),
            name,
        )
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            runner.step()
        ops[name] = {event.key for event in profiler.key_averages()}
    assert "aten::mkldnn_convolution" in ops["default"]
    assert not any("mkldnn" in op for op in ops["no_onednn"])


def test_process_wide_switches(tmp_path: Path) -> None:
    prepared(tmp_path, net(), "matmul_tf32+deterministic_algorithms")
    assert torch.backends.cuda.matmul.allow_tf32 is True
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] in (":4096:8", ":16:8")


@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",
        pytest.param(
            "inductor",
            marks=[pytest.mark.jobs, pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")],
        ),
    ],
)
def test_a_compiled_model_gives_the_same_and_its_twins_stay_plain(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_model = torch.compile
    monkeypatch.setattr(torch, "compile", lambda module, mode: compile_model(module, backend=backend))
    bits = {}
    for name in ("default", "compile"):
        runner = prepared(tmp_path, net(), name)
        start = checks.seeded_state(runner)
        runner.step()
        bits[name] = [p.detach().clone() for p in runner.target.model.parameters()]
        assert (runner.unobservable_reason is not None) == (name == "compile")
        assert checks.compare_passes(runner, start).outputs is True
        error = accuracy.error_against_float64(runner, start).max_relative
        assert error is not None
        assert error < 1e-6
        assert set(runner.target.paths().values()) == {"", "fc", "out"}
    assert "OptimizedModule" in type(runner.target.step_module).__name__
    torch.testing.assert_close(bits["default"], bits["compile"])


def test_no_compiler_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpp_builder, exc

    def missing() -> str:
        raise exc.InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    with pytest.raises(TargetError, match=r"C\+\+ compiler"):
        prepared(tmp_path, net(), "compile")


def test_a_graph_wants_a_cuda_device(tmp_path: Path) -> None:
    runner = prepared(tmp_path, net(), "cuda_graph")
    with pytest.raises(TargetError, match="one CUDA device, not cpu"):
        runner.step()


class FakeGraphs:
    """Captures nothing: calls again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from profiler_kit.worker import graphed

        self.captures: list[bool] = []
        monkeypatch.setattr(graphed, "_capture_training", lambda flat, held: self.capture(flat, held, True))
        monkeypatch.setattr(graphed, "_capture_inference", lambda flat, held: self.capture(flat, held, False))
        monkeypatch.setattr(graphed, "one_device", lambda tensors: torch.device("cpu"))
        monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)

    def capture(self, flat: Any, held: Any, trains: bool) -> Any:
        self.captures.append(trains)
        flat(*held)
        return flat


class Odd(torch.nn.Module):
    """Keywords, nesting, what is no tensor, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: Any, *, extra: dict[str, Any], scale: float = 1.0) -> Any:
        out = self.norm(x) * scale + extra["bias"]
        return {"out": out, "both": [x, None], "scale": scale, "how": "odd"}


def test_a_graphed_model_takes_and_gives_what_the_model_does(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeGraphs(monkeypatch)
    model, twin = Odd(), Odd()
    graphed = Graphed(model, model)
    for i in range(3):
        x, bias = torch.full((2, 4), float(i)) * torch.arange(8).reshape(2, 4), torch.tensor(0.5 + i)
        given, expected = graphed(x, extra={"bias": bias}, scale=3.0), twin(x, extra={"bias": bias}, scale=3.0)
        torch.testing.assert_close(given["out"], expected["out"])
        assert given["both"][1] is None
        assert (given["scale"], given["how"], list(given)) == (3.0, "odd", list(expected))
    assert fake.captures == [True]
    # the capture left no trace in the running statistics
    torch.testing.assert_close(dict(model.named_buffers()), dict(twin.named_buffers()))


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((torch.ones(3, 4),), {"scale": 1.0}, "captured with 2x4, a scalar, then called with 3x4, a scalar"),
        ((torch.ones(2, 4).double(),), {"scale": 1.0}, "replays one shape"),
        ((torch.ones(2, 4),), {"scale": 2.0}, "replays one shape"),
        ((torch.ones(2, 4),), {}, "replays one shape"),
    ],
)
def test_a_graph_replays_one_shape(
    args: tuple[Any, ...], kwargs: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeGraphs(monkeypatch)
    model = Odd()
    graphed = Graphed(model, model)
    graphed(torch.ones(2, 4), extra={"bias": torch.tensor(1.0)}, scale=1.0)
    with pytest.raises(TargetError, match=said):
        graphed(*args, extra={"bias": torch.tensor(1.0)}, **kwargs)


def test_inference_has_a_graph_of_its_own_unless_training_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeGraphs(monkeypatch)
    model = torch.nn.Linear(4, 4)
    graphed = Graphed(model, model)
    with torch.no_grad():
        graphed(torch.ones(2, 4))
    graphed(torch.ones(2, 4))
    with torch.no_grad():
        graphed(torch.ones(2, 4))
    assert fake.captures == [False, True]


def test_what_a_capture_dies_of_is_told_by_its_first_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGraphs(monkeypatch)

    class Waits(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            try:
                raise RuntimeError("operation not permitted when stream is capturing")
            finally:
                raise RuntimeError("capture was invalidated")  # as ending a failed capture does

    class Strange(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return {"a": x, "what": object()}

    model: Any = Waits()
    with pytest.raises(TargetError, match="can't be captured as a CUDA graph: RuntimeError: operation not permitted"):
        Graphed(model, model)(torch.ones(2))
    model = Strange()
    with pytest.raises(TargetError, match="returns object, which a CUDA graph cannot return"):
        Graphed(model, model)(torch.ones(2))


def test_running_out_of_memory_in_a_capture_stays_that(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGraphs(monkeypatch)

    class Big(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory")

    model = Big()
    with pytest.raises(torch.OutOfMemoryError):
        Graphed(model, model)(torch.ones(2))


class FakeDevice:
    """A device that works through a queue on a clock of its own: 7 ms a step, while the host needs none."""

    def __init__(self) -> None:
        self.clock_ms = 0.0

    def event(self, *, enable_timing: bool) -> FakeEvent:
        assert enable_timing
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.at_ms = 0.0

    def record(self, stream: object = None) -> None:
        self.device.clock_ms += 1.0
        self.at_ms = self.device.clock_ms

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at_ms - self.at_ms


@pytest.mark.parametrize("name", ["default", "no_item"])
def test_a_step_that_reads_no_loss_is_timed_by_the_device(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice()
    runner = prepared(tmp_path, net(), name)
    runner.cuda = True
    monkeypatch.setattr(runner, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    timed = timed_steps(runner, 4)
    assert len(timed.steps_ns) == 4
    # five marks a step, each a millisecond of the device's clock
    assert (timed.steps_ns == [5_000_000] * 4) == (name == "no_item")
    assert timed.event_ns["forward"] == [1_000_000] * 4


def test_an_axis_that_is_not_known_is_told(tmp_path: Path) -> None:
    config = RunConfig(name="warp", settings=(NamedValue(name="warp", value="9"),))
    with pytest.raises(UsageError, match="no axis 'warp'"):
        variant.apply_to_process(config, "cpu")


def test_a_limit_on_memory_is_for_cuda(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="memory_limit=1GiB: only a CUDA"):
        prepared(tmp_path, net(), "memory_limit=1024MiB")

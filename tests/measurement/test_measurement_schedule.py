"""Runs over changing shapes: the record of a step, its clock, and every way in which a schedule can stop early."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from measure_models import net
from simulated_clock import READING_NS, SimulatedClock, let_time_pass_once
from waiting import is_written

torch = pytest.importorskip("torch")

from profiler_kit.loading.failure import NeedsDataError  # noqa: E402
from profiler_kit.measurement.experiments import run_schedule  # noqa: E402
from profiler_kit.records.configs import NamedValue, RunConfig  # noqa: E402
from profiler_kit.records.experiments import ShapeSchedule, ShapeStep  # noqa: E402
from profiler_kit.records.jobs import ScheduleEnd, ScheduleJob  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402
from profiler_kit.worker import schedule_run as schedule_worker  # noqa: E402
from profiler_kit.worker.schedule_run import rss_bytes, run_job  # noqa: E402

CONFIG = RunConfig(name="default", benchmark=False)
CONV = (
    "import os, sys, time\nimport torch\nfrom torch import nn\n"
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.a, self.b = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, 2, 1)\n"
    "    def forward(self, x):\n"
    "        if x.device.type == 'cpu':\n"
    "            {on_cpu}\n"
    "        return self.b(self.a(x).relu())\n"
    "{after}"
)
EXAMPLE = "example_inputs = torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8)\n"


def conv(on_cpu: str = "pass", after: str = EXAMPLE) -> str:
    return CONV.format(on_cpu=on_cpu, after=after)


def run(folder: Path, text: str, shapes: str, **rest: object) -> tuple[list[ShapeStep], ScheduleEnd]:
    """The schedule, run in this process."""
    config = rest.pop("config", CONFIG)
    file = folder / "net.py"
    file.write_text(text)
    job = ScheduleJob(
        spec=TargetSpec(spec=str(file), **rest),  # type: ignore[arg-type]
        config=config,  # type: ignore[arg-type]
        device="cpu",
        text=shapes,
        steps="",
    )
    steps: list[ShapeStep] = []
    return steps, run_job(job, lambda _: None, steps.append)


def in_a_process(folder: Path, text: str, shapes: str, **rest: object) -> ShapeSchedule:
    (folder / "net.py").write_text(text)
    spec = TargetSpec(spec=str(folder / "net.py"))
    return run_schedule(spec, CONFIG, device="cpu", text=shapes, **rest)  # type: ignore[arg-type]


def test_each_step_records_its_cycle_its_shape_and_whether_it_is_new(tmp_path: Path) -> None:
    steps, ending = run(tmp_path, conv(), "8,12x16,8,3x3x8x8")
    assert ending.failure is None
    assert [s.shape for s in steps[:4]] == [(4, 3, 8, 8), (4, 3, 12, 16), (4, 3, 8, 8), (3, 3, 8, 8)]
    assert [s.cycle for s in steps] == [1] * 4 + [2] * 4 + [3] * 4
    assert [s.seen for s in steps] == [False, False, True, False] + [True] * 8
    assert [s.last_batch for s in steps] == [False, False, False, True] * 3
    assert all(s.ns > 0 and s.peak_bytes is None for s in steps)
    assert all(s.rss_bytes is not None and s.rss_bytes > 50e6 for s in steps)


def test_a_step_is_a_whole_training_step_with_labels_of_the_output_s_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Forward runs once a step on the CPU, and the loss sees labels that fit; made up ones never reach the model."""
    tell = "print(tuple(x.shape), self.a.weight.detach().sum().item())"
    steps, ending = run(tmp_path, conv(tell), "8,10,2x3x8x8", loss="cross_entropy", optimizer="sgd")
    assert ending.failure is None
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(steps) == 9
    assert [line.rpartition(" ")[0] for line in lines] == [str(step.shape) for step in steps]
    weights = [line.rpartition(" ")[2] for line in lines]
    assert len(set(weights)) == 9  # the optimizer steps every time


def test_the_clock_excludes_the_preparation_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimulatedClock().install(monkeypatch)
    reshape_batch = schedule_worker.reshape_batch

    def slow(*args: object) -> object:
        clock.sleep(0.1)
        return reshape_batch(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(schedule_worker, "reshape_batch", slow)
    steps, _ = run(tmp_path, conv("time.sleep(0.03)"), "8,10")
    assert [step.ns for step in steps] == [pytest.approx(30_000_000, abs=10 * READING_NS)] * 6


def test_inference_runs_forward_alone(tmp_path: Path) -> None:
    steps, ending = run(tmp_path, conv("assert not torch.is_grad_enabled()"), "8,16", mode="infer")
    assert ending.failure is None
    assert len(steps) == 6


def test_values_are_those_of_the_batch_whatever_the_shape(tmp_path: Path) -> None:
    """Indices stay within their table, a mask of the same length follows, and the class dimension is known to be the last."""
    text = (
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n        self.table, self.out = nn.Embedding(5, 8), nn.Linear(8, 7)\n"
        "    def forward(self, ids, mask):\n"
        "        assert mask.shape == ids.shape\n"
        "        return self.out(self.table(ids) * mask[..., None])\n"
        "example_inputs = (torch.arange(24).reshape(2, 12) % 5, torch.ones(2, 12, dtype=torch.bool))\n"
    )
    steps, ending = run(tmp_path, text, "auto")
    assert ending.failure is None
    assert ending.notes == ("ids changes, mask with it.",)
    assert len(steps) == 3 * 13
    assert {step.shape[1] for step in steps} == set(range(1, 13))


def test_a_batch_s_own_labels_follow(tmp_path: Path) -> None:
    text = conv(
        after="from torch.utils.data import DataLoader, TensorDataset\n"
        "data = TensorDataset(torch.zeros(6, 3, 8, 8), torch.zeros(6, 8, 8, dtype=torch.int64))\n"
        "train_loader = DataLoader(data, batch_size=3)\n"
        "def loss_fn(output, label):\n"
        "    assert label.shape[1] == 2 * output.shape[2], label.shape\n"
        "    return nn.functional.cross_entropy(output, label[:, ::2, ::2])\n",
    )
    steps, ending = run(tmp_path, text, "8,12,2x3x8x8")
    assert ending.failure is None
    assert len(steps) == 9


def test_a_model_that_asks_for_values_runs_too(tmp_path: Path) -> None:
    text = conv().replace("return self.b(", "return float(x.sum() > 1e9) + self.b(")
    steps, ending = run(tmp_path, text, "8,12")
    assert ending.failure is None
    assert len(steps) == 6


def test_a_model_that_runs_on_its_device_alone_is_asked_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass that tells the output's shape leaves out the libraries that keep something per shape, and puts them back."""

    def needs_data(*_: object) -> None:
        raise NeedsDataError("a kernel runs on CUDA alone")

    monkeypatch.setattr(schedule_worker, "run_on_first_kind", needs_data)
    with_onednn = torch.backends.mkldnn.is_available()
    monkeypatch.setattr(torch.nn.Module, "onednn", [], raising=False)
    tell = "nn.Module.onednn.append(torch._C._get_mkldnn_enabled())"
    steps, ending = run(tmp_path, conv(tell), "8,12")
    assert ending.failure is None
    assert len(steps) == 6
    asked = [False, True]  # and then the step
    later = [True] * 4  # the shapes are known
    assert not with_onednn or torch.nn.Module.onednn == [*asked, *asked, *later]


def test_a_shape_that_the_model_cannot_take_leaves_the_steps_before(tmp_path: Path) -> None:
    text = conv(after="example_inputs = torch.zeros(2, 3, 8, 8)\n").replace("stride=2", "kernel_size=(9, 9)")
    text = text.replace("nn.Conv2d(3, 4, 3, kernel_size=(9, 9), padding=1)", "nn.Conv2d(3, 4, 6)")
    steps, ending = run(tmp_path, text, "8,12,4,16")
    assert [s.shape[2] for s in steps] == [8, 12]
    assert ending.failure is not None
    assert ending.failure.startswith("2x3x4x4: ")
    assert "\n" not in ending.failure


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        ("raise MemoryError('no 5 GB. There are 3')", "4x3x12x12: it does not fit into memory (MemoryError: no 5 GB)"),
        ("sys.exit(3)", "net.py:10: the model called sys.exit(3)"),
        ("raise ValueError('odd size')", "net.py:10: ValueError: odd size"),
    ],
)
def test_an_exception_for_a_shape_becomes_one_sentence(raised: str, words: str, tmp_path: Path) -> None:
    steps, ending = run(tmp_path, conv(f"x.shape[2] == 12 and {_expression(raised)}"), "8,12")
    assert len(steps) == 1
    assert words in (ending.failure or "")


def _expression(statement: str) -> str:
    """A `raise` inside an expression."""
    return statement if not statement.startswith("raise ") else f"(_ for _ in ()).throw({statement[6:]})"


@pytest.mark.parametrize(
    ("text", "shapes", "words"),
    [
        (conv(), "8x4x8x8", "dimension 1 is 4"),
        ("raise RuntimeError('not today')\n", "8", "not today"),
        ("import sys\nsys.exit('bye')\n", "8", "bye"),
    ],
)
def test_a_schedule_that_cannot_start_has_a_reason(text: str, shapes: str, words: str, tmp_path: Path) -> None:
    steps, ending = run(tmp_path, text, shapes, sliced=False)
    assert steps == []
    assert words in (ending.failure or "")
    assert "\n" not in (ending.failure or "")


def test_an_axis_of_the_configuration_holds(tmp_path: Path) -> None:
    config = RunConfig(name="channels_last", settings=(NamedValue(name="channels_last", value="on"),))
    tell = "assert x.is_contiguous(memory_format=torch.channels_last)"
    steps, ending = run(tmp_path, conv(tell), "8,12", config=config)
    assert ending.failure is None
    assert len(steps) == 6


def test_a_separate_process_returns_the_schedule(tmp_path: Path) -> None:
    noisy = "print('x' * 1000); os.write(1, b'pk:progress:forged')"
    said: list[str] = []
    found = in_a_process(tmp_path, conv(noisy), "8,12", on_progress=said.append)
    assert found.failure is None
    assert (found.config, found.source, found.benchmark, found.device) == ("default", "given", False, "cpu")
    assert [(s.cycle, s.shape[2], s.seen) for s in found.steps[:3]] == [(1, 8, False), (1, 12, False), (2, 8, True)]
    assert said[1:3] == ["cycle 1: 4x3x8x8 (1 of 6)", "cycle 1: 4x3x12x12 (2 of 6)"]
    assert not any("forged" in line or "xx" in line for line in said)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("print('last words', file=sys.stderr, flush=True); os._exit(3)", "(exit status 3) after 1 step: last words"),
        ("os.kill(os.getpid(), 9)", "killed (SIGKILL) after 1 step"),
    ],
)
def test_a_process_that_ends_badly_leaves_the_steps_before(action: str, words: str, tmp_path: Path) -> None:
    stop = action.replace("; ", "\n                ")
    found = in_a_process(tmp_path, conv(f"if x.shape[2] == 12:\n                {stop}"), "8,12")
    assert [s.shape for s in found.steps] == [(4, 3, 8, 8)]
    assert words in (found.failure or "")


def test_a_hang_is_terminated_and_the_completed_steps_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = tmp_path / "pid"
    stop = f"print(os.getpid(), file=open({str(pid)!r}, 'w'), flush=True)\n                time.sleep(300)"
    let_time_pass_once(lambda: is_written(pid), 800.0, monkeypatch)
    found = in_a_process(tmp_path, conv(f"if x.shape[2] == 12:\n                {stop}"), "8,12", timeout_s=800.0)
    assert len(found.steps) == 1
    assert "800 s" in (found.failure or "")
    assert "--timeout" in (found.failure or "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_network_without_sizes_runs_over_batches(tmp_path: Path) -> None:
    steps, ending = run(tmp_path, net(), "2x4,6x4")
    assert ending.failure is None
    assert [s.shape for s in steps[:2]] == [(2, 4), (6, 4)]


def test_resident_memory_is_known_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    here = rss_bytes()
    monkeypatch.setattr(schedule_worker, "STATM", Path("/nowhere/statm"))
    by_ps = rss_bytes()
    assert here is not None
    assert by_ps is None or abs(by_ps - here) < 0.2 * here  # None where there is no ps

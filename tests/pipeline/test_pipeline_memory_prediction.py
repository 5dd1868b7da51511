"""Counting meets memory: what is said where a step can't be simulated, and runs beside what was predicted for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.pipeline.count import count_spec  # noqa: E402
from profiler_kit.pipeline.memory_prediction import (  # noqa: E402
    MEASURED_NOTE,
    Counted,
    counted_if_possible,
    with_measured_workspaces,
)
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.runs import ConfigRun, OpMemory, PeakMemory  # noqa: E402
from profiler_kit.records.serde import dumps, loads_report  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402

MIB = 1 << 20
HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
    def forward(self, x):
        y = self.fc(x)
"""
TAIL = "\nexample_inputs = torch.ones(4, 8)\n"
LINE = "net.py:11"  # the first of a body
OWN_OP = """
@torch.library.custom_op("forecast::{name}", mutates_args=(), device_types={devices})
def own(x: torch.Tensor) -> torch.Tensor:
    return x * 2
own.register_autograd(lambda ctx, gradient: gradient * 2)
"""
ASKING = {
    "item": "return y * 2 if y.sum().item() > 0 else y",
    "boolean mask": "return y[y > 0]",
    "nonzero": "return y * torch.nonzero(y > 0).shape[0]",
    "unique": "return y * torch.unique(y.detach()).numel()",
    "ctc loss": "return F.ctc_loss(y[:, None].log_softmax(-1), torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2]))",
    "custom kernel": "return own(y)",
}


def written(folder: Path, body: str, extra: str = "") -> TargetSpec:
    (folder / "net.py").write_text(f"{HEAD}        {body}\n{extra}{TAIL}")
    return TargetSpec(spec="net.py", loss="sum", optimizer="sgd")


def counted(folder: Path, body: str, extra: str = "", device: str = "cuda") -> Counted:
    return counted_if_possible(written(folder, body, extra), "kit", device)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("kind", ASKING)
def test_a_model_that_needs_values_runs_on_the_cpu_and_the_line_is_named(kind: str, device: str, here: Path) -> None:
    extra = OWN_OP.format(name=f"on_{device}", devices=None) if kind == "custom kernel" else ""
    found = counted(here, ASKING[kind], extra, device)
    assert found.static is not None
    memory = found.static.memory
    assert memory is not None
    assert memory.traced_on == "cpu"
    assert memory.peak_bytes > 0
    assert any(LINE in note and "on the CPU" in note for note in memory.notes)
    assert (MEASURED_NOTE in memory.notes) == (device == "cuda")


def test_a_kernel_for_cuda_alone_leaves_the_measurement_and_says_so(here: Path) -> None:
    found = counted(here, "return own(y)", OWN_OP.format(name="alone", devices="'cuda'"))
    assert (found.static, found.target) == (None, None)
    note = str(found.info.notes[-1])
    assert note.startswith("Not counted")
    assert f"{LINE}: a kernel runs on CUDA" in note


@pytest.mark.parametrize(
    "refusal",
    [
        "x must be a CUDA tensor",
        "Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)",
        "0 active drivers ([]). There should only be one.",
    ],
)
def test_kernels_that_refuse_in_words_of_their_own(refusal: str, here: Path) -> None:
    found = counted(here, f"if not y.is_cuda: raise ValueError({refusal!r})\n        return y")
    assert "a kernel runs on CUDA" in str(found.info.notes[-1])
    assert LINE in str(found.info.notes[-1])


def test_sparse_gradients_are_left_out_and_the_layer_is_named(here: Path) -> None:
    table = HEAD.replace("self.fc = nn.Linear(8, 8)", "self.table = nn.Embedding(50, 8, sparse=True)")
    (here / "net.py").write_text(
        table.replace("self.fc(x)", "self.table(x)") + "        return y\n"
        "example_inputs = torch.zeros(4, 2, dtype=torch.long)\n"
    )
    spec = TargetSpec(spec="net.py", loss="sum", optimizer="sgd")
    memory = counted_if_possible(spec, "kit", "cuda").static.memory  # type: ignore[union-attr]
    assert memory is not None
    (note,) = [note for note in memory.notes if "sparse" in note]
    assert "backward of table" in note


def test_an_optimizer_that_refuses_leaves_the_count_and_the_measurement(here: Path) -> None:
    (here / "net.py").write_text(
        f"{HEAD}        return y\n"
        "def configure_optimizer(model):\n"
        "    class Refuses(torch.optim.SGD):\n"
        "        def step(self, closure=None):\n"
        "            raise RuntimeError('not like this')\n"
        f"    return Refuses(model.parameters(), lr=0.1)\n{TAIL}"
    )
    found = counted_if_possible(TargetSpec(spec="net.py", loss="sum"), "kit", "cuda").static
    assert found is not None
    assert found.memory is None
    (note,) = map(str, found.notes)
    assert note.startswith("memory is not predicted: net.py:15: the optimizer raised RuntimeError: not like this")
    assert note.endswith(MEASURED_NOTE)


def test_a_compiled_model_is_labelled_eager(here: Path) -> None:
    eager = "torch.compile"
    plain = count_spec(written(here, "return y"))
    (here / "net.py").write_text(f"{HEAD}        return y\nmodel = torch.compile(Net()){TAIL}")
    compiled = count_spec(TargetSpec(spec="net.py:model", loss="sum", optimizer="sgd"))
    for report, labeled in ((plain, False), (compiled, True)):
        assert report.static is not None
        assert report.static.memory is not None
        assert any(eager in note for note in report.static.memory.notes) == labeled
    assert compiled.static.memory.peak_bytes == plain.static.memory.peak_bytes  # type: ignore[union-attr]


def run_of(name: str, scratch: int | None) -> ConfigRun:
    """A run whose probe saw the layer's product in backward take `scratch` bytes."""
    if scratch is None:
        return ConfigRun(config=RunConfig(name=name))
    op = OpMemory(
        path="fc", phase="forward", op="aten.addmm.default", before_bytes=0, growth_bytes=0, workspace_bytes=scratch,
        call="float32[8], float32[4,8], float32[8,8]/(1,8)",
    )  # fmt: skip
    memory = PeakMemory(
        peak_path="fc", peak_phase="forward", peak_op="aten.addmm.default", peak_bytes=scratch, parameters=0, gradients=0,
        optimizer_state=0, inputs=0, saved_activations=0, workspace=scratch, rest=0, ops=(op,), calls=(op,),
    )  # fmt: skip
    return ConfigRun(config=RunConfig(name=name), memory=memory, peak_allocated_bytes=scratch + 66 * MIB)


def test_each_run_is_predicted_with_its_own_scratch_and_its_calls_are_dropped(here: Path) -> None:
    found = counted(here, "return y")
    runs = [run_of("default", 100 * MIB), run_of("failed", None), run_of("benchmark", 300 * MIB)]
    first, failed, last = with_measured_workspaces(runs, found, "cuda")
    assert failed == runs[1]
    assert first.predicted is not None
    assert last.predicted is not None
    assert last.predicted.allocated_bytes - first.predicted.allocated_bytes == 200 * MIB
    assert first.predicted.peak_op == "aten.addmm"
    for run, before in ((first, runs[0]), (last, runs[2])):
        assert run.memory is not None
        assert before.memory is not None
        assert (run.memory.calls, run.memory.ops) == ((), before.memory.ops)
    report = count_spec(written(here, "return y"))
    whole = replace(report, runs=(first, failed, last))
    assert loads_report(dumps(whole), "again") == whole


def test_without_a_simulation_the_measurement_stands_alone(here: Path) -> None:
    runs = [run_of("default", MIB)]
    not_counted = counted(here, "return own(y)", OWN_OP.format(name="missing", devices="'cuda'"))
    (run,) = with_measured_workspaces(runs, not_counted, "cuda")
    assert run.predicted is None
    assert run.memory is not None
    assert run.memory.calls == ()
    assert run.peak_allocated_bytes == runs[0].peak_allocated_bytes


def test_a_simulation_that_fails_the_second_time_is_a_note(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("once was enough")

    found = counted(here, "return y")
    monkeypatch.setattr("profiler_kit.memory.simulate_measured", fails)
    (run,) = with_measured_workspaces([run_of("default", MIB)], found, "cuda")
    assert run.predicted is None
    (note,) = run.notes
    assert note.endswith(": RuntimeError: once was enough")


def test_on_a_cpu_nothing_is_predicted_again(here: Path) -> None:
    runs = [ConfigRun(config=RunConfig(name="default"))]
    assert with_measured_workspaces(runs, counted(here, "return y", device="cpu"), "cpu") == runs


def test_a_file_is_imported_once_however_often_its_model_is_built(here: Path) -> None:
    """An op that it defines would else be defined twice, and torch would free kernels that are about to be called."""
    extra = "with open('imports.txt', 'a') as seen:\n    seen.write('x')\n"
    spec = replace(written(here, ASKING["item"], extra), sliced=False)
    found = counted_if_possible(spec, "kit", "cuda")
    assert found.target is not None
    assert found.target.rebuild is not None
    assert found.target.rebuild("meta", batch=3).batch.args[0].shape[0] == 3
    assert (here / "imports.txt").read_text() == "x"


@pytest.mark.parametrize(("amp", "settings"), [(None, ["amp_bf16"]), ("bfloat16", [])])
def test_a_measured_step_is_predicted_under_autocast_too(tmp_path: Path, amp: str | None, settings: list[str]) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\ndef build():\n    return nn.Linear(2048, 2048), torch.ones(2048, 2048)\n"
    )
    spec = TargetSpec(spec=f"{tmp_path / 'net.py'}:build", loss="sum", optimizer="sgd", amp=amp)
    static = counted_if_possible(spec, "kit", "cuda").static
    assert static is not None
    assert static.forecast is not None
    assert [each.setting for each in static.forecast.settings] == settings
    half = static.forecast.with_setting("amp_bf16")
    assert half is None or half.median < static.forecast.kernel_ns.median

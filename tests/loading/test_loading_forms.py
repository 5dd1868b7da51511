"""Models that come compiled, scripted, exported, or with inputs and outputs of every shape, and those that ask for values."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from profiler_kit.counting import count_target
from profiler_kit.errors import TargetError
from profiler_kit.loading import from_model, load
from profiler_kit.meta.ownership import wrapped_calls
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.target import TargetSpec

MACS = 2 * 4 * 3  # a Linear(4, 3) on two rows


def count(model: Any, *args: Any, **options: Any) -> StaticCount:
    options = {"loss": "sum"} | options
    return count_target(from_model(model, args, **options))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(x)
        return out


FORMS: dict[str, tuple[Callable[[], Any], str]] = {
    "compiled": (lambda: torch.compile(Net()), "torch.compile: the whole model is compiled"),
    "scripted": (lambda: torch.jit.script(Net()), "scripted modules: "),
    "traced": (lambda: torch.jit.trace(Net(), torch.zeros(2, 4)), "scripted modules: "),
    "scripted inside": (lambda: nn.Sequential(torch.jit.script(Net())), "scripted modules: "),
    "exported": (lambda: torch.export.export(Net(), (torch.zeros(2, 4),)), "exported program: "),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_model_is_counted_and_left_as_it_was(name: str) -> None:
    make, note = FORMS[name]
    model = make()
    target = from_model(model, (torch.zeros(2, 4),), loss="sum")
    assert any(text.startswith(note) for text in map(str, target.info.notes))
    static = count_target(target)
    assert static.device == "meta"
    assert static.forward.macs == MACS
    assert static.backward.macs == MACS  # the input needs no gradient
    assert static.params == 15
    held = model.state_dict if name == "exported" else dict(model.named_parameters())
    assert all(tensor.device.type == "cpu" for tensor in held.values())


COMPILED_FILE = """
import torch
from torch import nn

compiled = []

def backend(graph, inputs):
    compiled.append(graph)
    return graph.forward

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x)

class Decorated(Part):
    @torch.compile(backend=backend)
    def forward(self, x):
        return self.fc(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.compile(Part(), backend=backend)
        self.second = Part()
        self.second.compile(backend=backend)
        self.third = Decorated()
        self.last = nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.third(self.second(self.first(x))))

example_inputs = torch.zeros(2, 4)
"""


@pytest.mark.parametrize(
    ("model", "parts", "paths"),
    [
        ("torch.compile(Net(), backend=backend)", "the whole model is compiled", {""}),
        ("Net()", "first, second, third are compiled", {"", "first", "second", "third", "last"}),
    ],
)
def test_what_a_file_compiles_is_counted_as_written_and_runs_compiled(
    tmp_path: Path, model: str, parts: str, paths: set[str]
) -> None:
    file = tmp_path / "compiled_net.py"
    file.write_text(f"{COMPILED_FILE}\nmodel = {model}\n")
    spec = TargetSpec(spec=str(file), loss="sum")
    torch._dynamo.reset()

    counted = load(spec)
    static = count_target(counted)
    graphs = sys.modules[type(counted.model).__module__].compiled
    assert graphs == []
    assert static.forward.macs == 4 * (2 * 4 * 4)
    assert {node.path for node in static.modules} == {
        "", "first", "first.fc", "second", "second.fc", "third", "third.fc", "last", "(loss)",
    }  # fmt: skip
    assert any(f"torch.compile: {parts}" in note for note in map(str, counted.info.notes))

    live = load(spec, device="cpu", compiled=True)
    graphs = sys.modules[type(live.model).__module__].compiled
    live.step_module(*live.batch.args)  # compiled here, as in a warm-up step
    called: list[str] = []
    with wrapped_calls(live.paths(), lambda path, call: (called.append(path), call())[1]):
        live.step_module(*live.batch.args)
    assert len(graphs) == (1 if paths == {""} else 3)
    assert set(called) == paths
    assert load(spec, device="cpu").step_module is not live.step_module


def test_a_model_in_hand_is_copied_without_torch_compile() -> None:
    model = torch.compile(Net(), backend="eager")
    target = from_model(model, (torch.zeros(2, 4),), loss="sum", device="cpu")
    assert type(target.model) is Net
    assert target.step_module is target.model
    assert hasattr(model, "_orig_mod")


def test_an_exported_program_brings_its_inputs() -> None:
    assert count(torch.export.export(Net(), (torch.zeros(2, 4),))).forward.macs == MACS


def test_a_file_may_hold_an_exported_program(tmp_path: Path) -> None:
    file = tmp_path / "exported_net.py"
    file.write_text(
        "import torch\nfrom torch import nn\nmodel = torch.export.export(nn.Linear(4, 3), (torch.zeros(2, 4),))\n"
    )
    assert count_target(load(TargetSpec(spec=str(file), loss="sum"))).forward.macs == MACS


def test_an_input_that_needs_a_gradient_is_counted_with_it_and_gets_none() -> None:
    x = torch.zeros(2, 4, requires_grad=True)
    assert count(Net(), x).backward.macs == 2 * MACS
    made = x * 1  # no leaf: its own graph is not the model's
    assert count(Net(), made).backward.macs == 2 * MACS
    assert count(Net(), made, device="cpu").backward.macs == 2 * MACS
    assert x.grad is None


@dataclass
class Output:
    scores: Tensor
    hidden: Tensor


class Structured(nn.Module):
    """Takes a tuple, a dict and a keyword, returns a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, pair: tuple[Tensor, Tensor], named: dict[str, Tensor], *, scale: Tensor) -> Output:
        hidden = pair[0] + pair[1] + named["bias"]
        return Output(scores=self.fc(hidden) * scale, hidden=hidden)


def test_inputs_and_outputs_of_any_structure() -> None:
    x = torch.zeros(2, 4)
    static = count(Structured(), (x, x), {"bias": x}, kwargs={"scale": torch.ones(())}, loss="cross_entropy")
    assert static.forward.macs == MACS
    assert static.backward.macs == MACS


def refused(*_: Any) -> Any:
    raise AssertionError("nothing is to be compiled while it is counted")


def test_a_compiled_part_runs_as_it_is_written() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), torch.compile(nn.Linear(4, 3), backend=refused)

        def forward(self, x: Tensor) -> Tensor:
            late = torch.compile(lambda y: torch.tanh(self.first(y)), backend=refused)
            out: Tensor = self.second(late(x))
            return out

    static = count(Partly(), torch.zeros(2, 4))
    assert static.forward.macs == 2 * 4 * 4 + MACS
    assert static.backward.macs == 2 * 4 * 4 + 2 * MACS
    assert static.uncounted == ()


class Masked(nn.Module):
    """Asks what every mask code asks: whether anything is masked at all."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.fc = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, ids: Tensor) -> Tensor:
        mask = ids != 0
        x = self.table(ids)
        out: Tensor = self.fc(x) if mask.all() else self.fc(x[mask])
        return out


@pytest.mark.parametrize("masked", [0, 2])
def test_mask_code_runs_on_meta_with_the_values_of_the_inputs(masked: int) -> None:
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    ids[0, :masked] = 0
    static = count(Masked(), ids)
    assert static.device == "meta"
    assert static.notes[0].startswith("counted on meta tensors with ")
    assert f"{Path(__file__).name}:" in static.notes[0]
    assert static.forward.macs == (6 - masked) * 4 * 3
    assert static.forward.flops == count(Masked(), ids, device="cpu").forward.flops


@pytest.mark.parametrize("reentrant", [False, True])
def test_mask_code_may_run_again_in_backward(reentrant: bool) -> None:
    class Recomputed(Masked):
        def forward(self, ids: Tensor) -> Tensor:
            x = self.table(ids)
            out: Tensor = checkpoint(lambda y: torch.tanh(self.fc(y[ids != 0])), x, use_reentrant=reentrant)
            return out

    static = count(Recomputed(), torch.tensor([[0, 2, 3, 4, 5, 6]]))
    assert static.device == "meta"
    assert static.forward.macs == static.recompute.macs == 5 * 4 * 3
    assert static.backward.macs == 2 * 5 * 4 * 3


def test_a_failed_attempt_leaves_no_checkpoint_suspended() -> None:
    """Also while the errors are alive: their frames have the checkpoint's, which has its hooks for saved tensors."""
    read, write = os.pipe()

    class Recomputed(Masked):
        def forward(self, ids: Tensor) -> Tensor:
            def project(y: Tensor) -> Tensor:
                try:
                    return torch.tanh(self.fc(y[ids != 0]))
                except Exception as error:
                    atexit.register(id, error)  # keeps it alive; a container would be restored after the pass
                    os.write(write, b"!")
                    raise

            out: Tensor = checkpoint(project, self.table(ids), use_reentrant=False)
            return out

    count(Recomputed(), torch.tensor([[0, 2, 3, 4, 5, 6]]))
    os.close(write)
    assert os.read(read, 1) == b"!"
    os.close(read)
    x = torch.ones(2, requires_grad=True)
    assert (x * x).grad_fn._saved_self is x
    atexit.unregister(id)


class Mixed(nn.Module):
    """Creates a tensor on the CPU in forward, by `create`."""

    def __init__(self, create: Callable[[], Tensor]) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.create = create

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(x) * self.create()
        return out


@pytest.mark.parametrize(
    "create",
    [
        lambda: torch.arange(3).float(),
        lambda: torch.ones(3, device="cpu"),
        lambda: torch.ones(3).to("cpu"),
    ],
    ids=["default device", "cpu", "moved to cpu"],
)
def test_tensors_created_in_forward_join_the_device_of_the_count(create: Callable[[], Tensor]) -> None:
    static = count(Mixed(create), torch.zeros(2, 4))
    assert (static.device, static.notes) == ("meta", ())
    assert static.forward.flops == count(Mixed(create), torch.zeros(2, 4), device="cpu").forward.flops


def test_a_mix_of_devices_that_cannot_be_redirected_is_counted_on_fake_tensors() -> None:
    values = torch.arange(3).float()
    mixed = Mixed(lambda: values)
    static = count(mixed, torch.zeros(2, 4))
    assert static.device == "fake"
    assert static.notes[0].startswith("counted on fake tensors of the CPU: ")
    assert static.forward.macs == MACS
    assert static.forward.flops == count(mixed, torch.zeros(2, 4), device="cpu").forward.flops


class Gate(Net):
    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return out if out.sum().item() < 1e9 else x


def test_a_branch_on_an_activation_is_counted_for_real_and_says_where() -> None:
    static = count(Gate(), torch.zeros(2, 4))
    assert static.device == "cpu"
    assert static.notes[0].startswith("counted on the CPU, ")
    assert f"{Path(__file__).name}:" in static.notes[0]
    assert static.forward.macs == MACS


def test_what_a_fallback_learns_is_known_to_the_target() -> None:
    target = from_model(Gate(), (torch.zeros(2, 4),))
    count_target(target)
    assert target.info.loss == "cross_entropy"


def test_what_does_not_fit_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler_kit.meta.drawn_values.MAX_READS", 0)
    file = tmp_path / "huge_net.py"
    file.write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc, self.rest = nn.Linear(4, 3), nn.Linear(1 << 20, 1 << 20)\n"
        "    def forward(self, x):\n"
        "        out = self.fc(x)\n"
        "        return out if out.sum().item() < 1 else x\n"
    )
    with pytest.raises(TargetError, match=r"would need .* GB") as told:
        count_target(load(TargetSpec(spec=str(file), inputs=("2,4",), loss="sum")))
    assert told.value.where is not None
    assert told.value.where.endswith("huge_net.py:9")


def test_nothing_is_left_patched_after_any_way() -> None:
    before = (nn.Module.__call__, Tensor.backward)
    values = torch.ones(3)
    count(Masked(), torch.tensor([[1, 0]]))
    count(Mixed(lambda: torch.ones(3)), torch.zeros(2, 4))
    count(Mixed(lambda: values), torch.zeros(2, 4))
    count(Gate().to("meta"), torch.zeros(2, 4, device="meta"))
    assert (nn.Module.__call__, Tensor.backward) == before
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None

"""Convolutions in parts: the marks in a trace of its own, the same gradients, scratch by part, and nothing left behind."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from profiler_kit.loading import Target, from_model  # noqa: E402
from profiler_kit.records import marks  # noqa: E402
from profiler_kit.records.experiments import ConvolutionPart, PartWorkspace  # noqa: E402
from profiler_kit.worker import parts  # noqa: E402
from profiler_kit.worker.parts import ConvolutionParts  # noqa: E402
from profiler_kit.worker.steps import Runner  # noqa: E402

Parts = Counter[tuple[str, str]]
EVERY = ("fprop", "dgrad", "wgrad")


class Net(nn.Module):
    """A stem, a grouped convolution called twice, a transposed one, two that may be checkpointed, and a product."""

    def __init__(self, redo_reentrant: bool | None = None) -> None:
        super().__init__()
        self.redo_reentrant = redo_reentrant
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.shared = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 1))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(self.shared(self.shared(self.stem(x))))
        redo = self.redo_reentrant
        x = self.block(x) if redo is None else checkpoint(self.block, x, use_reentrant=redo)
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def target(model: nn.Module, **words: Any) -> Target:
    torch.manual_seed(0)
    return from_model(model, (torch.randn(2, 3, 8, 8),), device="cpu", **words)


def parts_of(runner: Runner) -> Parts:
    """How often each part ran in one step."""
    seen: Parts = Counter()

    @contextmanager
    def watch(path: str, part: ConvolutionPart) -> Iterator[None]:
        seen[path, part] += 1
        yield

    ConvolutionParts(runner, watch).step()
    return seen


def expected(redone: tuple[str, ...] = ()) -> Parts:
    found = Counter({(path, part): 1 for path in ("stem", "up", "block.0", "block.2") for part in EVERY})
    found.update({("shared", part): 2 for part in EVERY})
    del found["stem", "dgrad"]  # the input needs no gradient
    found.update((path, "fprop") for path in redone)
    return found


def test_each_convolution_is_met_in_its_parts() -> None:
    assert parts_of(Runner(target(Net()))) == expected()


def test_an_input_without_gradient_has_no_part_for_it() -> None:
    assert ("stem", "dgrad") not in parts_of(Runner(target(Net())))


@pytest.mark.parametrize(
    ("reentrant", "redone"),
    [(False, ("block.0",)), (True, ("block.0", "block.2"))],  # the former stops at the last tensor that is needed
)
def test_recomputed_convolutions_are_measured_again(reentrant: bool, redone: tuple[str, ...]) -> None:
    assert parts_of(Runner(target(Net(reentrant)))) == expected(redone)


def test_inference_is_forward_alone() -> None:
    found = parts_of(Runner(target(Net(), mode="infer")))
    assert {part for _, part in found} == {"fprop"}
    assert sum(found.values()) == 6


def test_inference_mode_of_the_model_s_own_hides_nothing() -> None:
    class Frozen(Net):
        @torch.inference_mode()
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    assert parts_of(Runner(target(Frozen(), mode="infer"))) == parts_of(Runner(target(Net(), mode="infer")))


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning", "ignore:The .grad attribute:UserWarning")
def test_a_traced_module_s_convolutions_are_its_own() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.jit.trace(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), torch.randn(2, 3, 8, 8))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.inner(x).mean((2, 3))
            return out

    assert parts_of(Runner(target(Holder(), mode="infer"))) == Counter({("inner", "fprop"): 1})


def test_a_functional_convolution_belongs_to_the_module_that_calls_it() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(x, self.weight).mean((2, 3))

    assert parts_of(Runner(target(Functional()))) == Counter({("", "fprop"): 1, ("", "wgrad"): 1})


def test_the_sequence_number_attributes_a_weight_of_two_modules() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
            self.two.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.two(self.one(x)).mean((2, 3))
            return out

    assert parts_of(Runner(target(Tied()))) == Counter(
        {("one", "fprop"): 1, ("one", "wgrad"): 1, **{("two", part): 1 for part in EVERY}}
    )


def test_a_convolution_in_the_loss_is_the_loss_s() -> None:
    def loss(output: Tensor, wanted: Tensor) -> Tensor:
        return (F.conv2d(output, torch.ones(1, 3, 3, 3)) - wanted).square().mean()

    made = target(nn.Conv2d(3, 3, 1), loss_fn=loss, labels=(torch.tensor(0.5),))
    assert parts_of(Runner(made)) == Counter(
        {("", "fprop"): 1, ("", "wgrad"): 1, ("(loss)", "fprop"): 1, ("(loss)", "dgrad"): 1}
    )


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_gradients_have_the_same_bits(reentrant: bool | None) -> None:
    runner = Runner(target(Net(reentrant)))

    def gradients() -> list[Tensor]:
        runner.target.model.zero_grad()
        runner.forward_backward(runner.target.batch)
        return [parameter.grad.clone() for parameter in runner.target.model.parameters()]

    whole = gradients()
    seen: list[str] = []

    @contextmanager
    def watch(path: str, part: ConvolutionPart) -> Iterator[None]:
        seen.append(path)
        yield

    with ConvolutionParts(runner, watch).watching():
        in_parts = gradients()
    assert seen
    assert all(torch.equal(one, other) for one, other in zip(whole, in_parts, strict=True))


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_trace_holds_one_marked_step(tmp_path: Path, name: str) -> None:
    assert parts.trace_parts(Runner(target(Net())), tmp_path / name)
    data = (tmp_path / name).read_bytes()
    events = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)["traceEvents"]
    marked = Counter(e["name"] for e in events if e.get("name", "").startswith("pk:") and e["ph"] == "X")
    assert marked.pop(marks.step(1)) == 1
    wanted = {marks.convolution(part, path): count for (path, part), count in expected().items()}  # type: ignore[arg-type]
    assert marked == wanted
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_nothing_is_written_for_a_model_without_convolutions(tmp_path: Path) -> None:
    made = target(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)))
    assert not parts.trace_parts(Runner(made), tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())


def test_compiled_modules_are_not_reported(tmp_path: Path) -> None:
    made = target(Net())
    made.step_module = torch.compile(made.model, backend="eager")
    assert not parts.trace_parts(Runner(made), tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())


def test_modules_next_to_a_compiled_module_are_reported(tmp_path: Path) -> None:
    made = target(Net())
    made.model.block.compile(backend="eager")  # type: ignore[union-attr]
    assert parts.trace_parts(Runner(made), tmp_path / "trace.json")
    text = (tmp_path / "trace.json").read_text()
    assert marks.convolution("fprop", "up") in text
    assert f"{marks.CONVOLUTION}fprop:block" not in text


def test_there_is_no_record_without_a_cuda_device(tmp_path: Path) -> None:
    assert parts.record_parts(Runner(target(Net())), tmp_path / "trace.json") == ()
    assert not list(tmp_path.iterdir())


class Allocator:
    """Stands for CUDA's: each part grows what is allocated by 1000, with more while it runs, least in its first."""

    def __init__(self) -> None:
        self.allocated = self.asked = 0

    def memory_allocated(self, device: object) -> int:
        self.asked += 1
        if self.asked % 2 == 0:  # before and after each part
            self.allocated += 1000
        return self.allocated

    def max_memory_allocated(self, device: object) -> int:
        return self.allocated + 1000 + self.asked


def test_scratch_is_the_most_that_a_call_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = Allocator()
    monkeypatch.setattr(torch.cuda, "memory_allocated", allocator.memory_allocated)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", allocator.max_memory_allocated)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(parts, "trace_parts", lambda runner, path: True)
    runner = Runner(target(Net()))
    monkeypatch.setattr(runner, "cuda", True)
    monkeypatch.setattr(runner, "synchronize", lambda: None)
    found = parts.record_parts(runner, tmp_path / "trace.json")
    assert {(one.path, one.part) for one in found} == set(expected())
    by_part = {(one.path, one.part): one.bytes for one in found}
    # asked twice a part: the stem's forward is the first, of the shared module's two the third counts
    assert by_part["stem", "fprop"] == 1
    assert by_part["shared", "fprop"] == 5
    assert PartWorkspace(path="up", part="fprop", bytes=7) in found


@pytest.mark.parametrize("calls", [1, 2])
def test_a_step_that_raises_leaves_nothing_behind(tmp_path: Path, calls: int) -> None:
    class Failing(Net):
        left = calls

        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            self.left -= 1
            if self.left == 0:
                raise RuntimeError("planned")
            return out

    made = target(Net())
    made.model.__class__ = Failing
    original = nn.Module.__call__
    with pytest.raises(RuntimeError, match="planned"):
        parts.trace_parts(Runner(made), tmp_path / "trace.json")
    assert nn.Module.__call__ is original
    assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()
    assert not list(tmp_path.iterdir())

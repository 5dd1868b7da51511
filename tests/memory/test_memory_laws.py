"""What holds for every model: sums, the end of a step, repetition, bounds, and that the model is left as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from profiler_kit.devices.cards.data_center import H100
from profiler_kit.devices.registry import architecture_names, devices, find_device
from profiler_kit.errors import TargetError
from profiler_kit.loading import Target, from_model, load
from profiler_kit.memory import Setup, simulate
from profiler_kit.memory.log import CATEGORIES, Lifetime, MemoryLog
from profiler_kit.memory.prediction import MAX_MODULES
from profiler_kit.memory.steps import record_steps
from profiler_kit.records.counts import MemoryCategories
from profiler_kit.records.target import TargetSpec

B, D = 64, 32


class Residual(nn.Module):
    """Blocks with a branch, one of them recomputed."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D)) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            x = x + (checkpoint(block, x, use_reentrant=False) if number == 1 else block(x))
        return x


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "mlp": lambda: (nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Dropout(0.5), nn.Linear(D, D)), torch.zeros(B, D)),
    "residual": lambda: (Residual(), torch.zeros(B, D)),
    "convolutions": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)), torch.zeros(4, 3, 16, 16),
    ),
    "encoder": lambda: (nn.TransformerEncoderLayer(D, 4, 2 * D, batch_first=True), torch.zeros(2, 8, D)),
    "lstm": lambda: (nn.LSTM(D, D, 2, dropout=0.1), torch.zeros(8, 4, D)),
}  # fmt: skip


def target(name: str, **options: str) -> Target:
    model, x = MODELS[name]()
    return from_model(model, (x,), device="meta", **{"loss": "sum", "optimizer": "adam", **options})  # type: ignore[arg-type]


def total(parts: MemoryCategories) -> int:
    return sum(getattr(parts, field.name) or 0 for field in fields(parts))


@pytest.mark.parametrize("device", architecture_names().split(", "))
@pytest.mark.parametrize("name", MODELS)
def test_categories_and_rounding_sum_to_what_is_allocated(name: str, device: str) -> None:
    memory = simulate(target(name), find_device(device, "--gpu", devices()))
    held = memory.device
    assert held is not None
    assert total(memory.categories) == memory.peak_bytes
    assert total(held.categories) + held.rounding_bytes == held.allocated_bytes
    assert held.rounding_bytes >= 0
    assert held.allocated_low_bytes <= held.allocated_bytes <= held.allocated_high_bytes
    assert held.allocated_bytes <= held.reserved_bytes <= (held.reserved_high_bytes or 0)
    assert held.allocated_bytes >= memory.peak_bytes


@pytest.mark.parametrize("name", MODELS)
def test_the_parts_of_each_point_of_a_step_sum_to_it(name: str) -> None:
    held = simulate(target(name), H100).device
    assert held is not None
    totals = [point.bytes for point in held.timeline]
    assert [sum(parts) for parts in zip(*(line.bytes for line in held.by_category), strict=True)] == totals
    by_module = [sum(parts) for parts in zip(*(line.bytes for line in held.by_module), strict=True)]
    has_all = len(held.by_module) < MAX_MODULES
    assert by_module == totals if has_all else all(part <= whole for part, whole in zip(by_module, totals, strict=True))
    assert {line.name for line in held.by_category} <= set(CATEGORIES)
    assert max(map(max, (line.bytes for line in held.by_module))) == max(held.by_module[0].bytes)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_left_after_a_step_is_parameters_inputs_and_optimizer_state(name: str) -> None:
    made = target(name)
    memory = simulate(made)
    weights = sum(tensor.nbytes for tensor in (*made.model.parameters(), *made.model.buffers()))
    state = 2 * sum(tensor.nbytes for tensor in made.model.parameters())
    inputs = sum(tensor.nbytes for tensor in made.batch.tensors())
    held = memory.timeline[0].bytes  # the second step begins so; the loop's own output and loss are gone at the end
    assert memory.timeline[0].at == "before forward"
    assert memory.end_bytes == held == weights + state + inputs


@pytest.mark.parametrize("name", MODELS)
def test_gradients_stand_beside_all_that_when_backward_ends(name: str) -> None:
    made = target(name)
    log = record_steps(made, H100, Setup())
    place = log.position_of("after backward")
    assert place is not None
    held: dict[str, int] = {}
    for life in log.live_at(place):
        held[life.kind()] = held.get(life.kind(), 0) + life.nbytes
    assert held["gradients"] == sum(tensor.nbytes for tensor in made.model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_two_identical_steps_have_the_same_timeline(name: str) -> None:
    def of_the_last_step(log: MemoryLog) -> list[tuple[int, str, str, str, str]]:
        def told(change: int, life: Lifetime) -> tuple[int, str, str, str, str]:
            return change, life.phase, life.path, life.op, life.kind()

        return [told(change, life) for change, life in log.events[log.steps[-1] :]]

    two, three, four = (record_steps(target(name), H100, Setup(steps=steps)) for steps in (2, 3, 4))
    assert of_the_last_step(three) == of_the_last_step(four)
    # the first step's output dies in the second, so the second step is like all later ones but for what it inherits
    assert [event[0] for event in of_the_last_step(two)] == [event[0] for event in of_the_last_step(three)]


def test_gradients_that_are_zeroed_stay() -> None:
    made = target("mlp")
    none, zero = (simulate(made, setup=Setup(zero_grad=how)) for how in ("none", "zero"))  # type: ignore[arg-type]
    gradients = sum(tensor.nbytes for tensor in made.model.parameters())
    assert (zero.end_bytes or 0) - (none.end_bytes or 0) == gradients


@pytest.mark.parametrize("paths", [("blocks.0",), ("blocks.0", "blocks.2")])
def test_checkpointing_a_module_keeps_its_input_alone(paths: tuple[str, ...]) -> None:
    made = target("residual")
    kept, recomputed = simulate(made), simulate(made, setup=Setup(checkpoint=paths))
    inside = 4 * B * 4 * D  # what GELU keeps and what the second layer keeps
    assert (kept.saved_bytes or 0) - (recomputed.saved_bytes or 0) == 2 * inside * len(paths)
    assert simulate(made) == kept  # the model has its own forward again
    assert all("forward" not in vars(module) for module in made.model.modules())


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D))
    made = from_model(model, (torch.randn(B, D),), loss="sum", optimizer="adam", device="cpu")
    before = {name: tensor.clone() for name, tensor in made.model.state_dict().items()}
    simulate(made)
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.model.state_dict().items())
    assert all(parameter.grad is None for parameter in made.model.parameters())


def test_inference_keeps_nothing() -> None:
    model, x = MODELS["mlp"]()
    memory = simulate(from_model(model, (x,), mode="infer", device="meta"))
    assert memory.device is not None
    assert memory.saved_bytes == 0
    assert (memory.categories.gradients, memory.categories.optimizer_state) == (0, 0)
    assert memory.peak_phase == "forward"
    assert total(memory.device.categories) + memory.device.rounding_bytes == memory.device.allocated_bytes


ASKS = """
import torch
from torch import nn

class Asks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(8))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * 2 if x.sum().item() > 0 else -x
"""


def test_a_model_that_asks_for_values_runs_on_the_cpu_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "asks.py"
    file.write_text(ASKS)
    made = load(TargetSpec(spec=str(file), inputs=("4,64",), loss="sum", optimizer="adamw"))
    memory = simulate(made)
    assert memory.traced_on == "cpu"
    assert any("asks.py:13" in note for note in memory.notes)
    assert any("CPU" in note for note in memory.notes)
    assert memory.device is not None
    all_at_once = 8 * 64 * 64 * 4
    assert (memory.categories.temporaries or 0) >= all_at_once  # the optimizer steps as it does on CUDA


def test_sparse_gradients_are_left_out_and_said_so() -> None:
    model = nn.Embedding(100, 8, sparse=True)
    x = torch.zeros(4, 2, dtype=torch.long)
    memory = simulate(from_model(model, (x,), loss="sum", optimizer="sgd", device="meta"))
    assert any("sparse" in note for note in memory.notes)


def test_an_optimizer_that_fails_is_named() -> None:
    model = nn.Embedding(100, 8, sparse=True)
    x = torch.zeros(4, 2, dtype=torch.long)
    with pytest.raises(TargetError, match="optimizer raised"):
        simulate(from_model(model, (x,), loss="sum", optimizer="adam", device="meta"))

"""Whose work it is: nine structures in which hooks on tensors or on positional inputs go wrong, and some more."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from profiler_kit.counting import count_target
from profiler_kit.loading import from_model
from profiler_kit.records.counts import COUNT_PHASES, LOSS_PATH, StaticCount

ROWS, WIDTH = 4, 8
UNIT = ROWS * WIDTH * WIDTH  # MACs of one Linear


class Plain(nn.Linear):
    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH, bias=False)


class ByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Plain()

    def forward(self, *, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out


class Box:
    """An output that no pytree knows."""

    def __init__(self, content: Tensor) -> None:
        self.content = content


class Boxed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Plain()

    def forward(self, x: Box) -> Box:
        return Box(self.inner(x.content))


class Two(nn.Module):
    def __init__(self, run: Callable[[Two, Tensor], Tensor], part: Callable[[], nn.Module] = Plain) -> None:
        super().__init__()
        self.m1 = part()
        self.m2 = part()
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def count(model: nn.Module, *, input_needs_grad: bool = False) -> StaticCount:
    x = torch.zeros(ROWS, WIDTH, device="meta", requires_grad=input_needs_grad)
    return count_target(from_model(model, (x,), loss="sum", optimizer="sgd"))


def macs(static: StaticCount, phase: Any) -> dict[str, float]:
    """MACs by path of the module that owns the weight, in units of one Linear."""
    found: dict[str, float] = {}
    for node in static.modules:
        name = node.path.removesuffix(".inner")
        found[name] = found.get(name, 0.0) + node.cost(phase).macs / UNIT
    return {path: units for path, units in found.items() if units}


def test_positional() -> None:
    static = count(Two(lambda net, x: net.m2(net.m1(x))))
    assert macs(static, "forward") == {"m1": 1, "m2": 1}
    assert macs(static, "backward") == {"m1": 1, "m2": 2}


def test_in_place() -> None:
    static = count(Two(lambda net, x: net.m2(F.relu_(net.m1(x)))))
    assert macs(static, "backward") == {"m1": 1, "m2": 2}
    root = static.modules[0]
    assert root.forward.flops == root.backward.flops == ROWS * WIDTH


def test_residual() -> None:
    static = count(Two(lambda net, x: net.m2(net.m1(x)) + x), input_needs_grad=True)
    assert macs(static, "forward") == {"m1": 1, "m2": 1}
    assert macs(static, "backward") == {"m1": 2, "m2": 2}


def test_shared_module() -> None:
    static = count(Two(lambda net, x: net.m1(net.m1(x))))
    assert macs(static, "forward") == {"m1": 2}
    assert macs(static, "backward") == {"m1": 3}
    assert next(node.calls for node in static.modules if node.path == "m1") == 2


def test_children_called_by_keyword() -> None:
    static = count(Two(lambda net, x: net.m2(x=net.m1(x=x)), ByKeyword))
    assert macs(static, "forward") == {"m1": 1, "m2": 1}
    assert macs(static, "backward") == {"m1": 1, "m2": 2}


def test_parallel_branches() -> None:
    static = count(Two(lambda net, x: net.m1(x) + net.m2(x)), input_needs_grad=True)
    assert macs(static, "forward") == {"m1": 1, "m2": 1}
    assert macs(static, "backward") == {"m1": 2, "m2": 2}


def test_outputs_no_pytree_knows() -> None:
    static = count(Two(lambda net, x: net.m2(net.m1(Box(x))).content, Boxed))
    assert macs(static, "forward") == {"m1": 1, "m2": 1}
    assert macs(static, "backward") == {"m1": 1, "m2": 2}
    assert next(node.output_bytes for node in static.modules if node.path == "m1") == ROWS * WIDTH * 4


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_is_recomputed(reentrant: bool) -> None:
    def run(net: Two, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(lambda y: F.relu(net.m2(F.gelu(net.m1(y)))), x, use_reentrant=reentrant)
        return out

    static = count(Two(run), input_needs_grad=True)
    assert macs(static, "forward") == {"m1": 1, "m2": 1}
    assert macs(static, "recompute") == {"m1": 1, "m2": 1}
    assert macs(static, "backward") == {"m1": 2, "m2": 2}
    root = static.modules[0]
    assert root.recompute.flops == root.backward.flops == 2 * ROWS * WIDTH  # relu and gelu are the root's
    assert [node.calls for node in static.modules[:3]] == [1, 1, 1]  # run again, not called more


def test_recomputed_function_without_modules_belongs_to_its_caller() -> None:
    class Activation(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = checkpoint(lambda y: torch.sin(F.gelu(y)), x, use_reentrant=False)
            return out

    static = count(nn.Sequential(Plain(), Activation()))
    node = next(node for node in static.modules if node.path == "1")
    assert node.recompute.flops > 0
    assert static.recompute == node.recompute


def test_module_reached_by_another_name_and_a_child_in_a_function() -> None:
    model = nn.Sequential(Plain(), nn.ReLU())
    model.register_module("again", model[0])
    static = count(model)
    assert [node.path for node in static.modules] == ["", "0", "1", LOSS_PATH]
    first = static.modules[1]
    assert (first.aliases, first.calls) == (("again",), 2)
    assert first.params == static.params == WIDTH * WIDTH
    assert macs(static, "backward") == {"0": 3}


def test_tied_weights_are_counted_once_at_their_first_owner() -> None:
    class Tied(Two):
        def __init__(self) -> None:
            super().__init__(lambda net, x: net.m2(net.m1(x)))
            self.m2.weight = self.m1.weight

    static = count(Tied())
    assert [node.params for node in static.modules] == [0, WIDTH * WIDTH, 0, 0]
    assert static.param_bytes == WIDTH * WIDTH * 4
    assert macs(static, "backward") == {"m1": 1, "m2": 2}


def test_frozen_layers_have_no_weight_gradient() -> None:
    net = Two(lambda net, x: net.m2(net.m1(x)))
    net.m1.requires_grad_(False)
    static = count(net)
    assert macs(static, "backward") == {"m2": 1}
    assert (static.params, static.trainable_params) == (2 * WIDTH * WIDTH, WIDTH * WIDTH)


def test_work_of_an_inference_mode_block() -> None:
    def run(net: Two, x: Tensor) -> Tensor:
        with torch.inference_mode():
            scale = net.m2(x)
        return net.m1(x) + scale.clone()

    assert macs(count(Two(run)), "forward") == {"m1": 1, "m2": 1}


def test_gradients_taken_within_forward_belong_to_the_modules_they_go_through() -> None:
    def run(net: Two, x: Tensor) -> Tensor:
        y = x.detach().requires_grad_()
        energy = net.m2(torch.tanh(net.m1(y))).sum()
        (force,) = torch.autograd.grad(energy, y, create_graph=True)
        return force

    static = count(Two(run))
    assert macs(static, "forward") == {"m1": 2, "m2": 2}
    assert static.recompute.flops == 0


def test_fan_in_adds_belong_to_backward() -> None:
    static = count(Two(lambda net, x: net.m1(x) + net.m2(x)), input_needs_grad=True)
    added = [op for op in static.ops if op.phase == "backward" and op.op.startswith("aten.add")]
    assert sum(op.calls for op in added) == 1
    assert sum(op.cost.flops for op in added if op.cost) == ROWS * WIDTH


def test_loss_and_its_backward_have_their_own_path() -> None:
    def squared(output: Tensor, x: Tensor) -> Tensor:
        return (output * output).mean()

    x = torch.zeros(ROWS, WIDTH)
    static = count_target(from_model(Plain(), (x,), loss_fn=squared))
    loss = static.modules[-1]
    elements = ROWS * WIDTH
    assert (loss.path, loss.class_name) == (LOSS_PATH, "squared")
    assert loss.loss == static.loss
    assert static.loss.flops == 2 * elements
    assert loss.backward.flops == 4 * elements  # mean's division, two products, and their sum
    assert static.modules[0].loss.flops == 0


def test_infer_mode_counts_forward_only() -> None:
    x = torch.zeros(ROWS, WIDTH)
    static = count_target(from_model(Plain(), (x,), mode="infer"))
    assert static.forward.macs == UNIT
    assert static.step == static.forward
    assert static.saved_bytes == 0
    assert all(node.path != LOSS_PATH for node in static.modules)


STRUCTURES = [
    pytest.param(lambda net, x: net.m2(net.m1(x)) + x, id="residual"),
    pytest.param(lambda net, x: net.m1(net.m1(net.m2(x))), id="shared"),
    pytest.param(
        lambda net, x: checkpoint(lambda y: net.m2(F.gelu(net.m1(y))), x, use_reentrant=False), id="checkpoint"
    ),
    pytest.param(
        lambda net, x: torch.linalg.matrix_exp(net.m2(net.m1(x)).t() @ net.m1(x)), id="with an op nobody knows"
    ),
]


@pytest.mark.parametrize("run", STRUCTURES)
def test_parts_sum_to_totals(run: Callable[[Two, Tensor], Tensor]) -> None:
    static = count(Two(run), input_needs_grad=True)
    for phase in COUNT_PHASES:
        total = getattr(static, phase)
        assert reduce(add, [node.cost(phase) for node in static.modules]) == total
        counted = [op.cost for op in static.ops if op.phase == phase and op.cost is not None]
        assert reduce(add, counted, type(total)()) == total
    assert sum(node.saved_bytes for node in static.modules) == static.saved_bytes
    assert sum(node.params for node in static.modules) == static.params
    unknown = {op.op: op.calls for op in static.uncounted}
    assert unknown == {
        name: sum(op.calls for op in static.ops if op.op == name)
        for name in {op.op for op in static.ops if op.cost is None}
    }

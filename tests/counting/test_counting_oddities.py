"""Models that counters stumble over, through the public count: figures derived by hand, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from profiler_kit.counting import count_target
from profiler_kit.errors import TargetError
from profiler_kit.loading import from_model
from profiler_kit.records.counts import StaticCount

LINEAR = 4 * 5  # MACs of Linear(4, 5) per row
ROWS = 3


class Holding(nn.Module):
    """A function of its parts and its inputs, as a model."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, *args: Tensor) -> Any:
        return self.function(self, *args)


def count(model: nn.Module, *args: Tensor, **options: Any) -> StaticCount:
    return count_target(from_model(model, args, **({"loss": "sum"} | options)))


def linear(function: Callable[..., Any]) -> nn.Module:
    return Holding(function, part=nn.Linear(4, 5))


def rows() -> Tensor:
    return torch.ones(ROWS, 4)


class Neighbors(nn.Module):
    """A layer on a graph: a sparse matrix that is no parameter, times what a linear layer makes."""

    def __init__(self, adjacency: Tensor, *, as_buffer: bool) -> None:
        super().__init__()
        if as_buffer:
            self.register_buffer("adjacency", adjacency)
        else:
            self.adjacency = adjacency
        self.part = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.adjacency @ self.part(x)
        return out


@pytest.mark.parametrize("as_buffer", [False, True])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_sparse_matrix_in_the_model_is_counted_by_its_elements(layout: torch.layout, as_buffer: bool) -> None:
    adjacency = torch.eye(6).to_sparse(layout=layout)
    static = count(Neighbors(adjacency, as_buffer=as_buffer), torch.ones(6, 4))
    assert static.forward.macs == 6 * LINEAR + 6 * 5
    assert static.device == "cpu"
    assert "meta tensors" in static.notes[0]


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.filterwarnings("ignore")
def test_nested_inputs(device: str) -> None:
    model = Holding(lambda net, x: torch.nested.to_padded_tensor(net.part(x), 0.0), part=nn.Linear(4, 5))
    parts = [torch.ones(3, 4), torch.ones(6, 4)]
    static = count(model, torch.nested.nested_tensor(parts, layout=torch.jagged), device=device)
    assert static.forward.macs == 9 * LINEAR
    with pytest.raises(TargetError, match="nested tensor") as told:
        count(model, torch.nested.nested_tensor(parts), device=device)
    assert "torch.jagged" in str(told.value.hint)


@pytest.mark.filterwarnings("ignore")
def test_attention_of_nested_tensors_with_dropout() -> None:
    def forward(net: Holding, x: Tensor) -> Tensor:
        parts = torch.nested.nested_tensor([x[:3], x[3:]], layout=torch.jagged)
        heads = F.dropout(net.part(parts), 0.1, net.training).unflatten(-1, (1, 5)).transpose(1, 2)
        return torch.cat(F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(-2).unbind())

    static = count(Holding(forward, part=nn.Linear(4, 5)), torch.ones(9, 4))
    assert static.device == "cpu"
    assert static.forward.macs >= 9 * LINEAR + 2 * (3 * 3 + 6 * 6) * 5
    assert not static.uncounted


@pytest.mark.filterwarnings("ignore")
def test_an_op_without_a_meta_kernel_is_not_answered_unseen() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6))
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    static = count(quantised, rows(), mode="infer", loss=None)
    assert static.forward.macs == ROWS * (LINEAR + 5 * 6)
    assert static.uncounted == ()


def squared(module: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: module(x).pow(2).sum()


DERIVATIVES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], int]] = {
    # forward and the gradient of the input
    "grad": (lambda net, x: torch.func.grad(squared(net.part))(x), (rows(),), 2 * ROWS * LINEAR),
    "vjp": (lambda net, x: torch.func.vjp(net.part, x)[1](torch.ones(ROWS, 5, device=x.device))[0], (rows(),), 2 * ROWS * LINEAR),
    # forward, and one product for each of five rows
    "jacrev": (lambda net, x: torch.func.jacrev(net.part)(x), (torch.ones(4),), LINEAR + 5 * LINEAR),
}  # fmt: skip


@pytest.mark.parametrize("name", DERIVATIVES)
def test_torch_func_derivatives_within_forward(name: str) -> None:
    function, args, macs = DERIVATIVES[name]
    static = count(linear(function), *args)
    assert static.forward.macs == macs
    assert static.uncounted == ()
    assert [note for note in static.notes if "torch.func" in note] == list(static.notes) != []
    assert count(linear(function), *args, mode="infer", loss=None).forward.macs == macs


def test_forward_mode_derivatives_run_primitive_ops() -> None:
    static = count(linear(lambda net, x: torch.func.jvp(net.part, (x,), (x,))[1]), rows())
    assert any(op.op.startswith("prims.") for op in static.ops)
    assert static.uncounted == ()


def test_a_gradient_within_forward_has_a_gradient_itself() -> None:
    """As of an energy's forces: forward, its gradient, and of both the gradients of weight and state."""

    def forces(net: Any, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (force,) = torch.autograd.grad(net.part(x).tanh().sum(), x, create_graph=True)
        return force

    static = count(linear(forces), rows())
    assert static.forward.macs == 2 * ROWS * LINEAR
    assert static.backward.macs == 4 * ROWS * LINEAR  # of dX = G W both, and through tanh of X W both (x is a leaf)


class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, module: nn.Module) -> Tensor:
        ctx.module = module
        ctx.save_for_backward(x)
        out: Tensor = module(x)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            ctx.module(x).backward(grad)
        return x.grad, None


def test_a_reversible_layer_recomputes() -> None:
    model = Holding(
        lambda net, x: InBackward.apply(net.first(x), net.second), first=nn.Linear(4, 4), second=nn.Linear(4, 5)
    )
    static = count(model, rows())
    assert static.forward.macs == ROWS * (16 + LINEAR)
    assert static.recompute.macs == ROWS * LINEAR
    assert static.backward.macs == ROWS * (16 + 2 * LINEAR)
    assert {n.path: n.backward.macs for n in static.modules if n.backward.macs} == {"first": 48, "second": 120}


def test_hooks_that_multiply_count() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 6))
    model[0].register_forward_hook(lambda module, given, out: out @ torch.ones(5, 5, device=out.device))
    model[1].register_full_backward_hook(lambda module, before, after: (before[0] * 2,))
    static = count(model, rows())
    assert static.forward.macs == ROWS * (LINEAR + 25 + 30)
    assert static.backward.macs == ROWS * (LINEAR + 25 + 2 * 30)


@dataclass
class Output:
    scores: Tensor
    hidden: tuple[Tensor, ...] = ()


ODD: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...], int, int]] = {
    "one layer, three times": (lambda: (lambda layer: nn.Sequential(layer, layer, layer))(nn.Linear(4, 4)), (rows(),), 144, 240),
    "the first two frozen": (
        lambda: nn.Sequential(nn.Linear(4, 5).requires_grad_(False), nn.Linear(5, 6).requires_grad_(False), nn.Linear(6, 7)),
        (rows(),), ROWS * (20 + 30 + 42), ROWS * 42,
    ),
    "the middle frozen": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 6).requires_grad_(False), nn.Linear(6, 7)),
        (rows(),), ROWS * (20 + 30 + 42), ROWS * (20 + 30 + 84),
    ),
    "no samples": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2)), (torch.ones(0, 3, 8, 8),), 0, 0),
    "in place": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 2)),
        (torch.ones(2, 3, 8, 8),), 2 * (36 * 4 * 27 + 288), 2 * (36 * 4 * 27 + 2 * 288),
    ),
    "a dataclass comes out": (lambda: linear(lambda net, x: Output(net.part(x))), (rows(),), 60, 60),
    "double precision": (lambda: nn.Linear(4, 5, dtype=torch.float64), (rows().double(),), 60, 60),
    "even kernel, same padding, dilated": (
        lambda: nn.Conv2d(3, 5, 4, padding="same", dilation=2), (torch.ones(2, 3, 8, 8),), 2 * 64 * 240, 2 * 64 * 240,
    ),
    "einsum with an ellipsis": (
        lambda: Holding(lambda net, a, b: torch.einsum("...ij,jk->...ik", a * net.scale, b)),
        (torch.ones(2, 3, 4, 5), torch.ones(5, 6)), 2 * 3 * 4 * 5 * 6, 2 * 3 * 4 * 5 * 6,
    ),
    "vmap over a layer": (lambda: linear(lambda net, x: torch.func.vmap(net.part)(x)), (torch.ones(7, 3, 4),), 7 * 60, 7 * 60),
    "a product with out=": (
        lambda: linear(
            lambda net, x: torch.mm(x, net.part.weight.detach().t(), out=torch.empty(3, 5, device=x.device)) * net.scale
        ),
        (rows(),), 60, 0,
    ),
    "fold of unfold": (
        lambda: Holding(lambda net, x: F.fold(net.part(F.unfold(x, 3).mT).mT, (6, 6), 1), part=nn.Linear(27, 5)),
        (torch.ones(2, 3, 8, 8),), 2 * 36 * 27 * 5, 2 * 36 * 27 * 5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_figures(name: str) -> None:
    build, args, forward, backward = ODD[name]
    static = count(build(), *args)
    assert (static.forward.macs, static.backward.macs) == (forward, backward)
    assert static.uncounted == ()
    assert sum(node.forward.macs for node in static.modules) == forward
    assert sum(node.backward.macs for node in static.modules) == backward
    assert static.device == "meta"


class Raises(nn.Module):
    """Raises in its forward, or in its backward."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__()
        self.first, self.where, self.error = nn.Linear(4, 5), where, error
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        self.train(not self.training)
        x = self.first(x)
        if self.where == "forward":
            raise self.error
        if self.where == "backward" and x.requires_grad:
            x.register_hook(self.fail)
        return x

    def fail(self, grad: Tensor) -> None:
        raise self.error


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def state(model: nn.Module) -> tuple[Any, ...]:
    """All that a count may leave behind: on a model, and in torch."""
    return (
        {name: tensor.tolist() for name, tensor in model.state_dict().items() if not tensor.is_meta},
        [(name, sorted(vars(part)), part.training) for name, part in model.named_modules()],
        [len(getattr(part, kind)) for part in model.modules() for kind in HOOKS],
        [(parameter.grad is None, parameter.requires_grad) for parameter in model.parameters()],
        (nn.Module.__call__, Tensor.backward, _get_current_dispatch_mode_stack(), torch.is_grad_enabled()),
        (torch._dynamo.eval_frame._stance.stance, torch.get_rng_state().tolist()),
    )  # fmt: skip


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()], ids=["error", "interrupt"])
@pytest.mark.parametrize("where", ["forward", "loss", "backward"])
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_nothing_is_left_behind_by_an_exception(where: str, error: BaseException, device: str) -> None:
    def loss(out: Tensor) -> Tensor:
        if where == "loss":
            raise error
        return out.sum()

    model = Raises(where, error)
    before = state(model)
    target = from_model(model, (rows(),), loss_fn=loss, device=device)
    of_copy = state(target.model)
    with pytest.raises(TargetError if isinstance(error, ValueError) else KeyboardInterrupt):
        count_target(target)
    assert state(model) == before
    assert state(target.model) == of_copy

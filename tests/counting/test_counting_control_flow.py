"""Control flow operators, other operators that take functions, and TorchScript: counted by what runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_slices
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch._ops import HigherOrderOperator
from torch.utils.flop_counter import FlopCounterMode, flop_registry

import profiler_kit
from profiler_kit.counting.formulas import has_builtin_formula
from profiler_kit.errors import TargetError
from profiler_kit.meta.control_flow import control_flow_in_python
from profiler_kit.meta.eager import compilation_disabled
from profiler_kit.records.counts import StaticCount

ONES = torch.ones(3, 8)
LINEAR = 3 * 8 * 8


def count(model: nn.Module, *args: Any, **options: Any) -> StaticCount:
    static = profiler_kit.count(model, *args, **options).static
    assert static is not None
    assert "0x" not in "".join(static.notes)
    return static


class Branches(nn.Module):
    """One layer if the predicate holds, else two calls of another layer."""

    def __init__(self, predicate: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.predicate = predicate

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(self.predicate(x), lambda x: self.a(x), lambda x: self.b(self.b(x)), (x,))


@pytest.mark.parametrize(("sign", "macs"), [(1, LINEAR), (-1, 2 * LINEAR)])
def test_cond_counts_the_selected_branch(sign: int, macs: int) -> None:
    model = Branches(lambda x: sign * x.sum() > 0)
    static = count(model, ONES)
    with compilation_disabled(), FlopCounterMode(display=False) as counter, control_flow_in_python():
        model(ONES).sum().backward()
    assert static.forward.macs == macs
    assert 2 * (static.forward.macs + static.backward.macs) == counter.get_total_flops()
    assert static.bounds == ()
    assert static.memory is not None
    layer = next(node for node in static.modules if node.path == ("a" if sign > 0 else "b"))
    assert layer.forward.macs == macs


def test_cond_on_unknown_values_counts_the_larger_branch() -> None:
    static = count(Branches(lambda x: torch.rand((), device=x.device) > 0), ONES)
    assert static.forward.macs == 2 * LINEAR
    assert [(bound.op, bound.kind) for bound in static.bounds] == [("higher_order.cond", "upper")]
    assert next(node for node in static.modules if node.path == "b").calls == 2
    assert next(node for node in static.modules if node.path == "a").calls == 0


class Loop(nn.Module):
    def __init__(self, limit: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        start = torch.tensor(0, device=x.device)
        return while_loop(lambda i, x: i < self.limit(x), lambda i, x: (i + 1, self.a(x)), (start, x))[1]


def test_while_loop_counts_every_iteration_or_says_that_it_cannot() -> None:
    static = count(Loop(lambda x: 4), ONES)
    assert (static.forward.macs, static.bounds) == (4 * LINEAR, ())
    unknown = count(Loop(lambda x: 4 * torch.rand((), device=x.device)), ONES)
    assert unknown.forward.macs == LINEAR
    assert [(bound.op, bound.kind) for bound in unknown.bounds] == [("higher_order.while_loop", "lower")]


class Scanned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.a(carry) + x, (2 * carry).clone()

        carry, outputs = scan(step, torch.zeros(3, 8, device=x.device), x)
        return carry + outputs.sum(0)


class Mapped(Scanned):
    def forward(self, x: Tensor) -> Tensor:
        return map_slices(lambda x: self.a(x), x)


class Associative(Scanned):
    def forward(self, x: Tensor) -> Tensor:
        return associative_scan(lambda a, b: a @ b, self.a(x), 0, combine_mode="generic")


@pytest.mark.parametrize(("kind", "shape", "macs"), [
    (Scanned, (5, 3, 8), 5 * LINEAR),
    (Mapped, (5, 3, 8), 5 * LINEAR),
    # four elements: two products, then one, then one for the element between
    (Associative, (4, 8, 8), 4 * 8 * 8 * 8 + (2 + 1 + 1) * 8**3),
])  # fmt: skip
def test_scans_and_maps_multiply_by_the_length(kind: type[nn.Module], shape: tuple[int, ...], macs: int) -> None:
    static = count(kind(), torch.ones(shape))
    assert (static.forward.macs, static.uncounted, static.bounds) == (macs, (), ())
    assert static.memory is not None


def test_python_code_gives_the_results_of_the_operators() -> None:
    x = torch.randn(5, 3, 8)
    models = [(Branches(lambda x: x.sum() > 0), ONES), (Loop(lambda x: 4), ONES), (Scanned(), x), (Mapped(), x)]
    with compilation_disabled(), control_flow_in_python(), torch.no_grad():
        results = [model(value) for model, value in models]
    cond, loop, scanned, mapped = (model for model, _ in models)
    assert torch.equal(results[0], cond.a(ONES))
    y = ONES
    for _ in range(4):
        y = loop.a(y)
    assert torch.allclose(results[1], y)
    carry, outputs = torch.zeros(3, 8), torch.zeros(3, 8)
    for element in x:
        outputs = outputs + 2 * carry
        carry = scanned.a(carry) + element
    assert torch.allclose(results[2], carry + outputs, atol=1e-5)
    assert torch.allclose(results[3], mapped.a(x), atol=1e-6)


def test_an_exported_branch_is_counted() -> None:
    program = torch.export.export(Branches(lambda x: x.sum() > 0), (ONES,))
    assert count(program.module(), ONES).forward.macs == LINEAR


class _Opaque(HigherOrderOperator):
    def __init__(self) -> None:
        super().__init__("opaque_for_tests")

    def __call__(self, function: Any, x: Tensor) -> Any:
        return super().__call__(function, x)


@pytest.mark.parametrize("reads_values", [False, True])
def test_an_unknown_operator_is_uncounted(reads_values: bool) -> None:
    opaque = _Opaque()
    keys = torch._C.DispatchKey

    @opaque.py_impl(keys.CompositeExplicitAutograd)
    def run(function: Any, x: Tensor) -> Any:
        return function(x)

    @opaque.py_impl(keys.Autograd)
    def below(function: Any, x: Tensor) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return opaque(function, x)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(8, 8)

        def forward(self, x: Tensor, n: Tensor) -> Tensor:
            rows = int(n.max()) if reads_values else 3
            return self.a(x)[:rows] + opaque(lambda x: x @ x.T @ x, x)[:rows]

    static = count(Model(), ONES, torch.tensor([3]))
    assert [(op.op, op.possible_macs) for op in static.uncounted] == [("higher_order.opaque_for_tests", None)]
    assert static.forward.macs == LINEAR
    assert static.memory is not None


def test_flex_attention_with_a_mask_of_another_device() -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(32, 96)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).view(2, 16, 3, 4, 8).permute(2, 0, 3, 1, 4)
            mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu")
            return flex.flex_attention(q, k, v, block_mask=mask).transpose(1, 2).reshape(2, 16, 32)

    static = count(Model(), torch.randn(2, 16, 32))
    assert static.forward.macs == 2 * 16 * 32 * 96 + 2 * 4 * 16 * 16 * 2 * 8 == 131072
    assert static.memory is not None


class Masked(nn.Module):
    """FlexAttention of 2 examples, 4 heads of 8 and `LENGTH` positions, with a mask that exists before the step or not."""

    def __init__(self, mask: Any = None, build: Callable[[Tensor], Any] | None = None) -> None:
        super().__init__()
        self.qkv, self.mask, self.build = nn.Linear(32, 96), mask, build

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(2, LENGTH, 3, 4, 8).permute(2, 0, 3, 1, 4)
        flex = sys.modules["torch.nn.attention.flex_attention"]
        mask = self.build(x) if self.build is not None else self.mask
        return flex.flex_attention(q, k, v, block_mask=mask).transpose(1, 2).reshape(2, LENGTH, 32)


LENGTH = 200
PAIRS = 2 * 4 * LENGTH * LENGTH
FLEX_LINEAR = 2 * LENGTH * 32 * 96


def block_mask(keeps: Callable[..., Any], examples: int | None = None) -> Any:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    if not hasattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"):
        pytest.skip("this torch compiles flex_attention first")
    return flex.create_block_mask(keeps, examples, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=64)


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


@pytest.mark.parametrize(
    ("keeps", "examples", "pairs"),
    [
        (causal, None, 2 * 4 * (64 * 64 + 64 * 128 + 64 * 192 + 8 * 200)),
        (lambda b, h, i, j: (i >= j) & (i // 64 == j // 64), None, 2 * 4 * (3 * 64 * 64 + 8 * 8)),
        (lambda b, h, i, j: (i >= j) | (b == 1), 2, 4 * (64 * 64 + 64 * 128 + 64 * 192 + 8 * 200) + 4 * 200 * 200),
        (lambda b, h, i, j: i < 0, None, 0),
    ],
)
def test_flex_attention_counts_the_blocks_of_a_known_mask(keeps: Any, examples: int | None, pairs: int) -> None:
    static = count(Masked(block_mask(keeps, examples)), torch.randn(2, LENGTH, 32), mode="train")
    assert static.forward.macs == FLEX_LINEAR + pairs * 2 * 8
    assert static.backward.macs == FLEX_LINEAR + 2 * pairs * 2 * 8
    assert static.bounds == ()


def test_flex_attention_counts_the_blocks_of_a_mask_that_follows_from_shapes() -> None:
    built, given = Masked(build=lambda x: block_mask(causal)), Masked(block_mask(causal))
    x = torch.randn(2, LENGTH, 32)
    assert count(built, x).forward.macs == count(given, x).forward.macs < FLEX_LINEAR + PAIRS * 2 * 8


def test_flex_attention_with_unknown_blocks_is_a_bound() -> None:
    model = Masked(build=lambda x: block_mask(lambda b, h, i, j: x[0, i, 0] > x[0, j, 0]))
    static = count(model, torch.randn(2, LENGTH, 32))
    assert static.forward.macs == FLEX_LINEAR + PAIRS * 2 * 8
    assert [(bound.op, bound.kind) for bound in static.bounds] == [("higher_order.flex_attention", "upper")]


def test_flex_attention_without_a_mask_is_no_bound() -> None:
    block_mask(causal)
    static = count(Masked(), torch.randn(2, LENGTH, 32))
    assert (static.forward.macs, static.bounds) == (FLEX_LINEAR + PAIRS * 2 * 8, ())


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


IMAGE = torch.randn(2, 3, 8, 8)
CONVOLUTION = 2 * 8 * 3 * 9 * 64 + 2 * 8 * 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("script", [
    lambda model: torch.jit.script(model),
    lambda model: torch.jit.trace(model, IMAGE),
    lambda model: torch.jit.freeze(torch.jit.script(model)),
    lambda model: torch.jit.freeze(torch.jit.trace(model, IMAGE)),
])  # fmt: skip
def test_torchscript_is_counted(script: Callable[[nn.Module], nn.Module]) -> None:
    model = script(Convolution().eval())
    static = count(model, IMAGE, mode="infer")
    assert (static.forward.macs, static.uncounted, static.device) == (CONVOLUTION, (), "meta")
    assert model(IMAGE).shape == (2, 4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_that_cannot_be_counted_is_a_target_error() -> None:
    optimized = torch.jit.optimize_for_inference(torch.jit.script(Convolution().eval()))
    with pytest.raises(TargetError, match="cannot be copied"):
        count(optimized, IMAGE, mode="infer")
    with pytest.raises(TargetError, match="defines no forward"):
        count(torch.jit.script(nn.LSTM(5, 8)), torch.randn(7, 3, 5))


def test_every_formula_of_torch_has_one_here() -> None:
    with contextlib.suppress(ImportError):
        import torch.nn.attention.varlen  # noqa: F401  registers its formulas
    names = {f"higher_order.{op.name()}" if isinstance(op, HigherOrderOperator) else str(op) for op in flop_registry}
    assert len(names) >= 20
    assert {name for name in names if not has_builtin_formula(name)} == set()

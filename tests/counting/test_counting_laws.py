"""Laws that hold for any model: linearity, equality across devices, a model left as it was, drop-in formulas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import examples
import pytest
import torch
import torch.nn.functional as F
from counting_ops import counted, t
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from profiler_kit.counting import count_target, formulas
from profiler_kit.errors import TargetError
from profiler_kit.loading import from_model, load
from profiler_kit.records.counts import Cost, StaticCount
from profiler_kit.records.target import TargetSpec

small = st.integers(1, 4)


class Net(nn.Module):
    """A bit of everything that keeps state."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        out: Tensor = self.head(self.drop(x.mean((2, 3))))
        return out


def count(model: nn.Module, *inputs: Tensor, **options: Any) -> StaticCount:
    return count_target(from_model(model, inputs, loss="sum", optimizer="sgd", **options))


@settings(max_examples=examples.count(20))
@given(batch=small, inputs=small, outputs=small, groups=small, kernel=small, stride=small, dilation=st.integers(1, 2))
def test_a_grouped_convolution_is_the_sum_of_its_groups(
    batch: int, inputs: int, outputs: int, groups: int, kernel: int, stride: int, dilation: int
) -> None:
    def cost(in_channels: int, out_channels: int, count_of_groups: int) -> tuple[int, int]:
        x = t(batch, in_channels * count_of_groups, 12, 12, grad=True)
        w = t(out_channels * count_of_groups, in_channels, kernel, kernel, grad=True)
        run = counted(lambda: F.conv2d(x, w, stride=stride, dilation=dilation, groups=count_of_groups), backward=True)
        return run.forward.macs, run.backward.macs

    one_forward, one_backward = cost(inputs, outputs, 1)
    assert cost(inputs, outputs, groups) == (groups * one_forward, groups * one_backward)
    assert one_backward == 2 * one_forward


@settings(max_examples=examples.count(10))
@given(batch=st.integers(1, 6), size=st.sampled_from([8, 12]))
def test_compute_is_linear_in_the_batch(batch: int, size: int) -> None:
    model = Net()
    one, many = (count(model, torch.zeros(b, 3, size, size)) for b in (1, batch))
    assert many.forward.macs == batch * one.forward.macs
    assert many.backward.macs == batch * one.backward.macs
    assert many.params == one.params


@settings(max_examples=examples.count(25))
@given(shape=st.lists(small, min_size=1, max_size=4), data=st.data())
def test_matmul_costs_its_contraction(shape: list[int], data: st.DataObject) -> None:
    n, k, m = (data.draw(small) for _ in range(3))
    batch = 1
    for size in shape:
        batch *= size
    found = counted(torch.matmul, t(*shape, n, k), t(*shape, k, m))
    assert found.forward.macs == batch * n * k * m
    assert found.forward.flops == 2 * found.forward.macs


def test_meta_and_cpu_agree() -> None:
    x = torch.randn(4, 3, 8, 8)
    torch.manual_seed(0)
    model = Net().eval()
    on_meta, on_cpu = (count(model, x, device=device) for device in ("meta", "cpu"))
    assert (on_meta.device, on_cpu.device) == ("meta", "cpu")
    for phase in ("forward", "loss", "backward"):
        assert getattr(on_meta, phase).macs == getattr(on_cpu, phase).macs
        assert getattr(on_meta, phase).flops == pytest.approx(getattr(on_cpu, phase).flops, rel=0.2)
    for here, there in zip(on_meta.modules, on_cpu.modules, strict=True):
        assert (here.path, here.params, here.forward.macs, here.backward.macs) == (
            there.path, there.params, there.forward.macs, there.backward.macs,
        )  # fmt: skip


def state_of(model: nn.Module) -> Iterator[Any]:
    for name, tensor in model.state_dict().items():
        yield name, tensor.clone()
    for module in model.modules():
        yield (
            module.training,
            dict(module._forward_hooks),
            dict(module._forward_pre_hooks),
            dict(module.__dict__["_modules"]),
        )


@pytest.mark.parametrize("raises", [False, True], ids=["counted", "after an exception"])
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_nothing_is_left_behind(device: str, raises: bool) -> None:
    class Failing(Net):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            if raises:
                raise ZeroDivisionError("not today")
            return out

    target = from_model(Failing(), (torch.randn(4, 3, 8, 8),), loss="sum", optimizer="adam", device=device)
    model = target.model
    model.conv.eval()  # type: ignore[operator, union-attr]
    model.head.bias.grad = torch.ones(2, device=device)  # type: ignore[union-attr]
    before = list(state_of(model))
    grads = [p.grad for p in model.parameters()]
    call = nn.Module.__call__
    random = torch.get_rng_state()
    if raises:
        with pytest.raises(TargetError, match="not today"):
            count_target(target)
    else:
        count_target(target)
    assert nn.Module.__call__ is call
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert [p.grad for p in model.parameters()] == grads or all(
        a is b for a, b in zip((p.grad for p in model.parameters()), grads, strict=True)
    )
    assert torch.equal(torch.get_rng_state(), random)
    for old, new in zip(before, state_of(model), strict=True):
        if isinstance(old[1], Tensor):
            assert old[0] == new[0]
            assert device == "meta" or torch.equal(old[1], new[1]), old[0]
        else:
            assert old == new


def test_the_model_given_is_never_touched() -> None:
    model = Net()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    count(model, torch.randn(4, 3, 8, 8))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_the_same_count_twice_is_equal() -> None:
    target = from_model(Net(), (torch.zeros(4, 3, 8, 8),), loss="sum")
    assert count_target(target) == count_target(target)


def test_an_error_in_forward_names_the_module() -> None:
    with pytest.raises(TargetError, match="head"):
        count(_Wrapped(), torch.zeros(2, 5))


class _Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x)
        return out


def test_an_error_in_backward_says_so() -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
            raise ZeroDivisionError("no gradient today")

    class Net(_Wrapped):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = Broken.apply(super().forward(x))  # type: ignore[no-untyped-call]
            return out

    with pytest.raises(TargetError, match="backward raised ZeroDivisionError: no gradient today"):
        count(Net(), torch.zeros(2, 4))


VALUE_DEPENDENT = """
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.small = nn.Linear(4, 4)
        self.large = nn.Linear(4, 4)

    def forward(self, x):
        x = self.small(x)
        return self.large(x) if x.abs().sum().item() >= 0 else x


example_inputs = torch.zeros(2, 4)
"""


def test_a_value_dependent_model_is_counted_on_the_cpu(tmp_path: Path) -> None:
    file = tmp_path / "gate.py"
    file.write_text(VALUE_DEPENDENT)
    static = count_target(load(TargetSpec(spec=str(file), loss="sum")))
    assert static.device == "cpu"
    assert "on the CPU" in static.notes[0]
    assert "gate.py" in static.notes[0]
    assert static.forward.macs == 2 * 2 * 16


def test_a_value_dependent_model_in_hand_is_counted_on_the_cpu() -> None:
    class Gate(_Wrapped):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            return out if (out * 0).sum().item() == 0 else x

    static = count(Gate(), torch.zeros(2, 4))
    assert static.device == "cpu"
    assert static.forward.macs == 2 * 4 * 2


NEW_FORMULA = """
from profiler_kit.counting.arithmetic import contraction
from profiler_kit.counting.formulas import formula


@formula("counting_laws.blend")
def blend(a, b, *, out):
    return contraction(a.shape[0] * b.shape[0], a)
"""


def test_one_file_adds_a_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = torch.library.Library("counting_laws", "FRAGMENT")
    library.define("blend(Tensor a, Tensor b) -> Tensor")
    library.impl("blend", lambda a, b: a.new_empty(a.shape[0], b.shape[0]), "CompositeExplicitAutograd")
    op = torch.ops.counting_laws.blend
    assert counted(op, t(3), t(5)).uncounted == ("counting_laws.blend",)

    (tmp_path / "blending.py").write_text(NEW_FORMULA)
    monkeypatch.setattr(formulas, "__path__", [*formulas.__path__, str(tmp_path)])
    formulas.import_all.cache_clear()
    found = counted(op, t(3), t(5))
    assert found.uncounted == ()
    assert found.forward == Cost(macs=15, flops=30, read_bytes=4 * 8, write_bytes=4 * 15)


def test_two_files_cannot_claim_one_op() -> None:
    with pytest.raises(ValueError, match=r"aten\.mm has a formula"):
        formulas.formula("aten.mm")(lambda a, b, *, out: Cost())


@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13), reason="older versions lack some of the ops"
)
def test_every_formula_names_an_op_that_exists() -> None:
    for name in formulas.names():
        namespace, packet, *variant = name.split(".")
        if namespace != "aten":
            continue
        found = getattr(torch.ops.aten, packet, None)
        assert found is not None, name
        assert not variant or variant[0] in found.overloads(), name

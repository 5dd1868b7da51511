"""The count beside fvcore's and torch's: sums that hold, reasons that are right, and peers that fail or are absent."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from counting_networks import NETWORKS, Keywords
from torch import Tensor, nn

import profiler_kit
from profiler_kit.command_lines import install_command
from profiler_kit.counting import count_by_conventions
from profiler_kit.counting.cross_check import flop_counter as by_torch
from profiler_kit.counting.cross_check import fvcore as by_fvcore
from profiler_kit.errors import TargetError
from profiler_kit.loading import Target, from_model
from profiler_kit.records.counts import CrossCheck, StaticCount, TensorSpec
from profiler_kit.records.target import Mode


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def checked(one: Target) -> tuple[StaticCount, CrossCheck, CrossCheck]:
    static, _ = count_by_conventions(one, cross_check=True)
    of_torch, of_fvcore = static.cross_checks
    assert (of_torch.peer, of_fvcore.peer) == ("FlopCounterMode", "fvcore")
    return static, of_torch, of_fvcore


def network(name: str, mode: Mode = "train") -> Target:
    model, args = NETWORKS[name]()
    return from_model(model, args, mode=mode, loss="sum")


def reasons(check: CrossCheck) -> dict[str, str]:
    return {row.op: row.reason for row in check.rows if row.reason}


def check_sums(static: StaticCount, of_torch: CrossCheck, of_fvcore: CrossCheck) -> None:
    assert of_torch.kit_macs == static.step.macs
    assert of_fvcore.kit_macs == static.forward.macs
    for check in (of_torch, of_fvcore):
        assert sum(row.kit_macs for row in check.rows) == check.kit_macs
        assert sum(row.peer_macs for row in check.rows) == check.peer_macs
        for row in check.rows:
            assert bool(row.reason) == (row.kit_macs != row.peer_macs), row


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_rows_add_up_and_every_difference_has_a_reason(name: str, mode: Mode) -> None:
    pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    static, of_torch, of_fvcore = checked(network(name, mode))
    assert of_torch.failure is None
    assert of_fvcore.failure is None
    check_sums(static, of_torch, of_fvcore)
    told = {**reasons(of_torch), **reasons(of_fvcore)}
    assert by_torch.NOT_EXPLAINED not in told.values()
    assert by_fvcore.NOT_EXPLAINED not in told.values()
    for layer in of_fvcore.layers:
        assert layer.peer_macs == layer.expected_macs, layer


# network, what the peer's name of the op is, why it differs
FVCORE = [
    ("norms", "batch_norm", by_fvcore.PER_ELEMENT_OF_NORM),
    ("norms", "group_norm", by_fvcore.PER_ELEMENT_OF_NORM),
    ("norms", "instance_norm", by_fvcore.PER_ELEMENT_OF_NORM),
    ("norms", "layer_norm", by_fvcore.PER_ELEMENT_OF_NORM),
    ("resized", "adaptive_avg_pool2d", by_fvcore.PER_ELEMENT_OF_RESAMPLING),
    ("resized", "upsample_bilinear2d", by_fvcore.PER_ELEMENT_OF_RESAMPLING),
    ("same_padding", "conv", by_fvcore.PADDING),
    ("attention_fused", "scaled_dot_product_attention", by_fvcore.NO_HANDLE),
    ("lstm", "lstm", by_fvcore.NO_HANDLE),
    ("bilinear", "bilinear", by_fvcore.NO_HANDLE),
]


@pytest.mark.parametrize(("name", "op", "why"), FVCORE)
def test_why_fvcore_differs(name: str, op: str, why: str) -> None:
    _, _, check = checked(network(name))
    assert reasons(check)[op] == why


def test_why_fvcore_differs_on_broadcasts_and_custom_functions() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x @ x

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return gradient

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            return torch.matmul(self.weight, x) + Square.apply(self.weight)

    _, _, check = checked(from_model(Net(), (torch.ones(3, 4, 4),), loss="sum"))
    assert reasons(check) == {"matmul": by_fvcore.BROADCAST, "PythonOp.Square": by_fvcore.CUSTOM}
    rows = {row.op: (row.kit_macs, row.peer_macs) for row in check.rows}
    assert rows == {"matmul": (3 * 64, 64), "PythonOp.Square": (64, 0)}


def test_why_torchs_counter_differs() -> None:
    _, check, _ = checked(network("grouped"))
    assert reasons(check) == {"aten.convolution_backward": by_torch.GROUPED}
    _, check, _ = checked(network("bilinear"))
    assert by_torch.NO_FORMULA in reasons(check).values()
    real = from_model(nn.LSTM(4, 4), (torch.ones(3, 2, 4),), mode="infer", device="cpu")
    _, check, _ = checked(real)
    assert set(reasons(check).values()) == {by_torch.NO_FORMULA}
    assert check.peer_macs == 0 < check.kit_macs


def test_complex_products_are_told() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x @ x).abs()

    x = torch.ones(4, 4, dtype=torch.complex64)
    _, of_torch, of_fvcore = checked(from_model(Net(), (x,), mode="infer"))
    assert set(reasons(of_torch).values()) == {by_torch.COMPLEX}
    assert reasons(of_fvcore) == {"matmul": by_fvcore.COMPLEX}


def test_reasons_of_attentions_backward() -> None:
    op, spec = "aten._scaled_dot_product_flash_attention_backward", TensorSpec(shape=(1, 1), dtype="float16", nbytes=2)
    assert by_torch.reason(op, (spec,), 4, 5) == by_torch.RECOMPUTED_SCORES
    assert by_torch.reason(op, (spec,), 4, 6) == by_torch.OTHER_FORMULA
    assert by_torch.reason("mylib.op", (spec,), 0, 6, has_kit_formula=False) == by_torch.NO_KIT_FORMULA


def test_keywords_and_dicts_can_be_traced_and_misplaced_backward_shows() -> None:
    """FlopCounterMode gives a layer called by keyword the work of the whole backward after it."""
    pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    one = from_model(Keywords(), (), {"x": torch.ones(3, 8), "scale": 2.0}, loss="sum")
    static, of_torch, of_fvcore = checked(one)
    assert of_fvcore.failure is None
    check_sums(static, of_torch, of_fvcore)
    layers = {layer.path: layer for layer in of_torch.layers}
    assert layers["second"].kit_macs == layers["second"].expected_macs == 3 * 3 * 8 * 4
    assert layers["second"].peer_macs != layers["second"].expected_macs
    assert layers[""].peer_macs == of_torch.peer_macs


def test_without_fvcore_its_handles_figures_stand_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fvcore.nn", None)
    _, _, check = checked(network("norms"))
    assert check.failure == "fvcore is not installed"
    assert check.hint == install_command("fvcore")
    assert check.peer_macs is None
    assert sum(row.peer_macs for row in check.rows) == 2 * 25 * 8 * 3 + 4 * 5 * (2 * 8 * 25)
    assert all(layer.peer_macs is None for layer in check.layers)


def test_a_model_without_real_tensors_is_not_traced() -> None:
    pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    _, of_torch, of_fvcore = checked(
        from_model(nn.Linear(3, 3, device="meta"), (torch.ones(2, 3, device="meta"),), loss="sum")
    )
    assert of_torch.failure is None
    assert "meta" in (of_fvcore.failure or "")


def test_a_model_too_large_for_the_machine_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    monkeypatch.setattr(by_fvcore, "free_bytes", lambda: 1)
    _, _, check = checked(network("linear"))
    assert check.failure is not None
    assert "0.0 GB" in check.failure


def test_what_a_peer_raises_is_told_and_the_count_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fvcore.nn", reason="fvcore is not installed")

    def broken(*_: object) -> None:
        raise RuntimeError("not today")

    monkeypatch.setattr(by_fvcore, "_analyze", broken)
    monkeypatch.setattr(by_torch, "_run", broken)
    static, of_torch, of_fvcore = checked(network("linear"))
    assert static.step.macs > 0
    assert (of_torch.failure or "").endswith("RuntimeError: not today")
    assert (of_fvcore.failure or "").endswith("RuntimeError: not today")


def test_what_a_peer_says_beyond_its_formulas_is_a_row_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer whose formulas differ from those looked up, as a later version's may."""
    fvcore = pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    real = fvcore.FlopCountAnalysis

    class Later(real):  # type: ignore[misc, valid-type]
        def __init__(self, *given: object) -> None:
            super().__init__(*given)
            self.set_op_handle("aten::gelu", lambda inputs, outputs: 1000)

    monkeypatch.setattr(fvcore, "FlopCountAnalysis", Later)
    _, _, check = checked(network("linear"))
    rows = {row.op: row for row in check.rows}
    assert rows["gelu (not explained)"].peer_macs == 1000
    assert rows["gelu (not explained)"].reason == by_fvcore.NOT_EXPLAINED
    assert sum(row.peer_macs for row in check.rows) == check.peer_macs


def test_the_users_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)).eval()
    model[2].train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = profiler_kit.count(model, torch.ones(2, 3, 8, 8), cross_check=True)
    assert report.static is not None
    assert len(report.static.cross_checks) == 2
    assert {name: torch.equal(value, before[name]) for name, value in model.state_dict().items()} == dict.fromkeys(
        before, True
    )
    assert [module.training for module in model.modules()] == [False, False, False, True]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_model_that_asks_for_values_is_checked_where_it_can_be_counted() -> None:
    pytest.importorskip("fvcore.nn", reason="fvcore is not installed")

    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.arange(4) < 3
            return self.linear(x) if mask.all().item() else self.linear(self.linear(x))

    static, of_torch, of_fvcore = checked(from_model(Asking(), (torch.ones(2, 4),), loss="sum"))
    assert static.forward.macs == 2 * 2 * 16
    check_sums(static, of_torch, of_fvcore)


def test_a_broken_model_is_the_users_error_as_without() -> None:
    class Broken(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight.T[:1], None).reshape(77)

    with pytest.raises(TargetError):
        checked(from_model(Broken(3, 3), (torch.ones(2, 3),), loss="sum"))

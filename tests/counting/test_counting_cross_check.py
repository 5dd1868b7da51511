"""The count beside fvcore's: figures of every layer, and fvcore that fails or is absent."""

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
from profiler_kit.counting import count_by_conventions, fvcore_check
from profiler_kit.errors import TargetError
from profiler_kit.loading import Target, from_model
from profiler_kit.records.counts import CrossCheck, StaticCount, is_inside
from profiler_kit.records.target import Mode


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def checked(target: Target) -> tuple[StaticCount, CrossCheck]:
    static, _ = count_by_conventions(target, cross_check=True)
    (check,) = static.cross_checks
    assert check.peer == "fvcore"
    return static, check


def network(name: str, mode: Mode = "train") -> Target:
    model, args = NETWORKS[name]()
    return from_model(model, args, mode=mode, loss="sum")


def with_children(static: StaticCount) -> dict[str, int]:
    """MACs of forward by path, children included, where they are not zero."""
    sums = {
        module.path: sum(node.forward.macs for node in static.modules if is_inside(node.path, module.path))
        for module in static.modules
        if not module.path.startswith("(")
    }
    sums[""] = static.forward.macs
    return {path: macs for path, macs in sums.items() if macs}


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("name", NETWORKS)
def test_layers_are_those_of_the_count_and_of_fvcores_convention(name: str, mode: Mode) -> None:
    """fvcore itself and its convention in this package agree in every module."""
    pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    static, check = checked(network(name, mode))
    assert check.failure is None
    assert check.kit_macs == static.forward.macs
    assert {layer.path: layer.kit_macs for layer in check.layers if layer.kit_macs} == with_children(static)
    by_convention = with_children(count_by_conventions(network(name, mode), "fvcore")[0])
    assert {layer.path: layer.peer_macs for layer in check.layers if layer.peer_macs} == by_convention
    assert check.peer_macs == by_convention.get("", 0)


def test_keywords_and_dicts_can_be_traced() -> None:
    pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    static, check = checked(from_model(Keywords(), (), {"x": torch.ones(3, 8), "scale": 2.0}, loss="sum"))
    assert check.failure is None
    assert check.peer_macs == check.kit_macs == static.forward.macs > 0


def test_without_fvcore_the_check_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fvcore.nn", None)
    static, check = checked(network("norms"))
    assert check.failure == "fvcore is not installed"
    assert check.hint == install_command("fvcore")
    assert check.peer_macs is None
    assert (check.kit_macs, check.layers) == (static.forward.macs, ())


def test_a_model_without_real_tensors_is_not_traced() -> None:
    pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    _, check = checked(from_model(nn.Linear(3, 3, device="meta"), (torch.ones(2, 3, device="meta"),), loss="sum"))
    assert "meta" in (check.failure or "")


def test_a_model_too_large_for_the_machine_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    monkeypatch.setattr(fvcore_check, "free_bytes", lambda: 1)
    _, check = checked(network("linear"))
    assert check.failure is not None
    assert "0.0 GB" in check.failure
    assert check.hint


def test_what_fvcore_raises_is_the_reason_and_the_count_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    fvcore = pytest.importorskip("fvcore.nn", reason="fvcore is not installed")

    def broken(*_: object) -> None:
        raise RuntimeError("not today")

    monkeypatch.setattr(fvcore, "FlopCountAnalysis", broken)
    static, check = checked(network("linear"))
    assert static.step.macs > 0
    assert (check.failure or "").endswith("RuntimeError: not today")


def test_the_users_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)).eval()
    model[2].train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = profiler_kit.count(model, torch.ones(2, 3, 8, 8), cross_check=True)
    assert report.static is not None
    assert len(report.static.cross_checks) == 1
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

    static, check = checked(from_model(Asking(), (torch.ones(2, 4),), loss="sum"))
    assert static.forward.macs == check.kit_macs == check.peer_macs == 2 * 2 * 16


def test_a_broken_model_is_the_users_error_as_without() -> None:
    class Broken(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight.T[:1], None).reshape(77)

    with pytest.raises(TargetError):
        checked(from_model(Broken(3, 3), (torch.ones(2, 3),), loss="sum"))

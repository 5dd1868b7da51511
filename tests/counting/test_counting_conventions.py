"""Each convention against the counter it is named after, or against its definition."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from counting_networks import NETWORKS, Attention
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import profiler_kit
from profiler_kit.counting import conventions as family
from profiler_kit.counting import count_by_conventions, count_target
from profiler_kit.counting.conventions import OpCall, conventions, find_convention
from profiler_kit.counting.conventions.flop_counter import op_cost
from profiler_kit.counting.step import trace_step
from profiler_kit.errors import KitError, UsageError
from profiler_kit.loading import Target, from_model
from profiler_kit.meta.op_memo import Memo
from profiler_kit.records.counts import Cost, StaticCount

Mode = Literal["train", "infer"]
MODES: tuple[Mode, ...] = ("train", "infer")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def target(name: str, mode: Mode = "train", device: str = "meta") -> Target:
    model, args = NETWORKS[name]()
    return from_model(model, args, mode=mode, loss="sum", device=device)


def by(convention: str, name: str, mode: Mode = "train", device: str = "meta") -> StaticCount:
    return count_target(target(name, mode, device), convention=convention)


# fvcore


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NETWORKS)
def test_fvcores_figures_are_fvcores(name: str, mode: Mode) -> None:
    fvcore = pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    model, args = NETWORKS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = fvcore.FlopCountAnalysis(model.train(mode == "train"), args)
        peer.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        said = {op: macs for op, macs in peer.by_operator().items() if macs}
    static = by("fvcore", name, mode)
    ours = {total.op.removeprefix("fvcore."): total.cost.macs for total in static.ops if total.cost and total.cost.macs}
    assert ours == said
    assert static.forward.macs == static.step.macs == peer.total()
    assert static.step.flops == 2 * static.step.macs


def test_fvcore_puts_work_where_fvcore_does() -> None:
    fvcore = pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    model, args = NETWORKS["encoder_layer"]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = fvcore.FlopCountAnalysis(model, args).uncalled_modules_warnings(False).unsupported_ops_warnings(False)
        totals = said.by_module()
    nodes = by("fvcore", "encoder_layer").modules
    for node in (node for node in nodes if node.path != "(loss)" and node.calls):
        below = [one for one in nodes if not node.path or one.path == node.path or one.path.startswith(f"{node.path}.")]
        assert sum(one.forward.macs for one in below) == totals[node.path], node.path


# name, the figure by fvcore's definitions: 1 a MAC, 5 (4) an element of a norm with (without) weights, trained
FVCORE = {
    "conv": 2 * 8 * 144 * 27,
    "grouped": 2 * 8 * 16 * 2 * 9,
    "transposed": 2 * 49 * 4 * 3 * 9,  # as many as the input has positions
    "same_padding": 0,
    "norms": 2 * 25 * 8 * 3 + 4 * 5 * (2 * 8 * 25),
    "attention_by_hand": 4 * 2 * 6 * 16 * 16 + 2 * (2 * 6 * 6 * 16),
    "attention_fused": 4 * 2 * 6 * 16 * 16,
    "lstm": 0,
    "cells": 5 * (8 + 12) * 48 + 5 * (12 + 6) * 18,
    "resized": 2 * 16 * 12 + 4 * (2 * 4 * 64) + 2 * 4 * 256 + 2 * 4 * 256,
}


@pytest.mark.parametrize("name", FVCORE)
def test_fvcores_definitions(name: str) -> None:
    assert by("fvcore", name).forward.macs == FVCORE[name]


def test_fvcore_in_evaluation_takes_a_batch_norm_for_its_scale() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False))
    one = from_model(model, (torch.ones(2, 3, 4, 4),), mode="infer")
    assert count_target(one, convention="fvcore").forward.macs == (2 + 1) * 2 * 3 * 16


def test_fvcore_leaves_torch_as_it_was_also_after_an_exception() -> None:
    class Broken(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise ValueError("on purpose")

    looked_up = (torch.overrides, torch.nn.functional, torch.functional, torch._tensor)
    before = [vars(place).get("has_torch_function") for place in looked_up]
    apply = torch.autograd.Function.__dict__["apply"]
    with pytest.raises(KitError):
        count_target(from_model(Broken(3, 3), (torch.ones(2, 3),), mode="infer"), convention="fvcore")
    assert [vars(place).get("has_torch_function") for place in looked_up] == before
    assert torch.autograd.Function.__dict__["apply"] is apply
    assert torch.backends.mha.get_fastpath_enabled()


# torch


def said_by_torch(one: Target) -> int:
    training = one.info.mode == "train"
    with FlopCounterMode(display=False) as peer, torch.set_grad_enabled(training):
        output = one.model(*one.batch.args)
        if training:
            one.loss(output, one.batch, ()).backward()  # type: ignore[no-untyped-call]
    return int(peer.get_total_flops())


@pytest.mark.parametrize(("mode", "device"), [*itertools.product(MODES, ("meta", "cpu"))])
@pytest.mark.parametrize("name", NETWORKS)
def test_torchs_figures_are_its_counters(name: str, mode: Mode, device: str) -> None:
    assert by("torch", name, mode, device).step.flops == said_by_torch(target(name, mode, device))


def test_torch_repeats_its_counters_errors() -> None:
    kit, torchs = by("kit", "grouped"), by("torch", "grouped")
    assert torchs.forward.macs == kit.forward.macs
    weight_gradient = kit.forward.macs
    extra = torchs.backward.macs - kit.backward.macs
    # the input asks for no gradient: backward is the weight's alone, and torch does not divide it by the four groups
    assert (kit.backward.macs, extra) == (weight_gradient, 3 * weight_gradient)
    assert by("torch", "lstm", "infer", "cpu").step.flops == 0 < by("torch", "lstm", "infer").step.flops


def test_torch_counts_the_scores_of_fused_attention_again() -> None:
    """Two products forward, five backward; where a GPU's kernels are not at hand, the op's own arguments are."""
    q = torch.empty(2, 3, 8, 4, device="meta")
    ops = torch.ops.aten
    calls: dict[Any, tuple[Any, ...]] = {
        ops._scaled_dot_product_flash_attention.default: (q, q, q),
        ops._scaled_dot_product_flash_attention_backward.default: (q, q, q, q, q, None, None, None, 8, 8, 0.0, False, None, None),
    }  # fmt: skip
    products = []
    for op, args in calls.items():
        cost = op_cost(OpCall(op=op, args=args, kwargs={}, out=(q, q, q), kit_cost=None))
        assert cost is not None
        products.append(cost.flops // (2 * 2 * 3 * 8 * 8 * 4))
    assert products == [2, 5]


def test_what_a_user_registers_with_torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.flop_counter import flop_registry

    monkeypatch.setitem(flop_registry, torch.ops.aten.relu, lambda x, **_: 7 * x.numel())
    static = by("torch", "conv", "infer")
    assert static.forward.flops == 2 * by("kit", "conv", "infer").forward.macs + 7 * 2 * 8 * 144


def test_an_op_that_a_registered_formula_cannot_take_ends_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.flop_counter import flop_registry

    monkeypatch.setitem(flop_registry, torch.ops.aten.relu, lambda: 0)
    with pytest.raises(KitError, match="relu"):
        by("torch", "conv", "infer")


@pytest.mark.parametrize("convention", ["torch", "fvcore", "model-flops"])
def test_every_convention_counts_on_every_kind_of_tensors(convention: str) -> None:
    """Code that mixes devices runs on fake tensors, code that asks for large values on real ones."""

    offset = torch.ones(4)

    class Mixed(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + offset

    class Asking(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y if bool((y > -1e9).all()) else y.abs()

    for kind, device in ((Mixed, "fake"), (Asking, "cpu")):
        one = from_model(kind(4, 4, bias=False), (torch.ones(300, 4),), loss="sum")
        static = count_target(one, convention=convention)
        assert static.device == device
        assert static.forward.macs == 300 * 16
        plain = from_model(nn.Linear(4, 4, bias=False), (torch.ones(300, 4),), loss="sum")
        assert static.step.macs == count_target(plain, convention=convention).step.macs


# model FLOPs

VOCABULARY, WIDTH, TOKENS, LAYERS, SEQUENCES = 50, 16, 6, 3, 2


class Decoder(nn.Module):
    """Layers of attention and a two-layer perceptron."""

    def __init__(self, *, recompute: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.attention = nn.ModuleList(Attention(fused=True) for _ in range(LAYERS))
        shapes = [nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH)) for _ in range(LAYERS)]
        self.mlp = nn.ModuleList(shapes)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.recompute = recompute

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for attention, mlp in zip(self.attention, self.mlp, strict=True):
            x = x + (checkpoint(attention, x, use_reentrant=False) if self.recompute else attention(x))
            x = x + mlp(x)
        return self.head(x)


def decoder(mode: Mode = "train", *, frozen: bool = False, recompute: bool = False) -> StaticCount:
    model = Decoder(recompute=recompute)
    if frozen:
        model.mlp.requires_grad_(False)
    ids = torch.ones(SEQUENCES, TOKENS, dtype=torch.long)
    return count_target(from_model(model, (ids,), mode=mode, loss="sum"), convention="model-flops")


def test_model_flops_of_a_decoder() -> None:
    """PaLM, appendix B: 6 N + 12 L H Q T a token, N being what stands in products: no biases, no lookups."""
    n = LAYERS * (4 * WIDTH * WIDTH + 2 * WIDTH * 64) + WIDTH * VOCABULARY
    per_token = 6 * n + 12 * LAYERS * WIDTH * TOKENS
    static = decoder()
    assert static.step.flops == per_token * SEQUENCES * TOKENS
    assert static.forward.flops * 2 == static.backward.flops
    assert decoder("infer").step.flops * 3 == static.step.flops


@pytest.mark.parametrize("other", [{"frozen": True}, {"recompute": True}])
def test_model_flops_depend_on_the_model_alone(other: dict[str, bool]) -> None:
    static = decoder(**other)
    assert static.step.flops == decoder().step.flops
    assert static.recompute.flops == static.loss.flops == 0
    assert static.recompute.bytes_moved > 0 or not other.get("recompute")  # it still moves bytes


@pytest.mark.parametrize("name", NETWORKS)
def test_model_flops_by_module_are_three_times_forward(name: str) -> None:
    for node in by("model-flops", name).modules:
        assert node.backward.macs == 2 * node.forward.macs
        assert node.step_cost.flops == 2 * node.step_cost.macs


# all


@pytest.mark.parametrize("convention", ["torch", "fvcore", "model-flops"])
@pytest.mark.parametrize("name", ["conv", "norms", "attention_fused", "cells"])
def test_a_convention_changes_work_and_nothing_else(name: str, convention: str) -> None:
    kit, other = by("kit", name), by(convention, name)
    for phase in ("forward", "loss", "backward", "recompute"):
        ours, theirs = getattr(kit, phase), getattr(other, phase)
        assert (ours.read_bytes, ours.write_bytes) == (theirs.read_bytes, theirs.write_bytes)
    assert (kit.params, kit.saved_bytes, kit.uncounted) == (other.params, other.saved_bytes, other.uncounted)
    assert (other.convention_name, other.convention) == (convention, find_convention(convention).sentence)
    for phase in ("forward", "loss", "backward", "recompute"):
        assert sum((node.cost(phase) for node in other.modules), start=Cost()) == getattr(other, phase)


@pytest.mark.parametrize("convention", ["kit", "torch", "fvcore", "model-flops"])
@pytest.mark.parametrize("name", ["conv", "encoder_layer", "lstm"])
def test_what_is_remembered_changes_no_figure(name: str, convention: str) -> None:
    """Calls alike are asked about once: a count without a memo asks each time."""
    kept = trace_step(target(name), Memo(), find_convention(convention))
    asked = trace_step(target(name), None, find_convention(convention))

    def whole(trace: Any) -> int:
        return sum(op.cost.flops * op.calls for op in trace.ops if op.cost)

    assert whole(kept) == whole(asked)


def test_findings_rest_on_the_kits_count() -> None:
    model, args = NETWORKS["conv"]()
    kit = profiler_kit.count(model, *args, mode="infer")
    other = profiler_kit.count(model, *args, mode="infer", convention="fvcore")
    assert other.findings == kit.findings
    assert other.static is not None
    assert kit.static is not None
    assert other.static.convention_name == "fvcore"
    assert other.static.memory == kit.static.memory
    shown, by_kit = count_by_conventions(target("conv", "infer"), "torch")
    assert (shown.convention_name, by_kit.convention_name) == ("torch", "kit")


@pytest.mark.parametrize("name", conventions())
def test_the_documentation_has_every_convention(name: str) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "counting.md").read_text()
    one = find_convention(name)
    assert f"| `{name}` | {one.unit} | {one.counts} | {one.backward} | {one.use} |" in page


def test_an_unknown_convention_names_the_known() -> None:
    with pytest.raises(UsageError) as raised:
        profiler_kit.count(nn.Linear(2, 2), torch.ones(1, 2), convention="fvcor")
    assert (raised.value.hint or "").endswith("kit, fvcore, model-flops, torch")


def test_a_convention_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = (
        "from profiler_kit.counting.conventions import Convention, with_work\n"
        "CONVENTION = Convention(name='halves', sentence='S.', unit='u', counts='c', backward='b', use='u',\n"
        "    op_cost=lambda call: None if call.kit_cost is None else with_work(call.kit_cost, macs=call.kit_cost.macs // 2))\n"
    )
    (tmp_path / "halves.py").write_text(file)
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(tmp_path)])
    conventions.cache_clear()
    try:
        halves, whole = by("halves", "linear"), by("kit", "linear")
    finally:
        monkeypatch.undo()
        conventions.cache_clear()
    assert halves.forward == replace(whole.forward, macs=whole.forward.macs // 2, flops=whole.forward.macs)

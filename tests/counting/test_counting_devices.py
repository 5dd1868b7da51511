"""The kernels of a device in a count: the same work on every device, and the saved bytes of the memory prediction."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from test_counting_one_answer import Language, Separable, Vision, encoder, images, words
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from profiler_kit import count
from profiler_kit.counting import count_target
from profiler_kit.counting.conventions import conventions
from profiler_kit.devices.cards.cpu import CPU
from profiler_kit.devices.cards.data_center import H100
from profiler_kit.devices.device import Device
from profiler_kit.devices.registry import devices, find_device
from profiler_kit.loading import from_model
from profiler_kit.memory import simulate
from profiler_kit.meta.emulation.attention import select_kernel
from profiler_kit.records.counts import COUNT_PHASES, AttentionUse, Cost, StaticCount

WORDS, TOKENS = 11, 8


class Decoder(nn.Module):
    """A block of a language model, with attention as in nanoGPT and its relatives."""

    def __init__(self, width: int = 32, heads: int = 2, dropout: float = 0.1, mask: str = "", *, grouped: bool = False):
        super().__init__()
        self.heads, self.dropout, self.mask, self.grouped = heads, dropout, mask, grouped
        self.words, self.norm, self.drop = nn.Embedding(WORDS, width), nn.LayerNorm(width), nn.Dropout(dropout)
        self.qkv, self.out, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens = x.shape
        residual = self.drop(self.words(x))
        parts = self.qkv(self.norm(residual)).chunk(3, -1)
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        if self.grouped:
            k, v = k[:, :1], v[:, :1]
        mask = None
        if self.mask:
            mask = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).tril()
            mask = mask if self.mask == "bool" else torch.zeros(tokens, tokens, device=x.device).masked_fill(mask, 1.0)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(
            q, k, v, mask, dropout, is_causal=mask is None, **({"enable_gqa": True} if self.grouped else {})
        )
        scores: Tensor = self.head(residual + self.out(y.transpose(1, 2).flatten(2)))
        return scores


class MultiHead(nn.Module):
    def __init__(self, *, need_weights: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True, dropout=dropout)
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x, x, need_weights=self.need_weights)[0]
        return out


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.utils.checkpoint.checkpoint(self.block, self.first(x), use_reentrant=False)
        return out


class Down(nn.Module):
    """The form of a U-Net: a skip connection, a transposed convolution, batch norms."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(7, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(F.relu(self.norm(self.down(x))))
        out: Tensor = self.out(torch.cat([x, y], 1)).mean((2, 3))
        return out


def tokens() -> Tensor:
    return torch.zeros(2, TOKENS, dtype=torch.long)


def sequence() -> Tensor:
    return torch.zeros(2, 5, 16)


Make = Callable[[], nn.Module]
MODELS: dict[str, tuple[Make, Callable[[], Tensor]]] = {
    "vision": (Vision, images),
    "decoder": (Decoder, tokens),
    "decoder, boolean mask": (partial(Decoder, mask="bool"), tokens),
    "decoder, float mask": (partial(Decoder, mask="float"), tokens),
    "decoder, grouped queries": (partial(Decoder, grouped=True), tokens),
    "decoder, odd heads": (partial(Decoder, 40), tokens),
    "decoder, very odd heads": (partial(Decoder, 42), tokens),
    "decoder, no dropout": (partial(Decoder, dropout=0.0), tokens),
    "encoder": (encoder, lambda: torch.zeros(2, 5, 8)),
    "attention with weights": (partial(MultiHead, need_weights=True), sequence),
    "attention": (partial(MultiHead, need_weights=False), sequence),
    "attention with dropout": (partial(MultiHead, need_weights=False, dropout=0.1), sequence),
    "checkpoint": (Checkpointed, sequence),
    "convolutions": (Separable, images),
    "U-Net": (Down, images),
}
RECURRENT: dict[str, tuple[Make, Callable[[], Tensor]]] = {
    "LSTM": (partial(Language, nn.LSTM), words),
    "LSTM, projected": (partial(Language, nn.LSTM, proj_size=4), words),
    "LSTM with dropout": (partial(Language, nn.LSTM, dropout=0.3), words),
    "GRU": (partial(Language, nn.GRU), words),
    "RNN": (partial(Language, nn.RNN), words),
}
ALL = MODELS | RECURRENT
DEVICES = {"H100": H100, "CPU": CPU, **{name: find_device(name, "--gpu", devices()) for name in ("a100", "sm75")}}


def target(name: str, mode: Any = "train", amp: Any = None) -> Any:
    make, inputs = ALL[name]
    return from_model(make().train(mode == "train"), inputs(), mode=mode, amp=amp)


def work(static: StaticCount, *, macs: bool = False) -> list[int]:
    costs = [getattr(static, phase) for phase in COUNT_PHASES]
    return [cost.macs if macs else cost.flops for cost in costs]


@functools.cache
def counted(name: str, mode: str, amp: str | None, device: str | None) -> StaticCount:
    """The count of `name` for a device of `DEVICES`, or for none; several tests compare the same counts."""
    return count_target(target(name, mode, amp), device=DEVICES[device] if device is not None else None)


@pytest.mark.parametrize(("mode", "amp"), [("train", None), ("train", "bfloat16"), ("infer", None)])
@pytest.mark.parametrize("name", ALL)
def test_the_device_does_not_change_the_work(name: str, mode: str, amp: str | None) -> None:
    """MACs are equal on every device. FLOPs too, except those of backward of recurrent layers: sums of many gradients."""
    parts = counted(name, mode, amp, None)
    for label, device in DEVICES.items():
        static = counted(name, mode, amp, label)
        assert static.kernels_of == device.label
        assert not static.uncounted
        assert work(static, macs=True) == work(parts, macs=True), device.label
        if name in MODELS:
            assert work(static) == work(parts), device.label


@pytest.mark.parametrize(
    ("device", "amp"), [*((name, None) for name in DEVICES), ("H100", "bfloat16"), ("CPU", "bfloat16")]
)
@pytest.mark.parametrize("name", ALL)
def test_saved_bytes_are_those_of_the_memory_prediction(name: str, device: str, amp: str | None) -> None:
    """In the headline, in the module table and in the simulation of the same device."""
    static = counted(name, "train", amp, device)
    memory = simulate(target(name, amp=amp), DEVICES[device])
    by_module = {node.path: node.saved_bytes for node in static.modules if node.saved_bytes}
    assert static.saved_bytes == sum(by_module.values()) == memory.saved_bytes
    # a checkpoint saves its input outside of any module that runs
    if name != "checkpoint":
        assert by_module == {module.path: module.saved_bytes for module in memory.modules if module.saved_bytes}


@pytest.mark.parametrize("name", MODELS)
def test_modules_sum_to_the_headline(name: str) -> None:
    for device in DEVICES:
        static = counted(name, "train", None, device)
        for phase in COUNT_PHASES:
            assert sum((node.cost(phase) for node in static.modules), Cost()) == getattr(static, phase)


def really_saved(model: nn.Module, x: Tensor) -> int:
    """Bytes of distinct storages that autograd saves in a real step on the CPU."""
    excluded = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers(), x)}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in excluded:
            storages[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(x).sum()
    return sum(storage.nbytes() for storage in storages.values())


CPU_MODELS = ["vision", "decoder, no dropout", "encoder", "attention", "U-Net", "convolutions"]


@pytest.mark.parametrize("options", [{}, {"mask": "bool"}, {"mask": "float"}, {"grouped": True}, {"width": 42}])
def test_saved_bytes_on_a_cpu_are_those_of_a_real_step(options: dict[str, Any]) -> None:
    model, x = Decoder(dropout=0.0, **options), tokens()
    static = count_target(from_model(model, x, loss_fn=lambda out: out.sum()), device=CPU)
    assert static.saved_bytes == really_saved(model, x)


@pytest.mark.parametrize("name", CPU_MODELS)
def test_saved_bytes_of_networks_on_a_cpu(name: str) -> None:
    make, inputs = MODELS[name]
    model, x = make().train(), inputs()
    static = count_target(from_model(model, x, loss_fn=lambda out: out.sum()), device=CPU)
    assert static.saved_bytes == really_saved(model, x)


def qkv(*shape: int, dtype: torch.dtype = torch.float32, kind: str = "meta", **options: Any) -> Tensor:
    return torch.zeros(shape or (2, 4, 16, 8), dtype=dtype, device=kind, **options)


CHOICES: dict[str, Callable[[str], dict[str, Any]]] = {
    "plain": lambda kind: {},
    "causal": lambda kind: {"is_causal": True},
    "dropout": lambda kind: {"dropout_p": 0.1},
    "boolean mask": lambda kind: {"attn_mask": qkv(16, 16, dtype=torch.bool, kind=kind)},
    "mask of three dimensions": lambda kind: {"attn_mask": qkv(4, 16, 16, kind=kind)},
    "mask of four dimensions": lambda kind: {"attn_mask": qkv(2, 1, 16, 16, kind=kind)},
    "mask with a gradient": lambda kind: {"attn_mask": qkv(16, 16, kind=kind, requires_grad=True)},
    "float64": lambda kind: dict.fromkeys(("query", "key", "value"), qkv(dtype=torch.float64, kind=kind)),
    "bfloat16": lambda kind: dict.fromkeys(("query", "key", "value"), qkv(dtype=torch.bfloat16, kind=kind)),
    "wide heads": lambda kind: dict.fromkeys(("query", "key", "value"), qkv(1, 2, 4, 300, kind=kind)),
    "narrow values": lambda kind: {"value": qkv(2, 4, 16, 4, kind=kind)},
    "three dimensions": lambda kind: dict.fromkeys(("query", "key", "value"), qkv(4, 16, 8, kind=kind)),
    "no keys": lambda kind: dict.fromkeys(("key", "value"), qkv(2, 4, 0, 8, kind=kind)),
    "transposed": lambda kind: dict.fromkeys(("query", "key", "value"), qkv(2, 4, 8, 16, kind=kind).mT),
    "grouped": lambda kind: {**dict.fromkeys(("key", "value"), qkv(2, 2, 16, 8, kind=kind)), "enable_gqa": True},
    "broadcast batch": lambda kind: {"query": qkv(1, 4, 16, 8, kind=kind)},
}


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("name", CHOICES)
def test_the_kernel_of_a_cpu_is_torchs_choice(name: str, is_on: bool) -> None:
    def arguments(kind: str) -> dict[str, Any]:
        tensors = {**dict.fromkeys(("query", "key", "value"), qkv(kind=kind)), **CHOICES[name](kind)}
        return {"attn_mask": None, "dropout_p": 0.0, "enable_gqa": False, "is_causal": False} | tensors

    with sdpa_kernel([SDPBackend.MATH, *([SDPBackend.FLASH_ATTENTION] if is_on else [])]):
        choice = torch._fused_sdp_choice(**arguments("cpu"))
        emulated = arguments("meta")
        kernel = select_kernel(
            CPU, emulated["query"], emulated["key"], emulated["value"], emulated["attn_mask"],
            enable_gqa=emulated["enable_gqa"], dropout=emulated["dropout_p"] > 0,
        )  # fmt: skip
    assert kernel == {SDPBackend.MATH.value: "math", SDPBackend.FLASH_ATTENTION.value: "flash"}[choice]


@pytest.mark.parametrize(
    ("device", "amp", "kernel"),
    [
        (H100, None, AttentionUse(kernel="memory-efficient", dtype="float32", calls=1)),
        (H100, "bfloat16", AttentionUse(kernel="cuDNN", dtype="bfloat16", calls=1)),
        (DEVICES["a100"], "float16", AttentionUse(kernel="flash", dtype="float16", calls=1)),
        (DEVICES["sm75"], "bfloat16", AttentionUse(kernel="math", dtype="bfloat16", calls=1)),
        (CPU, None, AttentionUse(kernel="math", dtype="float32", calls=1)),  # because of dropout
    ],
)
def test_the_report_names_the_kernel_of_attention(device: Device, amp: str | None, kernel: AttentionUse) -> None:
    static = count_target(target("decoder", amp=amp), device=device)
    assert static.attention == (kernel,)
    note = next(note for note in static.notes if note.startswith("attention"))
    assert device.label in note
    assert f"{kernel.kernel} kernel ({kernel.dtype})" in note


def test_padding_of_heads_names_the_flash_kernel() -> None:
    static = count_target(target("decoder, odd heads", amp="bfloat16"), device=H100)
    assert static.attention == (AttentionUse(kernel="flash", dtype="bfloat16", calls=1),)


def test_switches_of_torch_select_the_kernel() -> None:
    def kernels(*backends: SDPBackend) -> list[str]:
        with sdpa_kernel(list(backends)):
            return [use.kernel for use in count_target(target("decoder"), device=H100).attention]

    assert kernels(SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH) == ["memory-efficient"]
    assert kernels(SDPBackend.MATH) == ["math"]


def test_a_count_without_attention_has_no_note_about_it() -> None:
    static = count_target(target("convolutions"), device=H100)
    assert not static.attention
    assert not static.notes


def test_one_layer_of_attention_saves_no_scores() -> None:
    """Queries, keys, values, the output and one number per row, instead of the scores of all pairs."""
    model, x = MultiHead(need_weights=False), torch.zeros(2, 64, 16)
    static = count(model, x).static
    assert static is not None
    assert static.memory is not None
    assert static.saved_bytes == static.memory.saved_bytes
    scores_bytes = 2 * 2 * 64 * 64 * 4
    assert static.saved_bytes < scores_bytes
    parts = count_target(from_model(model, x))
    assert parts.saved_bytes > 2 * scores_bytes
    assert static.step.bytes_moved < parts.step.bytes_moved - 4 * scores_bytes


@pytest.mark.parametrize("convention", sorted(conventions()))
def test_conventions_differ_in_work_only(convention: str) -> None:
    for name in ("decoder", "LSTM"):
        kit = count_target(target(name), device=H100)
        other = count_target(target(name), device=H100, convention=convention)
        assert (other.saved_bytes, other.params, other.attention) == (kit.saved_bytes, kit.params, kit.attention)
        assert other.step.bytes_moved == kit.step.bytes_moved


def test_autocast_is_part_of_the_bytes() -> None:
    model, x = MultiHead(need_weights=False), torch.zeros(2, 256, 16)
    full = count_target(from_model(model, x), device=H100)
    half = count_target(from_model(model, x, amp="bfloat16"), device=H100)
    assert (full.autocast, half.autocast) == (None, "bfloat16")
    assert half.saved_bytes < full.saved_bytes
    on_cpu = count_target(target("vision", amp="bfloat16"), device=CPU)
    assert on_cpu.autocast is None
    assert any("autocast" in note for note in on_cpu.notes)


def test_a_step_that_a_kernel_rejects_is_counted_as_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr("profiler_kit.meta.emulation.attention.select_kernel", fail)
    static = count_target(target("decoder"), device=H100)
    assert static.kernels_of is None
    assert any("no such kernel" in note for note in static.notes)
    assert work(static) == work(count_target(target("decoder")))

"""What CUDA does otherwise: dropout, attention, autocast, recurrent layers, the loss, optimizers; and that it all ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.devices.cards.cpu import CPU
from profiler_kit.devices.cards.data_center import H100
from profiler_kit.devices.device import Device, Figure
from profiler_kit.devices.registry import devices, find_device
from profiler_kit.loading import from_model
from profiler_kit.memory import simulate
from profiler_kit.memory.tracker import Tracker
from profiler_kit.meta.emulation import emulated
from profiler_kit.meta.emulation.attention import select_kernel
from profiler_kit.meta.ownership import ModuleTracker
from profiler_kit.records.calls import OpCall


class Heard:
    """What libraries are said to take."""

    def __init__(self) -> None:
        self.calls: list[OpCall] = []
        self.kept: list[str] = []
        self.notes: list[str] = []

    def use_workspace(self, call: OpCall) -> None:
        self.calls.append(call)

    def use_handle(self, handle: str, row: Figure, op: str) -> None:
        self.kept.append(handle)


class Ops(TorchDispatchMode):
    """The ops that are called, by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


@contextmanager
def imitated(device: Device = H100, heard: Heard | None = None) -> Any:
    listener = heard or Heard()
    with emulated(device, listener, listener.notes.append) as emulation, emulation:
        yield emulation


def meta(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Tensor:
    return torch.zeros(shape, device="meta", dtype=dtype, requires_grad=grad)


def autocast() -> AbstractContextManager[Any]:
    return torch.autocast("cuda", dtype=torch.bfloat16)


@pytest.mark.parametrize("call", [lambda x: F.dropout(x, 0.5), nn.Dropout(0.5)])
def test_dropout_is_one_op_with_a_mask(call: Callable[[Tensor], Tensor]) -> None:
    x = meta(4, 4)
    with imitated(), Ops() as ops:
        call(x)
    assert ops.names == ["native_dropout"]


@pytest.mark.parametrize("call", [nn.Dropout(0.5).eval(), nn.Dropout(0.0)])
def test_dropout_that_drops_nothing_makes_no_mask(call: Callable[[Tensor], Tensor]) -> None:
    with imitated(), Ops() as ops:
        call(meta(4, 4))
    assert "native_dropout" not in ops.names


HALF, FULL = torch.bfloat16, torch.float32
ATTENTION = [  # device, type, head size, with a mask, grouped, kernel
    ("sm90", HALF, 64, False, False, "cudnn"),
    ("sm90", HALF, 64, True, False, "cudnn"),
    ("sm90", HALF, 60, False, False, "flash"),
    ("sm90", FULL, 64, False, False, "efficient"),
    ("sm90", FULL, 64, True, False, "efficient"),
    ("sm90", FULL, 64, False, True, "math"),
    ("sm90", FULL, 63, False, False, "math"),
    ("sm90", torch.float64, 64, False, False, "math"),
    ("sm80", HALF, 64, False, False, "flash"),
    ("sm80", HALF, 64, True, False, "efficient"),
    ("sm86", HALF, 64, False, False, "flash"),
    ("sm75", torch.float16, 64, False, False, "efficient"),
    ("sm75", HALF, 64, False, False, "math"),
    ("sm90", HALF, 264, False, False, "math"),
]


@pytest.mark.parametrize(("device", "dtype", "head", "masked", "grouped", "kernel"), ATTENTION)
def test_the_kernel_of_attention(
    device: str, dtype: torch.dtype, head: int, masked: bool, grouped: bool, kernel: str
) -> None:
    query, key = meta(2, 8, 16, head, dtype=dtype), meta(2, 4 if grouped else 8, 16, head, dtype=dtype)
    mask = torch.zeros(16, 16, dtype=torch.bool, device="meta") if masked else None
    assert select_kernel(find_device(device, "--gpu", devices()), query, key, key, mask, enable_gqa=grouped) == kernel
    heard = Heard()
    with imitated(find_device(device, "--gpu", devices()), heard), Ops() as ops:
        out = F.scaled_dot_product_attention(query, key, key, mask, enable_gqa=grouped)
    assert out.shape == query.shape
    names = {"cudnn": "cudnn_attention", "flash": "flash_attention", "efficient": "efficient_attention"}
    padded = [call.op.removeprefix("aten.") for call in heard.calls]  # padded heads are a call with the head size
    called = [name for name in (*ops.names, *padded) if name.endswith("_attention")]
    assert called == ([f"_scaled_dot_product_{names[kernel]}"] if kernel != "math" else [])


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (lambda x: x @ x, torch.bfloat16),
        (lambda x: F.linear(x, x), torch.bfloat16),
        (lambda x: F.layer_norm(x.bfloat16(), (8,)), torch.float32),
        (lambda x: F.softmax(x.bfloat16(), -1), torch.float32),
        (lambda x: x.bfloat16().sum(), torch.float32),
        (lambda x: x.bfloat16() + x.bfloat16(), torch.bfloat16),
        (lambda x: torch.cat([x, x.bfloat16()]), torch.float32),
    ],
)
def test_autocast_has_the_lists_of_cuda(call: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    with imitated(), autocast():
        assert call(meta(8, 8)).dtype is dtype


def test_a_weight_is_cast_once_and_its_copy_ends_with_autocast() -> None:
    layer = nn.Linear(8, 8, device="meta")
    with imitated() as emulation:
        with autocast(), Ops() as ops:
            layer(layer(meta(2, 8)))
        assert ops.names.count("_to_copy") == 3  # the weight, the bias and the first input
        torch.relu(meta(1))
        assert not emulation.weights


def test_the_loss_under_autocast_keeps_a_copy_in_float32() -> None:
    scores, labels = meta(4, 10, dtype=HALF), meta(4, dtype=torch.long)
    with imitated(), autocast(), Ops() as ops:
        loss = F.cross_entropy(scores, labels)
    assert loss.dtype is torch.float32
    assert ops.names[:3] == ["_log_softmax", "_to_copy", "nll_loss_forward"]


# what an H100 with cuDNN 9.19 was seen to keep: kind, time steps, batch, width, layers, both ways, dropout, type
RESERVES = [
    ("LSTM", 128, 16, 512, 2, False, 0.0, FULL, 46_137_600),
    ("LSTM", 128, 16, 512, 2, False, 0.0, HALF, 23_068_928),
    ("LSTM", 64, 8, 256, 1, False, 0.0, FULL, 2_621_696),
    ("LSTM", 64, 8, 256, 2, False, 0.0, FULL, 5_767_424),
    ("LSTM", 128, 8, 256, 1, False, 0.0, FULL, 5_243_136),
    ("LSTM", 128, 16, 512, 2, False, 0.2, FULL, 46_268_672),
    ("LSTM", 128, 16, 512, 2, False, 0.2, HALF, 23_200_000),
    ("LSTM", 128, 16, 512, 2, True, 0.2, FULL, 92_799_232),
]


@pytest.mark.parametrize(("kind", "steps", "batch", "width", "depth", "both", "dropout", "dtype", "nbytes"), RESERVES)
def test_the_reserve_of_a_recurrent_layer(
    kind: str,
    steps: int,
    batch: int,
    width: int,
    depth: int,
    both: bool,
    dropout: float,
    dtype: torch.dtype,
    nbytes: int,
) -> None:
    layer = getattr(nn, kind)(
        width, width, depth, bidirectional=both, dropout=dropout, device="meta", dtype=dtype, batch_first=True
    )
    kept: list[Tensor] = []
    heard = Heard()
    with imitated(heard=heard), torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        out, (h, c) = layer(meta(batch, steps, width, dtype=dtype, grad=True))
    assert [t.numel() for t in kept if t.dtype is torch.uint8] == [nbytes]
    assert out.shape == (batch, steps, width * (2 if both else 1))
    assert out.stride()[0] < out.stride()[1]  # cuDNN writes time steps first
    assert h.shape == c.shape == (depth * (2 if both else 1), batch, width)
    assert [call.op for call in heard.calls] == ["aten._cudnn_rnn"]
    assert heard.kept == (["cuDNN's dropout state"] if dropout else [])


# what an H200 was seen to keep for a batch of 8 and 20 steps of 64: hidden, projection, layers, both ways
PROJECTED = [
    (96, 32, 1, False, 389_376), (96, 32, 2, False, 839_936), (96, 32, 3, False, 1_290_496), (96, 16, 2, False, 819_456),
    (64, 48, 1, False, 276_736), (64, 48, 2, False, 594_176), (96, 32, 1, True, 778_496), (96, 32, 2, True, 1_679_616),
]  # fmt: skip


@pytest.mark.parametrize(("hidden", "projection", "depth", "both", "nbytes"), PROJECTED)
def test_the_reserve_of_a_projected_layer(hidden: int, projection: int, depth: int, both: bool, nbytes: int) -> None:
    layer = nn.LSTM(64, hidden, depth, proj_size=projection, bidirectional=both, device="meta")
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.dtype is torch.uint8:
            kept.append(tensor.numel())
        return tensor

    with imitated(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(meta(20, 8, 64))
    assert kept == [nbytes]


BATCH_FIRST: dict[str, Any] = {"batch_first": True, "device": "meta"}
# bytes more after forward, as an H200 requested them: in float32, under autocast
GROWTH: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "gru with dropout": (lambda: nn.GRU(64, 96, 2, dropout=0.3, **BATCH_FIRST), 874_624, 663_936),
    "gru both ways": (lambda: nn.GRU(64, 96, 1, bidirectional=True, **BATCH_FIRST), 872_704, 643_584),
    "gru of three layers": (lambda: nn.GRU(64, 96, 3, **BATCH_FIRST), 1_308_928, 991_872),
    "tanh": (lambda: nn.RNN(64, 96, 2, **BATCH_FIRST), 258_304, 218_112),
    "relu": (lambda: nn.RNN(64, 96, 1, nonlinearity="relu", **BATCH_FIRST), 129_280, 116_352),
    "projected": (lambda: nn.LSTM(64, 96, 2, proj_size=32, **BATCH_FIRST), 876_800, 597_248),
}
CELLS = {"LSTMCell": (5_668_864, 2_981_888), "GRUCell": (4_882_432, 2_539_520), "RNNCell": (557_056, 376_832)}


def grown(call: Callable[[], object], amp: bool) -> int:
    """The bytes that a call leaves behind, held by its result."""
    tracker = Tracker(ModuleTracker({}), H100)

    def held() -> int:
        return sum(change for change, _ in tracker.log.events)

    with emulated(H100, tracker, tracker.log.note) as emulation, emulation, tracker:
        with torch.autocast("cuda", torch.bfloat16, enabled=amp):
            call()  # the first call makes the weights known
            before = held()
            kept = call()
            after = held()
        del kept
    return after - before


@pytest.mark.parametrize("amp", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("name", GROWTH)
def test_what_a_recurrent_layer_holds_after_forward(name: str, amp: bool) -> None:
    make, plain, cast = GROWTH[name]
    layer, x = make(), meta(8, 20, 64)
    assert grown(lambda: layer(x), amp) == (cast if amp else plain)


@pytest.mark.parametrize("amp", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("kind", CELLS)
def test_what_four_calls_of_a_cell_hold(kind: str, amp: bool) -> None:
    cell = getattr(nn, kind)(64, 96, device="meta")

    def run() -> object:
        state: Any = meta(256, 96)
        state, x = (state, state) if kind == "LSTMCell" else state, meta(256, 64)
        for _ in range(4):
            state = cell(x, state)
        return state

    assert grown(run, amp) == CELLS[kind][amp]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_packed_sequence_has_its_gradients(kind: str) -> None:
    layer = getattr(nn, kind)(4, 6, device="meta")
    packed = torch.nn.utils.rnn.PackedSequence(meta(7, 4, grad=True), torch.tensor([3, 2, 2]))
    heard = Heard()
    with imitated(heard=heard):
        layer(packed)[0].data.sum().backward()
    assert all(weight.grad is not None and weight.grad.shape == weight.shape for weight in layer.parameters())
    assert heard.notes  # only roughly, and that is said


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_a_cell_has_its_gradients(kind: str) -> None:
    cell = getattr(nn, kind)(4, 6, device="meta")
    x = meta(3, 4, grad=True)
    with imitated(), Ops() as ops:
        out = cell(x)
        (out[0] if isinstance(out, tuple) else out).sum().backward()
    assert "sigmoid" not in ops.names  # one fused kernel
    assert x.grad is not None
    assert all(weight.grad is not None and weight.grad.shape == weight.shape for weight in cell.parameters())


@pytest.mark.parametrize(("device", "copies"), [(CPU, 0), (H100, 3)])
def test_optimizers_step_all_parameters_at_once_on_cuda(device: Device, copies: int) -> None:
    """AdamW over lists holds the square roots of all parameters' second moments at once."""
    model = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(8)))
    memory = simulate(from_model(model, (torch.zeros(1, 64),), loss="sum", optimizer="adamw", device="meta"), device)
    all_at_once = 4 * 8 * 64 * 64
    assert memory.peak_phase == "optimizer"
    temporary = memory.categories.temporaries or 0
    assert (temporary >= all_at_once) == (copies > 0)


def test_all_is_put_back() -> None:
    names = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")

    def state() -> list[Any]:
        found = [getattr(module, name, None) for module in (F, torch.functional, torch._tensor) for name in names]
        found += [torch.clear_autocast_cache, torch.cuda.is_bf16_supported, torch.utils.checkpoint._infer_device_type]
        return [*found, sys.modules["torch.optim.adamw"].__dict__.get("_get_foreach_kernels_supported_devices")]

    before = state()

    def raised() -> None:
        with imitated():
            assert state() != before
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        raised()
    assert state() == before

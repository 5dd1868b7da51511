"""Model code that names a GPU is built and run on the device of the run, and leaves torch unchanged."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from profiler_kit.counting import count_target
from profiler_kit.errors import TargetError
from profiler_kit.loading import from_model, load
from profiler_kit.meta.device_moves import accelerator, moves_redirected, names_accelerator
from profiler_kit.records.target import TargetSpec

META, CPU = torch.device("meta"), torch.device("cpu")
HAS_CUDA = torch.cuda.is_available()
needs_no_cuda = pytest.mark.skipif(HAS_CUDA, reason="the functions of torch.cuda work on this machine")

CONSTRUCTOR = """
import torch
from torch import nn

device = "cuda:0"
Float = torch.cuda.FloatTensor

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4).cuda()
        self.second = nn.Linear(4, 4).half().cuda().float()
        self.register_buffer("mask", torch.ones(4, device="cuda"))
        self.scale = nn.Parameter(torch.ones(4).to(device))
        self.legacy = Float(4).fill_(1)
        self.to(torch.device("cuda"))

    def forward(self, x):
        return self.second(self.fc(x)) * self.mask * self.scale + self.legacy

example_inputs = (torch.zeros(2, 8),)
"""
FORWARD = """
import torch
from torch import nn

device = torch.device("cuda")

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 4, batch_first=True)
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        x = x.cuda(non_blocking=True)
        state = torch.zeros(1, len(x), 4).to(device)
        out, _ = self.rnn(x, (state, torch.zeros_like(state, device="cuda:0")))
        table = torch.arange(4, device=device).type(torch.cuda.FloatTensor)
        table = table.type(x.type())
        pinned = torch.ones(4, pin_memory=True).pin_memory().cuda()
        with torch.autocast(x.device.type), torch.amp.autocast("cuda", enabled=False):
            return self.fc(out[:, -1]) + table + pinned + x.new_zeros(4, device=0)

example_inputs = (torch.zeros(2, 3, 8),)
"""


def write(folder: Path, text: str) -> TargetSpec:
    file = folder / "net.py"
    file.write_text(text)
    return TargetSpec(spec=str(file))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_constructor_may_name_a_gpu(tmp_path: Path, device: str) -> None:
    target = load(write(tmp_path, CONSTRUCTOR), device=device)
    assert {tensor.device.type for tensor in (*target.model.parameters(), *target.model.buffers())} == {device}
    assert target.model.legacy.device.type == device
    assert target.requested_devices == {"cuda"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        static = count_target(target)
    assert static.device == device
    assert static.forward.macs == 2 * (8 * 4 + 4 * 4)


def test_forward_may_name_a_gpu_and_is_counted_on_meta(tmp_path: Path) -> None:
    target = load(write(tmp_path, FORWARD))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        static = count_target(target)
    assert (static.device, static.notes) == ("meta", ())
    assert target.requested_devices == {"cuda"}
    # the gates of an LSTM: 4 x 4 outputs of 8 inputs and 4 states, for each of 3 steps and 2 examples
    assert static.forward.macs == 2 * (3 * 16 * (8 + 4) + 4 * 4)


def test_the_count_is_that_of_the_same_code_without_moves(tmp_path: Path) -> None:
    class Moving(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.cuda()) + torch.ones(4, device="cuda")

    class Still(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.ones(4, device=x.device)

    moving, still = (count_target(from_model(kind(8, 4), torch.zeros(2, 8))) for kind in (Moving, Still))
    assert (moving.forward, moving.backward, moving.saved_bytes) == (still.forward, still.backward, still.saved_bytes)


def test_values_behind_a_move_are_still_known() -> None:
    class Masked(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            lengths = torch.tensor([3, 1], device="cuda")
            return super().forward(x[:, : int(lengths.max().cpu())])

    static = count_target(from_model(Masked(8, 4), torch.zeros(2, 5, 8)))
    assert static.device == "meta"
    assert static.forward.macs == 2 * 3 * 8 * 4


def test_a_branch_on_an_activation_runs_on_the_cpu_with_moves() -> None:
    class Gate(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x.cuda())
            return y if y.sum().item() < 1e9 else x

    target = from_model(Gate(8, 4), torch.zeros(2, 8))
    assert count_target(target).device == "cpu"
    assert target.requested_devices == {"cuda"}


def test_the_type_of_an_input_is_the_type_of_another_tensor() -> None:
    class Padded(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + torch.ones(8).type(x.type()))

    static = count_target(from_model(Padded(8, 4), torch.zeros(2, 8)))
    assert (static.device, static.forward.macs) == ("meta", 2 * 8 * 4)


@pytest.mark.parametrize("name", ["mps", "xpu:0"])
def test_other_accelerators_are_redirected_too(name: str) -> None:
    class Moving(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.to(name)) + torch.ones(4, device=name)

    target = from_model(Moving(8, 4), torch.zeros(2, 8))
    assert count_target(target).device == "meta"
    assert target.requested_devices == {name.partition(":")[0]}


@needs_no_cuda
def test_functions_of_a_missing_gpu_do_nothing_for_user_code_only() -> None:
    def user_code() -> list[Any]:
        torch.cuda.set_device(0)
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.nvtx.range_push("step")
        with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
            torch.cuda.current_stream().synchronize()
        return [torch.cuda.current_device(), torch.cuda.get_device_capability(), torch.cuda.is_available()]

    stream = torch.cuda.Stream
    with moves_redirected(CPU) as moves:
        assert user_code() == [0, (0, 0), False]
        torch.manual_seed(0)
        code = compile("torch.cuda.current_device()", "torch/made_up.py", "eval")
        with pytest.raises((AssertionError, RuntimeError)):  # torch asks in this way whether there is a device
            eval(code, {"torch": torch, "__name__": "torch.made_up"})
    assert moves.requested == {"cuda"}
    assert torch.cuda.Stream is stream
    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.current_device()


@needs_no_cuda
def test_default_devices_of_a_missing_gpu_are_ignored() -> None:
    before = torch.get_default_dtype()
    try:
        with moves_redirected(CPU):
            torch.set_default_device("cuda")
            torch.set_default_tensor_type("torch.cuda.DoubleTensor")
            assert torch.ones(1).device == CPU
            assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(before)


def test_tensors_on_the_cpu_keep_their_values_in_constructors() -> None:
    with torch.device("meta"), moves_redirected(META):
        assert torch.linspace(0, 1, 3, device="cpu").tolist() == [0, 0.5, 1]
        assert torch.ones(2).cuda().is_meta
        assert torch.ones(2).to("cpu").is_meta  # a module moved to the CPU stays where it is built


def test_requests_of_nested_blocks_are_collected() -> None:
    requested: set[str] = set()
    with moves_redirected(CPU, requested=requested), moves_redirected(META):
        torch.ones(2).to("cuda")
    assert requested == {"cuda"}


def test_an_exception_restores_torch() -> None:
    before = (torch.set_default_device, torch.autocast.__init__, torch.cuda.FloatTensor, torch.cuda.synchronize)
    with pytest.raises(ValueError, match="no"), moves_redirected(META, join=True):
        raise ValueError("no")
    assert before == (
        torch.set_default_device, torch.autocast.__init__, torch.cuda.FloatTensor, torch.cuda.synchronize,
    )  # fmt: skip
    assert torch.ones(1).device == CPU


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        ("cuda:1", "cuda"),
        (torch.device("mps"), "mps"),
        (0, "cuda"),
        (-1, "cuda"),
        ("cpu", None),
        ("meta", None),
        (None, None),
    ],
)
def test_accelerator(device: Any, kind: str | None) -> None:
    assert accelerator(device) == kind


def test_names_accelerator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quiet_net.py").write_text("class Net: ...\n")
    (tmp_path / "moving_net.py").write_text("class Net:\n    def forward(self, x): return x.cuda()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import moving_net  # type: ignore[import-not-found]
    import quiet_net  # type: ignore[import-not-found]

    assert not names_accelerator([nn.Linear, quiet_net.Net])
    assert names_accelerator([nn.Linear, moving_net.Net])
    assert names_accelerator([type("Net", (), {"__module__": "__no_such_module__"})])


@needs_no_cuda
def test_device_cuda_still_fails_clearly(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="this machine has no CUDA device"):
        load(write(tmp_path, CONSTRUCTOR), device="cuda")

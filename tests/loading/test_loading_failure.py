"""Forward passes that raise, beyond the table: what is told apart, and what passes through."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from profiler_kit.errors import KitError, TargetError
from profiler_kit.loading import NeedsDataError, Target, explain_forward_failure, from_model
from profiler_kit.loading.failure import DeviceMoveError


def explained(target: Target) -> KitError:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # what it is depends on the model
        target.model(*target.batch.args, **target.batch.kwargs)
    return explain_forward_failure(target, caught.value)


class Body(nn.Module):
    """A Linear(3, 3) whose forward does what it is told."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc(x)
        match self.kind:
            case "if":
                return y if y.sum() > 0 else -y
            case "tolist":
                return y * y.tolist()[0][0]
            case "mask":
                return y[y > 0]
            case "unique":
                return y * torch.unique(x).numel()
            case "cpu":
                return y + torch.ones(3)
            case "dtype":
                return y @ torch.ones(3, 3, dtype=torch.float64, device=y.device)
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")


@pytest.mark.parametrize("kind", ["if", "tolist", "mask", "unique", "cpu"])
def test_what_needs_values_is_told_apart(kind: str) -> None:
    error = explained(from_model(Body(kind), torch.ones(2, 3)))
    assert isinstance(error, NeedsDataError)
    assert error.where is not None
    assert "test_loading_failure.py:" in error.where
    target = from_model(Body(kind), torch.ones(2, 3), device="cpu")
    assert isinstance(target.model(*target.batch.args), Tensor)  # on a real device it runs


class Raising(nn.Module):
    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = message

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError(self.message)


@pytest.mark.parametrize(
    ("device", "message", "kind", "options"),
    [
        ("meta", "Torch not compiled with CUDA enabled", DeviceMoveError, "device='cuda'"),
        ("cpu", "Torch not compiled with CUDA enabled", DeviceMoveError, "device='cuda'"),
        ("cpu", "0 active drivers ([])", NeedsDataError, "device='cuda'"),
        ("meta", "no fake impl registered", NeedsDataError, "device='cpu'"),
        ("meta", "Cannot copy out of meta tensor; no data!", DeviceMoveError, "device='cpu'"),
        ("meta", "Expected inputs of BF16 type", NeedsDataError, "dtype='bfloat16'"),
        ("meta", "tensors on the same device, please", DeviceMoveError, "device='cpu'"),
        ("cpu", "tensors on the same device, please", TargetError, "register_buffer"),
        ("cpu", "Expected more than 1 value per channel when training", TargetError, "batch=2"),
        ("cpu", "CUDA error: device-side assert triggered", TargetError, "device='cpu'"),
    ],
)
def test_each_problem_has_its_error_and_command(
    device: str, message: str, kind: type[TargetError], options: str
) -> None:
    error = explained(from_model(Raising(message), torch.ones(2, 3), device=device, mode="infer"))
    assert type(error) is kind
    assert options in str(error.hint)
    assert (kind is TargetError and options == "register_buffer") == ("analyze" not in str(error.hint))


def test_a_mixed_dtype_is_named() -> None:
    error = explained(from_model(Body("dtype"), torch.ones(2, 3), device="cpu"))
    assert "float64" in error.message or "Double" in error.message or "double" in error.message


def test_device_memory_passes_through() -> None:
    target = from_model(Body("oom"), torch.ones(2, 3), device="cpu")
    with pytest.raises(RuntimeError, match="out of memory"):
        explained(target)


def test_an_error_told_already_passes_through() -> None:
    target = from_model(nn.Linear(3, 3), torch.ones(2, 3))
    told = TargetError("told")
    with pytest.raises(TargetError) as caught:
        explain_forward_failure(target, told)
    assert caught.value is told


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (nn.Linear(4, 2), (5, 3), "got 5x3, needs 5x4"),
        (nn.Conv1d(4, 2, 1), (5, 3, 6), "got 5x3x6, needs 5x4x6"),
        (nn.Conv2d(4, 2, 1), (5, 3, 6, 6), "got 5x3x6x6, needs 5x4x6x6"),
        (nn.Conv2d(4, 2, 1), (6, 7), "got 6x7, needs 1x4x6x7"),
        (nn.ConvTranspose2d(4, 2, 1), (5, 3, 6, 6), "got 5x3x6x6, needs 5x4x6x6"),
        (nn.BatchNorm2d(4), (5, 3, 6, 6), "got 5x3x6x6, needs 5x4x6x6"),
        (nn.GroupNorm(2, 4), (5, 3, 6, 6), "got 5x3x6x6, needs 5x4x6x6"),
        (nn.LayerNorm((4, 6)), (5, 3, 6), "got 5x3x6, needs 5x4x6"),
        (nn.GRU(4, 2), (5, 2, 3), "got 5x2x3, needs 5x2x4"),
    ],
)
def test_each_layer_says_what_it_needs(layer: nn.Module, shape: tuple[int, ...], message: str) -> None:
    model = nn.Sequential(nn.Identity(), layer)
    for device in ("cpu",) if isinstance(layer, nn.ConvTranspose2d) else ("meta", "cpu"):  # on meta it is not checked
        error = explained(from_model(model, torch.ones(shape), device=device))
        assert f"shape mismatch in 1 ({type(layer).__name__}): {message}" in error.message
        assert error.hint is not None
        assert error.hint.startswith("this shape works: ")


def test_inputs_of_another_type_are_answered_with_the_models() -> None:
    """Meta tensors let the mix pass for some layers; on a real device the hint must not be the command that failed."""
    integers = torch.ones(2, 3, dtype=torch.int64)
    for dtype, tensor in (("float32", "torch.randn(2, 3)"), ("float64", "torch.rand((2, 3), dtype=torch.float64)")):
        model = nn.Linear(3, 3, dtype=getattr(torch, dtype))
        error = explained(from_model(model, integers, device="cpu"))
        assert "dtype mismatch in Linear" in error.message
        assert error.hint.endswith(f": profiler_kit.analyze(model, {tensor})")


def test_an_error_in_backward_is_not_called_forwards() -> None:
    target = from_model(nn.Linear(3, 3), torch.ones(2, 3))
    error = explain_forward_failure(target, RuntimeError("double backward"))
    assert error.message == "the step raised RuntimeError: double backward"


def test_the_trial_leaves_no_hook_behind() -> None:
    target = from_model(nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 4)), torch.ones(2, 3), device="cpu")
    explained(target)
    assert not any(module._forward_hooks for module in target.model.modules())
    assert {p.device.type for p in target.model.parameters()} == {"cpu"}

"""Layouts of convolutions: results with channels last, and ATen's copies of operands in another layout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from profiler_kit.devices.cards.data_center import H100
from profiler_kit.loading import from_model
from profiler_kit.memory import simulate
from profiler_kit.memory.workspace import LibraryConfig, workspace_of
from profiler_kit.meta.emulation.library_calls import facts_of
from profiler_kit.meta.meta_kernels import is_channels_last, is_dense, replacement_kernel
from profiler_kit.records.calls import OpCall

LAST = torch.channels_last
CONVOLUTION = torch.ops.aten.convolution.default
SHAPE = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, transposed, output padding, groups


def tensors() -> dict[str, Tensor]:
    plain = torch.empty(4, 6, 5, 7)
    tokens = torch.empty(4, 35, 6)
    return {
        "contiguous": plain,
        "channels last": plain.contiguous(memory_format=LAST),
        "permuted tokens": tokens.transpose(1, 2).reshape(4, 6, 5, 7),
        "one channel": torch.empty(4, 1, 5, 7).contiguous(memory_format=LAST),
        "one position": torch.empty(4, 6, 1, 1),
        "weight of one position": torch.empty(8, 6, 1, 1).contiguous(memory_format=LAST),
        "expanded": torch.empty(4, 6, 1, 1).expand(4, 6, 5, 7),
        "swapped sides": plain.transpose(2, 3),
        "part of the channels": plain.contiguous(memory_format=LAST)[:, :3],
        "volume": torch.empty(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d),
        "sequence": torch.empty(2, 5, 3).transpose(1, 2),
        "empty": torch.empty(0, 6, 5, 7),
    }


@pytest.mark.parametrize("name", tensors())
def test_the_suggested_layout_is_that_of_torch(name: str) -> None:
    from torch._prims_common import suggest_memory_format

    tensor = tensors()[name]
    expected = suggest_memory_format(tensor) is not torch.contiguous_format
    assert is_channels_last(tensor.shape, tensor.stride()) == expected


@pytest.mark.parametrize("name", [name for name, tensor in tensors().items() if tensor.dim() == 4 and tensor.numel()])
@pytest.mark.parametrize("channels_last", [False, True])
def test_density_is_contiguity_in_the_layout(name: str, channels_last: bool) -> None:
    tensor = tensors()[name]
    expected = tensor.is_contiguous(memory_format=LAST if channels_last else torch.contiguous_format)
    assert is_dense(tensor.shape, tensor.stride(), channels_last=channels_last) == expected


def convolve(image: Tensor, weight: Tensor) -> Tensor:
    kernel = replacement_kernel(CONVOLUTION, (image, weight)) or CONVOLUTION
    out: Tensor = kernel(image, weight, None, *SHAPE)
    return out


@pytest.mark.parametrize("which", ["image", "weight", "both", "neither"])
def test_a_result_has_channels_last_if_image_or_weight_do(which: str) -> None:
    def made(*shape: int, last: bool) -> Tensor:
        return torch.empty(shape, device="meta", memory_format=LAST if last else torch.contiguous_format)

    image = made(4, 6, 5, 7, last=which in ("image", "both"))
    weight = made(8, 6, 3, 3, last=which in ("weight", "both"))
    out = convolve(image, weight)
    assert out.shape == (4, 8, 5, 7)
    assert out.is_contiguous(memory_format=LAST) == (which != "neither")


def test_a_result_in_double_precision_is_contiguous() -> None:
    image = torch.empty(4, 6, 5, 7, device="meta", dtype=torch.float64, memory_format=LAST)
    assert convolve(image, torch.empty(8, 6, 3, 3, device="meta", dtype=torch.float64)).is_contiguous()


def workspace(image: Tensor, weight: Tensor, gradient: Tensor | None = None) -> Any:
    if gradient is None:
        out = torch.empty(4, 64, 32, 32, memory_format=LAST)
        call = OpCall("aten.convolution", facts_of((image, weight, None, *SHAPE)), outputs=facts_of((out,)))
    else:
        arguments = (gradient, image, weight, None, *SHAPE, (True, True, False))
        call = OpCall("aten.convolution_backward", facts_of(arguments), in_backward=True)
    return workspace_of(call, H100, LibraryConfig())


def test_an_image_in_another_layout_is_copied() -> None:
    image, weight = torch.empty(4, 64, 32, 32), torch.empty(64, 64, 3, 3).contiguous(memory_format=LAST)
    same = workspace(image.contiguous(memory_format=LAST), weight)
    other = workspace(image, weight)
    assert other.low - same.low == other.high - same.high == other.likely - same.likely == image.nbytes


def test_an_expanded_gradient_is_copied() -> None:
    image, weight = torch.empty(4, 64, 32, 32), torch.empty(64, 64, 3, 3)
    plain = workspace(image, weight, torch.empty(4, 64, 32, 32))
    expanded = workspace(image, weight, torch.empty(4, 64, 1, 1).expand(4, 64, 32, 32))
    assert expanded.low - plain.low == image.nbytes


class Normalized(nn.Module):
    """A result that two ops save: group normalization as a contiguous copy, the square as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16)

    def forward(self, x: Tensor) -> Tensor:
        """The normalized result plus its square."""
        y = self.first(x)
        out: Tensor = self.norm(y) + y * y
        return out


def saved_bytes(*, channels_last: bool) -> int:
    with torch.device("meta"):
        model, x = Normalized(), torch.empty(2, 3, 34, 34)
    if channels_last:
        model = model.to(memory_format=LAST)  # type: ignore[call-overload]
    return simulate(from_model(model, (x,), loss="sum", device="meta")).saved_bytes or 0


def test_group_normalization_saves_a_contiguous_copy_of_a_result_with_channels_last() -> None:
    assert saved_bytes(channels_last=True) - saved_bytes(channels_last=False) == 4 * 2 * 16 * 32 * 32

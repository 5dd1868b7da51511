"""The geometry of a convolution for cuDNN: sizes, precision, layout. A transposed convolution is an input gradient.

Also the workspace of Fourier and Winograd convolutions: the transformed weight, and tiles of image and result. Source:
measured on an H100 with cuDNN 9.19 for convolutions that use these algorithms (float32, two dimensions, stride and dilation 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.devices.device import Device
from profiler_kit.memory.workspace import LibraryConfig
from profiler_kit.meta.meta_kernels import is_channels_last
from profiler_kit.records.calls import TensorFacts

Pass = Literal["forward", "input_gradient", "weight_gradient"]
Precision = Literal["half", "tf32", "float32", "float64"]

_PADDED_TO_BYTES: Final = 16  # load width of tensor-core kernels along channels
_HALVES: Final = frozenset(("float16", "bfloat16"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A convolution of an image to a result.

    Shapes: image (batch, image_channels, *image_sides), result (batch, result_channels, *result_sides). The image of a
    transposed convolution is its output, so its forward pass is an input gradient, and vice versa.
    Units: bytes of one tensor each. Padded sizes have channels padded to 16 bytes.
    """

    batch: int
    image_channels: int
    result_channels: int
    image_sides: tuple[int, ...]
    result_sides: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    element_bytes: int
    precision: Precision
    is_channels_last: bool
    is_transposed: bool

    @property
    def taps(self) -> int:
        """Number of kernel positions."""
        return math.prod(self.kernel)

    @property
    def image_positions(self) -> int:
        """Number of positions in one image."""
        return math.prod(self.image_sides)

    @property
    def result_positions(self) -> int:
        """Number of positions in one result."""
        return math.prod(self.result_sides)

    @property
    def is_depthwise(self) -> bool:
        """Whether every group has one image channel."""
        return self.groups > 1 and self.groups == self.image_channels

    @property
    def is_pointwise(self) -> bool:
        """Whether the convolution is a matrix product: one tap, stride 1."""
        return self.taps == 1 and max(self.stride) == 1

    @property
    def image_bytes(self) -> int:
        """Bytes of the image."""
        return self.batch * self.image_channels * self.image_positions * self.element_bytes

    @property
    def result_bytes(self) -> int:
        """Bytes of the result."""
        return self.batch * self.result_channels * self.result_positions * self.element_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weight."""
        return self.image_channels * self.result_channels // self.groups * self.taps * self.element_bytes

    @property
    def padded_image_channels(self) -> int:
        """Padded image channels."""
        return self._padded(self.image_channels)

    @property
    def padded_result_channels(self) -> int:
        """Padded result channels."""
        return self._padded(self.result_channels)

    @property
    def padded_image_bytes(self) -> int:
        """Bytes of a copy of the image with padded channels."""
        return self.batch * self.padded_image_channels * self.image_positions * self.element_bytes

    @property
    def padded_result_bytes(self) -> int:
        """Bytes of a copy of the result with padded channels."""
        return self.batch * self.padded_result_channels * self.result_positions * self.element_bytes

    @property
    def padded_weight_elements(self) -> int:
        """Elements of the weight with padded channels; a grouped weight is not padded."""
        if self.groups > 1:
            return self.weight_bytes // self.element_bytes
        return self.padded_image_channels * self.padded_result_channels * self.taps

    @property
    def copies_bytes(self) -> int:
        """Bytes of copies of image, weight and result with channels last and padded."""
        weight = self.padded_weight_elements * self.element_bytes
        return self.padded_image_bytes + weight + self.padded_result_bytes

    @property
    def padded_copies_bytes(self) -> int:
        """Bytes of padded copies of operands with channels last: of maps with unaligned channels, and of the weight with them."""
        images = self.padded_image_bytes if self.padded_image_channels != self.image_channels else 0
        results = self.padded_result_bytes if self.padded_result_channels != self.result_channels else 0
        weight = self.padded_weight_elements * self.element_bytes
        return images + results + weight if images or results else 0

    def _padded(self, channels: int) -> int:
        multiple = max(_PADDED_TO_BYTES // self.element_bytes, 1)
        return -(-channels // multiple) * multiple


def geometry_of(
    x: TensorFacts,
    weight: TensorFacts,
    out: TensorFacts,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    is_transposed: bool,
    groups: int,
    device: Device,
    config: LibraryConfig,
) -> Geometry:
    """The geometry of ``out = conv(x, weight)`` with the arguments of aten.convolution."""
    image, result = (out, x) if is_transposed else (x, out)
    dims = len(weight.shape) - 2
    return Geometry(
        batch=x.shape[0] if len(x.shape) == dims + 2 else 1,
        image_channels=image.shape[-dims - 1],
        result_channels=result.shape[-dims - 1],
        image_sides=image.shape[-dims:],
        result_sides=result.shape[-dims:],
        kernel=weight.shape[2:],
        stride=_per_dimension(stride, dims),
        dilation=_per_dimension(dilation, dims),
        groups=groups,
        element_bytes=weight.element_bytes,
        precision=_precision(weight.dtype, device, config),
        is_channels_last=has_channels_last(x) or has_channels_last(weight),
        is_transposed=is_transposed,
    )


def has_channels_last(tensor: TensorFacts) -> bool:
    """Whether `tensor` has channels-last layout."""
    return is_channels_last(tensor.shape, tensor.strides)


def _per_dimension(value: tuple[int, ...], dims: int) -> tuple[int, ...]:
    return value * dims if len(value) == 1 else value


def _precision(dtype: str, device: Device, config: LibraryConfig) -> Precision:
    if dtype in _HALVES:
        return "half"
    if dtype == "float64":
        return "float64"
    return "tf32" if config.conv_tf32 and device.architecture.has_tf32 else "float32"


_COMPLEX_BYTES: Final = 8
_TILE: Final = 32  # side of a tile of the tiled Fourier transform
_TILE_BATCH: Final = 16  # samples in workspace at the same time
_WINOGRAD_SIDE: Final = 4  # results per tile of Winograd's algorithm, along one side


def may_transform(shape: Geometry) -> bool:
    """Whether these algorithms support the convolution in float32."""
    return shape.element_bytes == 4 and has_transform_shape(shape)


def has_transform_shape(shape: Geometry) -> bool:
    """Whether these algorithms support the convolution's kernel, stride and dilation."""
    return (
        len(shape.kernel) == 2
        and shape.groups == 1
        and min(shape.kernel) > 1
        and max(shape.stride) == 1
        and max(shape.dilation) == 1
    )


def fourier_bytes(shape: Geometry) -> int:
    """Bytes of a Fourier transform of the full image: weights, images and results, each twice."""
    side = max(size + tap - 1 for size, tap in zip(shape.image_sides, shape.kernel, strict=True))
    side = 1 << max(side - 1, 1).bit_length()
    spectrum = side * (side // 2 + 1) * _COMPLEX_BYTES
    pairs = shape.image_channels * shape.result_channels
    maps = shape.batch * (shape.image_channels + shape.result_channels)
    return spectrum * 2 * (pairs + maps)


def tiled_fourier_bytes(shape: Geometry) -> int:
    """Bytes of a Fourier transform in tiles of 32 x 32: the weight's spectrum, and the tiles in use."""
    spectrum = _TILE * (_TILE // 2 + 1) * _COMPLEX_BYTES
    tiles = 1 if max(shape.image_sides) + max(shape.kernel) - 1 <= _TILE else 2
    live_tiles = tiles * min(shape.batch, _TILE_BATCH) * (2 if shape.batch > _TILE_BATCH else 1)
    channels = shape.image_channels + shape.result_channels
    return spectrum * (shape.image_channels * shape.result_channels + live_tiles * channels)


def winograd_bytes(shape: Geometry) -> int:
    """Bytes of Winograd's algorithm for results of 4 x 4: transformed weight, image and result."""
    points = (_WINOGRAD_SIDE + max(shape.kernel) - 1) ** 2
    tiles = shape.batch
    for side in shape.result_sides:
        tiles *= -(-side // _WINOGRAD_SIDE)
    pairs = shape.image_channels * shape.result_channels
    return points * shape.element_bytes * (pairs + tiles * (shape.image_channels + shape.result_channels))

"""Workspace of Fourier and Winograd convolutions: the transformed weight, and tiles of image and result.

Source: measured on an H100 with cuDNN 9.19 for convolutions that use these algorithms (float32, two dimensions, stride and
dilation 1).
"""

from __future__ import annotations

from typing import Final

from profiler_kit.memory.workspace.geometry import Geometry

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

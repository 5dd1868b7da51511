"""Weights that are not parameters: packed objects of quantized layers, and integer buffers.

A quantized layer stores its weight in a packed object (``torch.classes.quantized.LinearPackedParamsBase`` and the like) instead
of a parameter. Other libraries register the quantized weight as a buffer of 8-bit numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

_EIGHT_BITS: Final = frozenset(
    dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and dtype.itemsize == 1 and dtype is not torch.bool
)


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """The weights and biases in one packed object, or one integer buffer: their elements, and the bytes that they occupy."""

    elements: int
    nbytes: int


def packed_weights(module: nn.Module) -> Iterator[tuple[int, PackedWeights]]:
    """The packed weights of `module` without its children, each with the id of the object that holds it.

    Counts: packed objects, and buffers of 8-bit numbers with ``weight`` in their name, by their stored elements. A library that
    stores two 4-bit weights in one byte has half as many elements as weights. Scales and zero points are not counted.
    """
    for value in vars(module).values():
        if type(value) is torch.ScriptObject:
            tensors = packed_tensors(value)
            if tensors:
                yield id(value), _total(tensors)
    for name, buffer in module._buffers.items():
        if buffer is not None and "weight" in name and buffer.dtype in _EIGHT_BITS:
            yield id(buffer), _total([buffer])


def packed_bytes(model: nn.Module) -> int:
    """The bytes of all packed objects in `model`. Buffers are tensors and are not included."""
    nbytes: dict[int, int] = {}
    for module in model.modules():
        buffers = set(map(id, module._buffers.values()))
        nbytes.update((key, weights.nbytes) for key, weights in packed_weights(module) if key not in buffers)
    return sum(nbytes.values())


def packed_tensors(packed: Any) -> list[Tensor]:
    """Copies of the weights and biases in a packed object of torch; empty if it has another form."""
    methods = packed._method_names()
    with _disable_current_modes():
        if "unpack" in methods:
            unpacked = packed.unpack()
            values = unpacked if isinstance(unpacked, (tuple, list)) else (unpacked,)
            return [value for value in values if isinstance(value, Tensor)]
        if "__getstate__" in methods and "CellParams" in str(packed._type()):
            objects = _script_objects(packed.__getstate__())  # one per matrix of a recurrent layer
            return [tensor for part in objects for tensor in packed_tensors(part)]
    return []


def _script_objects(value: Any) -> Iterator[Any]:
    if type(value) is torch.ScriptObject:
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _script_objects(item)


def _total(tensors: list[Tensor]) -> PackedWeights:
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return PackedWeights(elements=sum(tensor.numel() for tensor in tensors), nbytes=nbytes)

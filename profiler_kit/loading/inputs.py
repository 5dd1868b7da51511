"""The ``-i`` grammar: ``[name=]DIMS[:dtype][[lo:hi]]``, or ``name:=VALUE`` for a value that is not a tensor.

A name such as ``batch.image`` or ``xs[0]`` is an item of a dict or list: all items of one parameter are passed as one
argument. VALUE is a Python literal, such as ``scale:=2``, ``train:=False`` or ``mask:=None``.

DIMS are positive integers separated by commas (``8,3,256,256``; ``1`` is one dimension of one element), or ``()`` for a
tensor without dimensions. The default dtype is that of ``--dtype``, or float32; one such as ``np.int64`` makes a NumPy array.
Values are random with a seed: floats are normal, or uniform in [low, high); integers are uniform in [low, high), by default
[0, 2); bools are uniform.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from profiler_kit.errors import UsageError
from profiler_kit.meta.values import MAX_INTEGERS

DTYPES: Final[dict[str, torch.dtype]] = {
    name: getattr(torch, name)
    for name in (
        "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
        "complex64", "complex128",
    )
}  # fmt: skip
GRAMMAR: Final = "write [name=]DIMS[:dtype][[lo:hi]], such as -i 8,3,256,256 or -i 'ids=8,128:int64[0:30522]'"
FILE_INPUT: Final = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)\Z")
MAX_BYTES: Final = 2**63 - 1  # torch counts bytes in signed 64-bit integers
MAX_DIGITS: Final = 19
MAX_ELEMENT_BYTES: Final = 16  # complex128
_ARRAY: Final = "np."
_INPUT: Final = re.compile(
    r"(?:(?P<name>[^=:\[\]]*(?:\[[^=:\[\]]*\]|\.[^=:\[\]]*)*)=)?(?P<dims>[^=:\[\]]*)(?::(?P<dtype>[^=:\[\]]*))?(?P<range>\[.*\])?\Z"
)
_NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_NAME: Final = re.compile(r"(?P<parameter>[^\W\d]\w*)(?:\[(?P<index>[0-9]{1,3})\]|\.(?P<key>[^\W\d]\w*))?\Z")
_VALUE: Final = re.compile(r"(?P<name>\w+):=(?P<literal>.+)\Z", re.DOTALL)
_RANGE: Final = re.compile(rf"\[({_NUMBER}):({_NUMBER})\]\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputText:
    """One input as described by ``-i``; ``str()`` returns the text. `low` and `high` are both set or both None.

    With `literal`, the input is this Python literal instead of a tensor, and `shape` is (). With `is_array`, it is a NumPy array.
    """

    shape: tuple[int, ...]
    name: str | None = None
    dtype: str | None = None
    low: int | float | None = None
    high: int | float | None = None
    literal: str | None = None
    is_array: bool = False

    def __str__(self) -> str:
        if self.literal is not None:
            return f"{self.name}:={self.literal}"
        name = f"{self.name}=" if self.name is not None else ""
        dims = ",".join(map(str, self.shape)) or "()"
        dtype = f":{self.dtype}" if self.dtype is not None else ""
        dtype = f":{_ARRAY}{self.dtype or 'float32'}" if self.is_array else dtype
        return f"{name}{dims}{dtype}" + (f"[{self.low!r}:{self.high!r}]" if self.low is not None else "")

    @property
    def parameter(self) -> str | None:
        """The parameter of forward that receives it: ``batch`` for the name ``batch.image``; None without a name."""
        match = _NAME.match(self.name) if self.name is not None else None
        return match["parameter"] if match is not None else self.name

    @property
    def item(self) -> int | str | None:
        """The index or key of an item of a list or dict: 0 for ``xs[0]``, ``image`` for ``batch.image``; None for others."""
        match = _NAME.match(self.name) if self.name is not None else None
        if match is None:
            return None
        return int(match["index"]) if match["index"] is not None else match["key"]

    @property
    def is_integer(self) -> bool:
        """Whether its values are integers."""
        return self.dtype is not None and _is_integer(DTYPES[self.dtype])

    @property
    def is_whole(self) -> bool:
        """Whether its values are integers or bools."""
        return self.is_integer or self.dtype == "bool"

    def make(self, *, generator: torch.Generator, dtype: torch.dtype, device: torch.device) -> Any:
        """Create the tensor, or return the value of the literal. `dtype` is the default dtype.

        On ``meta`` the tensor has no values, except for small integer and bool tensors: code may read their values, so they
        are created on the CPU.
        """
        if self.literal is not None:
            return ast.literal_eval(self.literal)
        if self.is_array:  # has values also on meta
            host = torch.device("cpu")
            return replace(self, is_array=False).make(generator=generator, dtype=torch.float32, device=host).numpy()
        kind = DTYPES[self.dtype] if self.dtype is not None else dtype
        if device.type == "meta" and (not self.is_whole or prod(self.shape) > MAX_INTEGERS):
            return torch.empty(self.shape, dtype=kind, device=device)
        if device.type == "meta":
            device = torch.device("cpu")
        if kind is torch.bool:
            return torch.randint(0, 2, self.shape, generator=generator).to(device, kind)
        if _is_integer(kind):
            low, high = (0, 2) if self.low is None or self.high is None else (int(self.low), int(self.high))
            return torch.randint(low, high, self.shape, generator=generator).to(device, kind)
        # float32 first, so that a seed gives the same inputs in every floating-point dtype
        wide = kind if kind.is_complex or kind is torch.float64 else torch.float32
        if self.low is None or self.high is None:
            return torch.randn(self.shape, generator=generator, dtype=wide).to(device, kind)
        uniform = torch.rand(self.shape, generator=generator, dtype=wide)
        return (uniform * (self.high - self.low) + self.low).to(device, kind)


def build_arguments(values: Iterable[tuple[InputText, Any]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(positional, keyword) arguments of `values`; the items of a list or dict become one keyword argument.

    Raises UsageError for items of one parameter that do not form a list or a dict.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    items: dict[str, dict[int | str, Any]] = {}
    for text, value in values:
        if text.parameter is None:
            args.append(value)
        elif text.item is None:
            kwargs[text.parameter] = value
        else:
            kwargs.setdefault(text.parameter, None)  # the order of the options
            items.setdefault(text.parameter, {})[text.item] = value
    for name, members in items.items():
        if all(isinstance(key, str) for key in members):
            kwargs[name] = members
        elif sorted(members, key=str) == sorted(range(len(members)), key=str):
            kwargs[name] = [members[index] for index in range(len(members))]
        else:
            raise UsageError(
                f"-i {name}: {', '.join(map(str, members))} are not the items of one list or dict",
                hint=f"number the items of a list from 0, such as -i '{name}[0]=1,3,32,32'",
            )
    return tuple(args), kwargs


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def parse_input(text: str) -> InputText:
    """Parse an ``-i`` text. Raises UsageError with the invalid part."""
    literal = _VALUE.match(text.strip())
    if literal is not None:
        return _parse_value(text, literal["name"], literal["literal"].strip())
    match = _INPUT.match(text.strip())
    if match is None or not text.strip():
        raise _invalid(text, "this is not an input")
    name, dims, dtype, bounds = match.group("name", "dims", "dtype", "range")
    if name is not None and _NAME.match(name) is None:
        raise _invalid(text, f"{name!r} is not a parameter name")
    is_array = dtype is not None and dtype.startswith(_ARRAY)
    dtype = dtype.removeprefix(_ARRAY) if dtype is not None else None
    if is_array and dtype == "bfloat16":
        raise UsageError(f"-i {text}: NumPy has no bfloat16", hint="use np.float32")
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"-i {text}: unknown dtype {dtype!r}", hint=f"use one of {', '.join(DTYPES)}")
    low, high = _bounds(text, bounds, dtype)
    return InputText(shape=_shape(text, dims), name=name, dtype=dtype, low=low, high=high, is_array=is_array)


def _parse_value(text: str, name: str, literal: str) -> InputText:
    try:
        ast.literal_eval(literal)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise _invalid(text, f"{literal!r} is not a Python literal") from error
    if not name.isidentifier():
        raise _invalid(text, f"{name!r} is not a parameter name")
    return InputText(shape=(), name=name, literal=literal)


def parse_inputs(texts: Iterable[str]) -> tuple[InputText, ...]:
    """Parse all ``-i`` texts. Raises UsageError for an invalid text and for a duplicate name."""
    parsed = tuple(parse_input(text) for text in texts)
    names = [item.name for item in parsed if item.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"-i {name}=... is given twice", hint="use each name once")
    return parsed


def _shape(text: str, dims: str) -> tuple[int, ...]:
    if dims == "()":
        return ()
    sizes = dims.split(",")
    for size in sizes:
        if not re.fullmatch(r"[0-9]+", size):
            raise _invalid(text, f"{size!r} is not a dimension" if size else "a dimension is missing")
        if int(size) == 0:
            raise _invalid(text, "a dimension must be at least 1")
    shape = tuple(int(size) if len(size) <= MAX_DIGITS else MAX_BYTES for size in sizes)
    if prod(shape) * MAX_ELEMENT_BYTES > MAX_BYTES:
        raise _invalid(text, "this tensor is larger than torch supports")
    return shape


def _bounds(text: str, bounds: str | None, dtype: str | None) -> tuple[int | float | None, int | float | None]:
    if bounds is None:
        return None, None
    match = _RANGE.match(bounds)
    if match is None:
        raise _invalid(text, f"{bounds} is not a range")
    if dtype == "bool" or (dtype is not None and DTYPES[dtype].is_complex):
        raise _invalid(text, f"{dtype} does not support a range")
    low, high = (float(n) if re.search(r"[.eE]", n) else int(n) for n in match.groups())
    if dtype is not None and _is_integer(DTYPES[dtype]) and not (isinstance(low, int) and isinstance(high, int)):
        raise _invalid(text, f"the range of {dtype} must have integer bounds")
    if dtype is not None and not _can_represent(DTYPES[dtype], low, high):
        raise _invalid(text, f"{bounds} exceeds the range of {dtype}")
    if not low < high:
        raise _invalid(text, f"{bounds} is an empty range")
    return low, high


def _can_represent(dtype: torch.dtype, low: float, high: float) -> bool:
    if _is_integer(dtype):
        return low >= torch.iinfo(dtype).min and high - 1 <= torch.iinfo(dtype).max
    return max(abs(low), abs(high)) <= torch.finfo(dtype).max


def _invalid(text: str, reason: str) -> UsageError:
    return UsageError(f"-i {text}: {reason}", hint=GRAMMAR)


def text_of(tensor: Tensor | np.ndarray, name: str | None = None) -> InputText:
    """The ``-i`` text of a tensor like `tensor`, or of an array; float32 is omitted."""
    if isinstance(tensor, np.ndarray):
        kind = str(tensor.dtype)
        return InputText(shape=tensor.shape, name=name, dtype=kind if kind in DTYPES else None, is_array=True)
    kind = str(tensor.dtype).removeprefix("torch.")
    return InputText(
        shape=tuple(tensor.shape), name=name, dtype=None if kind == "float32" or kind not in DTYPES else kind
    )

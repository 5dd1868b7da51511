"""Sizes and numbers of dimensions that a failed operation received, and those that it needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeGuard

from torch import Tensor, nn

from profiler_kit.loading.candidates.signatures import resolve_dotted
from profiler_kit.loading.input_search.layers import needed_shape
from profiler_kit.loading.input_search.outcomes import Failure, LayerInputError, origins
from profiler_kit.loading.input_search.proposals import pattern_rank
from profiler_kit.loading.messages import einops_pattern, ranks, reports, unpacked_count
from profiler_kit.loading.program.names import all_nodes
from profiler_kit.loading.program.reading import parsed
from profiler_kit.meta.batch import tensors_in

_MATRIX_PRODUCTS: Final = frozenset({"matmul", "mm", "bmm", "__matmul__", "__rmatmul__", "addmm", "dot", "mv", "spmm"})
_LISTS: Final = frozenset({"cat", "concat", "concatenate", "stack", "vstack", "hstack"})
_SPLITS: Final = frozenset({"split", "split_with_sizes"})
_VIEWS: Final = frozenset({"view", "reshape", "unflatten"})


@dataclass(frozen=True, kw_only=True)
class SizeMismatch:
    """A tensor computed from the inputs `names` has the size `got` in dimension `dim`, and the operation needs `need`.

    With `is_flat`, the sizes are numbers of elements of one example, so that several dimensions of an input can change them.
    With `is_spatial`, they are sizes of a map or numbers of patches, which follow from the size of an image.
    """

    names: frozenset[str]
    dim: int
    got: int
    need: int
    is_flat: bool = False
    is_spatial: bool = False


@dataclass(frozen=True, kw_only=True)
class DimensionMismatch:
    """A tensor computed from the inputs `names` has `got` dimensions, and the operation needs `need`."""

    names: frozenset[str]
    got: int
    need: int


Mismatch = SizeMismatch | DimensionMismatch


def mismatches(failure: Failure, names: frozenset[str]) -> list[Mismatch]:
    """All mismatches that the failure shows, the most certain first. `names` are all inputs."""
    unique = dict.fromkeys(
        (
            *_of_layer(failure),
            *_of_assertion(failure),
            *_of_message(failure, names),
            *_of_function(failure),
        )
    )
    return [mismatch for mismatch in unique if mismatch.got != mismatch.need]


def _of_layer(failure: Failure) -> Iterator[Mismatch]:
    module = failure.module
    tensor = next(tensors_in(failure.module_arguments), None)
    if module is None or tensor is None or not origins(tensor):
        return
    shape = tuple(tensor.shape)
    needed = needed_shape(module, shape)
    if needed is None:
        return
    if len(needed) != len(shape):
        yield DimensionMismatch(names=origins(tensor), got=len(shape), need=len(needed))
        return
    for dim, (got, need) in enumerate(zip(shape, needed, strict=True)):
        if got != need:
            yield SizeMismatch(
                names=origins(tensor), dim=dim - len(shape), got=got, need=need,
                is_flat=isinstance(module, (nn.Linear, nn.RNNCellBase)) and len(shape) <= 2,
            )  # fmt: skip


def _of_message(failure: Failure, names: frozenset[str]) -> Iterator[Mismatch]:
    error = failure.error
    tensors = list(tensors_in((failure.arguments, failure.module_arguments)))
    sources = next((origins(tensor) for tensor in tensors if origins(tensor)), frozenset())
    if isinstance(error, LayerInputError):
        if error.sizes is not None:
            yield SizeMismatch(names=names, dim=1, got=error.sizes[0], need=error.sizes[1])
        if error.ranks is not None:
            yield DimensionMismatch(names=sources, got=error.ranks[0], need=error.ranks[1])
    pattern, count = einops_pattern(error), unpacked_count(error)
    if pattern is not None:
        for tensor in tensors[:1] or named_tensors(failure):
            yield DimensionMismatch(names=origins(tensor), got=tensor.dim(), need=pattern_rank(pattern))
    for got, need in ranks(error) if sources else ():
        of_rank = (origins(tensor) for tensor in tensors if tensor.dim() == got and origins(tensor))
        yield DimensionMismatch(names=next(of_rank, sources), got=got, need=need)
    for tensor in named_tensors(failure) if count else ():
        yield DimensionMismatch(names=origins(tensor), got=tensor.dim(), need=count)
    for tensor in named_tensors(failure) if reports(error, "one_item_more") else ():
        yield DimensionMismatch(names=origins(tensor), got=tensor.dim(), need=tensor.dim() + 1)


def _of_assertion(failure: Failure) -> Iterator[Mismatch]:
    """The sizes that an assertion of the user's code compares with numbers: ``assert A.size(0) == self.kernel_size``."""
    tree = parsed(failure.source)
    statement = tree.body[0] if tree is not None and tree.body else None
    for test in all_nodes(statement.test) if isinstance(statement, ast.Assert) else ():
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
            continue
        for size, other in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
            name, dim = _size_read(size)
            tensor, need = failure.names.get(name), _number(other, failure.names)
            if not isinstance(tensor, Tensor) or not origins(tensor) or need is None:
                continue
            if not -tensor.dim() <= dim < tensor.dim():
                yield DimensionMismatch(names=origins(tensor), got=tensor.dim(), need=dim + 1 if dim >= 0 else -dim)
            elif tensor.shape[dim] != need:
                yield SizeMismatch(names=origins(tensor), dim=dim % tensor.dim(), got=tensor.shape[dim], need=need)


def _size_read(expression: ast.expr) -> tuple[str, int]:
    """(name, dimension) of ``x.size(1)`` and ``x.shape[1]``; ("", 0) for other expressions."""
    match expression:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="size"), args=[ast.Constant(value=int(dim))]):
            return name, dim
        case ast.Subscript(
            value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=ast.Constant(value=int(dim))
        ):
            return name, dim
    return "", 0


def _number(expression: ast.expr, names: Mapping[str, Any]) -> int | None:
    """The whole number that a constant, a variable or a chain of attributes stands for; None for other expressions."""
    value = expression.value if isinstance(expression, ast.Constant) else resolve_dotted(expression, names.get)
    return value if _is_number(value) else None


def named_tensors(failure: Failure) -> list[Tensor]:
    """The tensors computed from inputs whose variables are in the failing line of user code."""
    words = re.findall(r"[A-Za-z_]\w*", failure.source)
    values = (failure.names.get(word) for word in dict.fromkeys(words))
    return [value for value in values if isinstance(value, Tensor) and origins(value)]


def _of_function(failure: Failure) -> Iterator[Mismatch]:
    name = getattr(failure.function, "__name__", "")
    args = failure.arguments
    if name in _VIEWS and args and isinstance(args[0], Tensor):
        yield from _of_view(args[0], args[1:])
        return
    if name in ("permute", "transpose") and args and isinstance(args[0], Tensor):
        order = args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:]
        if name == "permute":
            yield DimensionMismatch(names=origins(args[0]), got=args[0].dim(), need=len(order))
        return
    if name == "expand" and args and isinstance(args[0], Tensor):
        sizes = args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:]
        if args[0].dim() > len(sizes):
            yield DimensionMismatch(names=origins(args[0]), got=args[0].dim(), need=len(sizes))
        return
    if name == "einsum" and args and isinstance(args[0], str):
        terms = args[0].partition("->")[0].replace(" ", "").split(",")
        for term, tensor in zip(terms, tensors_in(list(args[1:])), strict=False):
            if "." not in term:
                yield DimensionMismatch(names=origins(tensor), got=tensor.dim(), need=len(term))
        return
    if name in _SPLITS and len(args) > 1 and isinstance(args[0], Tensor) and isinstance(args[1], (tuple, list)):
        yield from _of_parts(args[0], args[1], args[2] if len(args) > 2 else 0)
        return
    tensors = [value for value in tensors_in(list(args)) if isinstance(value, Tensor)]
    if name in _LISTS:
        yield from _of_list(tensors, args)
    elif name in _MATRIX_PRODUCTS and len(tensors) >= 2:
        yield from _of_product(name, *tensors[-2:])
    elif name == "linear" and len(tensors) >= 2 and tensors[0].dim():
        got, need = tensors[0].shape[-1], tensors[1].shape[-1]
        yield SizeMismatch(names=origins(tensors[0]), dim=-1, got=got, need=need, is_flat=tensors[0].dim() <= 2)
    elif name.startswith("conv") and len(tensors) >= 2 and tensors[0].dim() > 1:
        rank = tensors[1].dim()
        if tensors[0].dim() != rank:
            yield DimensionMismatch(names=origins(tensors[0]), got=tensors[0].dim(), need=rank)
    elif len(tensors) >= 2:
        yield from _of_broadcast(tensors[0], tensors[1])


def _of_parts(tensor: Tensor, sizes: Sequence[Any], dim: int) -> Iterator[Mismatch]:
    if tensor.dim() and -tensor.dim() <= dim < tensor.dim() and all(map(_is_number, sizes)):
        back = dim if dim < 0 else dim - tensor.dim()
        yield SizeMismatch(names=origins(tensor), dim=back, got=tensor.shape[dim], need=sum(sizes))


def _of_view(tensor: Tensor, sizes: tuple[Any, ...]) -> Iterator[Mismatch]:
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    numbers = [int(size) for size in sizes if _is_number(size)]
    if len(numbers) != len(sizes) or not tensor.dim():
        return
    batch = tensor.shape[0] or 1
    fixed = [size for size in numbers if size != -1]
    need = prod(fixed[1:] if -1 not in numbers and fixed and fixed[0] == batch else fixed)
    got = tensor.numel() // batch
    if need > 0 and got != need:
        yield SizeMismatch(names=origins(tensor), dim=-1, got=got, need=need, is_flat=True)


def _of_list(tensors: list[Tensor], args: tuple[Any, ...]) -> Iterator[Mismatch]:
    for first in tensors:
        for second in tensors:
            if first is second or not origins(second):
                continue
            if first.dim() != second.dim():
                yield DimensionMismatch(names=origins(second), got=second.dim(), need=first.dim())
                continue
            for dim, (need, got) in enumerate(zip(first.shape, second.shape, strict=True)):
                if got != need and dim != _cat_dim(args, first.dim()):
                    back = dim - second.dim()
                    yield SizeMismatch(
                        names=origins(second), dim=back, got=got, need=need, is_spatial=_is_spatial(second, back)
                    )


def _is_spatial(tensor: Tensor, dim: int) -> bool:
    """Whether `dim` (negative) of `tensor` is a side of a map (N, C, H, W) or the number of patches in (N, L, C)."""
    return dim >= -2 if tensor.dim() >= 4 else tensor.dim() == 3 and dim == -2


def _cat_dim(args: tuple[Any, ...], rank: int) -> int:
    dim = next((value for value in args[1:] if _is_number(value)), 0)
    return dim % rank if rank else 0


def _of_product(name: str, left: Tensor, right: Tensor) -> Iterator[Mismatch]:
    if not left.dim() or not right.dim():
        return
    needed_rank = {"mm": 2, "spmm": 2, "addmm": 2, "bmm": 3}.get(name)
    if needed_rank is not None and {left.dim(), right.dim()} != {needed_rank}:
        for tensor in (left, right):
            yield DimensionMismatch(names=origins(tensor), got=tensor.dim(), need=needed_rank)
        return
    inner = -2 if right.dim() > 1 else -1
    got, need = left.shape[-1], right.shape[inner]
    if origins(left):
        yield SizeMismatch(
            names=origins(left), dim=-1, got=got, need=need, is_flat=not origins(right) and left.dim() <= 2
        )
    if origins(right):
        yield SizeMismatch(names=origins(right), dim=inner, got=need, need=got)
    yield from _of_rank(left, right)


def _of_rank(left: Tensor, right: Tensor) -> Iterator[Mismatch]:
    for first, second in ((left, right), (right, left)):
        if origins(second) and first.dim() != second.dim():
            yield DimensionMismatch(names=origins(second), got=second.dim(), need=first.dim())


def _of_broadcast(left: Tensor, right: Tensor) -> Iterator[Mismatch]:
    for a, b in ((left, right), (right, left)):
        if not origins(b) or (origins(b) <= origins(a) and origins(a) != origins(b)):
            continue
        for back in range(1, min(a.dim(), b.dim()) + 1):
            need, got = a.shape[-back], b.shape[-back]
            if got != need and 1 not in (got, need):
                yield SizeMismatch(names=origins(b), dim=-back, got=got, need=need, is_spatial=_is_spatial(b, -back))
    yield from _of_rank(left, right)


def _is_number(value: object) -> TypeGuard[int]:
    """Whether `value` is a whole number; one that knows its sources, too."""
    return isinstance(value, int) and not isinstance(value, bool)

"""Values beside tensors that have none: small meta tensors carry a twin on the CPU, so that code which asks for a value gets it.

Mask code asks ``mask.all()``, position code ``ids.max().item()``. Such tensors are small, and made from constants, shapes
and integer inputs, all of which are known. What depends on weights or activations stays unknown: it is never made up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakIdKeyDictionary

MOST_INTEGERS: Final = 1 << 16  # elements; a causal mask of 256 x 256
MOST_FLOATS: Final = 1 << 10  # constants and schedules; nobody branches on a larger one
ATEN: Final = torch.ops.aten

# Their values are whatever the memory held.
_UNFILLED: Final = frozenset(
    {
        ATEN.empty.memory_format, ATEN.empty_strided.default, ATEN.empty_like.default, ATEN.new_empty.default,
        ATEN.new_empty_strided.default, ATEN.empty_permuted.default,
    }
)  # fmt: skip
_ITEM: Final = ATEN._local_scalar_dense.default
_INDEX: Final = ATEN.index.Tensor
_SELECT: Final = ATEN.masked_select.default
_WHOLE_WRITES: Final = frozenset(
    {ATEN.fill_.Scalar, ATEN.fill_.Tensor, ATEN.zero_.default, ATEN.copy_.default}
)  # they read nothing of the tensor they write to
_COPIES: Final = frozenset({ATEN._to_copy.default, ATEN.copy_.default})
_ASKING: Final = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output})
_UNKNOWN_TO_THE_CPU: Final = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)

_remembered = WeakIdKeyDictionary()


def is_small(tensor: Tensor) -> bool:
    """Whether `tensor` is of a kind and size that code asks values of."""
    if tensor.is_complex():
        return False
    return tensor.numel() <= (MOST_FLOATS if tensor.is_floating_point() else MOST_INTEGERS)


def has_values(tensor: Tensor) -> bool:
    """Whether `tensor` holds numbers of its own."""
    return not (tensor.is_meta or isinstance(tensor, FakeTensor))


def remember(tensor: Tensor, value: Tensor) -> None:
    """From here on, and for as long as it lives, `tensor` is known to stand for `value`, of which a copy is kept.

    Nothing happens for a `tensor` that has values itself, or is too large.
    """
    if not has_values(tensor) and has_values(value) and is_small(tensor) and value.layout is torch.strided:
        with no_dispatch():  # a mode that fakes tensors would fake the copy
            _remembered[tensor] = value.detach().to("cpu", tensor.dtype, copy=True)


def remembered(tensor: Tensor) -> Tensor | None:
    """A copy of what `tensor` stands for; None where nobody said."""
    value = _remembered.get(tensor)
    return None if value is None else value.clone()


def remember_like(tensor: Tensor, source: Tensor) -> Tensor:
    """`tensor`, which was made of `source` and stands for the same values, where those are known."""
    value = source if has_values(source) else _remembered.get(source)
    if value is not None:
        remember(tensor, value)
    return tensor


class ValueShadow(TorchDispatchMode):
    """A dispatch mode under which small meta and fake tensors whose values follow from known ones have them.

    An op whose tensors are all known runs a second time, on their twins; `.item()`, `.nonzero()`, boolean indexing and copies
    to the CPU then read the twin; what watches ops sees indexing by integers where the code indexed by a mask.
    Views of a tensor share their twins' memory as they do their own. Where something
    unknown is written into a known tensor, it and all that shares its memory are unknown until it is overwritten whole.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._twins = WeakIdKeyDictionary()
        self._unknown: dict[int, torch.UntypedStorage] = {}  # kept alive, so that no other storage gets the address
        self._mutable: dict[int, bool] = {}  # by id of ops, which live as long as torch; hashing one runs in Python

    def value_of(self, tensor: Tensor) -> Tensor | None:
        """The twin of `tensor`, or itself where it has values; None where they are not known."""
        twin = self._twin_of(tensor)
        return None if twin is None or twin.untyped_storage()._cdata in self._unknown else twin

    def add(self, tensor: Tensor, value: Tensor) -> None:
        """From here on, `tensor` stands for `value`."""
        self._twins[tensor] = value

    def _twin_of(self, tensor: Tensor) -> Tensor | None:
        """The memory that stands for that of `tensor`, whether or not its content is known."""
        if has_values(tensor):
            return tensor if type(tensor) in (Tensor, nn.Parameter) else None  # a subclass may hold none of its own
        twin: Tensor | None = self._twins.get(tensor)
        if twin is None and is_small(tensor):
            with no_dispatch():
                twin = remembered(tensor)
            if twin is not None:
                self._twins[tensor] = twin
        return twin

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return (
            False  # torch would wrap the method below, at a tenth of its time; `Shadowed` keeps compilers away itself
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _ITEM:
            twin = self.value_of(args[0])
            return func(*args) if twin is None else _item(twin)
        if func is _INDEX:
            args = (args[0], [place for index in args[1] for place in self._as_places(index)])
        elif func is _SELECT and self._places(args[1], args[0].shape) is not None:
            func, args = _INDEX, (args[0], self._places(args[1], args[0].shape))
        try:
            out = func(*args, **kwargs)
        except (RuntimeError, NotImplementedError):  # its shape, or the copy itself, needs values
            # any other op would be answered unseen by what watches: one that lacks a meta kernel has work to be counted
            value = self._on_twins(func, args, kwargs) if _asks_values(func) else None
            if value is None:
                raise
            return self._without_values(kwargs, value)
        mutable = self._mutable.get(id(func))
        if mutable is None:
            mutable = self._mutable[id(func)] = func._schema.is_mutable
        if mutable:
            self._write(func, args, kwargs, out)
        elif type(out) is Tensor and out.numel() > MOST_INTEGERS:
            pass  # nearly every op of a large model: never small, whatever its dtype
        elif any(is_small(item) and not has_values(item) for item in _tensors(out)):
            self._note(out, self._on_twins(func, args, kwargs))
        return out

    def _note(self, out: Any, value: Any) -> None:
        if value is None:
            return
        for tensor, twin in zip(_listed(out), _listed(value), strict=True):
            if isinstance(tensor, Tensor) and isinstance(twin, Tensor) and not has_values(tensor) and has_values(twin):
                self._twins[tensor] = twin

    def _write(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        value = self._on_twins(func, args, kwargs)
        if value is not None:
            self._note(out, value)
            return
        for tensor in _written(func, args, kwargs):
            twin = self._twin_of(tensor) if not has_values(tensor) else None
            if twin is None:
                continue
            storage = twin.untyped_storage()
            self._unknown[storage._cdata] = storage
            is_whole = twin.is_contiguous() and twin.nbytes == storage.nbytes()
            if is_whole and func in _WHOLE_WRITES and self._all_known((args[1:], kwargs)):
                with no_dispatch():
                    func(twin, *tree_map(self._twin, args[1:]), **tree_map(self._twin, kwargs))
                del self._unknown[storage._cdata]

    def _on_twins(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What `func` makes of the twins; None where one is not known, or where chance decides."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            return None
        if not self._all_known((args, kwargs)):
            return self._view_of_unknown(func, args, kwargs)
        here = dict(kwargs)
        if any(argument.name == "device" for argument in func._schema.arguments):
            here["device"] = torch.device("cpu")
        try:
            with no_dispatch():
                value = func(*tree_map(self._twin, args), **tree_map(self._twin, here))
        except _UNKNOWN_TO_THE_CPU:
            return None  # not an op of the CPU, or values it refuses
        if func in _UNFILLED:
            storage = value.untyped_storage()
            self._unknown[storage._cdata] = storage
        return value

    def _view_of_unknown(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A view of memory whose content is unknown now, but may be known when it has been overwritten."""
        if not func.is_view or any(self._twin_of(tensor) is None for tensor in _tensors((args, kwargs))):
            return None
        try:
            with no_dispatch():
                return func(*tree_map(self._twin, args), **tree_map(self._twin, kwargs))
        except _UNKNOWN_TO_THE_CPU:
            return None

    def _all_known(self, given: Any) -> bool:
        return all(is_small(tensor) and self.value_of(tensor) is not None for tensor in _tensors(given))

    def _twin(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._twin_of(value)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def _without_values(self, kwargs: Any, value: Any) -> Any:
        """Tensors without values that stand for `value`; or `value` itself where a copy to the CPU was asked for."""
        wanted = kwargs.get("device")
        if wanted is not None and torch.device(wanted).type == "cpu":
            return value
        return tree_map(lambda item: self._empty(item) if isinstance(item, Tensor) else item, value)

    def _empty(self, twin: Tensor) -> Tensor:
        made = torch.empty_strided(twin.shape, twin.stride(), dtype=twin.dtype, device="meta")
        self._twins[made] = twin
        return made

    def _as_places(self, index: Any) -> list[Any]:
        """A boolean index as the integers it stands for, one tensor of them for each of its dimensions; others as they are."""
        places = self._places(index, index.shape) if isinstance(index, Tensor) else None
        return [index] if places is None else places

    def _places(self, mask: Tensor, shape: torch.Size) -> list[Tensor] | None:
        """The integer indices that `mask` stands for in a tensor of `shape`; None where it is not known or has values."""
        if mask.dtype is not torch.bool or has_values(mask) or mask.shape != shape:
            return None
        twin = self.value_of(mask)
        if twin is None:
            return None
        with no_dispatch():
            places = twin.nonzero().unbind(1)
        return [self._empty(place) for place in places]


def _asks_values(func: Any) -> bool:
    return func in _COPIES or not _ASKING.isdisjoint(func.tags)


def _listed(value: Any) -> Any:
    return value if isinstance(value, (tuple, list)) else (value,)


def _tensors(value: Any) -> list[Tensor]:
    """The tensors in an op's arguments or result, which are nested in nothing else; every op asks for them."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return [tensor for item in value.values() for tensor in _tensors(item)] if isinstance(value, dict) else []


def _written(func: Any, args: Any, kwargs: Any) -> Iterator[Tensor]:
    """The tensors that `func` writes to."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(args[position] if position < len(args) else kwargs.get(argument.name))


def _item(twin: Tensor) -> Any:
    with no_dispatch():
        return twin.item()


class _PastTheDispatcher(TorchFunctionMode):
    """Answers what reads or writes memory without asking the dispatcher: ``tensor.tolist()`` and ``torch.tensor(data)``."""

    def __init__(self, shadow: ValueShadow) -> None:
        super().__init__()
        self._shadow = shadow

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.tolist and not has_values(args[0]):
            twin = self._shadow.value_of(args[0])
            if twin is not None:
                with no_dispatch():
                    return twin.tolist()
        out = func(*args, **kwargs)
        if func is torch.tensor and not has_values(out) and is_small(out):
            with no_dispatch():
                if not _tensors((args, kwargs)):
                    self._shadow.add(out, torch.tensor(*args, **{**kwargs, "device": "cpu"}).detach())
        return out


class Shadowed:
    """A context in which small tensors without values whose values follow from known ones have them; it can be entered again.

    At first nothing but what is remembered is known.
    """

    def __init__(self) -> None:
        self.values = ValueShadow()
        self._entered: list[ExitStack] = []

    def __enter__(self) -> ValueShadow:
        stack = ExitStack()
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(_PastTheDispatcher(self.values))
        stack.enter_context(self.values)
        self._entered.append(stack)
        return self.values

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().close()

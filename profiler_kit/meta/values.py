"""Values of small meta tensors: each has a twin on the CPU, for model code that reads values.

Mask code reads ``mask.all()``, position code ``ids.max().item()``. Such tensors are small and follow from constants, shapes
and integer inputs. Values that depend on weights or activations are unknown here; `meta.drawn_values` invents them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakIdKeyDictionary

from profiler_kit.meta.bounds import note_bound
from profiler_kit.meta.eager import compilation_disabled
from profiler_kit.user_code.saved_state import has_values

MAX_INTEGERS: Final = 1 << 16  # elements; a causal mask of 256 x 256
MAX_FLOATS: Final = 1 << 10  # elements; constants and schedules
ATEN: Final = torch.ops.aten

# Ops with uninitialized results.
_UNFILLED: Final = frozenset(
    {
        ATEN.empty.memory_format, ATEN.empty_strided.default, ATEN.empty_like.default, ATEN.new_empty.default,
        ATEN.new_empty_strided.default, ATEN.empty_permuted.default,
    }
)  # fmt: skip
_ITEM: Final = ATEN._local_scalar_dense.default
_INDEX: Final = ATEN.index.Tensor
_SELECT: Final = ATEN.masked_select.default
_FULL_WRITES: Final = frozenset(
    {ATEN.fill_.Scalar, ATEN.fill_.Tensor, ATEN.zero_.default, ATEN.copy_.default}
)  # do not read the tensor that they write
_COPIES: Final = frozenset({ATEN._to_copy.default, ATEN.copy_.default})
DATA_DEPENDENT_TAGS: Final = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output})
_PACK: Final = torch._VF._pack_padded_sequence
_PYTHON_READS: Final = frozenset({Tensor.tolist, Tensor.numpy, Tensor.__array__})
_FROM_DATA: Final = frozenset({torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor})
CPU_ERRORS: Final = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)

_remembered = WeakIdKeyDictionary()
# Of the running contexts, the innermost last: the shadow that tracks values; None where unknown values are an error.
_readers: list[Callable[[], ValueShadow] | None] = []


class ValuesNeededError(RuntimeError):
    """The count depends on values that plain meta tensors do not have. Another kind of tensors may have them."""


def is_small(tensor: Tensor) -> bool:
    """Whether `tensor` is small enough to track its values; complex tensors are not tracked."""
    if tensor.is_complex():
        return False
    return tensor.numel() <= (MAX_FLOATS if tensor.is_floating_point() else MAX_INTEGERS)


def store_values(tensor: Tensor, value: Tensor) -> None:
    """Store a copy of `value` as the values of `tensor`, for the lifetime of `tensor`.

    Does nothing if `tensor` has values itself or is too large.
    """
    if not has_values(tensor) and has_values(value) and is_small(tensor) and value.layout is torch.strided:
        with no_dispatch():  # a fake tensor mode would create a fake copy
            _remembered[tensor] = value.detach().to("cpu", tensor.dtype, copy=True)


def stored_values(tensor: Tensor) -> Tensor | None:
    """A copy of the values stored for `tensor`; None without stored values."""
    value = _remembered.get(tensor)
    return None if value is None else value.clone()


def copy_values(tensor: Tensor, source: Tensor) -> Tensor:
    """Store the values of `source` for `tensor`, if they are known, and return `tensor`; of jagged tensors the lengths."""
    if tensor.layout is torch.jagged and source.layout is torch.jagged:
        for part in ("_offsets", "_lengths"):
            if getattr(source, part) is not None:
                copy_values(getattr(tensor, part), getattr(source, part))
        return tensor
    value = source if has_values(source) else _remembered.get(source)
    if value is not None:
        store_values(tensor, value)
    return tensor


def known_values(tensor: Tensor) -> Tensor | None:
    """The values of `tensor`: its own, or those that the running `ValueTracking` knows; None if they are unknown.

    Raises: ValuesNeededError if values are unknown inside ``readable_values(None)``.
    """
    if has_values(tensor):
        return tensor
    reader = _readers[-1] if _readers else None
    value = stored_values(tensor) if reader is None else reader().value_of(tensor)
    if value is None and reader is None and _readers:
        raise ValuesNeededError("data-dependent: plain meta tensors do not have the values that decide the work")
    return value


@contextmanager
def readable_values(shadow: Callable[[], ValueShadow] | None) -> Iterator[None]:
    """Inside the block, `known_values` reads the values that ``shadow()`` tracks. With None, unknown values are an error."""
    _readers.append(shadow)
    try:
        yield
    finally:
        _readers.pop()


class ValueShadow(TorchDispatchMode):
    """A dispatch mode that tracks the values of small meta and fake tensors.

    If the values of all tensors of an op are known, the op also runs on their twins. `.item()`, `.nonzero()`, boolean
    indexing and copies to the CPU read the twin. Other dispatch modes see boolean indexing as indexing by integers. Twins of
    views share memory like the views. When unknown values are written into a tensor, all tensors that share its memory
    become unknown, until the memory is overwritten completely. The results of higher-order ops are unknown.
    """

    supports_higher_order_operators = True
    max_integers = MAX_INTEGERS

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._twins = WeakIdKeyDictionary()
        self._unknown: dict[int, torch.UntypedStorage] = {}  # alive, so that no other storage gets the same address
        self._mutable: dict[int, bool] = {}  # by id(op): ops are never freed, and hashing one is slow

    def value_of(self, tensor: Tensor) -> Tensor | None:
        """The twin of `tensor`, or `tensor` if it has values; None if the values are unknown."""
        twin = self._twin_of(tensor)
        return None if twin is None or twin.untyped_storage()._cdata in self._unknown else twin

    def read(self, tensor: Tensor) -> Tensor | None:
        """The values of `tensor` for code that asks for them; None if they are unknown."""
        return self.value_of(tensor)

    def add(self, tensor: Tensor, value: Tensor) -> None:
        """Use `value` as the twin of `tensor`."""
        self._twins[tensor] = value

    def follows(self, tensor: Tensor) -> bool:
        """Whether the values of a tensor of this size and dtype are tracked."""
        return is_small(tensor)

    def _twin_of(self, tensor: Tensor) -> Tensor | None:
        """The twin of `tensor`, even if its content is unknown; None without a twin."""
        if has_values(tensor):
            return tensor if type(tensor) in (Tensor, nn.Parameter) else None  # a subclass may have no data of its own
        twin: Tensor | None = self._twins.get(tensor)
        if twin is None and self.follows(tensor):
            with no_dispatch():
                twin = stored_values(tensor)
            if twin is not None:
                self._twins[tensor] = twin
        return twin

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # skipping costs a tenth of the time of `__torch_dispatch__`; `ValueTracking` disables compilers

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if type(func) is not OpOverload:
            return func(*args, **kwargs)
        if func is _ITEM:
            twin = self.read(args[0])
            return func(*args) if twin is None else _item(twin)
        if func is _INDEX:
            args = (args[0], [position for index in args[1] for position in self._as_integer_indices(index)])
        elif func is _SELECT and self._integer_indices(args[1], args[0].shape) is not None:
            func, args = _INDEX, (args[0], self._integer_indices(args[1], args[0].shape))
        try:
            out = func(*args, **kwargs)
        except (RuntimeError, NotImplementedError):  # the shape of the result, or a copy, needs values
            # Other ops must not bypass the outer modes: an op without a meta kernel still has work to count.
            value = self._asked_values(func, args, kwargs) if _asks_values(func) else None
            if value is None:
                raise
            return self._without_values(kwargs, value)
        mutable = self._mutable.get(id(func))
        if mutable is None:
            mutable = self._mutable[id(func)] = func._schema.is_mutable
        if mutable:
            self._write(func, args, kwargs, out)
        elif type(out) is Tensor and out.numel() > self.max_integers:
            pass  # nearly all ops of a large model: too large in every dtype
        elif any(self.follows(item) and not has_values(item) for item in op_tensors(out)):
            self._track(func, args, kwargs, out)
        return out

    def _track(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Store the values of `out`, the result of an op that writes nothing, if they are known."""
        self._store_twins(out, self._on_twins(func, args, kwargs))

    def _asked_values(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of `func`, whose shape or whose copy to the CPU needs values; None if they are unknown."""
        return self._on_twins(func, args, kwargs)

    def _store_twins(self, out: Any, value: Any) -> None:
        if value is None:
            return
        for tensor, twin in zip(_as_sequence(out), _as_sequence(value), strict=True):
            if isinstance(tensor, Tensor) and isinstance(twin, Tensor) and not has_values(tensor) and has_values(twin):
                self._twins[tensor] = twin

    def _write(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        value = self._on_twins(func, args, kwargs)
        if value is not None:
            self._store_twins(out, value)
            return
        for tensor in _written_tensors(func, args, kwargs):
            twin = self._twin_of(tensor) if not has_values(tensor) else None
            if twin is None:
                continue
            storage = twin.untyped_storage()
            self._unknown[storage._cdata] = storage
            is_whole = twin.is_contiguous() and twin.nbytes == storage.nbytes()
            if is_whole and func in _FULL_WRITES and self._all_known((args[1:], kwargs)):
                with no_dispatch():
                    func(twin, *tree_map(self._twin, args[1:]), **tree_map(self._twin, kwargs))
                del self._unknown[storage._cdata]

    def _on_twins(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of `func` on the twins; None if a twin is unknown or the op is random."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            return None
        if not self._all_known((args, kwargs)):
            return self._view_of_unknown(func, args, kwargs)
        cpu_kwargs = dict(kwargs)
        if any(argument.name == "device" for argument in func._schema.arguments):
            cpu_kwargs["device"] = torch.device("cpu")
        try:
            with no_dispatch():
                value = func(*tree_map(self._twin, args), **tree_map(self._twin, cpu_kwargs))
        except CPU_ERRORS:
            return None  # the op does not run on the CPU, or rejects these values
        if func in _UNFILLED:
            storage = value.untyped_storage()
            self._unknown[storage._cdata] = storage
        return value

    def _view_of_unknown(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A view of a twin with unknown content, which becomes known when the memory is overwritten."""
        if not func.is_view or any(self._twin_of(tensor) is None for tensor in op_tensors((args, kwargs))):
            return None
        try:
            with no_dispatch():
                return func(*tree_map(self._twin, args), **tree_map(self._twin, kwargs))
        except CPU_ERRORS:
            return None

    def _all_known(self, arguments: Any) -> bool:
        return all(self.follows(tensor) and self.value_of(tensor) is not None for tensor in op_tensors(arguments))

    def _twin(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._twin_of(value)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def _without_values(self, kwargs: Any, value: Any) -> Any:
        """`value` with its tensors replaced by meta tensors; `value` itself for a requested copy to the CPU."""
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cpu":
            return value
        return tree_map(lambda item: self._meta_like(item) if isinstance(item, Tensor) else item, value)

    def _meta_like(self, twin: Tensor) -> Tensor:
        meta_tensor = torch.empty_strided(twin.shape, twin.stride(), dtype=twin.dtype, device="meta")
        self._twins[meta_tensor] = twin
        return meta_tensor

    def _as_integer_indices(self, index: Any) -> list[Any]:
        """A boolean index as integer indices, one tensor for each of its dimensions; other indices are unchanged."""
        indices = self._integer_indices(index, index.shape) if isinstance(index, Tensor) else None
        return [index] if indices is None else indices

    def _integer_indices(self, mask: Tensor, shape: torch.Size) -> list[Tensor] | None:
        """The integer indices of `mask` in a tensor of `shape`; None if `mask` is unknown or has values itself."""
        if mask.dtype is not torch.bool or has_values(mask) or mask.shape != shape:
            return None
        twin = self.read(mask)
        if twin is None:
            return None
        with no_dispatch():
            indices = twin.nonzero().unbind(1)
        return [self._meta_like(position) for position in indices]


def _asks_values(func: Any) -> bool:
    return func in _COPIES or not DATA_DEPENDENT_TAGS.isdisjoint(func.tags)


def _as_sequence(value: Any) -> Any:
    return value if isinstance(value, (tuple, list)) else (value,)


def op_tensors(value: Any) -> list[Tensor]:
    """The tensors in an op's arguments or result. Faster than a general traversal, because it runs for every op."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in op_tensors(item)]
    return [tensor for item in value.values() for tensor in op_tensors(item)] if isinstance(value, dict) else []


def _written_tensors(func: Any, args: Any, kwargs: Any) -> Iterator[Tensor]:
    """The tensors that `func` writes."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from op_tensors(args[position] if position < len(args) else kwargs.get(argument.name))


def _item(twin: Tensor) -> Any:
    with no_dispatch():
        return twin.item()


class _NonDispatcherReads(TorchFunctionMode):
    """Handles functions that bypass the dispatcher, like ``tensor.tolist()`` and ``torch.tensor(data)``, and packed sequences."""

    def __init__(self, shadow: ValueShadow) -> None:
        super().__init__()
        self._shadow = shadow

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == _PACK and not has_values(args[1]):
            args = (args[0], self._lengths(*args), *args[2:])
        if func in _PYTHON_READS and not has_values(args[0]):
            twin = self._shadow.read(args[0])
            if twin is not None:
                with no_dispatch():
                    return func(twin, *args[1:], **kwargs)
        out = func(*args, **kwargs)
        if func in _FROM_DATA and not has_values(out) and is_small(out):
            data = [*args[func is Tensor.new_tensor :], *(kwargs[name] for name in ("data", "obj") if name in kwargs)][
                0
            ]
            with no_dispatch(), torch._C.DisableTorchFunction():  # other function modes move tensors to meta
                if not op_tensors(data):
                    self._shadow.add(out, torch.tensor(data, dtype=out.dtype, device="cpu"))
        return out

    def _lengths(self, sequences: Tensor, lengths: Tensor, batch_first: bool) -> Tensor:
        """`lengths` on the CPU, where packing reads them; if they are unknown, no sequence is padded."""
        twin = self._shadow.read(lengths)
        with no_dispatch(), torch._C.DisableTorchFunction():
            if twin is not None:
                return twin.clone()
            note_bound(
                "aten._pack_padded_sequence", "upper", "unknown lengths: every sequence has the length of the longest"
            )
            return torch.full(tuple(lengths.shape), sequences.shape[1 if batch_first else 0], device="cpu")


class ValueTracking:
    """A context that tracks the values of small meta and fake tensors (`ValueShadow`). It can be entered several times.

    At first only the values stored by `store_values` are known.
    """

    def __init__(self, shadow: type[ValueShadow] = ValueShadow) -> None:
        self.values = shadow()
        self._entered: list[ExitStack] = []

    def __enter__(self) -> ValueShadow:
        stack = ExitStack()
        stack.enter_context(compilation_disabled())
        stack.enter_context(readable_values(lambda: self.values))
        stack.enter_context(_NonDispatcherReads(self.values))
        stack.enter_context(self.values)
        self._entered.append(stack)
        return self.values

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().close()

"""A memo of op calls on meta tensors: the results of a repeated call, and facts about it, are computed once.

Meta tensors have no values. The op, the shapes, strides and dtypes of its tensors, and its other arguments decide the
result of a call. Many meta kernels are written in Python and take longer than the rest of a count. A repeated call
therefore reuses the facts of the first call, such as its cost. Three rules decide whether the op runs again:

- **new**: the op returns new tensors without running. The op is in ``aten``, its schema has no aliases and writes nothing,
  and it returns tensors only. The first call must return new, separate, strided meta tensors, as ``empty_strided`` makes
  them. This excludes ops that share storage without saying so in their schema (``_unsafe_view``). Random ops belong here:
  no random number is drawn without values.
- **first argument**: the op returns its first argument without running. It is an in-place ``aten`` op with one tensor, and
  the first call returned this tensor with unchanged metadata and storage. Autograd records the change before the op
  reaches this mode.
- **run**: every other op runs again. Views run because the count follows storages; in-place ops with several tensors
  because they reject overlapping ones; ops that return numbers; custom ops, whose behavior is unknown.

Some calls have no key, and are computed every time: calls with a tensor subclass, a tensor on another device, a sparse or
nested tensor, a generator, a symbolic size, or another argument whose metadata the key cannot hold; and ops whose result
shape depends on values. If other dispatch modes observe the same ops, the memo is off, or it skips the calls whose tensors
all interest such a mode.

The cost also depends on whether the same tensor is passed twice, and so does the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar

import torch

from profiler_kit.loading.batch import tensors_in
from profiler_kit.loading.batch_norm_memo import BatchNormMemo
from profiler_kit.loading.values import ValueShadow, is_small

# The memo stops growing here: a model whose shapes never repeat gains nothing from it.
MAX_CALLS: Final = 8192

Facts = TypeVar("Facts")
Key = tuple[Any, ...]
ResultKind = Literal["new", "first argument", "run", "unknown"]

_PLAIN: Final = frozenset((torch.Tensor, torch.nn.Parameter))
_META: Final = torch.device("meta")
# The key holds the type too: equal numbers (1 == 1.0 == True) of different types give different dtypes.
_NUMBERS: Final = frozenset((float, bool, complex))
_OTHER: Final = frozenset((int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format))
_VALUE_TAGS: Final = frozenset((torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output))
_TENSORS: Final = frozenset(("Tensor", "Optional[Tensor]", "List[Tensor]"))


@dataclass(frozen=True, slots=True, eq=False)
class MemoEntry(Generic[Facts]):
    """The facts of a call and the source of its result: `make`, else the op itself if `run`, else the first argument."""

    facts: Facts
    run: bool
    make: Callable[[], Any] | None

    def result(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a repeated call."""
        if self.make is not None:
            return self.make()
        return op(*args, **kwargs) if self.run else args[0]


class Memo(Generic[Facts]):
    """The memo of one run of a step, with `Facts` about each call."""

    def __init__(self, limit: int = MAX_CALLS, is_observed: Callable[[torch.Tensor], bool] | None = None) -> None:
        """`limit`: maximum number of calls; 0 turns the memo off. `is_observed`: whether another mode observes a tensor."""
        self._limit = limit
        self._is_observed = is_observed
        # keyed by id, since torch hashes ops in Python; the stored op keeps its id valid
        self._result_kinds: dict[int, tuple[ResultKind, torch._ops.OpOverload]] = {}
        self._entries: dict[Key, MemoEntry[Facts]] = {}
        self._batch_norm = BatchNormMemo()
        self.find = self._entries.get  # a bound method of the dict, since every op calls it

    def __len__(self) -> int:
        return len(self._entries)

    def key(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Key | None:
        """Everything that decides a call's result; None if that is unknown."""
        cached = self._result_kinds.get(id(op))
        if cached is None:
            cached = self._result_kinds[id(op)] = (result_kind(op) if self._limit else "unknown", op)
        if cached[0] == "unknown":
            return None
        key: list[Any] = [id(op), torch.get_default_dtype()]
        tensors: list[torch.Tensor] = []
        if not _describe(args, key, tensors):
            return None
        if kwargs:
            key += kwargs
            if not _describe(kwargs.values(), key, tensors):
                return None
        if len(tensors) > 1:
            ids = [*map(id, tensors)]
            if len(set(ids)) < len(ids):
                key.append(tuple(map(ids.index, ids)))
        if self._is_observed is not None and all(map(self._is_observed, tensors)):
            return None
        return tuple(key)

    def kernel(self, op: torch._ops.OpOverload, args: Sequence[Any]) -> Callable[..., Any]:
        """The function to run for a call that has a key and no entry: `op` or its substitute."""
        return self._batch_norm.find(op, args) or op

    def store(self, key: Key, op: torch._ops.OpOverload, args: Sequence[Any], out: Any, facts: Facts) -> None:
        """Store a call after it ran. `key` was computed before the call."""
        if len(self._entries) >= self._limit:
            return
        kind, _ = self._result_kinds[id(op)]
        make = _result_factory(args, out) if kind == "new" else None
        if make is not None:
            self._batch_norm.store(op, args, out)
        unchanged = kind == "first argument" and out is args[0] and key == self.key(op, args, {})
        self._entries[key] = MemoEntry(facts=facts, run=make is None and not unchanged, make=make)


def result_kind(op: torch._ops.OpOverload) -> ResultKind:
    """The rule for a repeated call of `op`, from its schema: see the module's docstring."""
    if op.namespace != "aten" or not _VALUE_TAGS.isdisjoint(op.tags):
        return "unknown"
    schema = op._schema
    aliased = [argument for argument in schema.arguments if argument.alias_info is not None]
    returned = [str(value.type) for value in schema.returns]
    if not aliased and returned and _TENSORS.issuperset(returned):
        return "new"
    tensors = [argument for argument in schema.arguments if "Tensor" in str(argument.type)]
    if len(tensors) == 1 and tensors == aliased == schema.arguments[:1] and returned == ["Tensor"]:
        info = schema.arguments[0].alias_info
        if info is not None and info.is_write and torch.Tag.inplace_view not in op.tags:
            return "first argument"
    return "run"


def _describe(values: Iterable[Any], key: list[Any], tensors: list[torch.Tensor]) -> bool:
    """Append the metadata of `values` to `key`; return False if the key cannot hold a value."""
    for value in values:
        kind = type(value)
        if kind in _PLAIN:
            if not value.is_meta or value.is_nested or value.layout is not torch.strided:
                return False
            tensors.append(value)
            key += (value.shape, value.stride(), value.dtype)
        elif kind in _OTHER:
            key.append(value)
        elif kind in _NUMBERS:
            key += (kind, value)
        elif kind is list or kind is tuple:
            key.append(len(value))
            if not _describe(value, key, tensors):
                return False
        else:
            return False
    return True


def _result_factory(args: Sequence[Any], out: Any) -> Callable[[], Any] | None:
    """A function that returns new tensors like those in `out`; None unless all of them are new, strided and separate."""
    storages = {tensor.untyped_storage()._cdata for tensor in tensors_in(args)}
    if type(out) is torch.Tensor:
        return _tensor_factory(out, storages)
    if type(out) not in (tuple, list):
        return None
    factories = []
    for tensor in out:
        factory = None if tensor is None else _tensor_factory(tensor, storages)
        if factory is None and tensor is not None:
            return None
        factories.append(factory)
    container = type(out)
    return lambda: container([None if factory is None else factory() for factory in factories])


def _tensor_factory(tensor: Any, storages: set[int]) -> Callable[[], torch.Tensor] | None:
    if type(tensor) is not torch.Tensor or not tensor.is_meta or tensor.layout is not torch.strided:
        return None
    if tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor() or tensor.storage_offset():
        return None
    storage = tensor.untyped_storage()
    if storage._cdata in storages:
        return None
    storages.add(storage._cdata)
    make = partial(torch.empty_strided, tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=_META)
    return make if make().untyped_storage().nbytes() == storage.nbytes() else None


def memo_for_modes(modes: Sequence[object]) -> Memo[Any]:
    """A new memo for a run inside these dispatch modes. They must still see every op that they need."""
    if not modes:
        return Memo()
    return Memo(is_observed=is_small) if all(type(mode) is ValueShadow for mode in modes) else Memo(limit=0)

"""A memo of op metadata: what a call on meta tensors costs and returns is worked out once per op and argument metadata.

Meta tensors have no values, so a call's outcome is decided by the op, the shapes, strides and dtypes of its tensors, and
its other arguments. Many meta kernels are written in Python and take longer than all of counting. A repeated call
therefore gets the facts of the first one, and where the rules below allow it, is not run again:

- **made anew**: the op is one of aten's own, its schema names no alias and writes nothing, and it returns tensors only. The
  first call must have returned new, plain, separate meta tensors, as ``empty_strided`` makes them: ops that share storage
  although their schema is silent (``_unsafe_view``) are found out there. Random ops are among these: without values no
  random number is drawn.
- **given back**: an in-place op of aten with one tensor, which the first call returned with its metadata and storage as they
  were. Autograd counts the change before the op gets here.
- **run again**: everything else. Views, since who keeps which storage is part of the count; in-place ops with several
  tensors, since they refuse overlapping ones; what returns numbers; custom ops, which may do anything.

Without a key, and so worked out every time, is a call with a tensor subclass, a tensor with data (on any other device), a
sparse or nested tensor, a generator, a symbolic size, or anything else whose metadata is not all in the key; and a call of
an op whose result's shape depends on values. Other dispatch modes may follow the same ops: all of them, then there is no
memo, or tensors of some kind, then calls on nothing else have no key.

The facts of a call depend, besides metadata, on whether one tensor was given twice; so does the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import torch

from profiler_kit.counting.likeness import Likeness
from profiler_kit.counting.operands import OpFacts, tensors_in
from profiler_kit.loading.values import ValueShadow, is_small

# A model whose shapes never repeat gains nothing from remembering them: beyond this many calls nothing new is kept.
LIMIT: Final = 8192

Key = tuple[Any, ...]
Outcome = Literal["new", "given", "other", "untold"]

_PLAIN: Final = frozenset((torch.Tensor, torch.nn.Parameter))
_META: Final = torch.device("meta")
_NUMBERS: Final = frozenset(
    (float, bool, complex)
)  # equal across types (1 == 1.0 == True), while the type decides a dtype
_OTHER: Final = frozenset((int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format))
_ASKS_VALUES: Final = frozenset((torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output))
_TENSORS: Final = frozenset(("Tensor", "Optional[Tensor]", "List[Tensor]"))


@dataclass(frozen=True, slots=True, eq=False)
class Remembered:
    """The facts of a call, and how its result is had: `make` makes it; without, it is the first argument, or is `run` for."""

    facts: OpFacts
    run: bool
    make: Callable[[], Any] | None

    def result(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the call returns now."""
        if self.make is not None:
            return self.make()
        return op(*args, **kwargs) if self.run else args[0]


class Memo:
    """What is remembered during one count. With `limit` 0 it remembers nothing."""

    def __init__(self, limit: int = LIMIT, followed: Callable[[torch.Tensor], bool] | None = None) -> None:
        """`limit`: how many calls are kept at most. `followed`: whether somebody else has an eye on a tensor."""
        self._limit = limit
        self._followed = followed
        # by id, since torch hashes ops in Python; the op beside it keeps the id its own
        self._outcomes: dict[int, tuple[Outcome, torch._ops.OpOverload]] = {}
        self._known: dict[Key, Remembered] = {}
        self._likeness = Likeness()
        self.find = self._known.get  # not a method of its own, since every op asks

    def __len__(self) -> int:
        return len(self._known)

    def key(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Key | None:
        """All that the outcome of a call depends on; None where that cannot be told."""
        found = self._outcomes.get(id(op))
        if found is None:
            found = self._outcomes[id(op)] = (possible_outcome(op) if self._limit else "untold", op)
        if found[0] == "untold":
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
        if self._followed is not None and all(map(self._followed, tensors)):
            return None
        return tuple(key)

    def first(self, op: torch._ops.OpOverload, args: Sequence[Any]) -> Callable[..., Any]:
        """What to run for a call that has a key and is not known: `op`, or what stands in for it."""
        return self._likeness.recall(op, args) or op

    def keep(self, key: Key, op: torch._ops.OpOverload, args: Sequence[Any], out: Any, facts: OpFacts) -> None:
        """Remembers a call that has just been run; `key` is from before it."""
        if len(self._known) >= self._limit:
            return
        outcome, _ = self._outcomes[id(op)]
        make = _maker(args, out) if outcome == "new" else None
        if make is not None:
            self._likeness.learn(op, args, out)
        unchanged = outcome == "given" and out is args[0] and key == self.key(op, args, {})
        self._known[key] = Remembered(facts=facts, run=make is None and not unchanged, make=make)


def possible_outcome(op: torch._ops.OpOverload) -> Outcome:
    """What `op` may return, from its schema: tensors it makes, the one it was given, something other; or that is untold."""
    if op.namespace != "aten" or not _ASKS_VALUES.isdisjoint(op.tags):
        return "untold"
    schema = op._schema
    aliased = [argument for argument in schema.arguments if argument.alias_info is not None]
    returned = [str(value.type) for value in schema.returns]
    if not aliased and returned and _TENSORS.issuperset(returned):
        return "new"
    takes = [argument for argument in schema.arguments if "Tensor" in str(argument.type)]
    if len(takes) == 1 and takes == aliased == schema.arguments[:1] and returned == ["Tensor"]:
        info = schema.arguments[0].alias_info
        if info is not None and info.is_write and torch.Tag.inplace_view not in op.tags:
            return "given"
    return "other"


def _describe(values: Iterable[Any], key: list[Any], tensors: list[torch.Tensor]) -> bool:
    """Appends what there is to know of `values` to `key`; whether it is all."""
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


def _maker(args: Sequence[Any], out: Any) -> Callable[[], Any] | None:
    """What makes tensors like those in `out` anew; None where they are not all new, plain and separate."""
    taken = {tensor.untyped_storage()._cdata for tensor in tensors_in(args)}
    if type(out) is torch.Tensor:
        return _blank(out, taken)
    if type(out) not in (tuple, list):
        return None
    blanks = []
    for each in out:
        blank = None if each is None else _blank(each, taken)
        if blank is None and each is not None:
            return None
        blanks.append(blank)
    kind = type(out)
    return lambda: kind([None if blank is None else blank() for blank in blanks])


def _blank(tensor: Any, taken: set[int]) -> Callable[[], torch.Tensor] | None:
    if type(tensor) is not torch.Tensor or not tensor.is_meta or tensor.layout is not torch.strided:
        return None
    if tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor() or tensor.storage_offset():
        return None
    storage = tensor.untyped_storage()
    if storage._cdata in taken:
        return None
    taken.add(storage._cdata)
    make = partial(torch.empty_strided, tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=_META)
    return make if make().untyped_storage().nbytes() == storage.nbytes() else None


def memo_beside(modes: Sequence[object]) -> Memo:
    """A new memo for a count that runs inside these dispatch modes, which shall miss nothing."""
    if not modes:
        return Memo()
    return Memo(followed=is_small) if all(type(mode) is ValueShadow for mode in modes) else Memo(limit=0)

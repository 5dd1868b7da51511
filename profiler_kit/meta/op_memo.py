"""A memo of op calls on meta tensors: the results of a repeated call, and facts about it, are computed once.

Meta tensors have no values. The op, the shapes, strides and dtypes of its tensors, and its other arguments decide the
result of a call. Many meta kernels are written in Python and take longer than the rest of a count. A repeated call
therefore reuses the facts of the first call, such as its cost. Three rules decide whether the op runs again:

- **new**: the op returns new tensors without running. The op is in ``aten``, its schema has no aliases and writes nothing,
  and it returns tensors only. The first call must return new, separate, strided meta tensors, as ``empty_strided`` makes
  them. This excludes ops that share storage without saying so in their schema (``_unsafe_view``). Random ops belong here:
  no random number is drawn without values.
- **first argument**: the op returns its first argument without running. It is an in-place ``aten`` op that writes no other
  tensor, and the first call returned this tensor with unchanged metadata and storage. Autograd records the change before
  the op reaches this mode. Calls in which different tensors share a storage run, because the op rejects overlapping ones.
- **run**: every other op runs again. Views run because the count follows storages; ops that return numbers; custom ops,
  whose behavior is unknown.

Foreach ops have a rule of their own, see `metadata`.

Some calls have no key, and are computed every time: calls with a tensor subclass, a tensor on another device, a sparse or
nested tensor, a generator, a symbolic size, or another argument whose metadata the key cannot hold; and ops whose result
shape depends on values. If other dispatch modes observe the same ops, the memo is off, or it skips the calls whose tensors
all interest such a mode.

The cost also depends on whether the same tensor is passed twice, and so does the key.

Batch normalization has a memo that works for shapes not seen before. A convolutional network normalizes in a dozen shapes,
and these meta kernels are the slowest of all (twenty Python ops per direction): on ResNet-50 they would take half of the
count. Every result has the shape of one of the arguments, so one call shows which argument, for all shapes. A test compares
this with the kernels over thousands of shapes. It applies only to row-major tensors without empty dimensions. The kernel runs
for other memory formats, and for a single value per channel, which it rejects in training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from profiler_kit.meta.metadata import append_metadata, is_foreach, result_factory, run_foreach, share_storage
from profiler_kit.meta.values import ValueShadow, is_small

_META: Final = torch.device("meta")
_BATCH_NORM_OPS: Final = (torch.ops.aten.native_batch_norm.default, torch.ops.aten.native_batch_norm_backward.default)

Form = tuple[Any, ...]  # a call's arguments without the sizes of its tensors
Shapes = list[torch.Size]


class BatchNormMemo:
    """For each form of a call (dimensions and dtypes): which argument's shape each result has."""

    def __init__(self) -> None:
        self._results: dict[Form, list[tuple[int, torch.dtype] | None]] = {}  # index into the shapes, dtype

    def find(self, op: torch._ops.OpOverload, args: Sequence[Any]) -> Callable[..., Any] | None:
        """A function that returns new results for `op` with these arguments; None if `op` must run."""
        if op not in _BATCH_NORM_OPS:
            return None
        form, shapes = _form(op, args)
        results = None if form is None else self._results.get(form)
        if results is None:
            return None

        def make_results(*_: Any) -> Any:
            specs = (None if result is None else (shapes[result[0]], result[1]) for result in results)
            return tuple(None if spec is None else torch.empty(spec[0], dtype=spec[1], device=_META) for spec in specs)

        return make_results

    def store(self, op: torch._ops.OpOverload, args: Sequence[Any], out: Sequence[torch.Tensor | None]) -> None:
        """Store which argument's shape each result of a call has. The results must be new tensors."""
        if op not in _BATCH_NORM_OPS:
            return
        form, shapes = _form(op, args)
        if form is None or any(
            result is not None and not (_is_row_major(result) and result.shape in shapes) for result in out
        ):
            return
        self._results[form] = [None if result is None else (shapes.index(result.shape), result.dtype) for result in out]


def _form(op: torch._ops.OpOverload, args: Sequence[Any]) -> tuple[Form | None, Shapes]:
    """The form of a call (None if other shapes cannot be derived from it), and the distinct shapes of its tensors."""
    form: list[Any] = [id(op), torch.get_default_dtype()]
    shapes: Shapes = []
    for value in args:
        if not isinstance(value, torch.Tensor):
            form.append(tuple(value) if isinstance(value, list) else value)
            continue
        if not _is_row_major(value):
            return None, shapes
        if value.shape not in shapes:
            shapes.append(value.shape)
        form += (value.dtype, value.dim(), shapes.index(value.shape))
    batched, vectors = shapes[0], shapes[1:]
    if len(batched) < 2 or vectors not in ([], [batched[1:2]]) or args[0].numel() == batched[1]:
        return None, shapes
    return tuple(form), shapes


def _is_row_major(tensor: torch.Tensor) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if stride != expected or size == 0:
            return False
        expected *= size
    return True


# The memo stops growing here: a model whose shapes never repeat gains nothing from it.
MAX_CALLS: Final = 8192

Facts = TypeVar("Facts")
Key = tuple[Any, ...]
FindKernel = Callable[[Any, Sequence[Any]], Callable[..., Any] | None]
ResultKind = Literal["new", "first argument", "run", "foreach", "unknown"]

_VALUE_TAGS: Final = frozenset((torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output))
_WITHOUT_KEY: Final = frozenset(("foreach", "unknown"))
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
        self._facts_need_values: Callable[[torch._ops.OpOverload], bool] = lambda op: False
        # keyed by id, since torch hashes ops in Python; the stored op keeps its id valid
        self._result_kinds: dict[int, tuple[ResultKind, torch._ops.OpOverload]] = {}
        self._entries: dict[Key, MemoEntry[Facts]] = {}
        self._batch_norm = BatchNormMemo()
        self.find = self._entries.get  # a bound method of the dict, since every op calls it

    def __len__(self) -> int:
        return len(self._entries)

    def exclude(self, facts_need_values: Callable[[torch._ops.OpOverload], bool]) -> None:
        """Do not store the calls of ops whose facts depend on values, for which ``facts_need_values(op)`` is true."""
        self._facts_need_values = facts_need_values

    def key(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Key | None:
        """Everything that decides a call's result; None if that is unknown."""
        cached = self._result_kinds.get(id(op))
        if cached is None:
            is_stored = self._limit and not self._facts_need_values(op)
            cached = self._result_kinds[id(op)] = (result_kind(op) if is_stored else "unknown", op)
        kind = cached[0]
        if kind in _WITHOUT_KEY:
            return None
        key: list[Any] = [id(op), torch.get_default_dtype()]
        tensors: list[torch.Tensor] = []
        if not append_metadata(args, key, tensors):
            return None
        if kwargs:
            key += kwargs
            if not append_metadata(kwargs.values(), key, tensors):
                return None
        if len(tensors) > 1:
            ids = [*map(id, tensors)]
            if len(set(ids)) < len(ids):
                key.append(tuple(map(ids.index, ids)))
            if kind == "first argument" and share_storage(tensors):
                return None
        if self._is_observed is not None:
            # a mode that tracks values must see the ops that change them
            is_written = kind == "first argument" and tensors and self._is_observed(tensors[0])
            if is_written or all(map(self._is_observed, tensors)):
                return None
        return tuple(key)

    def kernel(self, op: torch._ops.OpOverload, args: Sequence[Any], key: Key | None) -> Callable[..., Any]:
        """The function to run for a call without an entry: `op` or its substitute."""
        if key is not None:
            return self._batch_norm.find(op, args) or op
        if self._result_kinds[id(op)][0] == "foreach":
            return lambda *args, **kwargs: run_foreach(op, args, kwargs, self._is_observed)
        return op

    def call(
        self,
        op: torch._ops.OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        facts: Facts,
        find_kernel: FindKernel | None = None,
    ) -> Any:
        """The result of a call, of a repeated call without running it. All calls have the same `facts`.

        ``find_kernel(op, args)`` returns the function to run instead of `op`, or None.
        """
        key = self.key(op, args, kwargs)
        entry = None if key is None else self.find(key)
        if entry is not None:
            return entry.result(op, args, kwargs)
        kernel = None if find_kernel is None else find_kernel(op, args)
        if kernel is not None:
            return kernel(*args, **kwargs)  # not stored: a repeated call could run the op itself
        out = self.kernel(op, args, key)(*args, **kwargs)
        if key is not None:
            self.store(key, op, args, out, facts)
        return out

    def store(self, key: Key, op: torch._ops.OpOverload, args: Sequence[Any], out: Any, facts: Facts) -> None:
        """Store a call after it ran. `key` was computed before the call."""
        if len(self._entries) >= self._limit:
            return
        kind, _ = self._result_kinds[id(op)]
        make = result_factory(args, out) if kind == "new" else None
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
    if is_foreach(op):
        return "foreach"
    if not aliased and returned and _TENSORS.issuperset(returned):
        return "new"
    if len(aliased) == 1 and schema.arguments[0].alias_info is not None and returned == ["Tensor"]:
        info, returned_info = schema.arguments[0].alias_info, schema.returns[0].alias_info
        is_changed = info is not None and info.is_write and returned_info is not None and returned_info.is_write
        if is_changed and torch.Tag.inplace_view not in op.tags:
            return "first argument"
    return "run"


def memo_for_modes(modes: Sequence[object]) -> Memo[Any]:
    """A new memo for a run inside these dispatch modes. They must still see every op that they need."""
    if not modes:
        return Memo()
    return Memo(is_observed=is_small) if all(type(mode) is ValueShadow for mode in modes) else Memo(limit=0)


class MemoMode(TorchDispatchMode):
    """A dispatch mode that runs equal calls on meta tensors once, for a function whose result or error is all that matters."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._memo: Memo[None] = memo_for_modes(_get_current_dispatch_mode_stack())

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # skipping costs a tenth of the time; compilation is disabled where the mode is used

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # the subclass calls ops on the tensors it wraps, and those reach this mode
        if type(func) is not torch._ops.OpOverload:
            return func(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():  # a function mode would see every access to a tensor's attributes
            return self._memo.call(func, args, kwargs or {}, None)

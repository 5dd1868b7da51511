"""The batches of a target's own data loader, each turned into a Batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

from profiler_kit.errors import TargetError
from profiler_kit.loading.batch import Batch, Forward
from profiler_kit.loading.construct import missing_arguments
from profiler_kit.loading.place import a_kind, user_errors
from profiler_kit.loading.source import Source
from profiler_kit.loading.surroundings import user_code

NAMES = ("train_loader", "get_loader", "make_loader")
LABEL_KEYS = ("labels", "label", "target", "targets", "y")


def to_batch(value: object, forward: Forward, where: str) -> Batch:
    """`value`, as a loader yields it, as a Batch.

    A tensor is the only input. Of a tuple or list the first items are inputs, as many as `forward` requires, the rest
    labels. Of a mapping the items named like parameters of `forward` are keyword inputs, the rest labels. Raises TargetError.
    """
    hint = "give tensors, (inputs..., labels) tuples, or dicts named like forward's parameters"
    if isinstance(value, Tensor):
        batch = Batch(args=(value,))
    elif isinstance(value, Mapping):
        inputs = {key: item for key, item in value.items() if _is_input(key, forward)}
        batch = Batch(kwargs=inputs, labels=tuple(item for key, item in value.items() if key not in inputs))
    elif isinstance(value, (tuple, list)):
        count = max(1, len([name for name in forward.required if name in forward.positional]))
        if forward.takes_more and not forward.required:
            count = max(1, len(value) - 1)
        batch = Batch(args=tuple(value[:count]), labels=tuple(value[count:]))
    else:
        raise TargetError(f"the loader gave {a_kind(value)}", where=where, hint=hint)
    if next(batch.tensors(), None) is None:
        raise TargetError(f"the loader gave no tensor for {forward}", where=where, hint=hint)
    return batch


def _is_input(key: object, forward: Forward) -> bool:
    return isinstance(key, str) and (key in forward.names or (forward.takes_any_keyword and key not in LABEL_KEYS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """A target's loader: each call goes over its batches once more."""

    source: Source
    name: str
    where: str
    forward: Forward
    batches: Callable[[], Iterable[Any]]

    def __call__(self, *, plain: bool = False) -> Iterator[Batch]:
        """The batches, on the host; `plain`: without worker processes and pinned memory. Raises TargetError."""
        with user_errors(self.name, where=self.where, hint="mend the loader, or give -i"):
            # worker processes are started here, and need the path
            with user_code(self.source.folders, self.source.name):
                batches = self.batches()
                with _plain(batches) if plain else contextlib.nullcontext():
                    iterator = iter(batches)
            for value in iterator:
                yield to_batch(value, self.forward, self.where)

    def first(self) -> Batch:
        """The first batch. Raises TargetError when there is none."""
        iterator = self(plain=True)
        try:
            return next(iterator)
        except StopIteration:
            raise TargetError(
                f"{self.name} gave no batch",
                where=self.where,
                hint="give it data (drop_last with a small data set?), or -i",
            ) from None
        finally:
            iterator.close()  # type: ignore[attr-defined]


@contextlib.contextmanager
def _plain(batches: Iterable[Any]) -> Iterator[None]:
    """Makes a DataLoader's next iterator work in this process alone: one batch is not worth workers or a CUDA context."""
    if not isinstance(batches, DataLoader):
        yield
        return
    kept = batches.num_workers, batches.pin_memory
    batches.num_workers, batches.pin_memory = 0, False
    try:
        yield
    finally:
        batches.num_workers, batches.pin_memory = kept


def find_loader(source: Source, forward: Forward, lines: Mapping[str, int]) -> Loader | None:
    """The loader that the target's file brings: `train_loader`, or one of the zero-argument functions in `NAMES`."""
    for name in NAMES:
        value = vars(source.module).get(name)
        if value is None:
            continue
        where = source.at(lines.get(name))
        if isinstance(value, Iterator):
            raise TargetError(
                f"{name} is an iterator, which can be read only once",
                where=where,
                hint=f"define a function {NAMES[1]}() that makes it",
            )
        if isinstance(value, Iterable):
            return Loader(source=source, name=name, where=where, forward=forward, batches=_same(value))
        if callable(value) and missing_arguments(value, {}):
            continue  # a helper of the training script, not a loader that is ready
        if callable(value):
            return Loader(
                source=source, name=f"{name}()", where=where, forward=forward, batches=_Made(value, name, where)
            )
        raise TargetError(
            f"{name} is {a_kind(value)}",
            where=where,
            hint="make it an iterable of batches, or a function that returns one",
        )
    return None


def _same(value: Iterable[Any]) -> Callable[[], Iterable[Any]]:
    return lambda: value


class _Made:
    """A loader made by the user's function when it is first needed; made again only when it can be read once."""

    def __init__(self, function: Callable[[], Any], name: str, where: str) -> None:
        self._function, self._name, self._where = function, name, where
        self._made: Iterable[Any] | None = None

    def __call__(self) -> Iterable[Any]:
        if self._made is None or isinstance(self._made, Iterator):
            made = self._function()
            if not isinstance(made, Iterable):
                raise TargetError(
                    f"{self._name}() returned {a_kind(made)}",
                    where=self._where,
                    hint="return an iterable of batches",
                )
            self._made = made
        return self._made

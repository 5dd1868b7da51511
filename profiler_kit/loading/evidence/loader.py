"""The target's own data loader, with each value converted to a Batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from profiler_kit.errors import TargetError
from profiler_kit.foreign import attribute_of
from profiler_kit.loading.candidates.signatures import missing_arguments
from profiler_kit.loading.evidence.batch_values import to_batch
from profiler_kit.loading.scripts.isolation import isolated
from profiler_kit.loading.scripts.placeholders import Placeholder
from profiler_kit.loading.scripts.source import Source
from profiler_kit.meta.batch import Batch, Forward
from profiler_kit.user_code.environment import user_code
from profiler_kit.user_code.locations import type_with_article, user_errors

NAMES = ("train_loader", "get_loader", "make_loader")


def _ignore(_: str) -> None:
    """Ignore notes of a loader: its batches are real."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """A target's data loader; each call iterates over its batches from the start."""

    source: Source
    name: str
    where: str
    forward: Forward
    batches: Callable[[], Iterable[Any]]
    label_parameter: str | None = None  # the parameter of forward that takes the first label

    def __call__(self, *, plain: bool = False) -> Iterator[Batch]:
        """Yield the batches on the host; with `plain`, without worker processes and pinned memory. Raises TargetError."""
        with user_errors(self.name, where=self.where, hint="fix the loader, or use -i; --no-slice allows side effects"):
            # starts the worker processes, which need the path
            with user_code(self.source.folders, self.source.name):
                batches = self.batches()
                with _single_process(batches) if plain else contextlib.nullcontext():
                    iterator = iter(batches)
            for value in iterator:
                batch = to_batch(value, self.forward, self.where)
                yield batch if self.label_parameter is None else batch.with_label(self.label_parameter)

    def first(self) -> Batch:
        """The first batch. Raises TargetError for an empty loader."""
        iterator = self(plain=True)
        try:
            with isolated(self.source.session if self.source.spec.sliced else None, _ignore):
                return next(iterator)
        except StopIteration:
            raise TargetError(
                f"{self.name} yielded no batch",
                where=self.where,
                hint="check its data set (is drop_last set for a small one?), or use -i",
            ) from None
        finally:
            iterator.close()  # type: ignore[attr-defined]

    @property
    def prepared_batches(self) -> int:
        """The number of batches that worker processes prepare while none is read; 0 without workers."""
        batches = self.batches.current if isinstance(self.batches, _LazyLoader) else self.batches()
        return batches.num_workers * (batches.prefetch_factor or 0) if isinstance(batches, DataLoader) else 0

    def configured(self, *, workers: int | None, pinned: bool) -> Loader:
        """This loader with `workers` processes (None: unchanged) that persist, and with pinned memory if `pinned`.

        Raises TargetError if it is not a DataLoader.
        """
        batches = self.batches()
        if not isinstance(batches, DataLoader):
            raise TargetError(
                f"{self.name} is {type_with_article(batches)}, not a DataLoader",
                where=self.where,
                hint="leave loader_workers and pin_memory out",
            )
        return replace(self, batches=_constant(_rebuilt(batches, workers, pinned)))


def _rebuilt(loader: DataLoader[Any], workers: int | None, pinned: bool) -> DataLoader[Any]:
    """A DataLoader with the same data and order. The number of workers of an existing one cannot be changed."""
    count = loader.num_workers if workers is None else workers
    order: dict[str, Any] = {"batch_sampler": loader.batch_sampler}
    if loader.batch_sampler is None or isinstance(loader.dataset, IterableDataset):
        order = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
        if not isinstance(loader.dataset, IterableDataset):
            order["sampler"] = loader.sampler
    return DataLoader(
        loader.dataset,
        **order,
        num_workers=count,
        collate_fn=loader.collate_fn,
        pin_memory=pinned or loader.pin_memory,
        timeout=loader.timeout if count else 0,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context if count else None,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor if count else None,
        persistent_workers=count > 0,
    )


@contextlib.contextmanager
def _single_process(batches: Iterable[Any]) -> Iterator[None]:
    """Iterate over a DataLoader in this process inside the block: one batch needs no workers and no CUDA context."""
    if not isinstance(batches, DataLoader):
        yield
        return
    saved = batches.num_workers, batches.pin_memory, batches.timeout
    batches.num_workers, batches.pin_memory, batches.timeout = 0, False, 0  # a timeout needs workers
    try:
        yield
    finally:
        batches.num_workers, batches.pin_memory, batches.timeout = saved


def find_loader(source: Source, forward: Forward, lines: Mapping[str, int]) -> Loader | None:
    """The data loader of the target's file: the first of `NAMES` that is an iterable or a function without arguments."""
    for name in NAMES:
        value = source.names.get(name)
        if value is None or attribute_of(value, "dataset", Placeholder) is not None:
            continue  # a loader of a data set that was not loaded
        where = source.at(lines.get(name))
        if isinstance(value, Iterator):
            raise TargetError(
                f"{name} is an iterator, which can be read only once",
                where=where,
                hint=f"define a function {NAMES[1]}() that creates it",
            )
        if isinstance(value, Iterable):
            return Loader(source=source, name=name, where=where, forward=forward, batches=_constant(value))
        if callable(value) and missing_arguments(value, {}):
            continue  # a function of the training script that needs arguments
        if callable(value):
            return Loader(
                source=source, name=f"{name}()", where=where, forward=forward, batches=_LazyLoader(value, name, where)
            )
        raise TargetError(
            f"{name} is {type_with_article(value)}",
            where=where,
            hint="define it as an iterable of batches, or as a function that returns one",
        )
    return None


def _constant(value: Iterable[Any]) -> Callable[[], Iterable[Any]]:
    return lambda: value


class _LazyLoader:
    """The loader that the user's function creates on first use; created again only if it can be read only once."""

    def __init__(self, function: Callable[[], Any], name: str, where: str) -> None:
        self._function, self._name, self._where = function, name, where
        self.current: Iterable[Any] | None = None

    def __call__(self) -> Iterable[Any]:
        if self.current is None or isinstance(self.current, Iterator):
            loader = self._function()
            if not isinstance(loader, Iterable):
                raise TargetError(
                    f"{self._name}() returned {type_with_article(loader)}",
                    where=self._where,
                    hint="return an iterable of batches",
                )
            self.current = loader
        return self.current

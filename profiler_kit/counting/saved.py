"""What autograd keeps for backward: distinct storages, who saved them, who made them."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from profiler_kit.counting.operands import spec_of
from profiler_kit.counting.watch import ModuleWatch
from profiler_kit.records.counts import SavedTensor, TensorSpec


class SavedStorages:
    """Collects the storages that pass by when autograd saves a tensor.

    `excluded` tensors (parameters, buffers, inputs, labels) exist anyway and are not counted. A storage is held whole
    even where only a view of it was saved. Tensors that a user's own saved-tensor hooks replace are theirs and not seen.
    """

    def __init__(self, watch: ModuleWatch) -> None:
        self._watch = watch
        self._excluded: set[int] = set()
        self._kept_alive: list[torch.UntypedStorage] = []
        self._entries: dict[int, tuple[str, dict[str, None], TensorSpec]] = {}
        self.collecting = True

    def exclude(self, tensors: Iterable[torch.Tensor]) -> None:
        """From here on, these tensors' storages are not counted."""
        for tensor in tensors:
            if tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                self._kept_alive.append(storage)  # so that no other storage gets its address as key
                self._excluded.add(storage._cdata)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Notes the storage of a tensor that is being saved; the tensor itself is what is saved."""
        if not self.collecting or tensor.layout is not torch.strided:
            return tensor
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._excluded:
            return tensor
        saver = self._watch.current
        entry = self._entries.get(key)
        if entry is None:
            self._kept_alive.append(storage)
            made_by = tensor.grad_fn
            creator = saver if made_by is None else self._watch.of_node(made_by)
            whole = spec_of(tensor)
            whole = TensorSpec(shape=whole.shape, dtype=whole.dtype, nbytes=storage.nbytes())
            self._entries[key] = (creator, {saver: None}, whole)
        else:
            entry[1].setdefault(saver)
        return tensor

    def take(self) -> tuple[SavedTensor, ...]:
        """What was saved, in the order it was; the storages are let go."""
        self.collecting = False
        self._kept_alive.clear()
        return tuple(
            SavedTensor(created_in=creator, saved_in=next(iter(holders)), held_in=tuple(holders), tensor=spec)
            for creator, holders, spec in self._entries.values()
        )

"""The step that is counted: forward, loss and backward once, watched op by op."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from profiler_kit.counting.conventions import Convention
from profiler_kit.counting.memo import Memo
from profiler_kit.counting.operands import spec_of
from profiler_kit.counting.tracer import Tracer
from profiler_kit.counting.watch import ModuleCall, ModuleWatch, output_tensors
from profiler_kit.loading import Target
from profiler_kit.loading.kinds import telling
from profiler_kit.loading.ownership import parameter_owners
from profiler_kit.records.counts import LOSS_PATH, OpRecord, SavedTensor, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """What one step did: its ops in order, its module calls, and the storages kept for backward."""

    ops: tuple[OpRecord, ...]
    calls: tuple[ModuleCall, ...]
    saved: tuple[SavedTensor, ...]


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


def trace_step(
    target: Target, memo: Memo | None = None, convention: Convention | None = None, *, watch_saved: bool = True
) -> StepTrace:
    """Runs `target`'s step once (in ``infer`` mode its forward) and returns what happened; `memo` makes it faster.

    `convention` says what the ops cost (None: the kit's). Without `watch_saved` nothing is known of what is kept for backward:
    torch.func's derivatives refuse to run beside hooks.

    Raises: StepError around what the model's forward or its backward raised; TargetError from its loss and labels.
    """
    batch = target.batch
    training = target.info.mode == "train"
    watch = ModuleWatch(target.paths(), parameter_owners(target.model))
    tracer = Tracer(watch, memo, convention)
    saved = SavedStorages(watch)
    if training:
        saved.exclude([*target.model.parameters(), *target.model.buffers()])
        saved.exclude(output_tensors([batch.args, batch.kwargs, batch.labels]))

    with telling("forward"), ExitStack() as forward:
        forward.enter_context(torch.set_grad_enabled(training))
        forward.enter_context(watch.watching())
        forward.enter_context(target.autocast())
        if training and watch_saved:
            forward.enter_context(torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor))
        forward.enter_context(tracer)
        if convention is not None and convention.watching is not None:
            forward.enter_context(convention.watching(tracer.note))
        output = target.model(*batch.args, **batch.kwargs)
    if not training:
        return StepTrace(ops=_settled(tracer, convention, training), calls=tuple(watch.calls), saved=())

    labels = target.labels_for(output)
    saved.exclude(output_tensors(labels))
    watch.stand_in(LOSS_PATH)
    tracer.set_phase("loss")
    with ExitStack() as loss_phase:
        loss_phase.enter_context(torch.enable_grad())
        loss_phase.enter_context(watch.watching())
        loss_phase.enter_context(target.autocast())
        if watch_saved:
            loss_phase.enter_context(torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor))
        loss_phase.enter_context(tracer)
        loss = target.loss(output, batch, labels)
    kept = saved.take()

    tracer.set_phase("backward")
    if loss.requires_grad:
        with telling("backward"), watch.watching(), tracer:
            loss.backward()
    return StepTrace(ops=_settled(tracer, convention, training), calls=tuple(watch.calls), saved=kept)


def _settled(tracer: Tracer, convention: Convention | None, training: bool) -> tuple[OpRecord, ...]:
    ops = tracer.records()
    return ops if convention is None else tuple(convention.settled(ops, training))

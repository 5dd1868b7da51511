"""Run one step (forward, loss, backward) and record its ops, module calls and saved tensors."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch

from profiler_kit.counting.conventions import Convention
from profiler_kit.counting.module_calls import ModuleCall, ModuleWatch, output_tensors
from profiler_kit.counting.operands import OpFacts, spec_of
from profiler_kit.counting.tracer import Tracer
from profiler_kit.loading import Target
from profiler_kit.loading.op_memo import Memo
from profiler_kit.loading.ownership import parameter_owners
from profiler_kit.loading.tensor_kinds import as_step_errors
from profiler_kit.records.counts import LOSS_PATH, OpRecord, SavedTensor, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """Records of one step: its ops in order, its module calls, and the storages saved for backward."""

    ops: tuple[OpRecord, ...]
    calls: tuple[ModuleCall, ...]
    saved: tuple[SavedTensor, ...]


class SavedStorages:
    """Collect the storages of tensors that autograd saves for backward.

    Counts: each distinct storage once, in full, even if autograd saves only a view of it. Not counted: excluded tensors
    (parameters, buffers, inputs, labels), which exist anyway, and tensors that a user's own saved-tensor hooks replace.
    """

    def __init__(self, watch: ModuleWatch) -> None:
        self._watch = watch
        self._excluded: set[int] = set()
        self._live_storages: list[torch.UntypedStorage] = []
        self._entries: dict[int, tuple[str, dict[str, None], TensorSpec]] = {}
        self.collecting = True

    def exclude(self, tensors: Iterable[torch.Tensor]) -> None:
        """Do not count the storages of `tensors` from now on."""
        for tensor in tensors:
            if tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                self._live_storages.append(storage)  # keeps its address, the key, from being reused
                self._excluded.add(storage._cdata)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Record the storage of a tensor that autograd saves; return the tensor unchanged."""
        if not self.collecting or tensor.layout is not torch.strided:
            return tensor
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._excluded:
            return tensor
        saver = self._watch.current
        entry = self._entries.get(key)
        if entry is None:
            self._live_storages.append(storage)
            node = tensor.grad_fn
            creator = saver if node is None else self._watch.of_node(node)
            spec = replace(spec_of(tensor), nbytes=storage.nbytes())
            self._entries[key] = (creator, {saver: None}, spec)
        else:
            entry[1].setdefault(saver)
        return tensor

    def finish(self) -> tuple[SavedTensor, ...]:
        """Stop collecting and release the storages; return the saved tensors in the order of saving."""
        self.collecting = False
        self._live_storages.clear()
        return tuple(
            SavedTensor(created_in=creator, saved_in=next(iter(holders)), held_in=tuple(holders), tensor=spec)
            for creator, holders, spec in self._entries.values()
        )


def trace_step(
    target: Target, memo: Memo[OpFacts] | None = None, convention: Convention | None = None, *, watch_saved: bool = True
) -> StepTrace:
    """Run `target`'s step once (in ``infer`` mode its forward pass) and return the records. `memo` makes this faster.

    `convention` defines the cost of an op (None: ``kit``). With `watch_saved` false no saved tensors are recorded, since
    torch.func derivatives do not run with saved-tensor hooks.

    Raises: StepError around an exception of the model's forward or backward; TargetError for its loss and labels.
    """
    batch = target.batch
    training = target.info.mode == "train"
    watch = ModuleWatch(target.paths(), parameter_owners(target.model))
    tracer = Tracer(watch, memo, convention)
    saved = SavedStorages(watch)
    if training:
        saved.exclude([*target.model.parameters(), *target.model.buffers()])
        saved.exclude(output_tensors([batch.args, batch.kwargs, batch.labels]))

    with as_step_errors("forward"), ExitStack() as forward:
        forward.enter_context(torch.set_grad_enabled(training))
        forward.enter_context(watch.watching())
        forward.enter_context(target.autocast())
        if training and watch_saved:
            forward.enter_context(torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor))
        forward.enter_context(tracer)
        if convention is not None and convention.function_recorder is not None:
            forward.enter_context(convention.function_recorder(tracer.note))
        output = target.model(*batch.args, **batch.kwargs)
    if not training:
        return StepTrace(ops=_adjusted_ops(tracer, convention, training), calls=tuple(watch.calls), saved=())

    labels = target.labels_for(output)
    saved.exclude(output_tensors(labels))
    watch.set_base(LOSS_PATH)
    tracer.set_phase("loss")
    with ExitStack() as loss_phase:
        loss_phase.enter_context(torch.enable_grad())
        loss_phase.enter_context(watch.watching())
        loss_phase.enter_context(target.autocast())
        if watch_saved:
            loss_phase.enter_context(torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor))
        loss_phase.enter_context(tracer)
        loss = target.loss(output, batch, labels)
    saved_tensors = saved.finish()

    tracer.set_phase("backward")
    if loss.requires_grad:
        with as_step_errors("backward"), watch.watching(), tracer:
            loss.backward()
    return StepTrace(ops=_adjusted_ops(tracer, convention, training), calls=tuple(watch.calls), saved=saved_tensors)


def _adjusted_ops(tracer: Tracer, convention: Convention | None, training: bool) -> tuple[OpRecord, ...]:
    ops = tracer.records()
    return ops if convention is None else tuple(convention.adjusted(ops, training))

"""Run one step (forward, loss, backward) and record its ops, module calls and saved tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from profiler_kit.counting.conventions import Convention
from profiler_kit.counting.device_kernels import LibraryOps, attention_uses
from profiler_kit.counting.module_calls import ModuleCall, ModuleWatch, output_tensors
from profiler_kit.counting.operands import OpFacts, spec_of
from profiler_kit.counting.tracer import Tracer
from profiler_kit.devices.device import Device
from profiler_kit.loading import Target
from profiler_kit.loading.inputs import DTYPES
from profiler_kit.loading.tensor_kinds import as_step_errors
from profiler_kit.meta.emulation import Emulation, emulated
from profiler_kit.meta.emulation.library_calls import Libraries
from profiler_kit.meta.meta_kernels import stored_tensor
from profiler_kit.meta.op_memo import Memo
from profiler_kit.meta.ownership import parameter_owners
from profiler_kit.records.counts import LOSS_PATH, AttentionUse, OpRecord, SavedTensor, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """Records of one step: its ops in order, its module calls, and the storages saved for backward.

    `kernels_of`: the device whose kernels the ops are; None for those of the tensors' own device. `attention`: the kernels
    of attention. `autocast`: the type to which forward and loss autocast. `notes`: limits of the emulation.
    """

    ops: tuple[OpRecord, ...]
    calls: tuple[ModuleCall, ...]
    saved: tuple[SavedTensor, ...]
    kernels_of: Device | None = None
    attention: tuple[AttentionUse, ...] = ()
    autocast: str | None = None
    notes: tuple[str, ...] = ()


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
        for stored in map(stored_tensor, tensors):
            if stored is not None:
                storage = stored.untyped_storage()
                self._live_storages.append(storage)  # keeps its address, the key, from being reused
                self._excluded.add(storage._cdata)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Record the storage of a tensor that autograd saves; return the tensor unchanged."""
        stored = stored_tensor(tensor)
        if not self.collecting or stored is None:
            return tensor
        storage = stored.untyped_storage()
        key = storage._cdata
        if key in self._excluded:
            return tensor
        saver = self._watch.current
        entry = self._entries.get(key)
        if entry is None:
            self._live_storages.append(storage)
            node = tensor.grad_fn
            creator = saver if node is None else self._watch.of_node(node)
            spec = replace(spec_of(stored), nbytes=storage.nbytes())
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceContexts:
    """The contexts in which a step runs as on a device. `emulation` is None on the tensors' own device."""

    target: Target
    emulation: Emulation | None

    def kernels(self) -> AbstractContextManager[Any]:
        """Inside the block, torch functions run the device's kernels."""
        return ExitStack() if self.emulation is None else self.emulation

    def autocast(self) -> AbstractContextManager[Any]:
        """Autocast of forward and loss, with ``--amp``."""
        if self.emulation is None:
            return self.target.autocast()
        amp = self.target.spec.amp
        return self.emulation.autocast(None if amp is None else DTYPES[amp])

    def autocast_dtype(self) -> str | None:
        """The type to which forward and loss autocast; None without autocast, as on meta tensors of the CPU."""
        emulation = self.emulation
        ignored = self.target.device.type == "meta" and (emulation is None or not emulation.device.is_cuda)
        return None if ignored else self.target.spec.amp

    def end_forward(self) -> None:
        """Drop autocast's copies of weights, as at the end of its context."""
        if self.emulation is not None:
            self.emulation.weights.clear()


@contextmanager
def device_contexts(
    target: Target, device: Device | None, libraries: Libraries, notes: list[str]
) -> Iterator[DeviceContexts]:
    """The contexts for `target` on `device`. Only meta tensors are emulated; `notes` receives the limits."""
    if device is None or target.device.type != "meta":
        yield DeviceContexts(target=target, emulation=None)
        return
    with emulated(device, libraries, notes.append) as emulation:
        yield DeviceContexts(target=target, emulation=emulation)


def trace_step(
    target: Target,
    memo: Memo[OpFacts] | None = None,
    convention: Convention | None = None,
    *,
    device: Device | None = None,
    watch_saved: bool = True,
) -> StepTrace:
    """Run `target`'s step once (in ``infer`` mode its forward pass) and return the records. `memo` makes this faster.

    `convention` defines the cost of an op (None: ``kit``). Meta tensors run the kernels of `device`, or without one torch's
    decompositions. With `watch_saved` false no saved tensors are recorded, since torch.func derivatives do not run with
    saved-tensor hooks.

    Raises: StepError around an exception of the model's forward or backward; TargetError for its loss and labels.
    """
    watch = ModuleWatch(target.paths(), parameter_owners(target.model))
    tracer = Tracer(watch, memo, convention)
    notes: list[str] = []
    with device_contexts(target, device, LibraryOps(tracer), notes) as contexts:
        saved = _run_step(target, tracer, watch, contexts, convention, watch_saved=watch_saved)
    training = target.info.mode == "train"
    ops = tracer.records()
    emulation = contexts.emulation
    return StepTrace(
        ops=ops if convention is None else tuple(convention.adjusted(ops, training)),
        calls=tuple(watch.calls),
        saved=saved,
        kernels_of=None if emulation is None else device,
        attention=attention_uses(ops, {} if emulation is None else emulation.decomposed_attention),
        autocast=contexts.autocast_dtype(),
        notes=tuple(dict.fromkeys(notes)),
    )


def _run_step(
    target: Target,
    tracer: Tracer,
    watch: ModuleWatch,
    contexts: DeviceContexts,
    convention: Convention | None,
    *,
    watch_saved: bool,
) -> tuple[SavedTensor, ...]:
    """Run the step; return the storages saved for backward."""
    batch = target.batch
    training = target.info.mode == "train"
    saved = SavedStorages(watch)
    if training:
        saved.exclude([*target.model.parameters(), *target.model.buffers()])
        saved.exclude(output_tensors([batch.args, batch.kwargs, batch.labels]))

    with as_step_errors("forward"), ExitStack() as forward:
        forward.enter_context(torch.set_grad_enabled(training))
        forward.enter_context(watch.watching())
        forward.enter_context(contexts.autocast())
        if training and watch_saved:
            forward.enter_context(torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor))
        forward.enter_context(contexts.kernels())
        forward.enter_context(tracer)
        if convention is not None and convention.function_recorder is not None:
            forward.enter_context(convention.function_recorder(tracer.note))
        output = target.model(*batch.args, **batch.kwargs)
    if not training:
        return ()

    labels = target.labels_for(output)
    saved.exclude(output_tensors(labels))
    watch.set_base(LOSS_PATH)
    tracer.set_phase("loss")
    with as_step_errors("loss"), ExitStack() as loss_phase:
        loss_phase.enter_context(torch.enable_grad())
        loss_phase.enter_context(watch.watching())
        loss_phase.enter_context(contexts.autocast())
        if watch_saved:
            loss_phase.enter_context(torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor))
        loss_phase.enter_context(contexts.kernels())
        loss_phase.enter_context(tracer)
        loss = target.loss(output, batch, labels)
    contexts.end_forward()
    saved_tensors = saved.finish()

    tracer.set_phase("backward")
    if loss.requires_grad:
        with as_step_errors("backward"), watch.watching(), contexts.kernels(), tracer:
            loss.backward()
    return saved_tensors

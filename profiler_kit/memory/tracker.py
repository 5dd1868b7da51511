"""A dispatch mode that logs allocations and frees of storages during a step, from the results of every op.

A storage is allocated when an op returns it, and freed when its last reference goes away. So views, in-place ops, reference
counts and autograd's releases need no rules. The log holds no references to tensors.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from profiler_kit.devices.device import Architecture, Device, Figure
from profiler_kit.memory.gradient_sums import exclusive_counts, in_place_variant
from profiler_kit.memory.log import Category, Lifetime, MemoryLog, WorkspaceUse
from profiler_kit.memory.workspace import LibraryConfig, exactly, ruled_ops, workspace_of
from profiler_kit.meta.call_signatures import call_signature, op_name
from profiler_kit.meta.emulation.library_calls import facts_of
from profiler_kit.meta.flex_attention import UndecomposedFlexAttention
from profiler_kit.meta.meta_kernels import replacement_kernel, stored_tensor
from profiler_kit.meta.op_memo import Memo, memo_for_modes
from profiler_kit.meta.ownership import ModuleTracker
from profiler_kit.records.calls import OpCall, StepCall
from profiler_kit.records.counts import Phase
from profiler_kit.user_code.locations import display_path, user_frame

_WITH_BIAS: Final = frozenset(("aten.addmm", "aten._addmm_activation"))
_PRODUCTS: Final = _WITH_BIAS | {f"aten.{name}" for name in ("mm", "bmm", "baddbmm", "addmv", "mv", "dot")}
# Without cuDNN a convolution is an unfold and a matrix product (ATen/native/cuda/ConvolutionMM2d.cu). On an H100 it
# allocated the workspaces of both threads.
_CONVOLUTIONS: Final = frozenset(("aten.convolution", "aten.convolution_backward"))


class _StorageRef(weakref.ref[torch.UntypedStorage]):
    """A weak reference to a storage, with its lifetime; all references share one callback."""

    __slots__ = ("key", "lifetime")
    key: int
    lifetime: Lifetime


class _Plan(NamedTuple):
    """How to log calls of an op: its name, whether it has temporary workspace, uses a cuBLAS handle, only makes views.

    The reference to the op keeps its id, the key of the plan, from being reused.
    """

    name: str
    has_workspace: bool
    uses_blas: bool
    is_view: bool
    op: Any


class Tracker(UndecomposedFlexAttention):
    """Log allocations, resizes and frees of storages on one device type, and the workspace of libraries.

    Ops that autograd runs in place without a dispatch mode run in place (see `gradient_sums`).
    """

    def __init__(
        self,
        ownership: ModuleTracker,
        device: Device,
        config: LibraryConfig | None = None,
        device_type: str = "meta",
        watched: frozenset[str] = frozenset(),
        *,
        records_calls: bool = False,
    ) -> None:
        super().__init__()
        exclusive_counts()  # measured before the mode is active
        self._ownership = ownership
        self._device_type = device_type
        self._is_meta = device_type == "meta"
        self._device = device
        self._config = config or LibraryConfig()
        self._watched = watched
        self._records_calls = records_calls
        self._memo: Memo[None] = memo_for_modes(_get_current_dispatch_mode_stack())
        self._live: dict[int, Lifetime] = {}
        self._plans: dict[int, _Plan] = {}  # by id, since torch hashes ops in Python
        self._handles: set[str] = set()
        self._ignored_layouts: set[str] = set()
        self._is_finished = False
        self.log = MemoryLog()
        self.phase: Phase = "other"

    def enter_phase(self, phase: Phase, path: str) -> None:
        """Start `phase`; attribute ops outside any module to `path`."""
        self.phase = phase
        self._ownership.set_base(path)

    def label(self, tensors: Iterable[Tensor], category: Category) -> None:
        """Set the category of `tensors`, also for the time before this call. An existing category stays."""
        for tensor in tensors:
            lifetime = self._lifetime(tensor, category)
            if lifetime is not None and lifetime.category is None:
                lifetime.category = category

    def add_parameters(self, nbytes: int) -> None:
        """Log weights that are no tensors, such as packed objects, for the whole simulation."""
        if nbytes:
            self.log.events.append((nbytes, Lifetime(nbytes, "other", "", "", "parameters")))

    def mark_results(self, tensors: Iterable[Tensor]) -> None:
        """Mark `tensors` as held by the training loop."""
        for tensor in tensors:
            lifetime = self._lifetime(tensor, "")
            if lifetime is not None:
                lifetime.is_result = True

    def pack(self, tensor: Tensor) -> Tensor:
        """Record that autograd saves `tensor` for the running module; return the tensor unchanged."""
        if self.phase in ("forward", "loss"):
            lifetime = self._lifetime(tensor, "")
            if lifetime is not None:
                if lifetime.savers is None:
                    lifetime.savers = []
                lifetime.savers.append(self._ownership.current)
        return tensor

    def mark_unattributed_saved(self) -> None:
        """Mark the other live storages of forward as saved for backward: a checkpoint or the model keeps them."""
        for lifetime in self._live.values():
            if lifetime.savers is None and lifetime.phase in ("forward", "loss") and not lifetime.is_result:
                lifetime.savers = []

    def use_workspace(self, call: OpCall, arguments: str = "") -> None:
        """Log `call`, and its temporary workspace. `arguments`: as `meta.call_signatures` writes them."""
        if self._records_calls:
            self.log.calls.append(StepCall(call, self._current_phase(), self._owner()))
        workspace = workspace_of(call, self._device, self._config)
        if workspace.high > 0 or call.op in self._watched:
            position, phase, owner = len(self.log.events), self._current_phase(), self._owner()
            self.log.uses.append(WorkspaceUse(position, workspace, phase, owner, call.op, None, arguments))

    def use_handle(self, handle: str, figure: Figure, op: str) -> None:
        """Log the persistent workspace of `handle` at its first use on the current thread."""
        name = f"{handle}, {'backward' if self.in_backward else 'main'} thread"
        if name in self._handles or figure.value <= 0:
            return
        self._handles.add(name)
        workspace = exactly(figure.value, figure.source)
        position, phase, owner = len(self.log.events), self._current_phase(), self._owner()
        self.log.uses.append(WorkspaceUse(position, workspace, phase, owner, op, name))

    def finish(self) -> MemoryLog:
        """Close the log and return it. Later frees belong to the end of the simulation and are not logged."""
        self._is_finished = True
        return self.log

    @property
    def in_backward(self) -> bool:
        """Whether autograd runs. It uses another thread, with its own library handles."""
        return self.phase == "backward"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if types and any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # the subclass calls ops on the tensors it wraps, and those reach this mode
        if kwargs is None:
            kwargs = {}
        if self.phase == "backward":
            func = in_place_variant(func, args, kwargs) or func
        with torch._C.DisableTorchFunction():  # a function mode would see every access to a tensor's attributes
            out = self._run(func, args, kwargs)
            plan = self._plans.get(id(func)) or self._plan(func)
            if isinstance(out, Tensor):
                self._lifetime(out, plan.name)
            elif type(out) in (tuple, list):
                for tensor in out:
                    if isinstance(tensor, Tensor):
                        self._lifetime(tensor, plan.name)
            if plan.has_workspace:
                arguments = call_signature(args, kwargs) if self._watched else ""
                self.use_workspace(_op_call(plan.name, args, kwargs, out, in_backward=self.in_backward), arguments)
            elif self._records_calls:
                call = _op_call(plan.name, args, kwargs, out, in_backward=self.in_backward)
                self.log.calls.append(StepCall(call, self._current_phase(), self._owner(), plan.is_view))
            if plan.uses_blas:
                for handle, size in _blas_handles(
                    plan.name, self._device.architecture, bias_is_vector=args[0].dim() == 1
                ):
                    self.use_handle(handle, size, plan.name)
            return out

    def _run(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """The result of a call; of a repeated call from the memo, without running it."""
        if type(func) is OpOverload:
            return self._memo.call(func, args, kwargs, None, replacement_kernel)
        return func(*args, **kwargs)

    def _plan(self, func: Any) -> _Plan:
        name = f"higher_order.{func.name()}" if isinstance(func, HigherOrderOperator) else op_name(func)
        is_cuda = self._device.is_cuda
        has_workspace = name in ruled_ops() or name in self._watched
        plan = _Plan(name, is_cuda and has_workspace, is_cuda and self._uses_blas(name), _is_view(func), func)
        self._plans[id(func)] = plan
        return plan

    def _uses_blas(self, op: str) -> bool:
        """Whether cuBLAS computes `op`: a matrix product, or a convolution without cuDNN."""
        return op in _PRODUCTS or (op in _CONVOLUTIONS and not self._config.cudnn)

    def _lifetime(self, tensor: Tensor, op: str) -> Lifetime | None:
        """The lifetime of `tensor`'s storage, logged if it is new or resized; None for tensors that are not simulated."""
        if not (tensor.is_meta if self._is_meta else tensor.device.type == self._device_type):
            return None
        stored = stored_tensor(tensor)
        if stored is None:
            self._note_ignored(str(tensor.layout).rpartition(".")[2])
            return None
        storage = stored.untyped_storage()
        key = storage._cdata
        nbytes = storage.nbytes()
        lifetime = self._live.get(key)
        if lifetime is None:
            if nbytes == 0:
                return None
            lifetime = Lifetime(nbytes, self._current_phase(), self._owner(), op)
            storage_ref = _StorageRef(storage, self._on_free)
            storage_ref.key, storage_ref.lifetime = key, lifetime
            lifetime.storage_ref = storage_ref
            self._live[key] = lifetime
            self.log.events.append((nbytes, lifetime))
        elif nbytes != lifetime.nbytes:  # resized
            self.log.events.append((-lifetime.nbytes, lifetime))
            lifetime.nbytes = nbytes
            self.log.events.append((nbytes, lifetime))
        return lifetime

    def _note_ignored(self, layout: str) -> None:
        if layout not in self._ignored_layouts:
            self._ignored_layouts.add(layout)
            owner = self._owner() or "the root module"
            line = user_frame(sys._getframe()) if self.phase == "forward" else None
            location = f", {display_path(line[0])}:{line[1]}" if line is not None else ""
            phase = self._current_phase()
            self.log.note(f"memory of {layout} tensors is not simulated; first in {phase} of {owner}{location}")

    def _on_free(self, storage_ref: weakref.ref[torch.UntypedStorage]) -> None:
        assert isinstance(storage_ref, _StorageRef)
        lifetime = storage_ref.lifetime
        if self._is_finished:
            return
        if self._live.get(storage_ref.key) is lifetime:
            del self._live[storage_ref.key]
        self.log.events.append((-lifetime.nbytes, lifetime))

    def _current_phase(self) -> Phase:
        return "recompute" if self.phase == "backward" and self._ownership.stack else self.phase

    def _owner(self) -> str:
        if self.phase == "backward" and not self._ownership.stack:
            node: Any = torch._C._current_autograd_node()
            if node is not None:
                return self._ownership.of_node(node)
        return self._ownership.current


def _is_view(func: Any) -> bool:
    """Whether every result of `func` is a view of an argument that it does not write."""
    returns = func._schema.returns if isinstance(func, OpOverload) else ()
    aliases = [value.alias_info for value in returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


def _blas_handles(op: str, architecture: Architecture, *, bias_is_vector: bool) -> tuple[tuple[str, Figure], ...]:
    """(library, bytes of its workspace) for each library handle that `op` uses.

    Each handle has one workspace, and each thread has one handle. A product with a bias per column uses cuBLASLt as well.
    """
    if op in _WITH_BIAS and bias_is_vector:
        return ("cuBLAS", architecture.blas_workspace), ("cuBLASLt", architecture.blaslt_workspace)
    return (("cuBLAS", architecture.blas_workspace),)


def _op_call(op: str, args: Any, kwargs: Mapping[str, Any], out: Any, *, in_backward: bool) -> OpCall:
    """A call of `op` with the result `out`, in the form that workspace rules use: facts instead of tensors."""
    outputs = out if isinstance(out, (tuple, list)) else (out,)
    return OpCall(
        op, facts_of(args), {key: facts_of(value) for key, value in kwargs.items()}, facts_of(outputs), in_backward
    )

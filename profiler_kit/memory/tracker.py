"""Births and deaths of storages while a step runs: a dispatch mode that looks at what every op returns.

Views, in-place ops, reference counts and autograd's own releases need no rules: a storage is born when an op returns it
and dead when its last owner lets it go. Nothing that is logged keeps a tensor alive.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator

from profiler_kit.devices.device import Architecture, Device, Figure
from profiler_kit.loading.flex import WholeFlexAttention
from profiler_kit.loading.ownership import Ownership
from profiler_kit.loading.place import shown, user_frame
from profiler_kit.loading.signature import op_name, signature
from profiler_kit.loading.stand_ins import stand_in
from profiler_kit.memory.fan_in import ADD_IN_PLACE, adds_in_place, exclusive_counts
from profiler_kit.memory.log import Category, Life, Log, Use
from profiler_kit.memory.scratch import LibraryConfig, OpCall, TensorFacts, exactly, ruled_ops, scratch_of
from profiler_kit.records.counts import Phase

_WITH_BIAS: Final = frozenset(("aten.addmm", "aten._addmm_activation"))
_PRODUCTS: Final = _WITH_BIAS | {f"aten.{name}" for name in ("mm", "bmm", "baddbmm", "addmv", "mv", "dot")}
# Without cuDNN a convolution is unfolded, and what is unfolded multiplied (ATen/native/cuda/ConvolutionMM2d.cu): seen on
# an H100 to take both threads' workspaces.
_CONVOLUTIONS: Final = frozenset(("aten.convolution", "aten.convolution_backward"))


class _Watcher(weakref.ref[torch.UntypedStorage]):
    """A weak reference that knows whose life it watches; one callback serves all."""

    __slots__ = ("key", "life")
    key: int
    life: Life


class _Plan(NamedTuple):
    """What is known of an op: its name, whether its uses are logged, whether a workspace belongs to it, and itself.

    Holding the op keeps its id its own.
    """

    name: str
    is_used: bool
    is_product: bool
    op: Any


class Tracker(WholeFlexAttention):
    """Logs when storages on one kind of device are born, grow and die, and what libraries take behind the ops.

    The engine's sums of gradients are made in place, as they are without a mode (see `fan_in`).
    """

    def __init__(
        self,
        ownership: Ownership,
        device: Device,
        config: LibraryConfig | None = None,
        device_type: str = "meta",
        watched: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        exclusive_counts()  # measured now, since not while a mode is active
        self._ownership = ownership
        self._device_type = device_type
        self._device = device
        self._config = config or LibraryConfig()
        self._watched = watched
        self._alive: dict[int, Life] = {}
        self._plans: dict[int, _Plan] = {}  # by id, since torch hashes ops in Python
        self._kept: set[str] = set()
        self._layouts: set[str] = set()  # of tensors that are left out
        self._is_over = False
        self.log = Log()
        self.phase: Phase = "other"

    def enter_phase(self, phase: Phase, path: str) -> None:
        """From here on it is `phase`, and what runs outside any module belongs to `path`."""
        self.phase = phase
        self._ownership.stand_in(path)

    def label(self, tensors: Iterable[Tensor], category: Category) -> None:
        """Says what `tensors` are for, from their birth on; what was labelled keeps its label."""
        for tensor in tensors:
            life = self._life(tensor, category)
            if life is not None and life.category is None:
                life.category = category

    def results(self, tensors: Iterable[Tensor]) -> None:
        """Says that the loop itself holds `tensors`."""
        for tensor in tensors:
            life = self._life(tensor, "")
            if life is not None:
                life.is_result = True

    def pack(self, tensor: Tensor) -> Tensor:
        """Notes that autograd keeps `tensor`, and for whom; the tensor itself is what is kept."""
        if self.phase in ("forward", "loss"):
            life = self._life(tensor, "")
            if life is not None:
                if life.savers is None:
                    life.savers = []
                life.savers.append(self._ownership.current)
        return tensor

    def settle_saved(self) -> None:
        """What is left of forward when backward begins is kept for it: by a checkpoint, if by no op, or by the model."""
        for life in self._alive.values():
            if life.savers is None and life.phase in ("forward", "loss") and not life.is_result:
                life.savers = []

    def use(self, call: OpCall, called_with: str = "") -> None:
        """Logs what libraries take behind `call`, which was `called_with` this."""
        scratch = scratch_of(call, self._device, self._config)
        if scratch.high > 0 or call.op in self._watched:
            place, phase, owner = len(self.log.events), self._phase_now(), self._owner()
            self.log.uses.append(Use(place, scratch, phase, owner, call.op, None, called_with))

    def keep(self, keeper: str, figure: Figure, op: str) -> None:
        """Logs what `keeper` takes at its first use on this thread, for good."""
        named = f"{keeper}, {'backward' if self.in_backward else 'main'} thread"
        if named in self._kept or figure.value <= 0:
            return
        self._kept.add(named)
        scratch = exactly(figure.value, figure.source)
        self.log.uses.append(Use(len(self.log.events), scratch, self._phase_now(), self._owner(), op, named))

    def finish(self) -> Log:
        """The log, to which nothing is added any more: what dies from here on dies with the loop itself."""
        self._is_over = True
        return self.log

    @property
    def in_backward(self) -> bool:
        """Whether autograd runs: it does so on a thread of its own, with library handles of its own."""
        return self.phase == "backward"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if types and any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # its ops on the tensors it wraps come here
        if kwargs is None:
            kwargs = {}
        if self.phase == "backward" and adds_in_place(func, args, kwargs):
            return ADD_IN_PLACE(*args)  # as the engine would have done
        out = (stand_in(func, args) or func)(*args, **kwargs)
        plan = self._plans.get(id(func)) or self._plan(func)
        if isinstance(out, Tensor):
            self._life(out, plan.name)
        elif type(out) in (tuple, list):
            for tensor in out:
                if isinstance(tensor, Tensor):
                    self._life(tensor, plan.name)
        if plan.is_used:
            called_with = signature(args, kwargs) if self._watched else ""
            self.use(_call_of(plan.name, args, kwargs, out, in_backward=self.in_backward), called_with)
        if plan.is_product:
            for library, size in _workspaces(plan.name, self._device.architecture, bias_is_vector=args[0].dim() == 1):
                self.keep(library, size, plan.name)
        return out

    def _plan(self, func: Any) -> _Plan:
        name = f"higher_order.{func.name()}" if isinstance(func, HigherOrderOperator) else op_name(func)
        simulated = self._device.is_cuda
        is_used = name in ruled_ops() or name in self._watched
        plan = _Plan(name, simulated and is_used, simulated and self._takes_workspace(name), func)
        self._plans[id(func)] = plan
        return plan

    def _takes_workspace(self, op: str) -> bool:
        """Whether `op` is a product that cuBLAS computes, or comes down to one without cuDNN."""
        return op in _PRODUCTS or (op in _CONVOLUTIONS and not self._config.cudnn)

    def _life(self, tensor: Tensor, op: str) -> Life | None:
        if tensor.device.type != self._device_type:
            return None
        if tensor.layout is not torch.strided:
            self._left_out(str(tensor.layout).rpartition(".")[2])
            return None
        storage = tensor.untyped_storage()
        key = storage._cdata
        nbytes = storage.nbytes()
        life = self._alive.get(key)
        if life is None:
            if nbytes == 0:
                return None
            life = Life(nbytes, self._phase_now(), self._owner(), op)
            watcher = _Watcher(storage, self._died)
            watcher.key, watcher.life = key, life
            life.watcher = watcher
            self._alive[key] = life
            self.log.events.append((nbytes, life))
        elif nbytes != life.nbytes:  # resized
            self.log.events.append((-life.nbytes, life))
            life.nbytes = nbytes
            self.log.events.append((nbytes, life))
        return life

    def _left_out(self, layout: str) -> None:
        if layout not in self._layouts:
            self._layouts.add(layout)
            owner = self._owner() or "the model itself"
            line = user_frame(sys._getframe()) if self.phase == "forward" else None
            at = f", {shown(line[0])}:{line[1]}" if line is not None else ""
            self.log.note(f"memory of {layout} tensors is left out, first seen in {self._phase_now()} of {owner}{at}")

    def _died(self, watcher: weakref.ref[torch.UntypedStorage]) -> None:
        assert isinstance(watcher, _Watcher)
        life = watcher.life
        if self._is_over:
            return
        if self._alive.get(watcher.key) is life:
            del self._alive[watcher.key]
        self.log.events.append((-life.nbytes, life))

    def _phase_now(self) -> Phase:
        return "recompute" if self.phase == "backward" and self._ownership.stack else self.phase

    def _owner(self) -> str:
        if self.phase == "backward" and not self._ownership.stack:
            node: Any = torch._C._current_autograd_node()
            if node is not None:
                return self._ownership.of_node(node)
        return self._ownership.current


def _workspaces(op: str, architecture: Architecture, *, bias_is_vector: bool) -> tuple[tuple[str, Figure], ...]:
    """(library, bytes) of what libraries take at a handle's first use and keep, for each handle that `op` uses.

    There is one workspace per handle, one handle per thread; a product with a bias per column goes to cuBLASLt as well.
    """
    if op in _WITH_BIAS and bias_is_vector:
        return ("cuBLAS", architecture.blas_workspace), ("cuBLASLt", architecture.blaslt_workspace)
    return (("cuBLAS", architecture.blas_workspace),)


def _call_of(op: str, args: Any, kwargs: Mapping[str, Any], out: Any, *, in_backward: bool) -> OpCall:
    """The call of the op called `op`, which returned `out`, as scratch rules read it: facts in place of tensors."""
    outputs = out if isinstance(out, (tuple, list)) else (out,)
    return OpCall(op, _facts(args), {key: _facts(value) for key, value in kwargs.items()}, _facts(outputs), in_backward)


def _facts(value: Any) -> Any:
    if isinstance(value, Tensor):
        dtype = value.dtype
        return TensorFacts(tuple(value.shape), value.stride(), _name_of_type(dtype), dtype.itemsize)
    if isinstance(value, (list, tuple)):
        return tuple([_facts(item) for item in value])
    return value


@cache
def _name_of_type(dtype: torch.dtype) -> str:
    return str(dtype).rpartition(".")[2]

"""Bytes a step holds, from the births and deaths of its storages: the real step is run twice, on tensors without data.

Views, in-place ops, reference counts and autograd's own releases need no rules: a storage is born when an op returns it
and dead when its last owner lets it go. Left out: rounding and fragmentation of a device's allocator, what libraries
take for themselves, and that the engine adds gradients in place where it can (any dispatch mode turns that off).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.counting.higher_order import open_flex_attention, restore_flex_attention
from profiler_kit.counting.memo import Memo
from profiler_kit.counting.operands import tensors_in
from profiler_kit.counting.restore import unchanged
from profiler_kit.counting.stand_ins import stand_in
from profiler_kit.counting.watch import ModuleWatch, output_tensors
from profiler_kit.records.counts import (
    LOSS_PATH,
    OPTIMIZER_PATH,
    MemoryCategories,
    MemoryEstimate,
    MemoryPoint,
    Phase,
)
from profiler_kit.target import Target
from profiler_kit.target.ownership import parameter_owners

Category = Literal["parameters", "gradients", "optimizer_state", "inputs", "saved_activations", "temporaries"]

# The first step makes the optimizer's state while it runs; from the second on, every step is alike.
STEPS = 2


def estimate_memory(target: Target, memo: Memo | None = None) -> MemoryEstimate:
    """The peak of a training step in its steady state, or of a forward pass in ``infer`` mode; `target` is left as it was.

    What `memo` knows from counting is not run again.

    Raises whatever the model or the optimizer raises.
    """
    watch = ModuleWatch(target.paths(), parameter_owners(target.model))
    lifetimes = Lifetimes(watch, target.device.type, memo)
    batch = target.batch
    inputs = output_tensors([batch.args, batch.kwargs, batch.labels])
    with unchanged(target.model, weights=True, inputs=inputs):
        lifetimes.label([*target.model.parameters(), *target.model.buffers()], "parameters")
        lifetimes.label(inputs, "inputs")
        if target.info.mode == "train":
            optimizer = target.make_optimizer()
            if target.device.type == "meta":
                _step_as_on_cuda(optimizer)
            for _ in range(STEPS):
                _training_step(target, optimizer, lifetimes, watch)
        else:
            _forward_pass(target, lifetimes, watch)
        return lifetimes.estimate()


def _step_as_on_cuda(optimizer: torch.optim.Optimizer) -> None:
    """Steps all parameters at once, as CUDA does by default; meta tensors would be stepped one by one, with less memory."""
    for group in optimizer.param_groups:
        if group.get("foreach", False) is None and not group.get("fused"):
            group["foreach"] = True


@contextmanager
def _observed(lifetimes: Lifetimes, watch: ModuleWatch) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(watch.watching())
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(lifetimes.pack, lambda tensor: tensor))
        stack.enter_context(lifetimes)
        yield


def _forward_pass(target: Target, lifetimes: Lifetimes, watch: ModuleWatch) -> None:
    lifetimes.begin()
    lifetimes.phase = "forward"
    with torch.no_grad(), target.autocast(), _observed(lifetimes, watch):
        output = target.model(*target.batch.args, **target.batch.kwargs)
    lifetimes.mark("after forward")
    del output


def _training_step(target: Target, optimizer: torch.optim.Optimizer, lifetimes: Lifetimes, watch: ModuleWatch) -> None:
    """One step; its locals live as long as those of a training loop's body."""
    lifetimes.begin()
    lifetimes.phase = "forward"
    watch.in_backward = False
    watch.stand_in("")
    with torch.enable_grad(), target.autocast(), _observed(lifetimes, watch):
        output = target.model(*target.batch.args, **target.batch.kwargs)
    lifetimes.mark("after forward")

    labels = target.labels_for(output)
    lifetimes.label(output_tensors(labels), "inputs")
    lifetimes.phase = "loss"
    watch.stand_in(LOSS_PATH)
    with torch.enable_grad(), target.autocast(), _observed(lifetimes, watch):
        loss = target.loss(output, target.batch, labels)
    lifetimes.mark("after loss")

    lifetimes.phase = "backward"
    watch.in_backward = True
    with watch.watching(), lifetimes:
        if loss.requires_grad:
            loss.backward()
    lifetimes.label((p.grad for p in target.model.parameters() if p.grad is not None), "gradients")
    lifetimes.mark("after backward")

    lifetimes.phase = "optimizer"
    watch.stand_in(OPTIMIZER_PATH)
    watch.in_backward = False
    with lifetimes:
        optimizer.step()
    lifetimes.label(tensors_in(v for state in optimizer.state.values() for v in state.values()), "optimizer_state")
    optimizer.zero_grad(set_to_none=True)
    lifetimes.mark("after optimizer")


@dataclass(slots=True, eq=False)
class _Life:
    """A storage: how large, born where, kept by autograd or not. Its category may become known long after its birth."""

    nbytes: int
    phase: Phase
    path: str
    op: str
    category: Category | None = None
    saved: bool = False
    watcher: Any = None

    def kind(self) -> Category:
        if self.category is not None:
            return self.category
        return "saved_activations" if self.saved else "temporaries"

    def born_at(self) -> str:
        return " ".join(word for word in (self.phase, self.path, self.op) if word)


@dataclass(slots=True, eq=False)
class _Log:
    """Births and deaths in order as (change in bytes, storage), and the places of marks among them."""

    events: list[tuple[int, _Life]] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)
    step_start: int = 0


class Lifetimes(TorchDispatchMode):
    """A dispatch mode that logs when storages on one kind of device are born, grow and die."""

    supports_higher_order_operators = True  # flex_attention comes whole: a fused kernel keeps its scores to itself

    def __init__(self, watch: ModuleWatch, device_type: str, memo: Memo | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._memo = Memo(limit=0) if memo is None else memo
        self._watch = watch
        self._device_type = device_type
        self._alive: dict[int, _Life] = {}
        self._log = _Log()
        self._flex: list[Mapping[str, Any]] = []
        self.phase: Phase = "other"

    def __enter__(self) -> Lifetimes:
        self._flex.append(open_flex_attention())
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        restore_flex_attention(self._flex.pop())

    def begin(self) -> None:
        """A step begins here; the estimate is about the last one."""
        self._log.step_start = len(self._log.events)
        self._log.marks.clear()
        self.mark("before forward")

    def mark(self, name: str) -> None:
        """Notes the bytes held at this point of the step."""
        self._log.marks.append((len(self._log.events), name))

    def label(self, tensors: Iterable[torch.Tensor], category: Category) -> None:
        """Says what `tensors` are for, from their birth on."""
        for tensor in tensors:
            life = self._life(tensor, "")
            if life is not None and life.category is None:
                life.category = category

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Notes that autograd keeps `tensor`; the tensor itself is what is kept."""
        life = self._life(tensor, "")
        if life is not None and self.phase in ("forward", "loss"):
            life.saved = True
        return tensor

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in `Tracer`

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # its ops on the tensors it wraps come here
        kwargs = kwargs or {}
        whole = type(func) is not OpOverload and isinstance(func, HigherOrderOperator)
        key = None if whole else self._memo.key(func, args, kwargs)
        known = None if key is None else self._memo.find(key)
        if known is not None:
            out, name = known.result(func, args, kwargs), str(func).rpartition(".")[0]
        else:
            out = (stand_in(func, args) or func)(*args, **kwargs)
            name = f"higher_order.{func.name()}" if whole else str(func).rpartition(".")[0]
        for tensor in tensors_in((out,)):
            self._life(tensor, name)
        return out

    def _life(self, tensor: torch.Tensor, op: str) -> _Life | None:
        if tensor.device.type != self._device_type or tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        key = storage._cdata
        nbytes = storage.nbytes()
        events = self._log.events
        life = self._alive.get(key)
        if life is not None:
            if nbytes != life.nbytes:  # resized
                events.append((nbytes - life.nbytes, life))
                life.nbytes = nbytes
            return life
        life = _Life(nbytes, self.phase, self._owner(), op)
        self._alive[key] = life
        events.append((nbytes, life))

        def died(_: Any, key: int = key, life: _Life = life, alive: dict[int, _Life] = self._alive) -> None:
            if alive.get(key) is life:
                del alive[key]
            events.append((-life.nbytes, life))

        life.watcher = weakref.ref(storage, died)
        return life

    def _owner(self) -> str:
        node: Any = torch._C._current_autograd_node()  # None outside backward
        if node is not None and not self._watch.stack:
            return self._watch.of_node(node)
        return self._watch.current

    def estimate(self) -> MemoryEstimate:
        """The peak of the last step, by category, and the bytes at its marks."""
        log = self._log
        held = peak = 0
        peak_index = log.step_start
        levels = [0]  # levels[i]: bytes held before event i
        for index, (change, _) in enumerate(log.events):
            held += change
            levels.append(held)
            if index >= log.step_start and held > peak:
                peak, peak_index = held, index
        at_start = levels[log.step_start]
        if at_start >= peak:  # nothing in the step needed more than what was there before
            peak, peak_index = at_start, log.step_start - 1
        peak_at = log.events[peak_index][1].born_at() if peak_index >= log.step_start else "before forward"
        points = [(place, name, levels[place]) for place, name in log.marks]
        points.append((peak_index + 1, peak_at, peak))
        points.sort(key=lambda point: point[0])
        return MemoryEstimate(
            peak_bytes=peak,
            peak_at=peak_at,
            categories=_categories(log.events[: peak_index + 1]),
            timeline=tuple(MemoryPoint(at=name, bytes=level) for _, name, level in points),
        )


def _categories(events: Iterable[tuple[int, _Life]]) -> MemoryCategories:
    """Bytes held after `events`, by what they are for."""
    sums: dict[Category, int] = dict.fromkeys(
        ("parameters", "gradients", "optimizer_state", "inputs", "saved_activations", "temporaries"), 0
    )
    for change, life in events:
        sums[life.kind()] += change
    return MemoryCategories(**sums)

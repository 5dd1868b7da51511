"""A model replayed as CUDA graphs: captured at its first call, forward and backward; for inference the forward alone.

Source: torch.cuda.make_graphed_callables, and CUDA Graphs in PyTorch's notes on CUDA semantics. It takes positional tensors
alone, so the inputs and outputs are flattened around it, and what is no tensor stays what it was at the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as trees

from profiler_kit.errors import KitError, TargetError
from profiler_kit.loading.place import first_line, is_out_of_memory, user_place

WARM_UPS: Final = 3  # before the capture, as make_graphed_callables does: libraries choose and allocate in them
_TENSOR: Final = object()  # stands in a tree for a tensor
_HINT: Final = (
    "leave cuda_graph out; a graph holds no step that waits for the device, changes shape or branches on values"
)

Replay = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True, slots=True)
class _Form:
    """A nested value without its tensors: the tree, what is in it besides them, and the tensors' shapes and types."""

    tree: Any
    leaves: tuple[Any, ...]
    kinds: tuple[tuple[tuple[int, ...], torch.dtype], ...]

    def filled(self, tensors: Sequence[Tensor]) -> Any:
        """The value with `tensors` in their places."""
        left = iter(tensors)
        leaves = [next(left) if leaf is _TENSOR else leaf for leaf in self.leaves]
        return trees.tree_unflatten(leaves, self.tree)

    def holds(self, other: _Form) -> bool:
        """Whether a value of the form `other` can be put where one of this form was."""
        return (
            self.tree == other.tree
            and self.kinds == other.kinds
            and all(
                a is b or (isinstance(a, _PLAIN) and a == b) for a, b in zip(self.leaves, other.leaves, strict=True)
            )
        )


_PLAIN: Final = (bool, int, float, complex, str, bytes)


def _taken_apart(value: Any) -> tuple[_Form, list[Tensor]]:
    leaves, tree = trees.tree_flatten(value)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    form = _Form(
        tree,
        tuple(_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves),
        tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors),
    )
    return form, tensors


class _Flat(nn.Module):
    """`runs` as tensors to tensors; `form` of its output is known after a call."""

    def __init__(self, runs: nn.Module, inputs: _Form) -> None:
        super().__init__()
        self.runs = runs
        self.inputs = inputs
        self.form: _Form | None = None
        self.training = runs.training

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        args, kwargs = self.inputs.filled(tensors)
        self.form, tensors_out = _taken_apart(self.runs(*args, **kwargs))
        return tuple(tensors_out)


class Graphed(nn.Module):
    """Calls like those of `runs`, replayed. The buffers of `model` are after the first call what one call makes of them."""

    def __init__(self, runs: nn.Module, model: nn.Module) -> None:
        super().__init__()
        self.runs = runs
        self.model = model
        self._captured: dict[bool, tuple[_Form, _Form, Replay]] = {}  # by whether for training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What ``runs(*args, **kwargs)`` gives. Raises TargetError where that can't be captured or has changed its shape."""
        form, tensors = _taken_apart((args, kwargs))
        trains = torch.is_grad_enabled()
        # a pass without gradients through what was captured for training is the same forward
        found = self._captured.get(trains) or (self._captured.get(True) if not trains else None)
        if found is None:
            found = self._captured[trains] = self._capture(form, tensors, trains)
        inputs, outputs, replay = found
        if not inputs.holds(form):
            raise TargetError(
                f"a CUDA graph replays one shape: captured with {_shapes(inputs)}, then called with {_shapes(form)}",
                hint="make all batches alike, as with drop_last=True, or give --batch",
            )
        return outputs.filled(replay(*tensors))

    def _capture(self, form: _Form, tensors: Sequence[Tensor], trains: bool) -> tuple[_Form, _Form, Replay]:
        flat = _Flat(self.runs, form)
        device = one_device((*tensors, *self.model.parameters()))
        # a graph reads its inputs where they were at the capture: in copies, so that no batch is overwritten by the next
        held = tuple(tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors)
        try:
            with (
                torch.cuda.device(device),
                _buffers_kept(self.model),
                _no_cached_casts(),
            ):
                replay = _training(flat, held) if trains else _inference(flat, held)
        except Exception as error:
            first = _first(error)  # ending a failed capture fails too, and says less
            if isinstance(first, KitError) or is_out_of_memory(first):
                raise
            raise TargetError(
                f"the model can't be captured as a CUDA graph: {first_line(first)}", where=user_place(first), hint=_HINT
            ) from error
        assert flat.form is not None
        strange = next((leaf for leaf in flat.form.leaves if leaf is not _TENSOR and leaf is not None), None)
        if not flat.form.kinds or (strange is not None and not isinstance(strange, _PLAIN)):
            raise TargetError(
                f"the model returns {type(strange).__name__ if strange is not None else 'no tensor'}, "
                "which a CUDA graph can't give back",
                hint="return tensors, tuples, lists or dicts of them, or leave cuda_graph out",
            )
        return form, flat.form, replay


def one_device(tensors: Iterable[Tensor]) -> torch.device:
    """The CUDA device that all `tensors` are on. Raises TargetError where there is none."""
    devices = {tensor.device for tensor in tensors}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        raise TargetError(
            f"a CUDA graph wants everything on one CUDA device, not {', '.join(sorted(map(str, devices))) or 'none'}",
            hint="leave cuda_graph out",
        )
    return devices.pop()


def _training(flat: _Flat, held: tuple[Tensor, ...]) -> Replay:
    make: Any = torch.cuda.make_graphed_callables  # its types know no module
    graphed: Replay = make(flat, held, num_warmup_iters=WARM_UPS, allow_unused_input=True)
    return graphed


def _inference(flat: _Flat, held: tuple[Tensor, ...]) -> Replay:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UPS):
            flat(*held)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs: tuple[Tensor, ...] = flat(*held)

    def replay(*tensors: Tensor) -> tuple[Tensor, ...]:
        for mine, given in zip(held, tensors, strict=True):
            mine.copy_(given)
        graph.replay()
        return outputs

    return replay


@contextmanager
def _buffers_kept(model: nn.Module) -> Iterator[None]:
    """Warm-up passes move running statistics: afterwards all buffers are what they were."""
    before = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


@contextmanager
def _no_cached_casts() -> Iterator[None]:
    """Autocast keeps a parameter's narrow copy until its block ends; a graph must make it anew in each replay."""
    cached = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cached)


def _first(error: BaseException) -> BaseException:
    while error.__context__ is not None:
        error = error.__context__
    return error


def _shapes(form: _Form) -> str:
    return ", ".join("x".join(map(str, shape)) or "a scalar" for shape, _ in form.kinds) or "no tensor"

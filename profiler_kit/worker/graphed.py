"""A model replayed as CUDA graphs, captured at its first call: forward and backward, or forward alone for inference.

Source: torch.cuda.make_graphed_callables, and CUDA Graphs in PyTorch's notes on CUDA semantics. It only accepts positional
tensors, so inputs and outputs are flattened; everything else keeps its value from the first call.
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
from profiler_kit.loading import Batch
from profiler_kit.user_code.locations import is_out_of_memory, one_line_message, user_place

WARM_UPS: Final = 3  # before the capture, as in make_graphed_callables: libraries choose algorithms and allocate
_TENSOR: Final = object()  # replaces a tensor in a tree
_HINT: Final = (
    "leave cuda_graph out; a graph cannot contain a step that waits for the device, changes shape or branches on values"
)

Replay = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True, slots=True)
class _Form:
    """A nested value without its tensors: the tree, its other leaves, and the tensors' shapes and types."""

    tree: Any
    leaves: tuple[Any, ...]
    kinds: tuple[tuple[tuple[int, ...], torch.dtype], ...]

    def insert(self, tensors: Sequence[Tensor]) -> Any:
        """The nested value with `tensors` inserted."""
        remaining = iter(tensors)
        leaves = [next(remaining) if leaf is _TENSOR else leaf for leaf in self.leaves]
        return trees.tree_unflatten(leaves, self.tree)

    def matches(self, other: _Form) -> bool:
        """Whether `other` has the same structure, shapes, types and non-tensor values."""
        return (
            self.tree == other.tree
            and self.kinds == other.kinds
            and all(
                a is b or (isinstance(a, _PLAIN) and a == b) for a, b in zip(self.leaves, other.leaves, strict=True)
            )
        )


_PLAIN: Final = (bool, int, float, complex, str, bytes)


def _flattened(value: Any) -> tuple[_Form, list[Tensor]]:
    leaves, tree = trees.tree_flatten(value)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    form = _Form(
        tree,
        tuple(_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves),
        tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors),
    )
    return form, tensors


class _Flat(nn.Module):
    """`runs` as a function from tensors to tensors; `form` of its output is set by a call."""

    def __init__(self, runs: nn.Module, inputs: _Form) -> None:
        super().__init__()
        self.runs = runs
        self.inputs = inputs
        self.form: _Form | None = None
        self.training = runs.training

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        args, kwargs = self.inputs.insert(tensors)
        self.form, tensors_out = _flattened(self.runs(*args, **kwargs))
        return tuple(tensors_out)


class GraphedStep:
    """A whole training step as one CUDA graph: forward, loss, backward, optimizer. Captured at the first call.

    `run` computes a step on tensors at fixed addresses and returns its loss; it must not wait for the device. The warm-up before
    the capture trains three steps, as the lines to paste do.
    """

    def __init__(self, run: Callable[[Batch], Tensor], zero_grad: Callable[[], None]) -> None:
        self._run = run
        self._zero_grad = zero_grad
        self._captured: tuple[_Form, list[Tensor], torch.cuda.CUDAGraph, Tensor] | None = None

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of a step on `batch`, which the next call overwrites. Raises TargetError if it cannot be captured."""
        form, tensors = _flattened((batch.args, batch.kwargs, batch.labels))
        if self._captured is None:
            self._captured = self._capture(form, tensors)
        captured, buffers, graph, loss = self._captured
        if not captured.matches(form):
            raise _changed_shape(captured, form)
        for buffer, tensor in zip(buffers, tensors, strict=True):
            buffer.copy_(tensor)
        graph.replay()
        return loss

    def _capture(
        self, form: _Form, tensors: Sequence[Tensor]
    ) -> tuple[_Form, list[Tensor], torch.cuda.CUDAGraph, Tensor]:
        buffers = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors]
        args, kwargs, labels = form.insert(buffers)
        batch = Batch(args=args, kwargs=kwargs, labels=labels)
        graph = torch.cuda.CUDAGraph()
        with _explained("the step"), torch.cuda.device(one_device(tensors)), _no_cached_casts():
            side_stream = torch.cuda.Stream()
            side_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side_stream):
                for _ in range(WARM_UPS):
                    self._zero_grad()
                    self._run(batch)
            torch.cuda.current_stream().wait_stream(side_stream)
            self._zero_grad()  # gradients are then allocated in the graph's own memory
            with torch.cuda.graph(graph):
                loss = self._run(batch)
        return form, buffers, graph, loss


class Graphed(nn.Module):
    """Replays calls of `runs` as CUDA graphs. The first call changes the buffers of `model` like one normal call."""

    def __init__(self, runs: nn.Module, model: nn.Module) -> None:
        super().__init__()
        self.runs = runs
        self.model = model
        self._captured: dict[bool, tuple[_Form, _Form, Replay]] = {}  # key: captured with gradients

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of ``runs(*args, **kwargs)``. Raises TargetError if it cannot be captured, or if the shapes have changed."""
        form, tensors = _flattened((args, kwargs))
        with_gradients = torch.is_grad_enabled()
        # the forward pass of a training capture also serves calls without gradients
        captured = self._captured.get(with_gradients) or (self._captured.get(True) if not with_gradients else None)
        if captured is None:
            captured = self._captured[with_gradients] = self._capture(form, tensors, with_gradients)
        inputs, outputs, replay = captured
        if not inputs.matches(form):
            raise _changed_shape(inputs, form)
        return outputs.insert(replay(*tensors))

    def _capture(self, form: _Form, tensors: Sequence[Tensor], with_gradients: bool) -> tuple[_Form, _Form, Replay]:
        flat = _Flat(self.runs, form)
        device = one_device((*tensors, *self.model.parameters()))
        # a graph reads its inputs from fixed addresses: these copies, so that batches are not overwritten
        buffers = tuple(tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors)
        with _explained("the model"), torch.cuda.device(device), _restored_buffers(self.model), _no_cached_casts():
            replay = _capture_training(flat, buffers) if with_gradients else _capture_inference(flat, buffers)
        assert flat.form is not None
        unsupported = next((leaf for leaf in flat.form.leaves if leaf is not _TENSOR and leaf is not None), None)
        if not flat.form.kinds or (unsupported is not None and not isinstance(unsupported, _PLAIN)):
            raise TargetError(
                f"the model returns {type(unsupported).__name__ if unsupported is not None else 'no tensor'}, "
                "which a CUDA graph cannot return",
                hint="return tensors, tuples, lists or dicts of them, or leave cuda_graph out",
            )
        return form, flat.form, replay


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise a failed capture of `what` as a TargetError with its first cause."""
    try:
        yield
    except Exception as error:
        first = _first_cause(error)  # ending a failed capture raises again, with a less helpful message
        if isinstance(first, KitError) or is_out_of_memory(first):
            raise
        raise TargetError(
            f"{what} can't be captured as a CUDA graph: {one_line_message(first)}", where=user_place(first), hint=_HINT
        ) from error


def _changed_shape(captured: _Form, form: _Form) -> TargetError:
    return TargetError(
        f"a CUDA graph replays one shape: captured with {_shapes_text(captured)}, then called with {_shapes_text(form)}",
        hint="give all batches the same shape, for example with drop_last=True, or set --batch",
    )


def one_device(tensors: Iterable[Tensor]) -> torch.device:
    """The CUDA device that holds all `tensors`. Raises TargetError if they are on several or none."""
    devices = {tensor.device for tensor in tensors}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        raise TargetError(
            f"a CUDA graph needs everything on one CUDA device, not {', '.join(sorted(map(str, devices))) or 'none'}",
            hint="leave cuda_graph out",
        )
    return devices.pop()


def _capture_training(flat: _Flat, buffers: tuple[Tensor, ...]) -> Replay:
    make: Any = torch.cuda.make_graphed_callables  # its type hints do not include modules
    graphed: Replay = make(flat, buffers, num_warmup_iters=WARM_UPS, allow_unused_input=True)
    return graphed


def _capture_inference(flat: _Flat, buffers: tuple[Tensor, ...]) -> Replay:
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(WARM_UPS):
            flat(*buffers)
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs: tuple[Tensor, ...] = flat(*buffers)

    def replay(*tensors: Tensor) -> tuple[Tensor, ...]:
        for buffer, tensor in zip(buffers, tensors, strict=True):
            buffer.copy_(tensor)
        graph.replay()
        return outputs

    return replay


@contextmanager
def _restored_buffers(model: nn.Module) -> Iterator[None]:
    """Restore all buffers afterwards, because warm-up passes update running statistics."""
    before = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


@contextmanager
def _no_cached_casts() -> Iterator[None]:
    """Disable autocast's cache of cast parameters, because a graph must cast them again in each replay."""
    was_enabled = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(was_enabled)


def _first_cause(error: BaseException) -> BaseException:
    while error.__context__ is not None:
        error = error.__context__
    return error


def _shapes_text(form: _Form) -> str:
    return ", ".join("x".join(map(str, shape)) or "a scalar" for shape, _ in form.kinds) or "no tensor"

"""Records, while forward runs, which inputs reached which operation, and the operation that failed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd as ConvNd
from torch.nn.modules.conv import _ConvTransposeNd as ConvTransposeNd
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from profiler_kit.loading.input_search.outcomes import LayerInputError, Outcome, input_name, origins
from profiler_kit.meta.batch import tensors_in

META: Final = torch.device("meta")
RUN_S: Final = 6.0  # CPU time of one forward pass on meta; loops over a sequence call thousands of functions
_MOVES: Final = (Tensor.cuda, Tensor.cpu)
_CONSTRUCTORS: Final = _device_constructors()
# Functions whose result has the data of the first argument; the other arguments only lend a shape or a type.
_LENDS_SHAPE: Final = (Tensor.expand_as, Tensor.view_as, Tensor.reshape_as, Tensor.type_as, Tensor.to)
_NEW_DATA: Final = re.compile(
    r"(zeros|ones|empty|full|rand|randn|randint)_like|new_\w+|size|shape|dim|__len__|\w+\.__get__"
)
_SWAPS: Final = frozenset({"transpose", "swapaxes", "swapdims"})
_BATCHES: Final = (1, 2)  # of the searched inputs
_SOFTMAX: Final = frozenset({"softmax", "log_softmax", "softmin"})


class Recorder(TorchFunctionMode):
    """Marks results with the inputs they come from, and remembers the failing call.

    Everything stays on `device`; with None, where its code creates it.
    """

    def __init__(
        self, outcome: Outcome, deadline: float, device: torch.device | None = META, *, needs_batch: bool = False
    ) -> None:
        super().__init__()
        self._needs_batch = needs_batch
        self.outcome = outcome
        self.calls = 0
        self.failed: tuple[BaseException, Callable[..., Any], tuple[Any, ...]] | None = None
        self._deadline = deadline
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if time.thread_time() > self._deadline:
            raise TimeoutError(f"forward did not finish within {RUN_S:g} s")
        if self._device is not None:
            if func in _MOVES:
                return args[0]
            args, kwargs = self._on_device(func, args, kwargs)
        if name != "__get__" and name not in ("size", "dim", "__len__"):
            for tensor in tensors_in(args):
                reached = input_name(tensor)
                if reached is not None:
                    self.outcome.consumers.setdefault(reached, name)
        if func is functional.embedding or func is functional.embedding_bag:
            self._record_rows(args, kwargs)
        if self._needs_batch:
            _check_transpose(name, args)
        try:
            self.check(func, args, kwargs)
            result = func(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - raised again below
            try:
                self.check(func, args, kwargs)
                result = func(*_to_meta(args), **_to_meta(kwargs))
            except Exception:  # noqa: BLE001 - the first error describes the user's code, and is raised
                self.failed = (error, func, (*args, *kwargs.values()))
                raise error from None
        self.calls += 1
        return self._marked(func, name, args, kwargs, result)

    def check(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Raise an error for a call that torch accepts on meta, and that the author of the code did not mean."""
        _check_dimension(getattr(func, "__name__", ""), args, kwargs)

    def _on_device(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if func in _CONSTRUCTORS or kwargs.get("device") is not None:
            kwargs["device"] = self._device
        if func is Tensor.to and len(args) > 1 and isinstance(args[1], (str, torch.device, int)):
            args = (args[0], self._device, *args[2:])
        return args, kwargs

    def _record_rows(self, args: Any, kwargs: Any) -> None:
        indices, weight = (*args, *kwargs.values())[:2]
        if not (isinstance(indices, Tensor) and isinstance(weight, Tensor)):
            return
        rows = weight.shape[0]
        names = origins(indices)
        for name in names:
            self.outcome.rows[name] = min(rows, self.outcome.rows.get(name, rows))
        if not names and indices.dim() and indices.shape[-1] > rows:
            sizes = (indices.shape[-1], rows)
            raise LayerInputError("{} positions, but the table has {} rows".format(*sizes), sizes=sizes)

    def _marked(self, func: Any, name: str, args: Any, kwargs: Any, result: Any) -> Any:
        sources = args[:1] if func in _LENDS_SHAPE else () if _NEW_DATA.fullmatch(name) else (args, kwargs)
        names = origins(list(sources)) if sources else frozenset()
        if func is Tensor.__setitem__:
            args[0]._input_names = names
            return result
        if names:
            for tensor in tensors_in(result):
                if input_name(tensor) is None:
                    tensor._input_names = names  # type: ignore[attr-defined]
        return result


def _to_meta(value: Any) -> Any:
    """`value` with CPU tensors on meta: constants that the user's file creates outside the model."""
    if isinstance(value, Tensor):
        if value.is_meta or not value.dim():
            return value
        moved = value.to(META)
        for name in ("_input_names", "_is_input"):
            if hasattr(value, name):
                setattr(moved, name, getattr(value, name))
        return moved
    if isinstance(value, dict):
        return {key: _to_meta(item) for key, item in value.items()}
    return type(value)(map(_to_meta, value)) if type(value) in (tuple, list) else value


def _check_dimension(name: str, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Raise IndexError for a softmax over a missing dimension, which the meta kernels of forward accept."""
    if name not in _SOFTMAX or not args or not isinstance(args[0], Tensor):
        return
    dim, rank = kwargs.get("dim", args[1] if len(args) > 1 else None), max(args[0].dim(), 1)
    if type(dim) is int and not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")


def _check_transpose(name: str, args: Any) -> None:
    """Raise LayerInputError for a swap of the last two dimensions, counted from the end, of a batch of rows.

    Such code means matrices.
    """
    if name not in _SWAPS or not origins(list(args[:1])) or {*args[1:]} != {-1, -2}:
        return
    if args[0].dim() == 2 and args[0].shape[0] in _BATCHES:
        raise LayerInputError(f"{name} swaps the batch and the features, a sequence is missing")


def check_channels(module: nn.Module, args: tuple[Any, ...]) -> None:
    """Raise LayerInputError for a transposed convolution of another number of channels, which meta kernels accept."""
    tensor = next((value for value in args if isinstance(value, Tensor)), None)
    if not isinstance(module, ConvTransposeNd) or tensor is None or tensor.dim() != len(module.kernel_size) + 2:
        return
    if tensor.shape[1] != module.in_channels:
        raise LayerInputError(f"got {tensor.shape[1]} channels, needs {module.in_channels}")


def check_layer_input(module: nn.Module, args: tuple[Any, ...]) -> None:
    """Raise LayerInputError for a layer that gets a tensor without a batch dimension."""
    tensor = next((value for value in args if isinstance(value, Tensor)), None)
    if tensor is None:
        return
    batched = None
    if isinstance(module, ConvNd):
        batched = len(module.kernel_size) + 2
    elif isinstance(
        module, (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    ):
        batched = 3
    if batched is not None and tensor.dim() == batched - 1:
        ranks = (tensor.dim(), batched)
        raise LayerInputError("{} got {} dimensions, a batch has {}".format(type(module).__name__, *ranks), ranks=ranks)

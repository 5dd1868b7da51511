"""Runs forward on tensors without data, and records which inputs reached the operation that failed."""

from __future__ import annotations

import contextlib
import io
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd as ConvNd
from torch.nn.modules.conv import _ConvTransposeNd as ConvTransposeNd
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from profiler_kit.loading.batch import tensors_in
from profiler_kit.loading.user_environment import seeded
from profiler_kit.loading.user_locations import is_out_of_memory, user_source
from profiler_kit.loading.values import ValueTracking

META: Final = torch.device("meta")
RUN_S: Final = 6.0  # CPU time of one forward pass on meta; loops over a sequence call thousands of functions
_NEEDS_VALUES: Final = re.compile(
    r"meta tensors?\b|meta device|data-independent|data-dependent|SparseMeta|SparseCsrMeta|fake impl|NestedTensorImpl"
)
_MOVES: Final = (Tensor.cuda, Tensor.cpu)
_CONSTRUCTORS: Final = _device_constructors()
# Functions whose result has the data of the first argument; the other arguments only lend a shape or a type.
_LENDS_SHAPE: Final = (Tensor.expand_as, Tensor.view_as, Tensor.reshape_as, Tensor.type_as, Tensor.to)
_NEW_DATA: Final = re.compile(
    r"(zeros|ones|empty|full|rand|randn|randint)_like|new_\w+|size|shape|dim|__len__|\w+\.__get__"
)
_SOFTMAX: Final = frozenset({"softmax", "log_softmax", "softmin"})


class LayerInputError(Exception):
    """A layer got a tensor that it accepts, but that its author would not pass to it: one without a batch, for example."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a forward pass failed, and where.

    `module` is the innermost running module. `function` is the failing call of torch with its `arguments`; None if the
    exception comes from other code. `names` are the local variables of the user's line `source`.
    """

    error: Exception
    module: nn.Module | None
    module_arguments: tuple[Any, ...]
    function: Callable[..., Any] | None
    arguments: tuple[Any, ...]
    source: str
    names: Mapping[str, Any]
    line: tuple[str, int] | None
    progress: tuple[int, int]

    @property
    def position(self) -> tuple[object, ...]:
        """Identifies the failing operation, so that two failures can be compared."""
        return (id(self.module), getattr(self.function, "__name__", None), self.line, type(self.error).__name__)

    @property
    def needs_values(self) -> bool:
        """Whether the code reads values, which meta tensors do not have: the shapes may be right."""
        return isinstance(self.error, NotImplementedError | RuntimeError) and bool(
            _NEEDS_VALUES.search(str(self.error))
        )


@dataclass(kw_only=True)
class Outcome:
    """The result of one forward pass: an output, or a failure.

    `rows` has the smallest number of rows of the embeddings that each input indexes. `consumers` has the name of the first
    function that received each input.
    """

    output: Any = None
    failure: Failure | None = None
    rows: dict[str, int] = field(default_factory=dict)
    consumers: dict[str, str] = field(default_factory=dict)


def origins(value: object) -> frozenset[str]:
    """The names of the inputs from which the tensors of `value` were computed."""
    return frozenset().union(*(getattr(tensor, "_input_names", frozenset()) for tensor in tensors_in(value)))


def mark(tensor: Tensor, name: str) -> Tensor:
    """Mark `tensor` as the input `name`."""
    tensor._input_names = frozenset((name,))  # type: ignore[attr-defined]
    tensor._is_input = name  # type: ignore[attr-defined]
    return tensor


def input_name(tensor: object) -> str | None:
    """The name of the input that `tensor` is; None for a computed tensor."""
    return getattr(tensor, "_is_input", None)


class _Recorder(TorchFunctionMode):
    """Marks results with the inputs they come from, keeps everything on meta, and remembers the failing call."""

    def __init__(self, outcome: Outcome, deadline: float) -> None:
        super().__init__()
        self.outcome = outcome
        self.calls = 0
        self.failed: tuple[BaseException, Callable[..., Any], tuple[Any, ...]] | None = None
        self._deadline = deadline

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if time.thread_time() > self._deadline:
            raise TimeoutError(f"forward did not finish within {RUN_S:g} s")
        if func in _MOVES:
            return args[0]
        args, kwargs = self._on_meta(func, args, kwargs)
        if name != "__get__" and name not in ("size", "dim", "__len__"):
            for tensor in tensors_in(args):
                reached = input_name(tensor)
                if reached is not None:
                    self.outcome.consumers.setdefault(reached, name)
        if func is functional.embedding or func is functional.embedding_bag:
            self._record_rows(args, kwargs)
        try:
            _check_dimension(name, args, kwargs)
            result = func(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - raised again below
            try:
                _check_dimension(name, args, kwargs)
                result = func(*_to_meta(args), **_to_meta(kwargs))
            except Exception:  # noqa: BLE001 - the first error describes the user's code, and is raised
                self.failed = (error, func, (*args, *kwargs.values()))
                raise error from None
        self.calls += 1
        return self._marked(func, name, args, kwargs, result)

    def _on_meta(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if func in _CONSTRUCTORS or kwargs.get("device") is not None:
            kwargs["device"] = META
        if func is Tensor.to and len(args) > 1 and isinstance(args[1], (str, torch.device, int)):
            args = (args[0], META, *args[2:])
        return args, kwargs

    def _record_rows(self, args: Any, kwargs: Any) -> None:
        indices, weight = (*args, *kwargs.values())[:2]
        if not (isinstance(indices, Tensor) and isinstance(weight, Tensor)):
            return
        if indices.is_floating_point() and weight.dim() == 1:
            indices, weight = weight, indices  # embedding_bag of old versions
        rows = weight.shape[0]
        names = origins(indices)
        for name in names:
            self.outcome.rows[name] = min(rows, self.outcome.rows.get(name, rows))
        if not names and indices.dim() and indices.shape[-1] > rows:
            raise LayerInputError(f"{indices.shape[-1]} positions, but the table has {rows} rows")

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


def _check_channels(module: nn.Module, args: tuple[Any, ...]) -> None:
    """Raise LayerInputError for a transposed convolution of another number of channels, which meta kernels accept."""
    tensor = next((value for value in args if isinstance(value, Tensor)), None)
    if not isinstance(module, ConvTransposeNd) or tensor is None or tensor.dim() != len(module.kernel_size) + 2:
        return
    if tensor.shape[1] != module.in_channels:
        raise LayerInputError(f"got {tensor.shape[1]} channels, needs {module.in_channels}")


def _check_layer_input(module: nn.Module, args: tuple[Any, ...]) -> None:
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
        raise LayerInputError(f"{type(module).__name__} got {tensor.dim()} dimensions, a batch has {batched}")


class MetaRunner:
    """Runs forward of a copy of a model on meta tensors. Prints nothing, and needs no data."""

    def __init__(
        self, model: nn.Module, *, seed: int = 0, needs_batch: bool = True, reads_values: bool = False
    ) -> None:
        """`model` is on meta, and is changed by the runs.

        With `needs_batch`, layers refuse tensors without a batch. With `reads_values`, code can read the values of small
        tensors that follow from constants.
        """
        self.model = model
        self.reads_values = reads_values
        self.needs_batch = needs_batch
        self._seed = seed
        self._finished: set[int] = set()
        for module in model.modules():
            if not any(True for _ in module.children()) and not isinstance(module, torch.jit.ScriptModule):
                module.register_forward_hook(self._after)
            if not isinstance(module, torch.jit.ScriptModule):
                module.register_forward_pre_hook(self._before)
        self._outcome = Outcome()

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Outcome:
        """Call the model once. Raises out-of-memory errors."""
        self._finished.clear()
        self._outcome = outcome = Outcome()
        recorder = _Recorder(outcome, time.thread_time() + RUN_S)
        try:
            with self._quiet(), recorder:
                outcome.output = self.model(*args, **kwargs)
        except (Exception, SystemExit) as error:
            if is_out_of_memory(error):
                raise
            outcome.failure = self._failure(error, recorder)
        return outcome

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            stack.enter_context(seeded(self._seed))
            stack.enter_context(torch.no_grad())
            if self.reads_values:
                stack.enter_context(ValueTracking())
            yield

    def _before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        _check_channels(module, args)
        if self.needs_batch:
            _check_layer_input(module, args)

    def _after(self, module: nn.Module, args: object, output: object) -> None:
        self._finished.add(id(module))

    def _failure(self, error: BaseException, recorder: _Recorder) -> Failure:
        failed = recorder.failed if recorder.failed is not None and recorder.failed[0] is error else None
        module, module_arguments = _innermost_module(error)
        line, names = _user_frame(error)
        return Failure(
            error=error if isinstance(error, Exception) else RuntimeError(f"the model called sys.exit: {error}"),
            module=module,
            module_arguments=module_arguments,
            function=failed[1] if failed is not None else None,
            arguments=failed[2] if failed is not None else (),
            source=user_source(error),
            names=names,
            line=line,
            progress=(len(self._finished), recorder.calls),
        )


def _innermost_module(error: BaseException) -> tuple[nn.Module | None, tuple[Any, ...]]:
    module, arguments = None, ()
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "_call_impl" and isinstance(frame.f_locals.get("self"), nn.Module):
            module = frame.f_locals["self"]
            arguments = (*frame.f_locals.get("args", ()), *frame.f_locals.get("kwargs", {}).values())
    return module, arguments


def _user_frame(error: BaseException) -> tuple[tuple[str, int] | None, Mapping[str, Any]]:
    """The innermost line outside torch and this package, and the local variables of its frame."""
    from profiler_kit.loading.user_locations import is_user_code

    line: tuple[str, int] | None = None
    names: Mapping[str, Any] = {}
    for frame, number in traceback.walk_tb(error.__traceback__):
        if is_user_code(frame.f_code.co_filename):
            line, names = (frame.f_code.co_filename, number), dict(frame.f_locals)
    return line, names

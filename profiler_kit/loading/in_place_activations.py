"""In-place activations, for what-if predictions: which modules could overwrite their input, and running them so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.loading.model import Target
from profiler_kit.meta.batch import tensors_in
from profiler_kit.user_code.restoration import restored

# Reasons why a module's input may not be overwritten.
READ_AGAIN: Final = "its input is read again"
EXTERNAL_INPUT: Final = "its input is a parameter, a buffer or an input of the model"
RETURNED: Final = "its input is an output of the model"


@contextmanager
def run_in_place(model: nn.Module, paths: Sequence[str]) -> Iterator[None]:
    """Run the modules at `paths` in place inside the block."""
    modules: list[Any] = [model.get_submodule(path) for path in paths]
    before = [module.inplace for module in modules]
    try:
        for module in modules:
            module.inplace = True
        yield
    finally:
        for module, flag in zip(modules, before, strict=True):
            module.inplace = flag


def in_place_candidates(model: nn.Module) -> tuple[str, ...]:
    """Paths of the activation modules that have an ``inplace`` option and do not use it."""
    return tuple(
        path
        for path, module in model.named_modules()
        if getattr(module, "inplace", None) is False and not isinstance(module, _DropoutNd)
    )


def unsafe_in_place_modules(target: Target, paths: Iterable[str]) -> dict[str, str]:
    """The modules at `paths` that would change the results by working in place, each with the reason.

    Found by one forward pass: a module is refused if a later op reads its input. Objections of autograd, such as an input
    saved for backward, are not included.
    """
    modules = {path: target.model.get_submodule(path) for path in paths}
    batch = target.batch
    inputs = list(tensors_in([batch.args, batch.kwargs]))
    external = {_storage(tensor) for tensor in (*inputs, *target.model.parameters(), *target.model.buffers())}
    reads = _Reads()
    calls: dict[str, list[tuple[Tensor, int]]] = {path: [] for path in modules}
    with ExitStack() as stack:
        stack.enter_context(restored(target))
        for path, module in modules.items():
            stack.callback(module.register_forward_hook(_recording_hook(calls[path], reads), with_kwargs=True).remove)
        stack.enter_context(torch.no_grad())
        with reads:
            output = target.model(*batch.args, **batch.kwargs)
    results = {_storage(tensor) for tensor in tensors_in(output)}
    reasons = {}
    for path, module_calls in calls.items():
        for module_input, op_number in module_calls:
            key = _storage(module_input)
            if key in external:
                reasons[path] = EXTERNAL_INPUT
            elif key in results:
                reasons[path] = RETURNED
            elif reads.last.get(key, 0) > op_number:
                reasons[path] = READ_AGAIN
    return reasons


def _recording_hook(calls: list[tuple[Tensor, int]], reads: _Reads) -> Any:
    def record(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        module_input = next(iter(tensors_in([args, kwargs])), None)
        if module_input is not None:
            calls.append((module_input, reads.count))

    return record


class _Reads(TorchDispatchMode):
    """Records the number of the last op that read each storage. Keeps the storages alive, so that keys stay unique."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0
        self.last: dict[int, int] = {}
        self._storages: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        self.count += 1
        for tensor in tensors_in([args, kwargs or {}]):
            self.last[_storage(tensor)] = self.count
            self._storages.append(tensor.untyped_storage())
        return func(*args, **(kwargs or {}))


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)

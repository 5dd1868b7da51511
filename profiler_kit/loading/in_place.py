"""Activations that overwrite their input, as a question: which modules could, and what if they did?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.loading.batch import tensors_in
from profiler_kit.loading.model import Target
from profiler_kit.loading.restore import unchanged

# Why a module's input may not be overwritten.
READ_AGAIN: Final = "its input is read again"
NOT_ITS_OWN: Final = "its input is the model's own, or the caller's"
RETURNED: Final = "its input is a result of the model"


@contextmanager
def in_place(model: nn.Module, paths: Sequence[str]) -> Iterator[None]:
    """While it lasts, the modules at `paths` work in place."""
    modules: list[Any] = [model.get_submodule(path) for path in paths]
    before = [module.inplace for module in modules]
    try:
        for module in modules:
            module.inplace = True
        yield
    finally:
        for module, flag in zip(modules, before, strict=True):
            module.inplace = flag


def switchable(model: nn.Module) -> tuple[str, ...]:
    """Paths of the activation modules that could work in place and don't."""
    return tuple(
        path
        for path, module in model.named_modules()
        if getattr(module, "inplace", None) is False and not isinstance(module, _DropoutNd)
    )


def refused(target: Target, paths: Iterable[str]) -> dict[str, str]:
    """Which of the modules at `paths` would change the results by working in place, and why.

    One forward pass is watched: an input that any later op reads would then be read overwritten. What only autograd objects
    to, such as an input that it keeps, is not among them.
    """
    modules = {path: target.model.get_submodule(path) for path in paths}
    batch = target.batch
    inputs = list(tensors_in([batch.args, batch.kwargs]))
    foreign = {_storage(tensor) for tensor in (*inputs, *target.model.parameters(), *target.model.buffers())}
    reads = _Reads()
    calls: dict[str, list[tuple[Tensor, int]]] = {path: [] for path in modules}
    with ExitStack() as stack:
        stack.enter_context(unchanged(target.model, inputs=inputs))
        for path, module in modules.items():
            stack.callback(module.register_forward_hook(_noting(calls[path], reads), with_kwargs=True).remove)
        stack.enter_context(torch.no_grad())
        with reads:
            output = target.model(*batch.args, **batch.kwargs)
    results = {_storage(tensor) for tensor in tensors_in(output)}
    reasons = {}
    for path, made in calls.items():
        for given, place in made:
            key = _storage(given)
            if key in foreign:
                reasons[path] = NOT_ITS_OWN
            elif key in results:
                reasons[path] = RETURNED
            elif reads.last.get(key, 0) > place:
                reasons[path] = READ_AGAIN
    return reasons


def _noting(calls: list[tuple[Tensor, int]], reads: _Reads) -> Any:
    def note(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        given = next(iter(tensors_in([args, kwargs])), None)
        if given is not None:
            calls.append((given, reads.count))

    return note


class _Reads(TorchDispatchMode):
    """The number of the last op that was given each storage. Holds what it saw: a storage's key must not be used twice."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0
        self.last: dict[int, int] = {}
        self._held: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        self.count += 1
        for tensor in tensors_in([args, kwargs or {}]):
            self.last[_storage(tensor)] = self.count
            self._held.append(tensor.untyped_storage())
        return func(*args, **(kwargs or {}))


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)

"""Which module an op belongs to: in forward by the calls under way, in backward by autograd's sequence numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn

from profiler_kit.loading.compiled import plain_path

# Nodes that belong to no forward op (AccumulateGrad, graph roots) carry the largest sequence number there is.
NO_SEQUENCE: Final = 1 << 62

Call = Callable[[], Any]


@contextmanager
def wrapped_calls(paths: Mapping[int, str], around: Callable[[str, Call], Any]) -> Iterator[None]:
    """While it lasts, every call of a module in `paths` (id to path) runs as ``around(path, call)``.

    ``nn.Module.__call__`` is wrapped once, instead of a hook on each module: nothing is left on the model, and modules called
    with keywords, returning no tensors, or changing their input in place are seen too.
    """
    original = nn.Module.__call__

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        path = paths.get(id(module))
        if path is None:
            return original(module, *args, **kwargs)
        return around(path, lambda: original(module, *args, **kwargs))

    nn.Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]


class Ownership:
    """Knows the running module, and the module whose forward made a given autograd node.

    Autograd numbers its nodes in the order of the forward ops. Noting the number at every module's entry and exit cuts
    the numbers into intervals, each owned by one module; a backward node's number then names its owner, without a hook
    on any tensor, so that in-place ops, keyword inputs, shared modules and outputs of any type change nothing.
    """

    def __init__(self, paths: Mapping[int, str], parameter_owners: Mapping[int, str] | None = None) -> None:
        """`paths`: id(module) to path. `parameter_owners`: id(parameter) to the path of the module that owns it."""
        self._paths = paths
        self._parameter_owners = parameter_owners or {}
        self._starts = [-1]
        self._interval_owners: list[str | int] = [""]  # a path, or the number of a recomputing node: see `of_region`
        self._base = ""
        self.stack: list[str] = []

    @property
    def current(self) -> str:
        """The path of the running module."""
        return self.stack[-1] if self.stack else self._base

    @property
    def running(self) -> str:
        """The path of the module that runs now: in backward that whose forward made the running node."""
        node: Any = torch._C._current_autograd_node()  # None outside backward
        if node is None or self.stack:  # forward, or forward again inside backward
            return self.current
        return self.of_node(node)

    def stand_in(self, path: str) -> None:
        """From here on, what runs outside any module belongs to `path`."""
        self._base = path
        self.note(path)

    def of_node(self, node: Any) -> str:
        """The path of the module whose forward made `node`; for a gradient's arrival, its parameter's owner."""
        sequence = node._sequence_nr()
        if sequence >= NO_SEQUENCE:
            variable = getattr(node, "variable", None)
            return "" if variable is None else self._parameter_owners.get(id(variable), "")
        return self.of_sequence(sequence)

    def of_sequence(self, sequence: int) -> str:
        """The path of the module whose forward made the node numbered `sequence`."""
        owner = self._interval_owners[bisect_right(self._starts, sequence) - 1]
        return owner if isinstance(owner, str) else self.of_region(owner)

    def of_region(self, sequence: int) -> str:
        """The path of the module whose forward is run again inside the node numbered `sequence`: that node's own."""
        return self.of_sequence(sequence)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follows module calls for as long as the block runs."""
        with wrapped_calls(self._paths, self.follow):
            yield

    def follow(self, path: str, call: Call) -> Any:
        """Runs `call` as the module at `path`."""
        self.stack.append(path)
        self.note(path)
        try:
            return call()
        finally:
            self.stack.pop()
            self.left()

    def left(self) -> None:
        """A module has returned: its caller owns what comes next."""
        self.note(self.current)

    def note(self, owner: str | int, back: int = 0) -> None:
        """From the next sequence number on, less `back`, nodes belong to `owner`."""
        self._starts.append(max(torch._C._autograd._get_sequence_nr() - back, self._starts[-1]))
        self._interval_owners.append(owner)

    def noted(self) -> str | int:
        """The owner last noted."""
        return self._interval_owners[-1]


def parameter_owners(model: nn.Module) -> dict[int, str]:
    """id(parameter) -> path of the module that owns it; a shared parameter belongs to its first owner."""
    owners: dict[int, str] = {}
    for path, module in model.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), plain_path(path))
    return owners

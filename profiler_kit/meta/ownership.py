"""Attributes ops to modules: in forward by the running module calls, in backward by autograd's sequence numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn

from profiler_kit.meta.compilation import uncompiled_path

# Nodes without a forward op (AccumulateGrad, graph roots) have sequence numbers of at least this value.
NO_SEQUENCE: Final = 1 << 62

Call = Callable[[], Any]


@contextmanager
def wrapped_calls(paths: Mapping[int, str], around: Callable[[str, Call], Any]) -> Iterator[None]:
    """Run every call of a module in `paths` (id to path) as ``around(path, call)`` inside the block.

    Wraps ``nn.Module.__call__`` instead of adding hooks: the model is not modified, and calls with keyword arguments,
    without tensor results, or with in-place changes of inputs are included.
    """
    original = nn.Module.__call__

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # torch's tracer of stacks reads `self` here
        path = paths.get(id(self))
        if path is None:
            return original(self, *args, **kwargs)
        return around(path, lambda: original(self, *args, **kwargs))

    nn.Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]


class ModuleTracker:
    """Tracks the running module, and the module whose forward created each autograd node.

    Autograd numbers its nodes in the order of the forward ops. Recording the next number when a module starts or returns
    divides the numbers into intervals with one module each, so the number of a backward node identifies its module. This
    needs no tensor hooks, and works for in-place ops, keyword inputs, shared modules and outputs of any type.
    """

    def __init__(self, paths: Mapping[int, str], parameter_owners: Mapping[int, str] | None = None) -> None:
        """`paths`: id(module) to path. `parameter_owners`: id(parameter) to the path of its module."""
        self._paths = paths
        self._parameter_owners = parameter_owners or {}
        self._starts = [-1]
        self._interval_owners: list[str | int] = [""]  # a path, or the number of a recomputing node (`of_region`)
        self._base = ""
        self.stack: list[str] = []

    @property
    def current(self) -> str:
        """The path of the running module."""
        return self.stack[-1] if self.stack else self._base

    @property
    def running(self) -> str:
        """The path of the running module; in backward, of the module whose forward created the running node."""
        node: Any = torch._C._current_autograd_node()  # None outside backward
        if node is None or self.stack:  # forward, or recomputation inside backward
            return self.current
        return self.of_node(node)

    def set_base(self, path: str) -> None:
        """Attribute code outside all modules to `path` from now on."""
        self._base = path
        self.note(path)

    def of_node(self, node: Any) -> str:
        """The path of the module whose forward created `node`; for AccumulateGrad, the module of the parameter."""
        sequence = node._sequence_nr()
        if sequence >= NO_SEQUENCE:
            variable = getattr(node, "variable", None)
            return "" if variable is None else self._parameter_owners.get(id(variable), "")
        return self.of_sequence(sequence)

    def of_sequence(self, sequence: int) -> str:
        """The path of the module whose forward created the node with number `sequence`."""
        owner = self._interval_owners[bisect_right(self._starts, sequence) - 1]
        return owner if isinstance(owner, str) else self.of_region(owner)

    def of_region(self, sequence: int) -> str:
        """The path of the module that is recomputed inside the node with number `sequence`: the module of that node."""
        return self.of_sequence(sequence)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Track module calls inside the block."""
        with wrapped_calls(self._paths, self.follow):
            yield

    def follow(self, path: str, call: Call) -> Any:
        """Run `call` with the module at `path` as the running module."""
        self.stack.append(path)
        self.note(path)
        try:
            return call()
        finally:
            self.stack.pop()
            self.left()

    def left(self) -> None:
        """Record that a module has returned: later nodes belong to its caller."""
        self.note(self.current)

    def note(self, owner: str | int, back: int = 0) -> None:
        """Attribute nodes to `owner`, starting with the next sequence number minus `back`."""
        self._starts.append(max(torch._C._autograd._get_sequence_nr() - back, self._starts[-1]))
        self._interval_owners.append(owner)

    def last_owner(self) -> str | int:
        """The owner recorded last."""
        return self._interval_owners[-1]


def parameter_owners(model: nn.Module) -> dict[int, str]:
    """id(parameter) -> path of its module; the first module for a shared parameter."""
    owners: dict[int, str] = {}
    for path, module in model.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), uncompiled_path(path))
    return owners

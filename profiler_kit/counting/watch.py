"""Which module is at work: a stack kept by wrapping every module call, and a map from autograd nodes back to modules."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from profiler_kit.counting.operands import spec_of

# Nodes that belong to no forward op (AccumulateGrad, graph roots) carry the largest sequence number there is.
_NO_SEQUENCE = 1 << 62


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a module, outside backward: how many bytes it returned, and the shape of its first tensor."""

    path: str
    output_bytes: int
    output_shape: tuple[int, ...] | None


class ModuleWatch:
    """Knows the running module, and the module whose forward made a given autograd node.

    Autograd numbers its nodes in the order of the forward ops. Noting the number at every module's entry and exit cuts
    the numbers into intervals, each owned by one module; a backward node's number then names its owner, without a hook
    on any tensor or module, so that in-place ops, keyword inputs, shared modules and outputs of any type change nothing.
    """

    def __init__(self, paths: Mapping[int, str], owners: Mapping[int, str]) -> None:
        """`paths`: id(module) to path. `owners`: id(parameter) to the path of the module that owns it."""
        self._paths = paths
        self._owners = owners
        self._thread = threading.get_ident()
        self._starts = [-1]
        self._interval_owners: list[str | int] = [""]  # a path, or the number of a recomputing node: see of_region
        self._callers: dict[str, str] = {}
        self._regions: dict[int, str] = {}
        self._base = ""
        self.stack: list[str] = []
        self.calls: list[ModuleCall] = []
        self.in_backward = False

    @property
    def current(self) -> str:
        """The path of the running module."""
        return self.stack[-1] if self.stack else self._base

    def stand_in(self, path: str) -> None:
        """From here on, what runs outside any module belongs to `path`."""
        self._base = path
        self._note(path)

    def of_node(self, node: Any) -> str:
        """The path of the module whose forward made `node`; for a gradient's arrival, its parameter's owner."""
        sequence = node._sequence_nr()
        if sequence >= _NO_SEQUENCE:
            variable = getattr(node, "variable", None)
            return "" if variable is None else self._owners.get(id(variable), "")
        return self._of_sequence(sequence)

    def of_region(self, sequence: int) -> str:
        """The path of the module that asked for the recomputation which runs inside the node numbered `sequence`.

        It is the caller, in forward, of the modules that the region calls; a region that calls none was run by the
        module that made the node. To be asked once the recomputation is over, when the region's calls are known.
        """
        caller = self._regions.get(sequence)
        return self._of_sequence(sequence) if caller is None else caller

    def in_region(self, sequence: int) -> None:
        """An op runs outside any module, recomputed by the node numbered `sequence`; so do its like until a module does.

        The op's own node has been numbered already when the op is seen. Should it have none, the number is that of a
        node whose backward is over.
        """
        if self._interval_owners[-1] != sequence:
            self._note(sequence, back=1)

    def _of_sequence(self, sequence: int) -> str:
        owner = self._interval_owners[bisect_right(self._starts, sequence) - 1]
        return owner if isinstance(owner, str) else self.of_region(owner)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Wraps ``nn.Module.__call__`` for as long as the block runs."""
        original = nn.Module.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            path = self._paths.get(id(module))
            if path is None or threading.get_ident() != self._thread:
                return original(module, *args, **kwargs)
            self._enter(path)
            try:
                output = original(module, *args, **kwargs)
            finally:
                self.stack.pop()
                self._leave()
            if not self.in_backward:
                self.calls.append(_module_call(path, output))
            return output

        nn.Module.__call__ = call  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.__call__ = original  # type: ignore[method-assign]

    def _enter(self, path: str) -> None:
        if self.in_backward:
            node: Any = torch._C._current_autograd_node()  # None outside backward
            if not self.stack and node is not None and path in self._callers:
                self._regions.setdefault(node._sequence_nr(), self._callers[path])
        else:
            self._callers[path] = self.current
        self.stack.append(path)
        self._note(path)

    def _leave(self) -> None:
        node: Any = torch._C._current_autograd_node()
        recomputing = self.in_backward and not self.stack and node is not None
        self._note(node._sequence_nr() if recomputing else self.current)

    def _note(self, owner: str | int, back: int = 0) -> None:
        self._starts.append(max(torch._C._autograd._get_sequence_nr() - back, self._starts[-1]))
        self._interval_owners.append(owner)


def _module_call(path: str, output: Any) -> ModuleCall:
    specs = [spec_of(tensor) for tensor in output_tensors(output)]
    return ModuleCall(
        path=path,
        output_bytes=sum(spec.nbytes for spec in specs),
        output_shape=specs[0].shape if specs else None,
    )


def output_tensors(output: Any) -> list[torch.Tensor]:
    """The distinct tensors in what a module returned: in lists, tuples, dicts, and the attributes of plain objects."""
    found: dict[int, torch.Tensor] = {}
    _collect(output, 6, found, set())
    return list(found.values())


# Not a function inside output_tensors: calling itself it would be a reference cycle, and keep the tensors alive.
def _collect(value: Any, depth: int, found: dict[int, torch.Tensor], seen: set[int]) -> None:
    if isinstance(value, torch.Tensor):
        found[id(value)] = value
    elif depth and id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, Mapping):
            children: Any = value.values()
        elif isinstance(value, (list, tuple, set, frozenset)):
            children = value
        else:
            children = getattr(value, "__dict__", {}).values()
        for child in children:
            _collect(child, depth - 1, found, seen)

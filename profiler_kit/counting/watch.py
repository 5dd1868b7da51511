"""What modules do while a step is counted: their calls' outputs, and who asked for a recomputation."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from profiler_kit.counting.operands import spec_of
from profiler_kit.loading.ownership import Call, Ownership


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a module, outside backward: how many bytes it returned, and the shape of its first tensor."""

    path: str
    output_bytes: int
    output_shape: tuple[int, ...] | None


class ModuleWatch(Ownership):
    """Ownership that also records each call's output, and tells recomputation inside backward from forward."""

    def __init__(self, paths: Mapping[int, str], owners: Mapping[int, str]) -> None:
        """`paths`: id(module) to path. `owners`: id(parameter) to the path of the module that owns it."""
        super().__init__(paths, owners)
        self._thread = threading.get_ident()
        self._callers: dict[str, str] = {}
        self._regions: dict[int, str] = {}
        self.calls: list[ModuleCall] = []
        self.in_backward = False

    def of_region(self, sequence: int) -> str:
        """The path of the module that asked for the recomputation which runs inside the node numbered `sequence`.

        It is the caller, in forward, of the modules that the region calls; a region that calls none was run by the
        module that made the node. To be asked once the recomputation is over, when the region's calls are known.
        """
        caller = self._regions.get(sequence)
        return self.of_sequence(sequence) if caller is None else caller

    def in_region(self, sequence: int) -> None:
        """An op runs outside any module, recomputed by the node numbered `sequence`; so do its like until a module does.

        The op's own node has been numbered already when the op is seen. Should it have none, the number is that of a
        node whose backward is over.
        """
        if self.noted() != sequence:
            self.note(sequence, back=1)

    def follow(self, path: str, call: Call) -> Any:
        """Runs `call` as the module at `path`, and records what it returned."""
        if threading.get_ident() != self._thread:
            return call()
        if self.in_backward:
            node: Any = torch._C._current_autograd_node()  # None outside backward
            if not self.stack and node is not None and path in self._callers:
                self._regions.setdefault(node._sequence_nr(), self._callers[path])
        else:
            self._callers[path] = self.current
        output = super().follow(path, call)
        if not self.in_backward:
            self.calls.append(_module_call(path, output))
        return output

    def left(self) -> None:
        """A module has returned: its caller owns what comes next, in backward the node that recomputes."""
        node: Any = torch._C._current_autograd_node()
        recomputing = self.in_backward and not self.stack and node is not None
        self.note(node._sequence_nr() if recomputing else self.current)


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

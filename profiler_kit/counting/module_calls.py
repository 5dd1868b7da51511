"""Module calls during a count: their outputs, and the modules that recompute parts of forward."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from profiler_kit.counting.operands import spec_of
from profiler_kit.meta.ownership import Call, ModuleTracker
from profiler_kit.user_code.reachable import tensors_of


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a module outside backward: bytes of its output, and the shape of the first tensor in it."""

    path: str
    output_bytes: int
    output_shape: tuple[int, ...] | None


class ModuleWatch(ModuleTracker):
    """Ownership that also records module outputs, and attributes recomputation inside backward."""

    def __init__(self, paths: Mapping[int, str], owners: Mapping[int, str]) -> None:
        """`paths`: id(module) to path. `owners`: id(parameter) to the path of the module that owns it."""
        super().__init__(paths, owners)
        self._thread = threading.get_ident()
        self._callers: dict[str, str] = {}
        self._regions: dict[int, str] = {}
        self.calls: list[ModuleCall] = []
        self.in_backward = False

    def of_region(self, sequence: int) -> str:
        """The path of the module whose code is recomputed inside the autograd node numbered `sequence`.

        This is the module that called the recomputed modules in forward. If the region calls no module, it is the module
        that made the node. Valid only after the recomputation, when the region's calls are known.
        """
        caller = self._regions.get(sequence)
        return self.of_sequence(sequence) if caller is None else caller

    def in_region(self, sequence: int) -> None:
        """Attribute recomputed ops outside any module to the node numbered `sequence`, until a module is called.

        The current op's own node already has its number. If it has no node, the last number belongs to a node whose
        backward is over.
        """
        if self.last_owner() != sequence:
            self.note(sequence, back=1)

    def follow(self, path: str, call: Call) -> Any:
        """Run `call` as the module at `path` and record its output."""
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
        """Attribute the next ops to the caller of the module that returned; in backward, to the recomputing node."""
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
    """The distinct tensors in a module's output: in containers, and in attributes of objects."""
    return [output] if type(output) is torch.Tensor else tensors_of(output)

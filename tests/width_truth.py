"""An independent attribution of backward operators to modules, from tensor sizes alone.

`scripts/lab/record_traces.py` records networks in which no two modules share sizes (`width_networks.py` in the same folder).
This file reads the trace JSON without profiler_kit. Times determine which operators are inside which autograd node. The sizes
of all operators in a node determine its module. Module calls, sequence numbers and flows are not used.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

NODE = "autograd::engine::evaluate_function: "
# Forward operators of the checkpointed block. Backward never calls them, so inside a node they are recompute.
RECOMPUTED_OPS = ("aten::conv2d", "aten::group_norm", "aten::relu", "aten::tanh")
# These operators belong to the function that called the block, although they have the block's sizes.
CALLER_MODULES = {"CheckpointFunctionBackward": "Network_0"}

LEAF = "torch::autograd::AccumulateGrad"

Shape = tuple[int, ...]


class Place(NamedTuple):
    """The position of an operator in its trace: start, duration and name."""

    start_ns: int
    duration_ns: int
    name: str


@dataclass(slots=True)
class Group:
    """An autograd node, or one recomputed operator inside a node, with the sizes of all its operators."""

    name: str
    phase: Literal["backward", "recompute"]
    operators: list[Place] = field(default_factory=list)
    external: list[int] = field(default_factory=list)
    shapes: set[Shape] = field(default_factory=set)


class Expected(NamedTuple):
    """The expected attribution of an operator in backward: module name (as in the profiler), enclosing calls and phase."""

    module: str
    calls: tuple[str, ...]
    phase: Literal["backward", "recompute"]


@dataclass(frozen=True, slots=True)
class Truth:
    """The expected attribution of every operator in backward, by its place and by its external id."""

    by_place: dict[Place, Expected]
    by_external: dict[int, Expected]
    modules: dict[str, Any]
    device: str


def truth_of(trace: Path) -> Truth:
    """Return the expected attribution of `trace`, from the sizes in its ``.truth.json`` file."""
    truth = json.loads(trace.with_name(trace.name.replace(".json.gz", ".truth.json")).read_text())
    modules = truth["modules"]
    by_place: dict[Place, Expected] = {}
    by_external: dict[int, Expected] = {}
    name = ""
    for group in groups(trace):
        if group.name != LEAF or group.shapes & parameters(modules):
            # A leaf that is not a parameter is the input of a block: the previous node computed its gradient.
            name = module_of(group, modules)
        expected = Expected(name, tuple(modules[name]["calls"]), group.phase)
        by_place.update(dict.fromkeys(group.operators, expected))
        by_external.update(dict.fromkeys(group.external, expected))
    return Truth(by_place, by_external, modules, truth["device"])


def module_of(group: Group, modules: dict[str, Any]) -> str:
    """Return the only module with the sizes of `group`: of its parameters if possible, else of its activations."""
    if group.name in CALLER_MODULES:
        return CALLER_MODULES[group.name]
    matches = {
        name for name, module in modules.items() if group.shapes & {tuple(shape) for shape in module["parameters"]}
    }
    if not matches:
        activations = {
            name: {tuple(shape) for shape in module["activations"]}
            for name, module in modules.items()
            if not module["parameters"] or name.startswith("Embedding")
        }
        activation_shapes = group.shapes & set().union(*activations.values())
        within = {
            name: shapes for name, shapes in activations.items() if activation_shapes and activation_shapes <= shapes
        }
        min_count = min((len(shapes) for shapes in within.values()), default=0)
        matches = {name for name, shapes in within.items() if len(shapes) == min_count}
    assert len(matches) == 1, f"{group.name}: ambiguous sizes {sorted(group.shapes)}: {sorted(matches)}"
    return matches.pop()


def parameters(modules: dict[str, Any]) -> set[Shape]:
    """Return the sizes of all parameters."""
    return {tuple(shape) for module in modules.values() for shape in module["parameters"]}


def groups(trace: Path) -> list[Group]:
    """Return the groups of backward; every operator is in its innermost group."""
    events = json.loads(gzip.decompress(trace.read_bytes()), parse_float=str)["traceEvents"]
    threads: dict[str, list[tuple[int, int, dict[str, Any]]]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and event.get("cat") == "cpu_op":
            threads[str(event["tid"])].append((nanoseconds(event["ts"]), nanoseconds(event["dur"]), event))
    backward_groups: list[Group] = []
    for operators in threads.values():
        operators.sort(key=lambda operator: (operator[0], -operator[1]))
        enclosing: list[tuple[int, Group | None]] = []
        for start, duration, event in operators:
            while enclosing and enclosing[-1][0] <= start:
                enclosing.pop()
            group = enclosing[-1][1] if enclosing else None
            name = event["name"]
            if name.startswith(NODE):
                group = Group(name.removeprefix(NODE), "backward")
                backward_groups.append(group)
            elif group is not None and group.phase == "backward" and name in RECOMPUTED_OPS:
                group = Group(name, "recompute")
                backward_groups.append(group)
            if group is not None:
                arguments = event.get("args", {})
                group.operators.append(Place(start, duration, name))
                group.external.append(int(arguments.get("External id", -1)))
                group.shapes.update(shapes_in(arguments.get("Input Dims", [])))
            enclosing.append((start + duration, group))
    return backward_groups


def shapes_in(dims: Any) -> set[Shape]:
    """Return all sizes in an operator's "Input Dims". A list of tensors is a list of sizes there."""
    if dims and all(isinstance(size, int) for size in dims):
        return {tuple(dims)}
    return set().union(*(shapes_in(item) for item in dims if isinstance(item, list))) if dims else set()


def nanoseconds(microseconds: int | str) -> int:
    """Convert a time in us, as written in the trace, to whole ns."""
    integer, _, fraction = str(microseconds).partition(".")
    return int(integer) * 1000 + int((fraction + "000")[:3])


def names_in(path: str) -> tuple[str, ...]:
    """Split a module's path into the names of its calls."""
    return tuple(path.replace("/", ".").split(".")) if path else ()

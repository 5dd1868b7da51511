"""Whose the operators of a recorded network are, told from the sizes they were called with alone.

The traces of `scripts/lab/record_traces.py` are of networks in which no two modules share sizes (`width_networks.py` beside it).
Read here from the file's own JSON, with nothing of the package: which operators lie inside which autograd node by their times,
and whose a node is by the sizes of all operators in it. No module call, sequence number or flow is looked at.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

NODE = "autograd::engine::evaluate_function: "
# What the checkpointed block calls in its forward, and no backward does: inside a node, it is done anew.
DONE_ANEW = ("aten::conv2d", "aten::group_norm", "aten::relu", "aten::tanh")
# Its operators are those of the function that called the block; they have the block's sizes.
OF_THE_CALLER = {"CheckpointFunctionBackward": "Network_0"}

LEAF = "torch::autograd::AccumulateGrad"

Shape = tuple[int, ...]


class Place(NamedTuple):
    """Where an operator is in its trace: its start in ns, its length in ns, its name."""

    start_ns: int
    duration_ns: int
    name: str


@dataclass(slots=True)
class Group:
    """An autograd node, or one operator done anew inside of one, and the sizes of what is in it."""

    name: str
    phase: Literal["backward", "recompute"]
    operators: list[Place] = field(default_factory=list)
    external: list[int] = field(default_factory=list)
    shapes: set[Shape] = field(default_factory=set)


class Expected(NamedTuple):
    """Whose an operator inside backward is; `module` as the profiler names it, with the names of the calls around it."""

    module: str
    calls: tuple[str, ...]
    phase: Literal["backward", "recompute"]


@dataclass(frozen=True, slots=True)
class Truth:
    """Per operator inside backward, whose it is: by its place, and by the number that its kernels share with it."""

    by_place: dict[Place, Expected]
    by_external: dict[int, Expected]
    modules: dict[str, Any]
    device: str


def truth_of(trace: Path) -> Truth:
    """The truth of `trace`, by the sizes in the file beside it."""
    beside = json.loads(trace.with_name(trace.name.replace(".json.gz", ".truth.json")).read_text())
    modules = beside["modules"]
    by_place: dict[Place, Expected] = {}
    by_external: dict[int, Expected] = {}
    name = ""
    for group in groups(trace):
        if group.name != LEAF or group.shapes & parameters(modules):
            name = owner(
                group, modules
            )  # a leaf that is no parameter is a block's input: the node before made its gradient
        expected = Expected(name, tuple(modules[name]["calls"]), group.phase)
        by_place.update(dict.fromkeys(group.operators, expected))
        by_external.update(dict.fromkeys(group.external, expected))
    return Truth(by_place, by_external, modules, beside["device"])


def owner(group: Group, modules: dict[str, Any]) -> str:
    """The one module whose sizes a group has: a parameter's where there is one, else those of what goes in and comes out."""
    if group.name in OF_THE_CALLER:
        return OF_THE_CALLER[group.name]
    found = {
        name for name, module in modules.items() if group.shapes & {tuple(shape) for shape in module["parameters"]}
    }
    if not found:
        activations = {
            name: {tuple(shape) for shape in module["activations"]}
            for name, module in modules.items()
            if not module["parameters"] or name.startswith("Embedding")
        }
        seen = group.shapes & set().union(*activations.values())
        within = {name: shapes for name, shapes in activations.items() if seen and seen <= shapes}
        fewest = min((len(shapes) for shapes in within.values()), default=0)
        found = {name for name, shapes in within.items() if len(shapes) == fewest}
    assert len(found) == 1, f"sizes do not tell whose {group.name} is: {sorted(found)} by {sorted(group.shapes)}"
    return found.pop()


def parameters(modules: dict[str, Any]) -> set[Shape]:
    """The sizes of all parameters."""
    return {tuple(shape) for module in modules.values() for shape in module["parameters"]}


def groups(trace: Path) -> list[Group]:
    """What backward did, node by node; every operator in the innermost of its nodes."""
    events = json.loads(gzip.decompress(trace.read_bytes()), parse_float=str)["traceEvents"]
    threads: dict[str, list[tuple[int, int, dict[str, Any]]]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and event.get("cat") == "cpu_op":
            threads[str(event["tid"])].append((nanoseconds(event["ts"]), nanoseconds(event["dur"]), event))
    found: list[Group] = []
    for operators in threads.values():
        operators.sort(key=lambda each: (each[0], -each[1]))
        around: list[tuple[int, Group | None]] = []
        for start, duration, event in operators:
            while around and around[-1][0] <= start:
                around.pop()
            group = around[-1][1] if around else None
            name = event["name"]
            if name.startswith(NODE):
                group = Group(name.removeprefix(NODE), "backward")
                found.append(group)
            elif group is not None and group.phase == "backward" and name in DONE_ANEW:
                group = Group(name, "recompute")
                found.append(group)
            if group is not None:
                arguments = event.get("args", {})
                group.operators.append(Place(start, duration, name))
                group.external.append(int(arguments.get("External id", -1)))
                group.shapes.update(shapes_in(arguments.get("Input Dims", [])))
            around.append((start + duration, group))
    return found


def shapes_in(dims: Any) -> set[Shape]:
    """All sizes in an operator's "Input Dims", in which lists of tensors are lists of sizes."""
    if dims and all(isinstance(size, int) for size in dims):
        return {tuple(dims)}
    return set().union(*(shapes_in(each) for each in dims if isinstance(each, list))) if dims else set()


def nanoseconds(microseconds: int | str) -> int:
    """Whole ns of a time as written."""
    whole, _, fraction = str(microseconds).partition(".")
    return int(whole) * 1000 + int((fraction + "000")[:3])


def names_in(path: str) -> tuple[str, ...]:
    """The names of the calls in a module's path."""
    return tuple(path.replace("/", ".").split(".")) if path else ()

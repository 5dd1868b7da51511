"""Traces with our own marks: inspected as anybody's, they give the figures that `analyze` gives of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import profiler_kit
from profiler_kit.attribute import attribute
from profiler_kit.render.chrome_trace import annotate

FOLDER = Path(__file__).parents[1] / "fixtures" / "traces"
FILES = sorted(FOLDER.glob("*.json.gz"))
# The interpreter's time between recomputed operators is a module's to one and the node's to the other: on a CPU it counts.
SAME_OWNERS = [path for path in FILES if ".cuda." in path.name or not path.name.startswith("checkpoint")]


def named(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


@pytest.mark.parametrize("path", FILES, ids=named)
def test_the_whole_is_the_same(path: Path) -> None:
    analyzed, (inspected,) = attribute(path), profiler_kit.inspect(path).traces
    assert (inspected.clock == "device") == (analyzed.clock == "kernel")
    assert len(inspected.steps) == analyzed.steps
    assert abs(inspected.busy_ns - analyzed.device_ns * analyzed.steps) <= analyzed.steps
    assert inspected.unattributed_ns == analyzed.unattributed_ns == 0


@pytest.mark.parametrize("path", SAME_OWNERS, ids=named)
def test_phases_and_modules_are_the_same(path: Path) -> None:
    analyzed, (inspected,) = attribute(path), profiler_kit.inspect(path).traces
    phases: Counter[str] = Counter()
    for layer in analyzed.layers:
        phases[layer.phase] += layer.kernel_ns
    found = {phase.phase: phase.kernel_ns for phase in inspected.phases}
    owned = {(module.path, module.phase): module.kernel_ns for module in inspected.modules}
    # a figure is a step's, in whole ns, added up from its kernels'
    rounded = analyzed.steps * sum(1 + len(layer.kernels) for layer in analyzed.layers)
    for phase, ns in phases.items():
        assert abs(found[phase] - ns * analyzed.steps) <= rounded, phase
    for layer in analyzed.layers:
        if layer.path.startswith(("stem", "block", "head")):
            off_ns = owned[layer.path, layer.phase] - layer.kernel_ns * analyzed.steps
            assert abs(off_ns) <= analyzed.steps * (1 + len(layer.kernels)), layer.path


@pytest.mark.parametrize("path", sorted(set(FILES) - set(SAME_OWNERS)), ids=named)
def test_backward_with_what_it_does_anew_is_the_same(path: Path) -> None:
    analyzed, (inspected,) = attribute(path), profiler_kit.inspect(path).traces
    phases = {phase.phase: phase.kernel_ns for phase in inspected.phases}
    ns = sum(layer.kernel_ns for layer in analyzed.layers if layer.phase in ("backward", "recompute"))
    rounded = analyzed.steps * sum(1 + len(layer.kernels) for layer in analyzed.layers)
    assert abs(phases["backward"] + phases["recompute"] - ns * analyzed.steps) <= rounded


@pytest.mark.parametrize("path", FILES, ids=named)
def test_the_lanes_that_analyze_adds_change_nothing(path: Path, tmp_path: Path) -> None:
    plain = profiler_kit.inspect(path).traces[0]
    annotated = tmp_path / path.name
    annotated.write_bytes(annotate(path.read_bytes(), attribute(path).spans))
    (found,) = profiler_kit.inspect(annotated).traces
    assert found.events > plain.events
    assert replace(found, file=plain.file, events=plain.events) == plain

"""Traces with marks of profiler_kit: `inspect` gives for the whole trace the figures that `analyze` gives per step."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from marked_traces import attribute, attribution

import profiler_kit
from profiler_kit.attribution.annotation_lanes import build_annotation
from profiler_kit.pipeline.annotation import add_annotation
from profiler_kit.render.chrome_trace import event_lines

FOLDER = Path(__file__).parents[1] / "fixtures" / "traces"
FILES = sorted(FOLDER.glob("*.json.gz"))


def named(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


@pytest.mark.parametrize("path", FILES, ids=named)
def test_the_whole_is_the_same(path: Path) -> None:
    analyzed, (inspected,) = attribute(path), profiler_kit.inspect(path).traces
    assert (inspected.clock == "device") == (analyzed.clock == "kernel")
    assert len(inspected.steps) == analyzed.traced_steps
    assert analyzed.device_ns is not None
    assert abs(inspected.busy_ns - analyzed.device_ns * analyzed.traced_steps) <= analyzed.traced_steps
    assert inspected.unattributed_ns == analyzed.unattributed_ns == 0


@pytest.mark.parametrize("path", FILES, ids=named)
def test_phases_and_modules_are_the_same(path: Path) -> None:
    analyzed, (inspected,) = attribute(path), profiler_kit.inspect(path).traces
    phases: Counter[str] = Counter()
    for layer in analyzed.modules:
        phases[layer.phase] += layer.kernel_ns
    result = {phase.phase: phase.kernel_ns for phase in inspected.phases}
    modules = {(module.path, module.phase): module.kernel_ns for module in inspected.modules}
    # a figure is a step's, in whole ns, added up from its kernels'
    divide_rounded = analyzed.traced_steps * sum(1 + len(layer.kernels) for layer in analyzed.modules)
    for phase, ns in phases.items():
        assert abs(result[phase] - ns * analyzed.traced_steps) <= divide_rounded, phase
    for layer in analyzed.modules:
        off_ns = modules[layer.path, layer.phase] - layer.kernel_ns * analyzed.traced_steps
        assert abs(off_ns) <= analyzed.traced_steps * (1 + len(layer.kernels)), layer.path


@pytest.mark.parametrize("path", FILES, ids=named)
def test_the_lanes_that_analyze_adds_change_nothing(path: Path, tmp_path: Path) -> None:
    plain = profiler_kit.inspect(path).traces[0]
    annotated = tmp_path / path.name
    with gzip.open(annotated, "wb") as out:
        add_annotation(path, out, build_annotation(attribution(path)), event_lines)
    (result,) = profiler_kit.inspect(annotated).traces
    assert result.events > plain.events
    assert replace(result, file=plain.file, events=plain.events) == plain

"""Recorded traces with our marks: the owner of every event, and the figures of a run, as they were once agreed on.

`attributed.json` was written by an independent implementation, which walked the events one by one.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from marked_traces import attribute, attribution

from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.traces.table import NONE, Bytes, Ids, Kind

FOLDER = Path(__file__).parents[1] / "fixtures" / "traces"
RECORDED = sorted(FOLDER.glob("*.json.gz"))
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "attributed.json").read_text())


def named(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


def owners(phase: Bytes, module: Ids, paths: list[str]) -> Counter[str]:
    """How many events each phase and path have; those in no phase aside."""
    names = [TRACE_PHASES[number] if number != NONE else "other" for number in phase.tolist()]
    pairs = zip(names, module.tolist(), strict=True)
    return Counter(f"{name} {paths[number]}" for name, number in pairs if name != "other")


def test_there_are_recorded_traces() -> None:
    assert {named(path) for path in RECORDED} == set(EXPECTED)


@pytest.mark.parametrize("path", RECORDED, ids=named)
def test_every_event_has_its_owner(path: Path) -> None:
    result, expected = attribution(path), EXPECTED[named(path)]
    paths = [module.path for module in result.modules]
    marked = result.table.kind[result.host.rows] != Kind.PYTHON
    assert owners(result.host.phase[marked], result.host.module[marked], paths) == expected["host_events"]
    assert owners(result.device.within, result.device.module, paths) == expected["device_events"]


@pytest.mark.parametrize("path", RECORDED, ids=named)
def test_a_runs_figures_are_the_same(path: Path) -> None:
    run, expected = attribute(path), EXPECTED[named(path)]
    assert (run.clock, run.traced_steps, run.device_ns) == tuple(
        expected[key] for key in ("clock", "steps", "device_ns")
    )
    assert {f"{layer.phase} {layer.path}": layer.kernel_ns for layer in run.modules} == expected["layers_ns"]
    assert [[k.name[:40], k.calls, k.kernel_ns] for k in run.kernels[:5]] == expected["kernels_ns"]
    assert (run.unattributed_ns, run.notes) == (0, ())

"""On traces that have our marks, owners are those that `attribute` finds: the same rules, written for columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profiler_kit.attribute.assign import Assignment
from profiler_kit.attribute.correlate import Frame, Links, correlate
from profiler_kit.attribute.events import read_trace
from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Attribution
from profiler_kit.records.traces import TRACE_PHASES
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import NONE, Kind

RECORDED = sorted((Path(__file__).parents[1] / "fixtures" / "traces").glob("*.json.gz"))


def frames_in_order(attribution: Attribution, links: Links) -> list[tuple[int, Frame]]:
    """Every position of the host but Python's, and the frame that `attribute` has for the same event."""
    table, rows = attribution.table, attribution.host.rows
    pairs: list[tuple[int, Frame]] = []
    for number, thread in enumerate(table.threads):
        here = np.flatnonzero((table.thread[rows] == number) & (table.kind[rows] != Kind.PYTHON))
        frames = next((frames for key, frames in links.threads.items() if key == (thread.process, thread.thread)), ())
        assert len(here) == len(frames)
        pairs += zip(here.tolist(), frames, strict=True)
    return pairs


def test_there_are_recorded_traces() -> None:
    assert len(RECORDED) >= 8


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_every_host_event_has_the_same_owner(path: Path) -> None:
    attribution = attribute(read(path))
    links = correlate(read_trace(path))
    pairs = frames_in_order(attribution, links)
    assert {step.number for step in attribution.steps} == {frame.step for frame in links.steps}
    assignment = Assignment(links)
    table, host = attribution.table, attribution.host
    checked = 0
    for position, frame in pairs:
        row = int(host.rows[position])
        assert table.names[table.name[row]] == frame.event.name
        assert int(table.start_ns[row]) == frame.event.start_ns
        owner = assignment.owner(frame)
        if owner is None:
            assert host.phase[position] == NONE or TRACE_PHASES[host.phase[position]] == "other"
            continue
        checked += 1
        assert (TRACE_PHASES[host.phase[position]], attribution.modules[host.module[position]].path) == owner, (
            frame.event
        )
    assert checked > len(pairs) // 2


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_every_device_event_has_the_owner_of_its_launch(path: Path) -> None:
    attribution = attribute(read(path))
    trace = read_trace(path)
    links = correlate(trace)
    assignment = Assignment(links)
    assert len(trace.device) == len(attribution.device.rows)
    for index, event in enumerate(trace.device):
        frame = links.launches.get(event.correlation) if event.correlation is not None else None
        assert (frame is None) == (attribution.device.launch[index] == NONE)
        owner = assignment.owner(frame) if frame is not None else None
        if frame is None or owner is None:
            continue
        module = attribution.modules[attribution.device.module[index]].path
        assert (TRACE_PHASES[attribution.device.within[index]], module) == owner, event
        step = attribution.device.step[index]
        assert (attribution.steps[step].number if step != NONE else None) == assignment.step(frame)

"""Published traces: the authors' own marks, which the attribution does not read, are the reference."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from published_traces import FILES, PUBLISHED, TRUTH, published

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Attribution, Evidence
from profiler_kit.errors import TraceError
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import NONE, Kind, Mask

pytestmark = published

NO_TRACE = "hta/memory_timeline.raw.json.gz"
SAMPLED = ("hta/sampled_rank-0of128.json.gz", "hta/sampled_rank-1of128.json.gz")
V100 = "hta/ns_resolution_resnet_ddp_v100.json.gz"
MI300 = "tracelens/mi300_resnet_ddp_act_checkpoint.json.gz"
# What the authors' marks hold; work of the loss and the zeroing of gradients stand inside of their mark around backward.
MARKED = {
    "## forward ##": {"forward", "loss"},
    "## backward ##": {"backward", "recompute", "loss", "optimizer"},
    "## optimizer ##": {"optimizer"},
}


@cache
def attribution(file: str) -> Attribution:
    return attribute(read(PUBLISHED / file))


def durations(found: Attribution) -> np.ndarray[Any, np.dtype[np.int64]]:
    return found.table.duration_ns[found.device.rows]


@pytest.mark.parametrize("file", FILES)
def test_every_file_has_owners_or_says_why_not(file: str) -> None:
    if file == NO_TRACE:
        with pytest.raises(TraceError):
            attribution(file)
        return
    result = attribution(file)
    linked = int((result.device.launch != NONE).sum())
    if "linked_by_correlation" in TRUTH.get(file, {}):
        assert linked == TRUTH[file]["linked_by_correlation"]
    assert len(result.host.rows) + len(result.device.rows) <= len(result.table)
    # All linked work has a phase; unlinked work has one where another step says so, and then nowhere else from.
    device = result.device
    assert (device.phase[device.launch != NONE] != NONE).all()
    aligned = device.evidence == Evidence.ALIGNED
    assert not (aligned & (device.launch != NONE)).any()
    assert (device.within[aligned] != NONE).all()


class Agreement(NamedTuple):
    """Of the device's time launched inside the authors' marks, the share that agrees; ns launched outside by phase."""

    share: float
    outside_ns: Counter[str]


def agreement(found: Attribution) -> Agreement:
    table, device = found.table, found.device
    marks = [(row, table.names[table.name[row]]) for row in np.flatnonzero(table.of(Kind.ANNOTATION)).tolist()]
    marks = sorted((int(table.start_ns[row]), int(table.end_ns[row]), name) for row, name in marks if name in MARKED)
    inside = agreed = 0
    outside: Counter[str] = Counter()
    for event in np.flatnonzero(device.launch != NONE).tolist():
        at = int(table.start_ns[found.host.rows[device.launch[event]]])
        ns = int(table.duration_ns[device.rows[event]])
        phase = TRACE_PHASES[device.within[event]]
        name = next((name for start, end, name in marks if start <= at <= end), None)
        if name is None:
            outside["communication" if TRACE_PHASES[device.phase[event]] == "communication" else phase] += ns
            continue
        inside += ns
        agreed += ns * (phase in MARKED[name])
    return Agreement(agreed / inside, outside)


@pytest.mark.parametrize("file", [V100, *SAMPLED])
def test_phases_agree_with_the_authors_marks(file: str) -> None:
    result = agreement(attribution(file))
    assert result.share >= 0.999


def test_hardly_anything_is_nobodys_on_a_plain_loop() -> None:
    result = attribution(V100)
    other = durations(result)[result.device.phase == TRACE_PHASES.index("other")].sum()
    assert other <= 0.01 * durations(result).sum()
    assert not agreement(result).outside_ns


@pytest.mark.parametrize("file", SAMPLED)
def test_what_is_outside_of_the_marks_is_not_called_forward(file: str) -> None:
    """The next batch's lookups and their collectives, pipelined; figures to be shown."""
    outside = agreement(attribution(file)).outside_ns
    assert outside["forward"] == outside["backward"] == 0
    assert set(outside) == {"communication", "other", "transfer"}


def without_wrapper(found: Attribution) -> Attribution:
    """The same trace, had DDP not named its forward."""
    table = found.table
    names = tuple("plain" if name == "DistributedDataParallel.forward" else name for name in table.names)
    return attribute(replace(table, names=names))


@pytest.mark.parametrize("file", [V100, *SAMPLED])
def test_windows_alone_agree_nearly_as_well(file: str) -> None:
    """What they miss is before the first op that backward uses: copies of buffers, lookups of indices."""
    result = without_wrapper(attribution(file))
    assert not (result.device.evidence == Evidence.MODULE).any()
    assert agreement(result).share >= 0.997
    assert agreement(result).outside_ns["forward"] <= 0.0001 * durations(result).sum()


# ---- activation checkpointing on an MI300


def linked_work(found: Attribution) -> Mask:
    return (found.device.launch != NONE) & (found.device.phase != TRACE_PHASES.index("communication"))


def test_nearly_all_work_has_a_module_and_recomputation_is_apart() -> None:
    result = attribution(MI300)
    ns, work = durations(result), linked_work(result)
    assert ns[work & (result.device.module != NONE)].sum() >= 0.95 * ns[work].sum()
    again = work & (result.device.phase == TRACE_PHASES.index("recompute"))
    forward = work & (result.device.phase == TRACE_PHASES.index("forward"))
    assert 0.3 * ns[forward].sum() < ns[again].sum() < ns[forward].sum()
    # Work done again has the paths that it had in forward, from the outermost module down.
    paths = {
        result.modules[module].path for module in np.unique(result.device.module[again]).tolist() if module != NONE
    }
    in_forward = {result.modules[module].path for module in np.unique(result.device.module[forward]).tolist()}
    assert paths <= in_forward | {result.modules[0].path}
    assert all(path.startswith("DistributedDataParallel_0.ResNet_0") for path in paths)


# ---- a loop whose phases were timed with CUDA events


def test_phases_of_the_convnet_agree_with_cuda_events() -> None:
    """Per step. An event's time has the gaps between kernels in it, and of the short phases it is mostly gaps."""
    result = attribution("h100/convnet_v0.json.gz")
    truth = json.loads((PUBLISHED / "h100" / "convnet_v0.truth.json").read_text())["v0"]
    table, device = result.table, result.device
    start, end = table.start_ns[device.rows], table.end_ns[device.rows]
    assert len(result.steps) == 3
    for step in range(3):
        for phase in ("forward", "backward", "loss", "optimizer"):
            here = (device.step == step) & (device.within == TRACE_PHASES.index(phase))
            kernels_ms = float((end - start)[here].sum()) / 1e6
            span_ms = float(end[here].max() - start[here].min()) / 1e6
            event_ms = truth[f"{phase}_ms"]
            if phase in ("forward", "backward"):
                assert kernels_ms == pytest.approx(event_ms, rel=0.03)
            else:
                assert kernels_ms < event_ms < span_ms + 0.006
                assert span_ms == pytest.approx(event_ms, abs=0.005)


# ---- the pair of 2021


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("kineto/")])
def test_the_first_profilers_traces(file: str) -> None:
    result = attribution(file)
    ns = durations(result)
    share = {phase: ns[result.device.phase == number].sum() / ns.sum() for number, phase in enumerate(TRACE_PHASES)}
    assert share["other"] < 0.0001
    assert 0.6 < share["backward"] < 0.66
    assert 0.3 < share["forward"] < 0.36
    assert 0.01 < share["transfer"] < 0.04
    assert 0.01 < share["optimizer"] < 0.02
    assert len(result.steps) == 6

"""Real traces of other people's machines: every one is answered, and its figures are those that were worked out beside it."""

from __future__ import annotations

import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import profiler_kit
from profiler_kit.errors import TraceError
from profiler_kit.inspection.attribution import own
from profiler_kit.inspection.ownership import NONE, Owned
from profiler_kit.records.traces import TRACE_PHASES, TraceSummary
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import Kind

PUBLISHED = Path(
    os.environ.get("PROFILER_KIT_TRACES", Path(__file__).parents[2].parent / "shared" / "traces")
)  # beside the checkout, or where the variable says

pytestmark = pytest.mark.skipif(
    not (PUBLISHED / "truth.json").is_file(), reason="the published traces are not beside this checkout"
)

TRUTH: dict[str, Any] = (
    json.loads((PUBLISHED / "truth.json").read_text())["traces"] if (PUBLISHED / "truth.json").is_file() else {}
)
ON_DEVICE = [name for name, truth in TRUTH.items() if truth.get("gpu_events")]
FILES = sorted(str(path.relative_to(PUBLISHED)) for path in PUBLISHED.rglob("*.json.gz"))
# Its times are ns since 1970, of which a float knows every 256th: its span was worked out in floats.
FLOATS = {"hta/ns_resolution_resnet_ddp_v100.json.gz": 256}
V100 = "hta/ns_resolution_resnet_ddp_v100.json.gz"
MI300 = "tracelens/mi300_resnet_ddp_act_checkpoint.json.gz"
# What an author's mark holds besides: copies at its start, the loss before backward, gradients zeroed around the optimizer.
WITHIN = {
    "forward": {"forward", "transfer", "loss"},
    "backward": {"backward", "recompute", "loss", "optimizer"},
    "optimizer": {"optimizer"},
}


@cache
def inspected(name: str) -> TraceSummary:
    (summary,) = profiler_kit.inspect(PUBLISHED / name).traces
    return summary


@cache
def owned(name: str) -> Owned:
    return own(read(PUBLISHED / name))


def kernel_ns(summary: TraceSummary) -> dict[str, int]:
    return {phase.phase: phase.kernel_ns for phase in summary.phases}


def launched_in_marks(found: Owned) -> dict[str, Counter[str]]:
    """Device time by the author's mark that its launch lies in, "" for none, and by phase."""
    table, host, device = found.table, found.host, found.device
    annotations = np.flatnonzero(table.of(Kind.ANNOTATION, Kind.OPERATOR))
    spans = [
        (phase, int(table.start_ns[row]), int(table.end_ns[row]))
        for row in annotations.tolist()
        if (phase := table.names[int(table.name[row])].strip("# ")) in WITHIN
    ]
    by_mark: dict[str, Counter[str]] = {phase: Counter() for phase in (*WITHIN, "")}
    for row, launch, number in zip(device.rows.tolist(), device.launch.tolist(), device.within.tolist(), strict=True):
        at = int(table.start_ns[host.rows[launch]]) if launch != NONE else -1
        mark = next((phase for phase, start, end in spans if start <= at < end), "")
        by_mark[mark][TRACE_PHASES[number] if number != NONE else ""] += int(table.duration_ns[row])
    return by_mark


@pytest.mark.parametrize("name", [name for name in FILES if not TRUTH.get(name, {}).get("not_a_trace")])
def test_every_trace_gives_a_report_whose_parts_are_the_whole(name: str) -> None:
    summary = inspected(name)
    assert summary.events > 0
    assert summary.busy_ns + summary.idle_ns == summary.span_ns
    assert sum(phase.kernel_ns for phase in summary.phases) + summary.unattributed_ns == summary.busy_ns
    assert sum(idle.ns for idle in summary.idle) == summary.idle_ns


@pytest.mark.parametrize("name", [name for name in FILES if TRUTH.get(name, {}).get("not_a_trace")])
def test_a_file_that_is_no_trace_gives_a_sentence(name: str) -> None:
    with pytest.raises(TraceError) as raised:
        profiler_kit.inspect(PUBLISHED / name)
    assert raised.value.message
    assert "\n" not in raised.value.message


@pytest.mark.parametrize("name", ON_DEVICE)
def test_the_timeline_is_exact(name: str) -> None:
    summary, truth = inspected(name), TRUTH[name]
    assert summary.events == truth["events"]
    assert summary.device_events == truth["gpu_events"]
    assert summary.busy_ns == truth["gpu_busy_union_ns"]
    assert abs(summary.span_ns - truth["gpu_span_ns"]) <= FLOATS.get(name, 0)
    assert summary.span_ns - summary.idle_ns == truth["gpu_span_ns"] - truth["gpu_idle_ns"]
    assert summary.sum_ns == truth["gpu_sum_ns"]
    assert summary.linked == truth["linked_by_correlation"]
    streams = {f"{one.device}/{one.stream}": {"n": one.events, "busy_ns": one.busy_ns} for one in summary.streams}
    assert streams == truth["streams"]


@pytest.mark.parametrize("name", [name for name in ON_DEVICE if TRUTH[name]["comm"]["n"]])
def test_communication_is_exact(name: str) -> None:
    found, truth = inspected(name).communication, TRUTH[name]["comm"]
    assert found is not None
    assert (found.events, found.union_ns) == (truth["n"], truth["union_ns"])
    assert found.exposed_ns == truth["exposed_vs_compute_ns"]


@pytest.mark.parametrize("name", [name for name, truth in TRUTH.items() if truth.get("gpu_events") == 0])
def test_without_device_work_the_host_s_clock_is_shown(name: str) -> None:
    summary = inspected(name)
    assert summary.clock == "host"
    assert summary.device_events == 0


def test_phases_agree_with_the_author_s_marks() -> None:
    by_mark = launched_in_marks(owned(V100))
    inside = sum(sum(by_mark[mark].values()) for mark in WITHIN)
    agreed = sum(ns for mark, phases in WITHIN.items() for phase, ns in by_mark[mark].items() if phase in phases)
    assert agreed >= 0.999 * inside
    authors = TRUTH[V100]["author_annotations"]
    assert {mark: sum(by_mark[mark].values()) for mark in WITHIN} == {
        mark: authors[f"## {mark} ##"]["gpu_sum_ns"] for mark in WITHIN
    }
    summary = inspected(V100)
    phases = kernel_ns(summary)
    assert phases.get("other", 0) + summary.unattributed_ns <= 0.01 * summary.busy_ns
    # the marks' own figures: 150.4, 316.5 and 5.5 ms; the loss is inside the author's backward
    assert phases["forward"] == pytest.approx(authors["## forward ##"]["gpu_union_ns"], rel=0.005)
    backward = phases["backward"] + phases.get("loss", 0)
    assert backward == pytest.approx(authors["## backward ##"]["gpu_union_ns"], rel=0.005)
    assert phases["optimizer"] == pytest.approx(authors["## optimizer ##"]["gpu_union_ns"], rel=0.02)


@pytest.mark.parametrize("rank", [0, 1])
def test_phases_of_a_recommender_agree_with_its_author_s_marks(rank: int) -> None:
    """Its forward begins with work on indices that no backward uses: that is not swept into any phase, but shown."""
    found = owned(f"hta/sampled_rank-{rank}of128.json.gz")
    by_mark = launched_in_marks(found)
    inside = sum(sum(by_mark[mark].values()) for mark in WITHIN)
    agreed = sum(ns for mark, phases in WITHIN.items() for phase, ns in by_mark[mark].items() if phase in phases)
    claimed = sum(ns for mark in WITHIN for phase, ns in by_mark[mark].items() if phase not in ("", "other"))
    assert agreed >= 0.99 * inside
    assert agreed >= 0.999 * claimed
    # computed outside of any mark, for the step to come
    outside = (found.device.launch != NONE) & (found.device.phase == TRACE_PHASES.index("forward"))
    in_forward = int(found.table.duration_ns[found.device.rows[outside]].sum())
    assert in_forward <= 1.001 * by_mark["forward"]["forward"]


def test_an_ordinary_loop_agrees_with_events_recorded_on_the_device() -> None:
    truth = json.loads((PUBLISHED / "h100" / "convnet_v0.truth.json").read_text())["v0"]
    found = owned("h100/convnet_v0.json.gz")
    table, device = found.table, found.device
    assert len(found.steps) == 3
    # Kernels without a launch here are of the step before the three. The events' times have the gaps between kernels in them.
    ns = {
        phase: int(table.duration_ns[device.rows[(device.launch != NONE) & (device.phase == number)]].sum())
        for number, phase in enumerate(TRACE_PHASES)
    }
    for phase in ("forward", "backward"):
        assert ns[phase] / 3e6 == pytest.approx(truth[f"{phase}_ms"], rel=0.03), phase
    assert ns["loss"] / 3e6 < truth["loss_ms"]
    assert 0.8 < ns["optimizer"] / 3e6 / truth["optimizer_ms"] < 1  # three short kernels, and the gaps between them
    summary = inspected("h100/convnet_v0.json.gz")
    assert summary.unattributed_ns + kernel_ns(summary).get("other", 0) <= 0.01 * summary.busy_ns


def test_checkpointed_work_on_rocm_has_modules_and_recompute_is_apart() -> None:
    found = owned(MI300)
    table, device = found.table, found.device
    linked = (device.launch != NONE) & (device.phase != TRACE_PHASES.index("communication"))
    durations = table.duration_ns[device.rows]
    placed = durations[linked & (device.module != NONE)].sum() / durations[linked].sum()
    assert placed >= 0.95
    # Most of it runs beside collectives, so by what it took itself; the head is not checkpointed.
    phases = {phase.phase: phase.sum_ns for phase in inspected(MI300).phases}
    assert phases["backward"] > phases["forward"] > phases["recompute"] > 0.5 * phases["forward"]


def test_the_two_ranks_of_a_ddp_loop_have_the_same_steps() -> None:
    ranks = [inspected(f"h200_ddp/ddp_plain_rank{rank}.json.gz") for rank in (0, 1)]
    assert [rank.rank for rank in ranks] == [0, 1]
    assert len({tuple(step.number for step in rank.steps) for rank in ranks}) == 1
    for rank in ranks:
        assert rank.communication is not None
        assert 0 < rank.communication.exposed_ns < rank.communication.union_ns
        assert kernel_ns(rank)["communication"] > 0
    # A collective ends on both at once: over all steps both ranks take the same time.
    spans = [sum(step.device_ns or 0 for step in rank.steps) for rank in ranks]
    assert spans[0] == pytest.approx(spans[1], rel=0.02)


def test_two_data_loaders_differ_in_what_the_device_waits_for() -> None:
    slow, fast = (
        inspected(next(name for name in FILES if f"resnet50_num_workers_{workers}" in name)) for workers in (0, 4)
    )

    def waiting(summary: TraceSummary) -> int:
        return sum(idle.ns for idle in summary.idle if idle.cause == "waiting for data")

    assert waiting(slow) - waiting(fast) == pytest.approx(284e6, rel=0.05)
    assert waiting(fast) < 10e6

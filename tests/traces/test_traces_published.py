"""Published traces from 2021 to 2026, against figures that are computed separately from the files."""

from __future__ import annotations

import numpy as np
import pytest
from published_traces import PUBLISHED, TRUTH, published

from profiler_kit.errors import TraceError
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import DEVICE_KINDS, HOST_KINDS, NONE

pytestmark = published

FLOATS_FALL_SHORT_NS = 2**53


@pytest.mark.parametrize("name", [name for name, truth in TRUTH.items() if "events" in truth])
def test_no_event_is_lost_and_every_duration_exact(name: str) -> None:
    truth, table = TRUTH[name], read(PUBLISHED / name)
    counted = table.pairs + table.flows + table.metadata + table.unpaired + table.malformed
    assert len(table) + counted == table.events == truth["events"]
    assert (table.malformed, table.unpaired, table.cut_off) == (0, 0, False)
    device = table.of(*DEVICE_KINDS)
    assert int(device.sum()) == truth["gpu_events"]
    result = {
        category: {"n": int((table.category == number).sum()), "sum_ns": int(table.duration_ns[table.category == number].sum())}
        for number, category in enumerate(table.categories)
        if category in truth["by_cat"]
    }  # fmt: skip
    assert result == truth["by_cat"]
    streams = {f"{s.device}/{s.stream}": int((table.stream == number).sum()) for number, s in enumerate(table.streams)}
    assert streams == {stream: figures["n"] for stream, figures in truth.get("streams", {}).items()}
    assert ((table.stream != NONE) == device).all()
    if device.any():
        span_ns = int(table.end_ns[device].max() - table.start_ns[device].min())
        # The figure of the one trace with times since 1970 was worked out in floats, which are 250 ns apart there.
        assert abs(span_ns - truth["gpu_span_ns"]) <= (250 if table.start_ns[0] > FLOATS_FALL_SHORT_NS else 0)
    launches = table.correlation[table.of(*HOST_KINDS) & (table.correlation != NONE)]
    assert int(np.isin(table.correlation[device], launches).sum()) == truth.get("linked_by_correlation", 0)
    steps = {
        table.names[n]: int(d)
        for n, d, mirrored in zip(table.name, table.duration_ns, ~table.of(*HOST_KINDS), strict=True)
        if table.names[n].startswith("ProfilerStep#") and not mirrored
    }
    assert steps == truth["steps_cpu_ns"]


@pytest.mark.parametrize("name", [name for name, truth in TRUTH.items() if truth.get("not_a_trace")])
def test_what_is_no_trace_is_said_to_be_something_else(name: str) -> None:
    with pytest.raises(TraceError, match="it seems to be a raw memory timeline"):
        read(PUBLISHED / name)


def test_both_ranks_say_which_they_are() -> None:
    infos = [read(PUBLISHED / f"h200_ddp/ddp_plain_rank{rank}.json.gz").info for rank in (0, 1)]
    assert [(i.rank, i.world_size, i.backend, i.devices[0]) for i in infos] == [
        (0, 2, "nccl", "NVIDIA H200"), (1, 2, "nccl", "NVIDIA H200")
    ]  # fmt: skip

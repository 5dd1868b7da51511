"""What an idle device waited for, in a trace written by hand and in a recorded one."""

from __future__ import annotations

from pathlib import Path

import pytest
from inspection_traces import call, kernel, launch, mark, op, table

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.summary import summarize
from profiler_kit.simulation.culprits import Culprit, idle_culprits, summed
from profiler_kit.simulation.from_trace import trace_graph
from profiler_kit.simulation.graph import Link
from profiler_kit.simulation.replay import simulate
from profiler_kit.traces.reader import read

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
US = 1_000


def culprits(attribution: Attribution) -> tuple[Culprit, ...]:
    traced = trace_graph(attribution)
    return summed(attribution, idle_culprits(attribution, traced, simulate(traced.graph)))


def test_the_host_work_of_a_gap_is_named(tmp_path: Path) -> None:
    """The device is idle from 20 to 100: in a Python call of the user's (44 us of its own), in an operator, and at a launch."""
    events = [
        mark("ProfilerStep#1", 0, 200),
        launch(1, 2, 6),
        kernel("a", 10, 20, 1),
        call("train.py(7): augment", 8, 98),
        call("nn.Module: Linear_0", 60, 97),
        op("aten::addmm", 64, 96),
        launch(2, 90, 96),
        kernel("b", 100, 110, 2),
    ]
    found = {(culprit.link, culprit.name): culprit for culprit in culprits(attribute(table(tmp_path, events)))}
    ns = {key: culprit.ns // US for key, culprit in found.items()}
    assert ns == {
        (None, "train.py(7): augment"): 40,
        (None, "nn.Module: Linear_0"): 4,
        (None, "aten::addmm"): 26,
        (None, "cudaLaunchKernel"): 6,
        (Link.LAUNCH, ""): 4,
    }
    addmm = found[None, "aten::addmm"]
    assert (addmm.module, addmm.phase, addmm.source) == ("Linear_0", "forward", "train.py(7): augment")
    assert addmm.thread != ""


def test_a_gap_of_another_stream(tmp_path: Path) -> None:
    """A kernel of stream 9 waits 8 us after the event of stream 7, and no host work is to blame."""
    events = [
        mark("ProfilerStep#1", 0, 200),
        launch(1, 2, 6),
        kernel("a", 10, 100, 1),
        launch(2, 12, 13, name="cudaEventRecord"),
        launch(3, 14, 15, name="cudaStreamWaitEvent"),
        launch(4, 20, 24),
        kernel("b", 108, 120, 4, stream=9),
    ]
    (only,) = culprits(attribute(table(tmp_path, events)))
    assert (only.link, only.ns, only.intervals) == (Link.EVENT, 8 * US, 1)


@pytest.mark.parametrize(
    "name", ["item_every_step.cuda.stacks", "galaxy_survey.cuda.stacks", "numpy_in_the_model.cuda.plain"]
)
def test_the_culprits_sum_to_the_idle_time(name: str) -> None:
    attribution = attribute(read(FIXTURES / "diagnosis" / f"{name}.json.gz", details=False))
    traced = trace_graph(attribution)
    replay = simulate(traced.graph)
    found = culprits(attribution)
    assert sum(culprit.ns for culprit in found) == replay.device_span_ns - replay.device_busy_ns
    # the idle time of the summary covers the whole trace, that of the replay the steps
    assert sum(culprit.ns for culprit in found) <= summarize(attribution).idle_ns + US

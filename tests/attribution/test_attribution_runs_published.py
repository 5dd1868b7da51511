"""A trace of an ordinary training loop on an H100, with marks of profiler_kit added to its phases."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from marked_traces import assert_sums_hold, attribute, by_owner
from published_traces import PUBLISHED, published

from profiler_kit.records import marks

pytestmark = published


def with_marks(written: dict[str, Any]) -> dict[str, Any]:
    """The trace with step, phase and module marks on the loop's thread; the bounds are those of the loop's own calls."""
    events = [e for e in written["traceEvents"] if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation")]
    added: list[dict[str, Any]] = []

    def mark(name: str, start: float, end: float, like: dict[str, Any]) -> None:
        where = {"pid": like["pid"], "tid": like["tid"]}
        added.append({"ph": "X", "cat": "user_annotation", "name": name, "ts": start, "dur": end - start, **where})

    for index, step in enumerate(e for e in events if e["name"].startswith("ProfilerStep#")):
        begin, end = step["ts"], step["ts"] + step["dur"]
        inside = {
            e["name"]: e
            for e in events
            if begin < e["ts"] < end and e["tid"] == step["tid"] and "Optimizer" not in e["name"]
        }
        optimizer = next(e for e in events if e["name"].startswith("Optimizer.step") and begin < e["ts"] < end)
        loss_end = inside["aten::item"]["ts"] + inside["aten::item"]["dur"]
        convolutions = [e for e in events if e["name"] == "aten::conv2d" and begin < e["ts"] < end]
        mark(marks.step(index), begin, end, step)
        mark(marks.phase("forward"), begin + 1, inside["aten::cross_entropy_loss"]["ts"] - 1, step)
        mark(marks.module(""), begin + 2, inside["aten::cross_entropy_loss"]["ts"] - 2, step)
        mark(marks.phase("loss"), inside["aten::cross_entropy_loss"]["ts"] - 0.5, loss_end, step)
        mark(marks.phase("backward"), loss_end, optimizer["ts"] - 1, step)
        mark(marks.phase("optimizer"), optimizer["ts"] - 1, end, step)
        for number, convolution in enumerate(convolutions, start=1):
            mark(
                marks.module(f"conv{number}"),
                convolution["ts"] - 0.1,
                convolution["ts"] + convolution["dur"] + 0.1,
                step,
            )
    return {**written, "traceEvents": [*added, *written["traceEvents"]]}


def test_phases_agree_with_events_recorded_on_the_device(tmp_path: Path) -> None:
    written = json.loads(gzip.decompress((PUBLISHED / "h100" / "convnet_v0.json.gz").read_bytes()))
    truth = json.loads((PUBLISHED / "h100" / "convnet_v0.truth.json").read_text())["v0"]
    marked = tmp_path / "marked.json"
    marked.write_text(json.dumps(with_marks(written)))
    result = attribute(marked)
    assert_sums_hold(result)
    phases = {
        p: sum(layer.kernel_ns for layer in result.modules if layer.phase == p) for p in ("forward", "loss", "backward")
    }
    # The events' times have the gaps between kernels in them, and none of the kernels whose launch came before the trace.
    assert phases["forward"] == pytest.approx(truth["forward_ms"] * 1e6, rel=0.03)
    assert phases["backward"] == pytest.approx(truth["backward_ms"] * 1e6, rel=0.02)
    assert any("have no launch" in note for note in result.notes)
    assert phases["loss"] < 0.002 * result.device_ns
    owned = by_owner(result)
    assert {path for path, phase in owned if phase == "backward"} == {"", "conv1", "conv2", "conv3", "conv4", "(loss)"}
    largest = max(result.modules, key=lambda layer: layer.kernel_ns)
    assert (largest.path, largest.phase) == ("conv2", "backward")
    assert owned["conv2", "forward"] > 0.8 * phases["forward"]
    assert result.kernels[0].op == "dgrad"

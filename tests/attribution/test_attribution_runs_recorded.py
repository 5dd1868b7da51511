"""The traces in tests/fixtures/traces, which scripts/lab/record_traces.py recorded with marks of profiler_kit."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from marked_traces import assert_busy_and_idle_are_the_span, assert_sums_hold, attribute, attribution, by_owner, figures

from profiler_kit.attribution.annotation_lanes import build_annotation
from profiler_kit.pipeline.annotation import add_annotation
from profiler_kit.render.chrome_trace import event_lines

FOLDER = Path(__file__).parents[1] / "fixtures" / "traces"
MAX_OVERLAP_LAYERS = ("stem", "block.0", "block.1", "block.2", "head")


def files(pattern: str = "*.json.gz") -> list[Path]:
    return sorted(FOLDER.glob(pattern))


def named(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


def test_there_are_fixtures() -> None:
    assert {named(path).split(".")[0] for path in files()} >= {"train", "checkpoint", "checkpoint_reentrant", "infer"}


@pytest.mark.parametrize("path", files(), ids=named)
def test_all_work_has_an_owner(path: Path) -> None:
    result = attribute(path)
    assert_sums_hold(result)
    assert_busy_and_idle_are_the_span(result)
    assert result.traced_steps == 2
    assert result.device_ns > 0
    assert result.unattributed_ns == 0
    assert result.clock == ("kernel" if ".cuda." in path.name else "operator")
    assert not [k.name for k in result.kernels if k.family == "other" and k.name != "CheckpointFunction"]


@pytest.mark.parametrize("path", [p for p in files() if not p.name.startswith("infer")], ids=named)
def test_every_layer_has_forward_and_backward(path: Path) -> None:
    owners = by_owner(attribute(path))
    for layer in MAX_OVERLAP_LAYERS:
        assert owners[layer, "forward"] > 0, layer
        assert owners[layer, "backward"] > 0, layer
    assert owners["(loss)", "loss"] > 0
    assert owners["(loss)", "backward"] > 0
    assert owners["(optimizer)", "optimizer"] > 0
    redone = {layer for layer, phase in owners if phase == "recompute"}
    around = (
        {"", "block"} if ".cpu." in path.name else set()
    )  # the interpreter's time, of which a device's kernels have none
    assert redone == (set() if path.name.startswith("train") else {"block.0", "block.1", "block.2"} | around)


@pytest.mark.parametrize("path", files("infer.*"), ids=named)
def test_inference_is_all_forward(path: Path) -> None:
    owners = by_owner(attribute(path))
    assert {phase for _, phase in owners} == {"forward"}
    assert set(MAX_OVERLAP_LAYERS) <= {layer for layer, _ in owners}


@pytest.mark.parametrize("path", files(), ids=named)
def test_both_clocks_name_the_same_owners_of_layers(path: Path) -> None:
    by_operator = {owner for owner in by_owner(attribute(path, clock="operator")) if owner[0] in MAX_OVERLAP_LAYERS}
    assert {owner for owner in by_owner(attribute(path)) if owner[0] in MAX_OVERLAP_LAYERS} <= by_operator


@pytest.mark.parametrize("path", files(), ids=named)
def test_an_annotated_trace_reads_the_same(path: Path, tmp_path: Path) -> None:
    annotated = tmp_path / path.name
    with gzip.open(annotated, "wb") as out:
        add_annotation(path, out, build_annotation(attribution(path)), event_lines)
    assert figures(attribute(annotated)) == figures(attribute(path))
    events = json.loads(gzip.decompress(annotated.read_bytes()))["traceEvents"]
    starts, ends = ({e["id"] for e in events if e["ph"] == ph and e["cat"] == "fwdbwd"} for ph in "sf")
    assert starts == ends


@pytest.mark.parametrize("path", files(), ids=named)
def test_fixtures_say_nothing_of_the_machine(path: Path) -> None:
    text = gzip.decompress(path.read_bytes()).decode()
    assert '"host_name": "",' in text or "host_name" not in text
    assert "/tmp" not in text
    assert "/home" not in text

"""Backward work of networks whose sizes tell the owner: all of it is put down to the right module, whatever way it ran."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import width_truth

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import NONE

FOLDER = Path(__file__).parents[1] / "fixtures" / "traces" / "strangers"
CASES = ("eager", "checkpoint", "checkpoint_reentrant")
TOLD = [FOLDER / f"{case}.{device}.json.gz" for case in CASES for device in ("cpu", "cuda")]
COMPILED = [FOLDER / f"compiled.{device}.json.gz" for device in ("cpu", "cuda")]


def named(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


def attribution_by_name(attribution: Attribution) -> dict[width_truth.Place, tuple[str, str]]:
    """Per host event: the path of its module, "" for none, and its phase."""
    table, host = attribution.table, attribution.host
    attributed = {}
    for row, module, phase in zip(host.rows.tolist(), host.module.tolist(), host.phase.tolist(), strict=True):
        place = width_truth.Place(
            int(table.start_ns[row]), int(table.duration_ns[row]), table.names[int(table.name[row])]
        )
        path = attribution.modules[module].path if module != NONE else ""
        attributed[place] = (path, TRACE_PHASES[phase] if phase != NONE else "")
    return attributed


@pytest.mark.parametrize("path", TOLD, ids=named)
def test_all_backward_is_put_down_to_the_module_whose_sizes_it_has(path: Path) -> None:
    truth = width_truth.truth_of(path)
    assert len(truth.by_place) > 400
    attributed = attribution_by_name(attribute(read(path)))
    wrong = {
        (place.name, expected.module, expected.phase): attributed[place]
        for place, expected in truth.by_place.items()
        if (width_truth.names_in(attributed[place][0]), attributed[place][1]) != (expected.calls, expected.phase)
    }
    assert not wrong


@pytest.mark.parametrize("path", [path for path in TOLD if ".cuda." in path.name], ids=named)
def test_every_kernel_of_backward_is_put_down_to_the_module_whose_sizes_it_has(path: Path) -> None:
    truth = width_truth.truth_of(path)
    attribution = attribute(read(path))
    table, device = attribution.table, attribution.device
    checked = seeds = 0
    for row, module, number in zip(device.rows.tolist(), device.module.tolist(), device.phase.tolist(), strict=True):
        expected = truth.by_external.get(int(table.external[row]))
        phase = TRACE_PHASES[number] if number != NONE else ""
        name = table.names[int(table.name[row])]
        if expected is None:  # in no node; of backward that is the loss's own gradient, a one
            seeds += phase in ("backward", "recompute")
            assert phase not in ("backward", "recompute") or "FillFunctor" in name
            continue
        checked += 1
        calls = width_truth.names_in(attribution.modules[module].path) if module != NONE else ()
        assert (calls, phase) == (expected.calls, expected.phase), name
    assert checked > 50
    assert seeds == len(attribution.steps)


@pytest.mark.parametrize("path", TOLD, ids=named)
def test_every_layer_has_backward_and_only_the_checkpointed_are_done_anew(path: Path) -> None:
    attributed = attribution_by_name(attribute(read(path)))
    modules = width_truth.truth_of(path).modules
    backward = {width_truth.names_in(module) for module, phase in attributed.values() if phase == "backward"}
    leaves = {tuple(module["calls"]) for module in modules.values() if module["activations"]}
    assert leaves <= backward
    anew = {module for module, phase in attributed.values() if phase == "recompute"}
    assert bool(anew) == ("checkpoint" in path.name)
    assert all("Sequential_1" in module for module in anew)


@pytest.mark.parametrize("path", COMPILED, ids=named)
def test_of_compiled_work_only_the_phase_is_said(path: Path) -> None:
    attribution = attribute(read(path))
    assert attribution.compiled
    assert any("torch.compile" in note for note in attribution.notes)
    attributed = attribution_by_name(attribution)
    for group in width_truth.groups(path):
        assert {attributed[place][1] for place in group.operators} == {"backward"}, group.name
        if group.name == "CompiledFunctionBackward":
            leaf = {attributed[place][0] for place in group.operators}
            assert not any(word in module for word in ("Conv2d", "Linear", "Norm") for module in leaf)
    forward = {phase for place, (_, phase) in attributed.items() if place.name.startswith("Torch-Compiled Region")}
    assert forward == {"forward"}


@pytest.mark.parametrize("path", [*TOLD, *COMPILED], ids=named)
def test_the_loop_s_other_phases_are_there_too(path: Path) -> None:
    attribution = attribute(read(path))
    phases = set(attribution.host.phase.tolist())
    assert {PHASE_NUMBERS[phase] for phase in ("data", "forward", "loss", "backward", "optimizer")} <= phases
    assert len(attribution.steps) == 2


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json.gz")), ids=named)
def test_fixtures_say_nothing_of_the_machine(path: Path) -> None:
    text = gzip.decompress(path.read_bytes()).decode()
    for word in ('"/', "/tmp", "/home", "/root", "site-packages"):
        assert word not in text, word
    assert '"host_name": ""' in text or "host_name" not in text

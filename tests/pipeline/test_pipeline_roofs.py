"""Where a report's roof comes from, and that no way of failing to get one costs what was counted or measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from traced_runs import traced_run  # noqa: E402

import profiler_kit  # noqa: E402
from profiler_kit.devices.cards.data_center import H100  # noqa: E402
from profiler_kit.diagnosis.roofline import datasheet_roof  # noqa: E402
from profiler_kit.errors import UsageError  # noqa: E402
from profiler_kit.measurement import ceiling_store  # noqa: E402
from profiler_kit.pipeline import rooflines  # noqa: E402
from profiler_kit.pipeline.analyze import analyze_spec  # noqa: E402
from profiler_kit.pipeline.count import count_spec  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.machine import (  # noqa: E402
    Ceilings,
    Machine,
    MathRate,
)
from profiler_kit.records.runs import ConfigRun  # noqa: E402
from profiler_kit.records.samples import Interval  # noqa: E402
from profiler_kit.records.serde import dumps, from_json, loads_report, to_json  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402
from profiler_kit.records.traces import TraceModule  # noqa: E402
from profiler_kit.render import RenderOptions, renderers  # noqa: E402
from profiler_kit.report import machine_document  # noqa: E402
from profiler_kit.worker import environment  # noqa: E402

NET = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 64)
    def forward(self, x):
        return self.fc(x)
example_inputs = torch.zeros(8, 64)
"""
FC_MACS = 8 * 64 * 64
FOUND = Ceilings(
    device="cpu", device_name="a CPU", torch="2.13.0", driver=None, threads=1,
    rates=(MathRate(math="fp32", flops_per_s=1e11, size=512, repeats=9, spread_percent=0.5),),
    bandwidth_bytes_per_s=2e10, copy_bytes=2**27, bandwidth_spread_percent=0.1, duration_ns=5,
)  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TargetSpec:
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return TargetSpec(spec="net.py")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stands for the measuring of ceilings: what it was asked is kept here."""
    calls: list[dict[str, Any]] = []

    def ceilings_of(device: str, key: tuple[str, ...], **options: Any) -> tuple[Ceilings | None, tuple[str, ...]]:
        calls.append({"device": device, **options})
        return FOUND, ()

    monkeypatch.setattr(ceiling_store, "load_or_measure", ceilings_of)
    return calls


def unmeasurable(monkeypatch: pytest.MonkeyPatch, how: BaseException | None = None) -> None:
    def ceilings_of(*_: object, **__: object) -> tuple[None, tuple[str, ...]]:
        if how is not None:
            raise how
        return None, ("The device's ceilings could not be measured: no reason",)

    monkeypatch.setattr(ceiling_store, "load_or_measure", ceilings_of)


MeasuredBy = Callable[[Callable[..., Any]], None]


def measured(measured_by: MeasuredBy, device_name: str) -> None:
    """Stands for a run on such a device, with device times."""

    def measure(spec: TargetSpec, config: RunConfig, **_: Any) -> ConfigRun:
        where = replace(environment.describe(torch.device("cpu")), device_name=device_name)
        times = (TraceModule(path="fc", phase="forward", kernel_ns=50_000),)
        return traced_run(
            config=config, environment=where, steps_ns=(9, 10, 11), step_ns=Interval(median=10, low=9, high=11),
            modules=times, unattributed_ns=0,
        )  # fmt: skip

    measured_by(measure)


def test_a_count_has_no_roof_unless_asked(spec: TargetSpec, asked: list[dict[str, Any]]) -> None:
    assert count_spec(spec).roofline == ()
    assert asked == []


def test_a_named_device_is_taken_from_the_datasheet(spec: TargetSpec, asked: list[dict[str, Any]]) -> None:
    report = count_spec(spec, hardware="h100")
    (line,) = report.roofline
    assert (line.roof.hardware, line.roof.source, line.config) == ("NVIDIA H100 80GB HBM3", "datasheet", None)
    forward = next(layer for layer in line.layers if (layer.path, layer.phase) == ("fc", "forward"))
    assert report.static is not None
    fc = next(node for node in report.static.modules if node.path == "fc")
    assert fc.forward.macs == FC_MACS
    assert (forward.binds, forward.math) == ("memory", "fp32")  # a linear layer does not use TF32 by default
    assert forward.floor_ns == pytest.approx(1e9 * fc.forward.bytes_moved / 3350e9, abs=1e-3)
    assert asked == []
    assert loads_report(dumps(report), "again") == report


def test_here_is_measured_and_said(spec: TargetSpec, asked: list[dict[str, Any]]) -> None:
    report = count_spec(spec, hardware="here")
    assert report.roofline[0].roof.source == "measured"
    assert asked[0].get("limit_s") is None  # somebody who asks for it waits as long as it takes


def test_the_api_takes_hardware_for_models_and_texts(spec: TargetSpec) -> None:
    model = torch.nn.Linear(3, 2)
    for target, inputs in ((model, (torch.zeros(4, 3),)), ("net.py", ()), (spec, ())):
        report = profiler_kit.count(target, *inputs, hardware="A100")
        assert report.roofline[0].roof.hardware == "NVIDIA A100-SXM4-80GB"
        with pytest.raises(UsageError, match="is not a known device"):
            profiler_kit.count(target, *inputs, hardware="abacus")


def test_a_wrong_name_is_told_before_anything_is_counted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="abacus"):
        count_spec(TargetSpec(spec=str(tmp_path / "is_not_there.py")), hardware="abacus")


def test_no_ceilings_here_is_a_note(spec: TargetSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    unmeasurable(monkeypatch)
    report = count_spec(spec, hardware="here")
    assert report.roofline == ()
    assert report.static is not None
    (note,) = map(str, report.notes)
    assert "no reason" in note
    assert "no rooflines" in note


def test_a_measured_report_says_what_share_of_the_roof_was_attained(
    spec: TargetSpec, asked: list[dict[str, Any]], measured_by: MeasuredBy
) -> None:
    measured(measured_by, "a CPU")
    said: list[str] = []
    report = analyze_spec(spec, device="cpu", configs=["default"], on_progress=said.append).report
    (line,) = report.roofline
    fc = next(layer for layer in line.layers if (layer.path, layer.phase) == ("fc", "forward"))
    assert fc.time_ns == 50_000
    assert line.step is not None
    assert line.step.attained_percent == pytest.approx(100 * fc.floor_ns / 50_000)
    assert asked[0]["limit_s"] == rooflines.ANALYZE_LIMIT_S
    assert asked[0]["on_progress"] is not None


@pytest.mark.parametrize(("device", "lines"), [("NVIDIA H200", ["datasheet"]), ("an unknown device", [])])
def test_without_ceilings_the_datasheet_is_taken(
    device: str,
    lines: list[str],
    spec: TargetSpec,
    monkeypatch: pytest.MonkeyPatch,
    measured_by: MeasuredBy,
) -> None:
    measured(measured_by, device)
    unmeasurable(monkeypatch)
    report = analyze_spec(spec, device="cpu", configs=["default"]).report
    assert [line.roof.source for line in report.roofline] == lines
    assert report.runs[0].failure is None
    assert any("could not be measured: no reason; " in note for note in map(str, report.notes))


def test_ctrl_c_while_ceilings_are_measured_keeps_the_runs(
    spec: TargetSpec, monkeypatch: pytest.MonkeyPatch, measured_by: MeasuredBy
) -> None:
    measured(measured_by, "a CPU")
    unmeasurable(monkeypatch, KeyboardInterrupt())
    done = analyze_spec(spec, device="cpu")
    assert done.interrupted
    assert done.report.runs[0].failure is None
    assert done.report.roofline == ()


def test_env_says_what_this_machine_is(asked: list[dict[str, Any]]) -> None:
    machine = profiler_kit.env("cpu", fresh=True)
    assert asked[0]["fresh"] is True
    assert machine.environment is not None
    assert machine.environment.torch == torch.__version__
    assert machine.devices[-1].id == "cpu"
    assert machine.ceilings == FOUND
    assert [roof.source for roof in machine.roofs] == ["measured"]
    assert [config.name for config in machine.configs] == ["default"]
    versions = {package.name: package.version for package in machine.packages}
    assert versions["torch"]
    assert from_json(Machine, to_json(machine)) == machine
    with pytest.raises(UsageError, match="no such device"):
        profiler_kit.env("tpu")


def test_env_without_ceilings_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    unmeasurable(monkeypatch)
    machine = profiler_kit.env("cpu")
    assert machine.ceilings is None
    assert "could not be measured" in machine.notes[-1]
    titles = [section.title for section in machine_document(machine).sections]
    assert "Measured peaks" not in titles


def test_a_torch_that_sees_no_gpu_it_is_built_for_is_told(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "accelerator_platform", lambda: "CUDA 13.0")
    notes = profiler_kit.env("cpu").notes
    if not torch.cuda.is_available():
        assert notes[0].startswith("torch is built for CUDA 13.0")


@pytest.mark.parametrize("has_ceilings", [True, False])
def test_a_machine_is_shown_in_every_format(
    has_ceilings: bool, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_ceilings:
        unmeasurable(monkeypatch)
    document = machine_document(profiler_kit.env("cpu"))
    for renderer in renderers():
        if renderer.name in ("junit", "openmetrics", "codequality"):  # of check only
            continue
        for detail in (True, False):
            text = renderer.render(document, RenderOptions(width=80, detail=detail))
            if renderer.name != "csv":
                assert torch.__version__ in text
            else:
                assert text.startswith("what,rows,")
                assert ("fp32,512" in text) == has_ceilings
            if renderer.name == "terminal":
                assert max(map(len, text.splitlines())) <= 80


def test_ceilings_stand_beside_the_datasheet(asked: list[dict[str, Any]]) -> None:
    assert H100.peaks is not None
    sheet = datasheet_roof(H100.peaks, H100.torch_names[0])
    machine = profiler_kit.env("cpu")
    document = machine_document(replace(machine, roofs=(*machine.roofs, sheet)))
    table = next(table for table in document.full if table.name == "ceilings")
    keys = [head.key for head in table.heads]
    rows = {row[0]: dict(zip(keys, row, strict=True)) for row in table.rows}
    assert list(rows) == ["fp32", "tf32", "f16", "bf16", "copy"]
    assert rows["fp32"]["reached_percent"] == pytest.approx(100 * 1e11 / 66.9e12)
    assert rows["copy"]["reached_percent"] == pytest.approx(100 * 2e10 / 3350e9)
    assert (rows["tf32"]["flops_per_s"], rows["tf32"]["reached_percent"]) == (None, None)

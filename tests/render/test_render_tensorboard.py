"""The folders of --tensorboard, read by a real TensorBoard with torch-tb-profiler: its endpoints return our values."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sample_reports import count_only, hostile, v0_cuda
from waiting import AMPLE_S

from profiler_kit.cli import main
from profiler_kit.command_lines import install_command
from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.serde import dumps, read_saved
from profiler_kit.render.figures import image
from profiler_kit.render.tensorboard import EVENTS_FILE, event_files, run_folders
from profiler_kit.report.dashboard import report_dashboard

pytest.importorskip("tensorboard", reason="pip install tensorboard")
pytest.importorskip("torch_tb_profiler", reason="the profiler tab is missing: pip install torch-tb-profiler")

pytestmark = pytest.mark.jobs  # a server reads the files

TRACES = Path(__file__).parents[1] / "fixtures" / "traces"
PLUGIN = "pytorch_profiler"


def v0_with_traces() -> Report:
    """A report whose baseline has a trace."""
    report = v0_cuda()
    first, *others = report.runs
    runs = (replace(first, trace="traces/default.json.gz"), *(replace(run, trace=None) for run in others))
    return with_verdict(replace(report, runs=runs))


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folders of --tensorboard: of a saved report, of a trace, and of the ranks of a job."""
    folder = tmp_path_factory.mktemp("tensorboard")
    (folder / "v0" / "traces").mkdir(parents=True)
    shutil.copy(TRACES / "train.cuda.json.gz", folder / "v0" / "traces" / "default.json.gz")
    (folder / "v0" / "report.json").write_text(dumps(v0_with_traces()))
    assert main(["show", str(folder / "v0"), "-q", "--tensorboard", str(folder / "log" / "v0")]) == 0
    eager = ["inspect", str(TRACES / "strangers" / "eager.cuda.json.gz"), "-q", "-o", str(folder / "eager.json")]
    assert main([*eager, "--tensorboard", str(folder / "log" / "eager")]) == 0
    ranks = [str(TRACES / "ranks_cuda_small" / f"rank{rank}.json.gz") for rank in (0, 1)]
    assert main(["inspect", *ranks, "-q", "--tensorboard", str(folder / "log" / "ranks")]) == 0
    return folder


class Server:
    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=AMPLE_S) as response:
            data = response.read()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return json.loads(data) if data[:1] in b"[{" else data

    def ask(self, path: str, message: dict[str, Any]) -> Any:
        return self.get(path, request=json.dumps(message))

    def plugin(self, path: str, run: str, worker: str = "worker_0", **query: str) -> Any:
        return self.get(f"data/plugin/{PLUGIN}/{path}", run=run, worker=worker, span="default", **query)


@pytest.fixture(scope="module")
def server(logdir: Path) -> Iterator[Server]:
    """A TensorBoard on a free port of the loopback interface that has loaded all runs."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir / "log"), "--load_fast=false"]
    environment = {**os.environ, "TORCH_PROFILER_START_METHOD": "fork", "PYTHONPATH": ""}
    with (
        (logdir / "server.log").open("w") as log,
        subprocess.Popen([*command, "--host", "127.0.0.1", "--port", "0"], stderr=log, env=environment) as process,
    ):
        try:
            yield _wait(process, logdir)
        finally:
            process.terminate()


def _wait(process: subprocess.Popen[bytes], logdir: Path) -> Server:
    deadline = time.monotonic() + AMPLE_S
    log = logdir / "server.log"
    expected = {str(file.parent.relative_to(logdir / "log")) for file in logdir.glob(f"log/*/*/{EVENTS_FILE}")}
    while time.monotonic() < deadline and process.poll() is None:
        match = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())
        if match is not None:
            server = Server(match[0])
            plugin = server.get(f"data/plugin/{PLUGIN}/runs")
            if set(server.get("data/runs")) == expected and not plugin["loading"] and len(plugin["runs"]) == 3:
                return server
        time.sleep(0.1)
    raise AssertionError(f"TensorBoard did not load the runs:\n{log.read_text()}")


def test_scalars_are_our_figures(server: Server) -> None:
    report = v0_with_traces()
    for run in report.runs:
        if run.step_ns is None:
            continue
        name = f"v0/{run_folders(report_dashboard(report))[run.config.name]}"
        times = server.get("data/plugin/scalars/scalars", run=name, tag="step/time_ms")
        assert [(step, value) for _, step, value in times] == [
            (i, pytest.approx(ns / 1e6, rel=1e-6)) for i, ns in enumerate(run.steps_ns)
        ]
        for tag, value in (
            ("step/median_ms", run.step_ns.median / 1e6),
            ("step/low_ms", run.step_ns.low / 1e6),
            ("memory/peak_allocated_mib", (run.peak_allocated_bytes or 0) / 2**20),
        ):
            ((_, _, shown),) = server.get("data/plugin/scalars/scalars", run=name, tag=tag)
            assert shown == pytest.approx(value, rel=1e-6), (name, tag)
    assert report.static is not None
    ((_, _, flops),) = server.get("data/plugin/scalars/scalars", run="v0/report", tag="work/forward_gflop")
    assert flops == pytest.approx(report.static.forward.flops / 1e9, rel=1e-6)


def test_steps_of_a_trace_are_a_series(server: Server, logdir: Path) -> None:
    saved = read_saved(logdir / "eager.json")
    assert isinstance(saved, TraceReport)
    busy = server.get("data/plugin/scalars/scalars", run="eager/eager.cuda", tag="step/busy_ms")
    assert [(step, value) for _, step, value in busy] == [
        (step.number, pytest.approx(step.kernel_ns / 1e6, rel=1e-6)) for step in saved.traces[0].steps
    ]


def test_hyperparameters_and_metrics_of_configurations(server: Server) -> None:
    report = v0_with_traces()
    experiment = server.ask("data/plugin/hparams/experiment", {"experimentName": ""})
    assert {info["name"] for info in experiment["hparamInfos"]} == {
        "model",
        "enabled",
        "benchmark",
        "deterministic",
        "allow_tf32",
    }
    metrics = [info["name"] for info in experiment["metricInfos"]]
    assert "step/median_ms" in {metric["tag"] for metric in metrics}
    groups = server.ask(
        "data/plugin/hparams/session_groups",
        {
            "experimentName": "", "allowedStatuses": ["STATUS_SUCCESS", "STATUS_FAILURE"], "startIndex": 0, "sliceSize": 99,
            "colParams": [{"metric": metric} for metric in metrics],
        },
    )["sessionGroups"]  # fmt: skip
    by_name = {group["name"]: group for group in groups}
    # A report's time of creation keeps it apart from others: sessions of one name are averaged.
    name_of = {
        run.config.name: f"{run.config.repeat_of or run.config.name} (ConvNetV0, {report.created})"
        for run in report.runs
    }
    assert set(by_name) == set(name_of.values())
    for run in report.runs:
        group = by_name[name_of[run.config.name]]
        assert group["hparams"]["model"] == "ConvNetV0"
        assert group["hparams"]["benchmark"] is run.config.benchmark
        assert group["hparams"]["allow_tf32"] is run.config.allow_tf32
        statuses = {session["status"] for session in group["sessions"]}
        assert statuses == {"STATUS_SUCCESS" if run.failure is None else "STATUS_FAILURE"}
        if run.step_ns is not None and len(group["sessions"]) == 1:
            values = {value["name"]["tag"]: value["value"] for value in group["metricValues"]}
            assert values["step/median_ms"] == pytest.approx(run.step_ns.median / 1e6, rel=1e-6)


def test_texts_hold_the_verdict_and_the_findings(server: Server) -> None:
    report = v0_with_traces()
    tags = server.get("data/plugin/text/tags")["v0/report"]
    assert tags[0] == "report/01 Verdict"
    finding_tag = next(tag for tag in tags if tag.endswith("Findings"))
    (text,) = server.get("data/plugin/text/text", run="v0/report", tag=finding_tag)
    for finding in report.findings:
        assert finding.rule in text["text"]
    assert "details" not in text["text"], "TensorBoard's Markdown has no folds"
    layers = next(tag for tag in tags if tag.endswith("Layers"))
    assert "<table>" in server.get("data/plugin/text/text", run="v0/report", tag=layers)[0]["text"]


def test_charts_are_images(server: Server) -> None:
    report = v0_with_traces()
    charts = report_dashboard(report).charts
    tags = server.get("data/plugin/images/tags")["v0/report"]
    assert len(tags) == len(charts)
    for tag, info in tags.items():
        assert info["samples"] == 1
        (shown,) = server.get("data/plugin/images/images", run="v0/report", tag=tag, sample="0")
        content = server.get(f"data/plugin/images/individualImage?{shown['query']}&x=")
        number = int(re.findall(r"\d+", tag)[0])
        assert content[:4] == b"\x89PNG"
        assert number > 1 or content == image(charts[0])


def test_the_profiler_tab_has_our_device_times(server: Server, logdir: Path) -> None:
    saved = read_saved(logdir / "eager.json")
    assert isinstance(saved, TraceReport)
    (trace,) = saved.traces
    run = "eager/eager.cuda"
    assert server.get(f"data/plugin/{PLUGIN}/views", run=run) == ["Overview", "Operator", "Kernel", "Trace", "Module"]
    rows = {row["name"]: row for row in server.plugin("operation/table", run, group_by="Operation")["data"]}
    for operator in trace.operators:
        assert rows[operator.name]["device_self_duration"] == pytest.approx(operator.kernel_ns / 1e3, abs=0.6)
    kernels = {row[0]: row for row in server.plugin("kernel/table", run, group_by="Kernel")["data"]["rows"]}
    copies = {"Memcpy", "Memset"}
    for kernel in trace.kernels:
        if kernel.name.split()[0] not in copies:
            assert kernels[kernel.name][2:4] == [kernel.calls, pytest.approx(kernel.sum_ns / 1e3, abs=0.6)]
    steps = server.plugin("overview", run)["steps"]["rows"]
    assert [row[0] for row in steps] == [str(step.number) for step in trace.steps]
    modules = server.plugin("module", run)["data"]
    assert [entry["name"] for entry in modules] == ["CrossEntropyLoss_0", "Network_0"]
    assert modules[1]["device_duration"] > 100
    stacks = server.plugin("operation/stack", run, group_by="Operation", op_name="aten::cudnn_convolution")["data"]
    assert any("nn.Module: Conv2d_0" in row["call_stack"] for row in stacks)
    shown = {event["name"] for event in server.plugin("trace", run)["traceEvents"]}
    assert {"fwdbwd", "forward_backward"} & shown
    assert "Network_0" in shown, "the lane of modules"


def test_the_traces_of_a_report_and_of_ranks(server: Server) -> None:
    assert server.get(f"data/plugin/{PLUGIN}/runs")["runs"] == ["eager/eager.cuda", "ranks/ranks", "v0/default"]
    assert {row["call_stack"] for row in server.plugin(
        "operation/stack", "v0/default", group_by="Operation", op_name="aten::cudnn_convolution")["data"]
    } == {"stem", "block.0"}  # fmt: skip
    assert "Distributed" in server.get(f"data/plugin/{PLUGIN}/views", run="ranks/ranks")
    overlap = server.plugin("distributed/overlap", "ranks/ranks", "All")["data"]
    assert set(overlap["all"]) == {"worker_0", "worker_1"}
    assert all(sum(parts) > 0 for parts in overlap["all"].values())


def test_the_same_report_gives_the_same_bytes(logdir: Path) -> None:
    folder = logdir / "log" / "v0"
    written = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob(EVENTS_FILE)}
    assert dict(event_files(report_dashboard(v0_with_traces()))) == written
    assert len(written) == len(v0_with_traces().runs) + 1


def test_files_of_an_earlier_report_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "count.json").write_text(dumps(count_only()))
    (tmp_path / "out" / "earlier").mkdir(parents=True)
    for name in (EVENTS_FILE, "worker_0.pt.trace.json.gz", "notes.txt"):
        (tmp_path / "out" / "earlier" / name).write_bytes(b"")
    command = ["show", str(tmp_path / "count.json"), "-q", "--tensorboard", str(tmp_path / "out")]
    assert main(command) == 0
    files = {file: file.read_bytes() for file in (tmp_path / "out").rglob("*.*")}
    assert {str(file.relative_to(tmp_path / "out")) for file in files} == {f"report/{EVENTS_FILE}", "earlier/notes.txt"}


def test_names_of_runs_are_folders() -> None:
    report = hostile()
    names = ("../../etc", "a/b", "a_b", "report", "\x1b[2J\u202e", ".", "x" * 300)
    runs = tuple(replace(report.runs[0], config=replace(report.runs[0].config, name=name)) for name in names)
    dashboard = report_dashboard(replace(report, runs=runs))
    folders = run_folders(dashboard)
    assert len({*folders.values(), "report"}) == len(names) + 1
    for path, _ in event_files(replace(dashboard, charts=(), texts=())):
        folder, file = path.split("/")
        assert file == EVENTS_FILE
        assert len(folder) < 140
        assert folder.isprintable()
        assert not folder.startswith(".")


def test_a_missing_package_is_an_error_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.chdir(tmp_path)
    for command in (
        ["analyze", "missing.py", "--tensorboard"],
        ["show", "missing.json", "--tensorboard", "tb"],
        ["inspect", "missing.json.gz", "--tensorboard", "tb"],
    ):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert "--tensorboard needs tensorboard, which is not installed" in error
        assert install_command("profiler-kit[tensorboard]") in error
    assert not list(tmp_path.iterdir())

"""GPU tests of `inspect`: recorded traces, compared with tensor sizes, with `analyze` and with CUDA events."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import width_truth

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

import profiler_kit  # noqa: E402
from profiler_kit import process  # noqa: E402
from profiler_kit.attribution.engine import attribute  # noqa: E402
from profiler_kit.attribution.result import Attribution  # noqa: E402
from profiler_kit.pipeline.analyze import analyze  # noqa: E402
from profiler_kit.records.counts import TRACE_PHASES  # noqa: E402
from profiler_kit.records.traces import TraceSummary  # noqa: E402
from profiler_kit.traces.reader import read  # noqa: E402
from profiler_kit.traces.table import NONE  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SIZE_CASES = ("eager", "checkpoint", "checkpoint_reentrant")
STEPS = 6
SLEEP_CYCLES = 60_000_000  # some 30 ms: the host launches a whole step meanwhile, so that no event waits for it


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    outcome = process.run(
        [sys.executable, "-m", "scripts.lab.record_traces", "--device", "cuda", "--set", "strangers", "--out", folder],
        timeout_s=300,
    )
    assert outcome.ok, outcome.log_tail
    return folder / "strangers"


def phase_of(number: int) -> str:
    return TRACE_PHASES[number] if number != NONE else ""


def calls_of(attribution: Attribution, module: int) -> tuple[str, ...]:
    return width_truth.names_in(attribution.modules[module].path) if module != NONE else ()


def kernel_ns(summary: TraceSummary) -> dict[str, int]:
    return {phase.phase: phase.kernel_ns for phase in summary.phases}


@pytest.mark.parametrize("case", SIZE_CASES)
def test_every_kernel_of_backward_is_attributed_to_the_module_whose_sizes_it_has(recorded: Path, case: str) -> None:
    path = recorded / f"{case}.cuda.json.gz"
    truth = width_truth.truth_of(path)
    attribution = attribute(read(path))
    table, device = attribution.table, attribution.device
    mismatches, checked = {}, 0
    for row, module, number in zip(device.rows.tolist(), device.module.tolist(), device.phase.tolist(), strict=True):
        expected = truth.by_external.get(int(table.external[row]))
        if expected is None:  # outside any autograd node: in backward only the initial gradient of the loss
            name = table.names[int(table.name[row])]
            assert phase_of(number) not in ("backward", "recompute") or "FillFunctor" in name, name
            continue
        checked += 1
        actual = (calls_of(attribution, module), phase_of(number))
        if actual != (expected.calls, expected.phase):
            mismatches[row] = (table.names[int(table.name[row])], actual, expected)
    assert checked > 50
    assert not mismatches


@pytest.mark.parametrize("case", SIZE_CASES)
def test_every_operator_of_backward_is_attributed_to_the_module_whose_sizes_it_has(recorded: Path, case: str) -> None:
    path = recorded / f"{case}.cuda.json.gz"
    truth = width_truth.truth_of(path)
    attribution = attribute(read(path))
    table, host = attribution.table, attribution.host
    actual = {
        (int(table.start_ns[row]), int(table.duration_ns[row]), table.names[int(table.name[row])]): (
            calls_of(attribution, module),
            phase_of(number),
        )
        for row, module, number in zip(host.rows.tolist(), host.module.tolist(), host.phase.tolist(), strict=True)
    }
    mismatches = {
        (place.name, expected.module): actual[place]
        for place, expected in truth.by_place.items()
        if actual[place] != (expected.calls, expected.phase)
    }
    assert not mismatches


@pytest.mark.parametrize("case", [*SIZE_CASES, "compiled"])
def test_all_work_of_a_loop_has_a_phase_and_the_timeline_adds_up(recorded: Path, case: str) -> None:
    (summary,) = profiler_kit.inspect(recorded / f"{case}.cuda.json.gz").traces
    assert summary.busy_ns + summary.idle_ns == summary.span_ns
    phases = kernel_ns(summary)
    assert sum(phases.values()) + summary.unattributed_ns == summary.busy_ns
    assert summary.unattributed_ns + phases.get("other", 0) <= 0.01 * summary.busy_ns
    assert {phase for phase, ns in phases.items() if ns} >= {"transfer", "forward", "loss", "backward", "optimizer"}
    assert (phases.get("recompute", 0) > 0) == ("checkpoint" in case)
    assert len(summary.steps) == 2


def test_compiled_work_has_its_phase_and_its_region_and_the_report_says_so(recorded: Path) -> None:
    (summary,) = profiler_kit.inspect(recorded / "compiled.cuda.json.gz").traces
    assert summary.compiled
    assert any("torch.compile" in note for note in summary.notes)
    assert kernel_ns(summary)["backward"] > 0
    backward = {module.path for module in summary.modules if module.phase == "backward" and module.kernel_ns}
    assert not any(layer in path for path in backward for layer in ("Conv2d", "Linear", "Norm"))


def test_a_trace_of_analyze_inspected_gives_the_figures_of_analyze(tmp_path: Path) -> None:
    report = analyze(
        str(ROOT / "models" / "convnet_v0.py"), configs=["default"], budget_s=6, traces=tmp_path / "traces"
    )
    run = report.run("default")
    assert run is not None
    assert run.trace is not None
    file = next((tmp_path / "traces").rglob(Path(run.trace).name))
    (summary,) = profiler_kit.inspect(file).traces
    phase_ns = kernel_ns(summary)
    for timing in run.phases:
        if timing.kernel_ns:
            per_step = phase_ns.get(timing.phase, 0) / len(summary.steps)
            assert per_step == pytest.approx(timing.kernel_ns, rel=0.01, abs=1000), timing.phase
    paths = {(m.path, m.phase): m.kernel_ns / len(summary.steps) for m in summary.modules}
    for layer in run.modules:
        if layer.path.startswith("conv") and layer.kernel_ns > 10_000:
            assert paths[layer.path, layer.phase] == pytest.approx(layer.kernel_ns, rel=0.01)


def test_an_ordinary_loop_agrees_with_cuda_events(tmp_path: Path) -> None:
    network = runpy.run_path(str(ROOT / "models" / "convnet_v0.py"))["ConvNetV0"]
    torch.manual_seed(0)
    model = network().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(8, 3, 256, 256).cuda(), torch.randint(0, 2, (8, 64, 64)).cuda()
    marks: list[list[Any]] = []

    def step() -> None:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        optimizer.zero_grad()
        torch.cuda._sleep(SLEEP_CYCLES)
        events[0].record()
        output = model(images)
        events[1].record()
        loss = torch.nn.functional.cross_entropy(output, labels)
        events[2].record()
        loss.backward()
        events[3].record()
        optimizer.step()
        loss.item()
        marks.append(events)

    for _ in range(5):
        step()
    marks.clear()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    with torch.profiler.profile(activities=activities, schedule=schedule, acc_events=True) as profiler:
        for index in range(STEPS + 1):
            step()
            if index < STEPS:
                profiler.step()
        torch.cuda.synchronize()
    file = tmp_path / "loop.json"
    profiler.export_chrome_trace(str(file))
    (summary,) = profiler_kit.inspect(file).traces
    assert len(summary.steps) == STEPS
    phase_ns = kernel_ns(summary)
    for phase, before, after in (("forward", 0, 1), ("backward", 2, 3)):
        by_events = sum(each[before].elapsed_time(each[after]) for each in marks[1:])  # the first is the warm-up's
        assert phase_ns[phase] / 1e6 == pytest.approx(by_events, rel=0.03), phase

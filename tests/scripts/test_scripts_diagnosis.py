"""Tests of the diagnosis benchmark: the form of its scenarios, its score, and what `inspect` scores on the recorded traces."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from torch_versions import needs_stacks

import profiler_kit
from profiler_kit.diagnosis import all_rules
from profiler_kit.diagnosis.facts import facts_of
from profiler_kit.diagnosis.verdict import verdict
from profiler_kit.records.report import Finding, Report, Severity, TraceReport
from profiler_kit.records.serde import loads_report
from scripts.bench.diagnosis import __main__ as benchmark
from scripts.bench.diagnosis import peers, record
from scripts.bench.diagnosis import scenario as scenario_module
from scripts.bench.diagnosis.scenario import ANALYZE, CAUSES, NOTHING, PARTS, TRACE_FORMS, Scenario, scenarios

pytestmark = pytest.mark.jobs

# What has to hold on the recordings.
MIN_FIRST, MIN_PRESENT, MAX_WRONG = 0.90, 0.95, 0.04
MAX_FIXTURES_BYTES = 12_000_000
REPORTS = Path(__file__).parents[1] / "fixtures" / "reports"
PUBLISHED = Path(__file__).parents[2] / "docs" / "measured"

SCENARIO = Scenario(name="late", part="visible", cause="data", also=("python",), text="A late batch.")


def finding(rule: str, severity: Severity = "high") -> Finding:
    return Finding(rule=rule, severity=severity, title=rule, explanation="", advice="", evidence=(), paths=())


def test_scenarios_follow_the_form_and_have_names_of_their_own() -> None:
    found = {part: list(scenarios(part)) for part in PARTS}
    assert all(len(found[part]) >= 40 for part in ("visible", "heldout"))
    assert {cause for row in found["heldout"] for cause in (row.cause, *row.also)} <= {*CAUSES, NOTHING}
    names = [scenario.name for of_part in found.values() for scenario in of_part]
    assert len(names) == len(set(names))


def test_the_visible_half_has_programs_for_each_cause_and_form() -> None:
    visible = list(scenarios("visible"))
    planted = {scenario.cause for scenario in visible}
    assert {*CAUSES, NOTHING} - planted <= {"unknown", "place"}
    assert {form for scenario in visible for form in scenario.forms} == {*TRACE_FORMS, ANALYZE}
    assert sum(scenario.runs_on("cpu") for scenario in visible) >= 15
    assert sum(scenario.ranks > 1 for scenario in visible) >= 4


def test_a_cause_names_rules_that_exist() -> None:
    assert frozenset[str]().union(*CAUSES.values()) <= {rule.name for rule in all_rules()}
    assert {rule.name for rule in all_rules()} >= benchmark.NO_CAUSE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CAUSE = 'boredom'\ndef train(device): yield", "no such cause in CAUSES: boredom"),
        ("CAUSE = 'data'\ntrain = 3", r"no function train\(device\)"),
        ("CAUSE = 'data'\nFORMS = ('film',)\ndef train(device): yield", "FORMS are not some of"),
        ("CAUSE = 'data'\nFORMS = ('analyze',)\ndef train(device): yield", "needs ANALYZE"),
        (
            "CAUSE = 'data'\nFORMS = ('analyze',)\nANALYZE = ('build',)\ndef train(device): yield",
            r"no function build\(\)",
        ),
        ("CAUSE = 'data'\nDEVICE = 'tpu'\ndef train(device): yield", "DEVICE is not one of"),
        ("CAUSE = 'data'\nRANKS = 0\ndef train(device): yield", "at least 1"),
    ],
)
def test_a_file_of_another_form_is_refused(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario_module, "PROGRAMS", tmp_path)
    (tmp_path / "odd.py").write_text(f'"""Odd."""\n{text}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        list(scenarios("visible"))


def test_the_score_asks_for_the_first_finding_any_finding_and_wrong_ones() -> None:
    row = benchmark.score(SCENARIO, "late.cpu.plain", [finding("launch_bound", "low"), finding("data_bound")])
    assert (row.first, row.present, row.wrong) == (False, True, ())
    row = benchmark.score(SCENARIO, "late.cpu.plain", [finding("data_bound"), finding("no_tensor_cores", "medium")])
    assert (row.first, row.present, row.wrong) == (True, True, ("no_tensor_cores",))
    row = benchmark.score(SCENARIO, "late.cpu.plain", [finding("host_overhead"), finding("depthwise", "low")])
    assert (row.first, row.present, row.wrong) == (False, False, ())  # true as well, but not the planted cause
    assert not benchmark.score(SCENARIO, "late.cpu.plain", []).present


def test_where_nothing_is_wrong_only_serious_findings_count() -> None:
    healthy = replace(SCENARIO, cause=NOTHING, also=())
    row = benchmark.score(healthy, "late.cpu.plain", [finding("memory_bound", "low")])
    assert (row.first, row.present, row.wrong) == (True, True, ())
    row = benchmark.score(healthy, "late.cpu.plain", [finding("memory_bound", "medium")])
    assert (row.first, row.present, row.wrong) == (False, False, ("memory_bound",))


def test_a_recording_is_the_files_of_its_ranks_in_a_form_that_shows_the_cause(tmp_path: Path) -> None:
    names = (
        "late.cuda.plain.rank0",
        "late.cuda.plain.rank1",
        "late.cuda.stacks",
        "late.cpu.analyze",
        "later.cpu.plain",
    )
    for name in names:
        (tmp_path / f"{name}.json.gz").touch()
    found = {name: len(paths) for name, paths in benchmark.recordings(tmp_path, SCENARIO).items()}
    assert found == {"late.cuda.plain": 2, "late.cuda.stacks": 1}
    analyzed = replace(SCENARIO, forms=(ANALYZE,), analyze=("build",))
    assert list(benchmark.recordings(tmp_path, analyzed)) == ["late.cpu.analyze"]


def test_a_thin_trace_has_all_events_and_the_arguments_that_readers_need() -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 2, "args": {"correlation": 7, "queued": 0}}
    arrow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 1, "id": 7}
    trace = {"schemaVersion": 1, "traceName": "/home/ada/trace.json", "traceEvents": [kernel, arrow]}
    assert record.thin(trace) == {"schemaVersion": 1, "traceEvents": [{**kernel, "args": {"correlation": 7}}, arrow]}


@pytest.fixture(scope="module")
def recorded() -> dict[tuple[Scenario, str], Report | TraceReport]:
    """The reports on all recordings, by scenario and name."""
    return {
        (scenario, name): benchmark.report_of(paths)
        for scenario in scenarios()
        for name, paths in benchmark.recordings(benchmark.TRACES, scenario).items()
    }


@pytest.fixture(scope="module")
def rows(recorded: dict[tuple[Scenario, str], Report | TraceReport]) -> list[benchmark.Score]:
    return [benchmark.score(*key, report.findings) for key, report in recorded.items()]


def test_the_first_suggestion_treats_the_main_cause(
    recorded: dict[tuple[Scenario, str], Report | TraceReport],
) -> None:
    published = {
        path.name: loads_report(path.read_bytes(), str(path)) for path in sorted(PUBLISHED.glob("convnet_v?_h100.json"))
    }
    frozen = {path.name: loads_report(path.read_bytes(), str(path)) for path in sorted(REPORTS.glob("*.json"))}
    all_reports: dict[str, Report | TraceReport] = {name: report for (_, name), report in recorded.items()}
    for name, report in (all_reports | published | frozen).items():
        said = verdict(report)
        if said.cause is None or not said.remedies:
            continue
        first = said.remedies[0]
        says_why = any("No change is known to treat" in sentence for sentence in said.sentences)
        assert said.cause in first.findings or first.is_measured or says_why, name


def test_advice_asks_for_nothing_that_the_recording_contradicts(
    recorded: dict[tuple[Scenario, str], Report | TraceReport],
) -> None:
    for (_, name), report in recorded.items():
        facts = facts_of(report)
        for one in report.findings:
            place = f"{name}: {one.rule}"
            assert "batch_size=32" not in one.advice, place
            assert facts.trains or not ("learning rate" in one.advice or "loss.detach" in one.advice), place
            assert facts.has_optimizer or "fused=True" not in one.advice, place
            assert facts.has_loader or one.rule == "data_bound" or "DataLoader" not in one.advice, place
            assert facts.has_steps or "of the step" not in one.title, place
            assert not (one.rule == "float64" and facts.lacks("float64")), place
            on_cpu = isinstance(report, TraceReport) and all(trace.clock == "host" for trace in report.traces)
            assert not (on_cpu and ("'cuda'" in one.advice or "pin_memory" in one.advice)), place


def test_the_recordings_reach_the_score(rows: list[benchmark.Score]) -> None:
    missed = [(row.trace, row.findings) for row in rows if not (row.first and row.present) or row.wrong]
    assert len(rows) >= 140
    assert sum(row.first for row in rows) >= MIN_FIRST * len(rows), missed
    assert sum(row.present for row in rows) >= MIN_PRESENT * len(rows), missed
    assert sum(bool(row.wrong) for row in rows) <= MAX_WRONG * len(rows), missed


def test_recordings_belong_to_scenarios_and_name_no_folders(rows: list[benchmark.Score]) -> None:
    files = sorted(benchmark.TRACES.glob("*.json.gz"))
    known = {
        path for one in scenarios() for paths in benchmark.recordings(benchmark.TRACES, one).values() for path in paths
    }
    assert set(files) == known
    assert sum(path.stat().st_size for path in files) <= MAX_FIXTURES_BYTES
    for path in files:
        text = gzip.decompress(path.read_bytes())
        assert not any(folder in text for folder in (b'"/home/', b'"/root/', b'"/work/', b'"/tmp/', b'"/workspace/')), (
            path
        )


@needs_stacks
def test_a_scenario_is_recorded_in_both_forms_of_a_trace_and_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["record", "--device", "cpu", "--out", str(tmp_path)])
    sys.argv += ["--only", "large_vocabulary_loss"]
    assert record.main() == 0
    assert sorted(path.name for path in tmp_path.glob("*.gz")) == [
        "large_vocabulary_loss.cpu.plain.json.gz",
        "large_vocabulary_loss.cpu.stacks.json.gz",
    ]
    for path in tmp_path.glob("*.gz"):
        assert len(profiler_kit.inspect(path).report.traces[0].steps) == 3
        assert str(record.ROOT) not in gzip.decompress(path.read_bytes()).decode()
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["diagnosis", "--traces", str(tmp_path), "--part", "visible", "-f", "json"])
    assert benchmark.main() == 0
    assert [row["trace"] for row in json.loads(capsys.readouterr().out)] == [
        "large_vocabulary_loss.cpu.plain",
        "large_vocabulary_loss.cpu.stacks",
    ]


def test_statements_of_peers_count_for_the_causes_that_their_documentation_names() -> None:
    launch = replace(SCENARIO, cause="launch", also=())
    statements = [peers.Statement("communication kernels", 0.1), peers.Statement("host_wait", 0.6)]
    row = peers.peer_score("HTA", launch, "late.cuda.plain", statements)
    assert (row.first, row.present, row.wrong) == (True, True, False)
    row = peers.peer_score("HTA", SCENARIO, "late.cuda.plain", statements)
    assert (row.first, row.present, row.wrong) == (False, False, False)
    row = peers.peer_score(
        "torch-tb-profiler", SCENARIO, "late.cuda.plain", [peers.Statement("low GPU utilization", None)]
    )
    assert (row.first, row.present, row.wrong) == (False, False, True)


def test_much_time_in_an_operator_is_no_claim_of_a_peer_that_something_is_wrong() -> None:
    healthy = replace(SCENARIO, cause=NOTHING, also=())
    row = peers.peer_score("TraceLens", healthy, "late.cuda.plain", [peers.Statement("operators: GEMM", 0.9)])
    assert (row.first, row.present) == (True, True)
    assert not peers.peer_score("TraceLens", healthy, "late.cuda.plain", [peers.Statement("idle", 0.4)]).first
    failed = peers.peer_score("HTA", healthy, "late.cpu.plain", "IndexError")
    assert (failed.first, failed.present, failed.failure) == (False, False, "IndexError")

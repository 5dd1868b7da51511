"""Laws that hold for every rule there is, and for every finding, whatever the report lacks."""

from __future__ import annotations

import dataclasses
import random
import re
from pathlib import Path
from typing import Any

import examples
import pytest
from diagnose_cases import all_failed, cpu, report, single_conv, v0, v1
from diagnose_lab import laboratory, troubled
from diagnose_laws import sound_finding, sound_order, thinned
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schedule_cases import v1_over_shapes

import profiler_kit.diagnosis.rules as family
from profiler_kit.diagnosis import all_rules, diagnose
from profiler_kit.records.report import Report
from scripts.docs.make_docs import rules_page

REPORTS = {
    "v0": v0(),
    "v0 without A/A": v0(a_a=False),
    "v1": v1(),
    "v1 over shapes": v1_over_shapes(),
    "one convolution": single_conv(),
    "cpu": cpu(),
    "all failed": all_failed(),
    "counted only": dataclasses.replace(v0(), runs=()),
    "run only": dataclasses.replace(v0(), static=None),
    "empty": report(),
    "laboratory": laboratory(),
    "troubled": troubled(),
}
RULES = all_rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_documents_itself(rule: Any) -> None:
    assert re.fullmatch(r"[a-z0-9_]+", rule.name)
    assert len(rule.doc.strip()) > 100


@pytest.mark.parametrize("source", REPORTS.values(), ids=REPORTS.keys())
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_takes_any_report(rule: Any, source: Report) -> None:
    for finding in rule.findings(source):
        assert finding.rule == rule.name


@pytest.mark.parametrize("source", REPORTS.values(), ids=REPORTS)
def test_only_rules_that_need_no_runs_read_a_count(source: Report) -> None:
    counted = dataclasses.replace(source, runs=(), schedules=())
    for rule in all_rules():
        if rule.needs_runs and rule.reads != "traces":
            check: Any = rule.check
            assert list(check(counted)) == [], rule.name


def sound(source: Report) -> None:
    """Every finding is fit to be shown: its number stands in its sentences, its names exist, its JSON is plain."""
    findings = diagnose(source)
    sound_order(findings)
    names = {run.config.name for run in source.runs}
    for finding in findings:
        sound_finding(finding)
        assert finding.config is None or finding.config in (*names, *finding.tries)
        assert not finding.tries or finding.config is not None
        assert finding.trial is None or finding.trial.config == finding.config


@pytest.mark.parametrize("source", REPORTS.values(), ids=REPORTS.keys())
def test_findings_are_sound(source: Report) -> None:
    sound(source)


def test_an_empty_report_has_no_findings() -> None:
    assert diagnose(report()) == ()


def test_the_same_report_gives_the_same_findings() -> None:
    assert diagnose(v1()) == diagnose(v1())


@settings(max_examples=examples.count(80), suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(sorted(REPORTS)),
    seed=st.integers(0, 2**32),
    rate=st.sampled_from([0.02, 0.1, 0.3, 0.6]),
)
def test_no_missing_or_absurd_number_breaks_a_rule(name: str, seed: int, rate: float) -> None:
    sound(thinned(REPORTS[name], random.Random(seed), rate))


def test_a_new_rule_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "added_rule.py").write_text(
        "from profiler_kit.diagnosis.rule import Rule\n"
        "from profiler_kit.records.report import Evidence, Finding\n"
        "def check(report):\n"
        "    yield Finding(rule='added_rule', severity='low', title='1 thing', explanation='There is 1.', advice='Go on.',\n"
        "                  evidence=(Evidence(name='things', value=1, unit='count'),))\n"
        "RULE = Rule('added_rule', 'Fires always.', check)\n"
    )
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(tmp_path)])
    assert "added_rule" in [f.rule for f in diagnose(v0())]
    assert "## added_rule\n\nFires always." in rules_page()


@pytest.mark.parametrize(
    "text_",
    ["", "RULE = 3\n", "from profiler_kit.diagnosis.rule import Rule\nRULE = Rule('channels_multiple', '', list)\n"],
)
def test_a_file_without_its_rule_is_an_error_that_names_it(
    text_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"broken_{abs(hash(text_)) % 10**8}"
    (tmp_path / f"{name}.py").write_text(text_)
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(tmp_path)])
    with pytest.raises(TypeError, match=name):
        all_rules()


def test_the_page_documents_every_rule_and_its_thresholds() -> None:
    page = rules_page()
    for rule in RULES:
        assert f"## {rule.name}\n" in page
        assert rule.doc.strip() in page
    assert "20 percentage points" in page.replace("\n", " ")

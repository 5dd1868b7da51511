"""Files that an earlier version wrote must stay readable.

tests/fixtures/frozen holds one file of each kind. The code of commit 2535294 wrote them, before files had a kind: reports
from an H100 (reduced to two runs), from a CPU, of a count and of a failed run; a trace report, two comparisons, a check,
and a machine. They are never written again. If a change cannot read one of them, make it read the old names.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from profiler_kit.cli import main
from profiler_kit.records.notes import Note
from profiler_kit.records.report import Report
from profiler_kit.records.serde import dumps, from_json, loads_saved, read_report, read_saved, to_json

FROZEN = Path(__file__).parent.parent / "fixtures" / "frozen"
# file -> its kind, the start of its SHA-256, a text on its page
FILES = {
    "check": ("check", "8cfa8d96b9fb", "1 of 2 budgets broken"),
    "comparison": ("comparison", "7f0389a420e1", "k3 => k5"),
    "machine": ("machine", "83353a4ac5f9", "162.8 G"),
    "report_count": ("report", "c46eb1a36d39", "Small (small.py)"),
    "report_cpu": ("report", "9f9e8438dc07", "One (one.py)"),
    "report_cuda": ("report", "aec2e016363e", "27.07 ms"),
    "report_failed": ("report", "b6eec60db1ca", "the data set is not there"),
    "trace_comparison": ("trace_comparison", "acbb449021f0", "rank1"),
    "trace_report": ("trace_report", "11e98eea9230", "rank0.json.gz"),
}

# Names added later whose default is neither null nor empty.
DEFAULTS = {"check.status": "compared", "check.comparison.exact": True, "comparison.exact": True}
# Names added later that hold old values: the other names of a run are the mean of its traced steps.
REGROUPED = ("traced", "timed_phases")
# Names of a run that a file no longer holds, because `traced` does. The record still has them.
MEANS = ("clock", "kernels")


def test_every_frozen_file_is_tested_and_unchanged() -> None:
    digests = {file.stem: hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in FROZEN.iterdir()}
    assert digests == {name: digest for name, (_, digest, _) in FILES.items()}


@pytest.mark.parametrize("name", FILES)
def test_a_frozen_file_opens_with_show(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind, _, words = FILES[name]
    assert read_saved(FROZEN / f"{name}.json").kind == kind
    for form in ("terminal", "markdown", "csv", "json"):
        assert main(["show", str(FROZEN / f"{name}.json"), "-f", form]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        assert form != "terminal" or words in " ".join(printed.out.split())


def assert_holds(new: Any, old: Any, where: str) -> None:
    """`new` has all values of `old` at the same places; names that only `new` has hold their defaults.

    A note was a line, and is a record whose line is the same.
    """
    if isinstance(old, str) and isinstance(new, dict):
        new = str(from_json(Note, new))
    if isinstance(old, dict):
        assert set(old) <= set(new), where
        for key in set(new) - set(old):
            assert key in REGROUPED or not new[key] or new[key] == DEFAULTS.get(f"{where}.{key}"), f"{where}.{key}"
        for key, value in old.items():
            assert_holds(new[key], value, f"{where}.{key}")
    elif isinstance(old, list):
        assert len(new) == len(old), where
        for i, (a, b) in enumerate(zip(new, old, strict=True)):
            assert_holds(a, b, f"{where}[{i}]")
    else:
        assert new == old, where


@pytest.mark.parametrize("name", FILES)
def test_a_frozen_file_loses_nothing(name: str) -> None:
    """Every name and value is still present when the file is written again; new names have their defaults."""
    old = json.loads((FROZEN / f"{name}.json").read_text())
    record = read_saved(FROZEN / f"{name}.json")
    new = json.loads(dumps(record))
    for run, written in zip(record.runs if isinstance(record, Report) else (), new.get("runs", ()), strict=True):
        assert set(MEANS).isdisjoint(written)
        written |= {mean: to_json(getattr(run, mean)) for mean in MEANS}
    assert new["kind"] == FILES[name][0]
    assert_holds(new, old | {"kind": FILES[name][0]}, name)
    assert loads_saved(json.dumps(new), name) == record


def test_frozen_reports_hold_their_original_content() -> None:
    reports = {name: read_report(FROZEN / f"{name}.json") for name in FILES if name.startswith("report")}
    assert all(isinstance(report, Report) for report in reports.values())
    assert reports["report_count"].runs == ()
    assert reports["report_failed"].runs[0].failure is not None
    assert reports["report_cuda"].runs[0].environment is not None
    assert reports["report_cuda"].runs[0].environment.device_name == "NVIDIA H100 80GB HBM3"

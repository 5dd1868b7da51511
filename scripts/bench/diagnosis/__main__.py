"""Scores the diagnosis: is the first finding on each recorded trace the cause that was planted?

    python -m scripts.bench.diagnosis [--traces FOLDER] [--part PART] [--only TEXT] [--detail] [-f json]

Record the traces with ``python -m scripts.bench.diagnosis.record``. A row counts as

- first: the first finding names the planted cause (for "nothing": no [high] and no [medium] finding);
- present: a finding names it, or one that its repair removes as well;
- wrong: a [high] or [medium] finding names a cause that is not there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from tabulate import tabulate

import profiler_kit
from profiler_kit.diagnosis import diagnose
from profiler_kit.records.report import Finding, Report, TraceReport
from profiler_kit.records.serde import loads_report
from scripts.bench.diagnosis.scenario import ANALYZE, NOTHING, PARTS, Scenario, scenarios

TRACES: Final = Path(__file__).resolve().parents[3] / "tests" / "fixtures" / "diagnosis"
RANK: Final = re.compile(r"\.rank\d+$")
SERIOUS: Final = ("high", "medium")
# Findings about the recording itself: they name no cause.
NO_CAUSE: Final = frozenset({"device_not_recorded", "new_thread", "tf32_in_use", "unsteady"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Whether the findings on a recording name the planted cause."""

    scenario: str
    part: str
    trace: str
    cause: str
    first: bool
    present: bool
    wrong: tuple[str, ...]
    findings: tuple[str, ...]


def score(scenario: Scenario, trace: str, findings: Iterable[Finding]) -> Score:
    """Compare findings with the planted cause."""
    listed = [finding for finding in findings if finding.rule not in NO_CAUSE]
    serious = [finding for finding in listed if finding.severity in SERIOUS]
    is_healthy = scenario.cause == NOTHING
    return Score(
        scenario=scenario.name,
        part=scenario.part,
        trace=trace,
        cause=scenario.cause,
        first=not serious if is_healthy else bool(listed) and listed[0].rule in scenario.right,
        present=not serious
        if is_healthy
        else any(not _names(finding).isdisjoint(scenario.right) for finding in listed),
        wrong=tuple(finding.rule for finding in serious if finding.rule not in scenario.accepted),
        findings=tuple(f"{finding.rule} [{finding.severity}]" for finding in listed),
    )


def _names(finding: Finding) -> set[str]:
    """The rule of a finding, and those of the findings that go with its repair."""
    return {finding.rule, *(symptom.rule for symptom in finding.symptoms)}


def scores(folder: Path, selected: Iterable[Scenario]) -> Iterator[Score]:
    """The score of each recorded trace and report in `folder`, with the rules of today."""
    for scenario in selected:
        for name, paths in recordings(folder, scenario).items():
            yield score_of(scenario, name, paths)


def score_of(scenario: Scenario, name: str, paths: list[Path]) -> Score:
    """The score of one recording."""
    return score(scenario, name, report_of(paths).findings)


def recordings(folder: Path, scenario: Scenario) -> dict[str, list[Path]]:
    """The files of each recording of `scenario`: NAME.DEVICE.FORM and one file, or one file per rank."""
    recorded: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(f"{scenario.name}.*.json.gz")):
        name = RANK.sub("", path.name.removesuffix(".json.gz"))
        if name.rpartition(".")[2] in scenario.forms:
            recorded.setdefault(name, []).append(path)
    return recorded


def report_of(paths: list[Path]) -> Report | TraceReport:
    """The report on the traces of one job, or one saved report of `analyze`, with the findings of today's rules."""
    if paths[0].name.endswith(f".{ANALYZE}.json.gz"):
        report = loads_report(gzip.decompress(paths[0].read_bytes()), str(paths[0]))
        return replace(report, findings=diagnose(report))
    return profiler_kit.inspect(paths).report


def summary(rows: list[Score]) -> list[list[object]]:
    """Counts and shares by part and form."""
    groups: dict[str, list[Score]] = {}
    for row in rows:
        _, device, form = row.trace.rsplit(".", 2)
        for name in (f"{row.part}, {device}, {form}", f"{row.part}, all", "all"):
            groups.setdefault(name, []).append(row)
    return [
        [name, len(group), *(f"{100 * sum(values) / len(group):.0f} %" for values in _columns(group))]
        for name, group in sorted(groups.items())
    ]


def _columns(group: list[Score]) -> tuple[list[bool], list[bool], list[bool]]:
    return [row.first for row in group], [row.present for row in group], [bool(row.wrong) for row in group]


def main() -> int:
    """Print the score of the traces in a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder with recorded traces")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part")
    parser.add_argument("--only", default="", help="only scenarios whose name contains this text")
    parser.add_argument("--detail", action="store_true", help="one row per trace")
    parser.add_argument("-f", "--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    selected = [scenario for scenario in scenarios(*(options.part or PARTS)) if options.only in scenario.name]
    rows = list(scores(options.traces, selected))
    if not rows:
        print(f"error: no recorded traces in {options.traces}", file=sys.stderr)
        return 2
    if options.format == "json":
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    if options.detail:
        header = ["trace", "cause", "first", "present", "wrong", "findings"]
        lines = [
            [row.trace, row.cause, *("yes" if value else "no" for value in (row.first, row.present)), " ".join(row.wrong),
             ", ".join(row.findings[:4])] for row in rows
        ]  # fmt: skip
        print(tabulate(lines, header), end="\n\n")
    print(tabulate(summary(rows), ["traces", "number", "first", "present", "wrong"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Scores what other trace readers say about the same traces: do their words name the planted cause?

    python -m scripts.bench.diagnosis.peers [--python peers/bin/python] [--traces FOLDER] [--part PART]

`peer_statements` reads each trace with each reader that `--python` has installed: HolisticTraceAnalysis (HTA), TraceLens and the
recommendations of torch-tb-profiler. A statement names the causes that the reader's documentation gives for it. A row counts as

- first: the statement with the largest share of the time, of those that name a cause, names the planted one. For
  torch-tb-profiler: the first recommendation. For "nothing": no recommendation, and no idle time, communication or copies
  of a fifth of the time;
- present: a statement of a twentieth of the time or a recommendation names it;
- wrong: a recommendation names only causes that are not there. HTA and TraceLens measure and recommend nothing, so they have no
  wrong ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tabulate import tabulate

from profiler_kit.process import run
from scripts.bench.diagnosis.__main__ import TRACES, recordings, score_of
from scripts.bench.diagnosis.scenario import ANALYZE, CAUSES, NOTHING, PARTS, Scenario, scenarios

SCRIPT: Final = Path(__file__).resolve().parent / "peer_statements.py"
LIMIT_S: Final = 120.0
MIN_SHARE: Final = 0.05
LARGE_SHARE: Final = 0.20
RECOMMENDS: Final = "torch-tb-profiler"

# The causes that the documentation of a reader gives for a statement. Statements that are not listed name no cause.
# HTA: docs/source/features/idle_time_breakdown.rst (host wait: examine CPU operators, increase the batch size, fuse operators;
# kernel wait: CUDA graphs). TraceLens: docs/reference/perf-report-columns.md (idle: CPU bottlenecks, launch overhead or
# synchronization). torch-tb-profiler: RunProfileData.analyze (low utilization: increase the batch size).
NAMES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "HTA": {
        "host_wait": ("launch", "python"),
        "kernel_wait": ("launch",),
        "other": ("unknown",),
        "communication kernels": ("communication",),
        "memory kernels": ("host_copies",),
        "straggler": ("straggler",),
    },
    "TraceLens": {
        "idle": ("launch", "python", "sync"),
        "exposed communication": ("communication",),
        "exposed copies": ("host_copies",),
        "operators: elementwise": ("pointwise",),
        "operators: multi_tensor_apply": ("optimizer",),
        "operators: GEMM": ("layer",),
        "operators: CONV_fwd": ("layer",),
        "operators: CONV_bwd": ("layer",),
    },
    RECOMMENDS: {
        "data loading": ("data",),
        "low GPU utilization": ("launch",),
        "tensor cores": ("precision",),
        "memory limit": ("memory",),
        "communication": ("communication",),
        "communication backend": ("communication",),
        "DataParallel": ("communication",),
    },
}


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a reader, and its share of the time, if the reader gives a share."""

    name: str
    share: float | None

    @property
    def is_loss(self) -> bool:
        """Whether the reader shows lost time. Much time in an operator alone is not a problem."""
        return not self.name.startswith("operators:") and self.share is not None and self.share >= LARGE_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerScore:
    """Whether the statements of a reader about a recording name the planted cause."""

    reader: str
    trace: str
    cause: str
    first: bool
    present: bool
    wrong: bool
    failure: str
    statements: tuple[str, ...]


def peer_score(reader: str, scenario: Scenario, trace: str, answer: list[Statement] | str) -> PeerScore:
    """Compare the statements of `reader` with the planted cause. A text instead of statements is the reason of a failure."""
    recommends = reader == RECOMMENDS
    statements = [] if isinstance(answer, str) else answer
    if not recommends:
        statements = sorted(statements, key=lambda statement: -(statement.share or 0.0))
    named = [
        (statement, causes)
        for statement in statements
        if (causes := NAMES[reader].get(statement.name, ()))
        and (statement.share is None or recommends or statement.share >= MIN_SHARE)
    ]
    right = [scenario.cause in causes for _, causes in named]
    is_quiet = not any(recommends or statement.is_loss for statement, _ in named)
    healthy = scenario.cause == NOTHING
    true_causes = {scenario.cause, *scenario.also}
    return PeerScore(
        reader=reader,
        trace=trace,
        cause=scenario.cause,
        first=is_quiet if healthy else bool(right) and right[0],
        present=is_quiet if healthy else any(right),
        wrong=recommends and any(true_causes.isdisjoint(causes) for _, causes in named),
        failure=answer if isinstance(answer, str) else "",
        statements=tuple(
            f"{statement.name} {statement.share:.0%}" if statement.share else statement.name
            for statement in statements[:4]
        ),
    )


def ask(reader: str, paths: list[Path], python: str) -> list[Statement] | str:
    """The statements of `reader` about the traces of one job, or why it has none."""
    outcome = run([python, str(SCRIPT), reader, *map(str, paths)], timeout_s=LIMIT_S)
    if outcome.ok:
        answer: list[tuple[str, float | None]] = json.loads(outcome.stdout.strip().splitlines()[-1])
        return [Statement(name, share) for name, share in answer]
    return (outcome.log_tail.strip().splitlines() or ["failed"])[-1]


def table(rows: Iterable[PeerScore]) -> list[list[object]]:
    """Counts and shares of each reader."""
    groups: dict[str, list[PeerScore]] = {}
    for row in rows:
        groups.setdefault(row.reader, []).append(row)
    return [
        [
            reader,
            len(group),
            sum(bool(row.failure) for row in group),
            *(
                f"{100 * sum(values) / len(group):.0f} %"
                for values in ([r.first for r in group], [r.present for r in group])
            ),
            f"{100 * sum(row.wrong for row in group) / len(group):.0f} %"
            if reader not in ("HTA", "TraceLens")
            else "-",
        ]
        for reader, group in groups.items()
    ]


def table_by_cause(rows: list[PeerScore]) -> list[list[object]]:
    """For each cause, on how many traces each reader names it; a dash where none of its statements can."""
    readers = list(dict.fromkeys(row.reader for row in rows))
    lines: list[list[object]] = []
    for cause in (*CAUSES, NOTHING):
        of_cause = [row for row in rows if row.cause == cause]
        if of_cause:
            cells = []
            for reader in readers:
                values = [row.present for row in of_cause if row.reader == reader]
                can = (
                    reader not in NAMES or cause == NOTHING or any(cause in causes for causes in NAMES[reader].values())
                )
                cells.append(f"{sum(values)} of {len(values)}" if can else "-")
            lines.append([cause, *cells])
    return lines


def main() -> int:
    """Print the scores of all readers on the traces in a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder with recorded traces")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part")
    parser.add_argument("--only", default="", help="only scenarios whose name contains this text")
    parser.add_argument("--python", default=sys.executable, help="interpreter with the other readers")
    parser.add_argument("--jobs", type=int, default=1, help="readers that run side by side")
    parser.add_argument("--detail", action="store_true", help="one row per trace and reader")
    parser.add_argument("-f", "--format", choices=("table", "markdown"), default="table")
    options = parser.parse_args()
    jobs = [
        (scenario, name, paths)
        for scenario in scenarios(*(options.part or PARTS))
        if options.only in scenario.name
        for name, paths in recordings(options.traces, scenario).items()
        if not name.endswith(f".{ANALYZE}")
    ]
    if not jobs:
        print(f"error: no recorded traces in {options.traces}", file=sys.stderr)
        return 2
    own = [(scenario, score_of(scenario, name, paths)) for scenario, name, paths in jobs]
    rows = [
        PeerScore(
            reader="profiler_kit", trace=score.trace, cause=scenario.cause, first=score.first, present=score.present,
            wrong=bool(score.wrong), failure="", statements=score.findings[:4],
        )
        for scenario, score in own
    ]  # fmt: skip

    def ask_one(task: tuple[str, tuple[Scenario, str, list[Path]]]) -> PeerScore:
        reader, (scenario, name, paths) = task
        return peer_score(reader, scenario, name, ask(reader, paths, options.python))

    with ThreadPoolExecutor(options.jobs) as pool:
        rows += pool.map(ask_one, [(reader, job) for reader in NAMES for job in jobs])
    style = "github" if options.format == "markdown" else "simple"
    if options.detail:
        lines = [[r.reader, r.trace, r.cause, r.first, r.present, r.failure or ", ".join(r.statements)] for r in rows]
        print(tabulate(lines, ["reader", "trace", "cause", "first", "present", "states"], style), end="\n\n")
    header = ["reader", "traces", "cannot read", "first", "present", "wrong"]
    print(tabulate(table(rows), header, style), end="\n\n")
    by_cause = table_by_cause(rows)
    print(tabulate(by_cause, ["cause", *dict.fromkeys(row.reader for row in rows)], style))
    return 0


if __name__ == "__main__":
    sys.exit(main())

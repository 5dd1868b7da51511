"""Compare the figures of `inspect` and of other trace readers with exact figures, computed here from the trace alone.

    python -m scripts.bench.compare_inspect_peers traces --python peers/bin/python
    python -m scripts.bench.compare_inspect_peers trace.json.gz more.json.gz

Exact figures, in whole ns: busy time is the union of all device events. The time of a phase is the union of the device
events that were launched within the author's annotation (`## forward ##`), collectives included. Device time under
operators is the sum of the kernels that were launched within an operator. `inspect` attributes device events to phases
without these annotations. It reports the loss as a phase, whereas an author's annotation of backward may include it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tabulate import tabulate

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.summary import summarize
from profiler_kit.errors import KitError
from profiler_kit.process import run
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import NONE

HERE: Final = Path(__file__).resolve().parent
DEVICE_CATEGORIES: Final = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
LAUNCH_CATEGORIES: Final = ("cuda_runtime", "cuda_driver", "hip_runtime", "Runtime")
OPERATOR_CATEGORIES: Final = ("cpu_op", "Operator")
ANNOTATION_CATEGORIES: Final = ("user_annotation", "Operator", "cpu_op")
ANNOTATED_PHASES: Final = ("forward", "backward", "optimizer")
TIMEOUT_S: Final = 600.0

Span = tuple[int, int]


@dataclass(slots=True)
class Figures:
    """Figures of one trace. `annotated_ns`: busy time of the device events launched within each annotated phase."""

    busy_ns: int = 0
    operators_ns: int = 0
    annotated_ns: dict[str, int] = field(default_factory=dict)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="trace files, or folders with *.json.gz")
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter with the other readers (default: this one)"
    )
    args = parser.parse_args()
    files = [file for path in args.traces for file in (sorted(path.rglob("*.json.gz")) if path.is_dir() else [path])]
    busy: list[list[str]] = []
    phases: list[list[str]] = []
    for file in files:
        try:
            exact, ours = read_exact(file), figures_of(attribute(read(file)))
        except (KitError, KeyError, TypeError) as error:
            print(f"{file.name}: {error}", file=sys.stderr)
            continue
        if not exact.busy_ns:
            continue
        hta, tensorboard = run_peer("HTA", file, args.python), run_peer("torch-tb-profiler", file, args.python)
        busy.append(_busy_row(file, exact, ours, hta, tensorboard))
        phases += _phase_rows(file, exact, ours, hta)
        print(f"{file.name}: done", file=sys.stderr)
    heads = ("trace", "exact busy ms", "inspect", "HTA", "exact ms under operators", "inspect", "torch-tb-profiler")
    print(_table(busy, heads), end="\n\n")
    if phases:
        print(_table(phases, ("trace", "phase", "exact ms in annotation", "inspect", "HTA")))


def figures_of(attribution: Attribution) -> Figures:
    """Return the figures of `inspect`."""
    table, device = attribution.table, attribution.device
    starts, ends = table.start_ns[device.rows].tolist(), table.end_ns[device.rows].tolist()
    within: dict[str, list[Span]] = {phase: [] for phase in ANNOTATED_PHASES}
    for start, end, number in zip(starts, ends, device.within.tolist(), strict=True):
        phase = TRACE_PHASES[number] if number != NONE else ""
        within.setdefault("backward" if phase == "recompute" else phase, []).append((start, end))
    return Figures(
        busy_ns=summarize(attribution).busy_ns,
        operators_ns=int(table.duration_ns[device.rows[device.operator != NONE]].sum()),
        annotated_ns={phase: sum(end - start for start, end in unite(within[phase])) for phase in ANNOTATED_PHASES},
    )


def read_exact(file: Path) -> Figures:
    """Compute the exact figures of the trace `file`."""
    data = file.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode(errors="replace")
    document = json.loads(text, parse_float=str, strict=False)
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    spans = [(nanoseconds(e["ts"]), nanoseconds(e["ts"]) + nanoseconds(e.get("dur", 0))) for e in events]
    device = [(e, span) for e, span in zip(events, spans, strict=True) if e.get("cat") in DEVICE_CATEGORIES]
    launches = {
        e["args"]["correlation"]: (thread(e), span[0])
        for e, span in zip(events, spans, strict=True)
        if e.get("cat") in LAUNCH_CATEGORIES and "correlation" in e.get("args", {})
    }
    annotations: dict[str, list[Span]] = defaultdict(list)
    operators: dict[str, list[Span]] = defaultdict(list)
    for e, span in zip(events, spans, strict=True):
        name = str(e.get("name", ""))
        if e.get("cat") in ANNOTATION_CATEGORIES and name.startswith("## ") and name.strip("# ") in ANNOTATED_PHASES:
            annotations[name.strip("# ")].append(span)
        elif e.get("cat") in OPERATOR_CATEGORIES:
            operators[thread(e)].append(span)
    outermost = {host_thread: unite(operator_spans) for host_thread, operator_spans in operators.items()}
    exact = Figures(busy_ns=sum(end - start for start, end in unite([span for _, span in device])))
    within: dict[str, list[Span]] = {phase: [] for phase in annotations}
    for e, span in device:
        host_thread, launch_ns = launches.get(e.get("args", {}).get("correlation"), ("", -1))
        for phase, phase_spans in annotations.items():
            if any(start <= launch_ns < end for start, end in phase_spans):
                within[phase].append(span)
        if any(start <= launch_ns < end for start, end in outermost.get(host_thread, ())):
            exact.operators_ns += span[1] - span[0]
    exact.annotated_ns = {phase: sum(end - start for start, end in unite(events)) for phase, events in within.items()}
    return exact


def run_peer(peer: str, file: Path, python: str) -> dict[str, Any]:
    """Return the figures of `peer` for `file`, or ``{"failed": reason}``."""
    outcome = run([python, str(HERE / "peer_figures.py"), peer, str(file)], timeout_s=TIMEOUT_S)
    if outcome.ok:
        answer: dict[str, Any] = json.loads(outcome.stdout.strip().splitlines()[-1])
        return answer
    last_line = (outcome.log_tail.strip().splitlines() or ["failed"])[-1]
    return {"failed": "not installed" if "No module named" in last_line else last_line.split(":")[0]}


def thread(event: dict[str, Any]) -> str:
    """Return the host thread of an event as ``pid/tid``."""
    return f"{event.get('pid')}/{event.get('tid')}"


def nanoseconds(microseconds: int | str) -> int:
    """Convert a time in us, as written in the trace, to whole ns."""
    integer, _, fraction = str(microseconds).partition(".")
    return int(integer) * 1000 + int((fraction + "000")[:3])


def unite(spans: list[Span]) -> list[Span]:
    """Return the union of `spans`, sorted and disjoint."""
    union: list[Span] = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def _busy_row(file: Path, exact: Figures, ours: Figures, hta: dict[str, Any], tensorboard: dict[str, Any]) -> list[str]:
    return [
        file.name.removesuffix(".json.gz"),
        _ms(exact.busy_ns),
        _compare(ours.busy_ns, exact.busy_ns),
        hta.get("failed") or _compare(hta["busy_ns"], exact.busy_ns),
        _ms(exact.operators_ns),
        _compare(ours.operators_ns, exact.operators_ns),
        tensorboard.get("failed") or _compare(tensorboard["operators_ns"], exact.operators_ns),
    ]


def _phase_rows(file: Path, exact: Figures, ours: Figures, hta: dict[str, Any]) -> list[list[str]]:
    rows = []
    for phase, exact_ns in exact.annotated_ns.items():
        hta_ns = hta.get("phases", {}).get(phase)
        hta_cell = hta.get("failed") or ("-" if hta_ns is None else _compare(hta_ns, exact_ns))
        name = file.name.removesuffix(".json.gz")
        rows.append([name, phase, _ms(exact_ns), _compare(ours.annotated_ns[phase], exact_ns), hta_cell])
    return rows


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"


def _compare(ns: int, exact_ns: int) -> str:
    if ns == exact_ns:
        return f"{_ms(ns)} (exact)"
    return _ms(ns) if not exact_ns else f"{_ms(ns)} ({100 * (ns - exact_ns) / exact_ns:+.2f} %)"


def _table(rows: list[list[str]], heads: tuple[str, ...]) -> str:
    alignment = ["right" if "ms" in head or (rows and head == "inspect") else "left" for head in heads]
    return tabulate(rows, headers=heads, tablefmt="github", disable_numparse=True, colalign=alignment if rows else None)


if __name__ == "__main__":
    main()

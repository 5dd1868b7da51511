"""Are the figures right? `inspect` and other readers of traces beside exact ones, which are added up here from the file alone.

    python -m scripts.bench.compare_inspect_peers traces --python peers/bin/python
    python -m scripts.bench.compare_inspect_peers trace.json.gz more.json.gz

Exact: busy time is the union of the device's events; a phase is the union of what was launched within its author's own mark
(`## forward ##`), collectives included; device time under operators is the sum of the kernels whose launch lies within an
operator. All in whole ns. `inspect`'s phases are those that work was launched in, by evidence other than these marks; its loss
is apart, where an author's mark of backward holds it too.
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
from profiler_kit.records.traces import TRACE_PHASES
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import NONE

HERE: Final = Path(__file__).resolve().parent
DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
RUNTIME: Final = ("cuda_runtime", "cuda_driver", "hip_runtime", "Runtime")
OPERATOR: Final = ("cpu_op", "Operator")
ANNOTATION: Final = ("user_annotation", "Operator", "cpu_op")
MARKED: Final = ("forward", "backward", "optimizer")
TIMEOUT_S: Final = 600.0

Span = tuple[int, int]


@dataclass(slots=True)
class Figures:
    """Figures of one file. `marked`: busy time of what was launched in an author's mark, by the mark's phase."""

    busy_ns: int = 0
    operators_ns: int = 0
    marked: dict[str, int] = field(default_factory=dict)


def main() -> None:
    """Prints the tables."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="files, or folders of them")
    line.add_argument("--python", default=sys.executable, help="the interpreter that has the peers (this one)")
    asked = line.parse_args()
    files = [file for each in asked.traces for file in (sorted(each.rglob("*.json.gz")) if each.is_dir() else [each])]
    busy: list[list[str]] = []
    phases: list[list[str]] = []
    for file in files:
        try:
            exact, ours = exactly(file), said(attribute(read(file)))
        except (KitError, KeyError, TypeError) as error:
            print(f"{file.name}: {error}", file=sys.stderr)
            continue
        if not exact.busy_ns:
            continue
        hta, tensorboard = asked_of("HTA", file, asked.python), asked_of("torch-tb-profiler", file, asked.python)
        busy.append(_busy_row(file, exact, ours, hta, tensorboard))
        phases += _phase_rows(file, exact, ours, hta)
        print(f"{file.name} done", file=sys.stderr)
    heads = ("trace", "busy, exact ms", "inspect", "HTA", "under operators, exact ms", "inspect", "torch-tb-profiler")
    print(_table(busy, heads), end="\n\n")
    if phases:
        print(_table(phases, ("trace", "phase", "author's marks, exact ms", "inspect", "HTA")))


def said(attribution: Attribution) -> Figures:
    """The same figures by `inspect`."""
    table, device = attribution.table, attribution.device
    starts, ends = table.start_ns[device.rows].tolist(), table.end_ns[device.rows].tolist()
    within: dict[str, list[Span]] = {phase: [] for phase in MARKED}
    for start, end, number in zip(starts, ends, device.within.tolist(), strict=True):
        phase = TRACE_PHASES[number] if number != NONE else ""
        within.setdefault("backward" if phase == "recompute" else phase, []).append((start, end))
    return Figures(
        busy_ns=summarize(attribution).busy_ns,
        operators_ns=int(table.duration_ns[device.rows[device.operator != NONE]].sum()),
        marked={phase: sum(end - start for start, end in merged(within[phase])) for phase in MARKED},
    )


def exactly(file: Path) -> Figures:
    """The exact figures of `file`."""
    data = file.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode(errors="replace")
    document = json.loads(text, parse_float=str, strict=False)
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    spans = [(nanoseconds(e["ts"]), nanoseconds(e["ts"]) + nanoseconds(e.get("dur", 0))) for e in events]
    device = [(e, span) for e, span in zip(events, spans, strict=True) if e.get("cat") in DEVICE]
    launched = {
        e["args"]["correlation"]: (thread(e), span[0])
        for e, span in zip(events, spans, strict=True)
        if e.get("cat") in RUNTIME and "correlation" in e.get("args", {})
    }
    marks: dict[str, list[Span]] = defaultdict(list)
    operators: dict[str, list[Span]] = defaultdict(list)
    for e, span in zip(events, spans, strict=True):
        name = str(e.get("name", ""))
        if e.get("cat") in ANNOTATION and name.startswith("## ") and name.strip("# ") in MARKED:
            marks[name.strip("# ")].append(span)
        elif e.get("cat") in OPERATOR:
            operators[thread(e)].append(span)
    outermost = {where: merged(each) for where, each in operators.items()}
    exact = Figures(busy_ns=sum(end - start for start, end in merged([span for _, span in device])))
    within: dict[str, list[Span]] = {phase: [] for phase in marks}
    for e, span in device:
        where, at = launched.get(e.get("args", {}).get("correlation"), ("", -1))
        for phase, each in marks.items():
            if any(start <= at < end for start, end in each):
                within[phase].append(span)
        if any(start <= at < end for start, end in outermost.get(where, ())):
            exact.operators_ns += span[1] - span[0]
    exact.marked = {phase: sum(end - start for start, end in merged(each)) for phase, each in within.items()}
    return exact


def asked_of(peer: str, file: Path, python: str) -> dict[str, Any]:
    """What `peer` says of `file`; {"failed": why} where it says nothing."""
    outcome = run([python, str(HERE / "peer_figures.py"), peer, str(file)], timeout_s=TIMEOUT_S)
    if outcome.ok:
        answer: dict[str, Any] = json.loads(outcome.stdout.strip().splitlines()[-1])
        return answer
    told = (outcome.log_tail.strip().splitlines() or ["fails"])[-1]
    return {"failed": "not installed" if "No module named" in told else told.split(":")[0]}


def thread(event: dict[str, Any]) -> str:
    """The host thread of an event."""
    return f"{event.get('pid')}/{event.get('tid')}"


def nanoseconds(microseconds: int | str) -> int:
    """Whole ns of a time as written."""
    whole, _, fraction = str(microseconds).partition(".")
    return int(whole) * 1000 + int((fraction + "000")[:3])


def merged(spans: list[Span]) -> list[Span]:
    """The union of `spans`."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _busy_row(file: Path, exact: Figures, ours: Figures, hta: dict[str, Any], tensorboard: dict[str, Any]) -> list[str]:
    return [
        file.name.removesuffix(".json.gz"),
        _ms(exact.busy_ns),
        _beside(ours.busy_ns, exact.busy_ns),
        hta.get("failed") or _beside(hta["busy_ns"], exact.busy_ns),
        _ms(exact.operators_ns),
        _beside(ours.operators_ns, exact.operators_ns),
        tensorboard.get("failed") or _beside(tensorboard["operators_ns"], exact.operators_ns),
    ]


def _phase_rows(file: Path, exact: Figures, ours: Figures, hta: dict[str, Any]) -> list[list[str]]:
    rows = []
    for phase, truth_ns in exact.marked.items():
        theirs = hta.get("phases", {}).get(phase)
        shown = hta.get("failed") or ("-" if theirs is None else _beside(theirs, truth_ns))
        name = file.name.removesuffix(".json.gz")
        rows.append([name, phase, _ms(truth_ns), _beside(ours.marked[phase], truth_ns), shown])
    return rows


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"


def _beside(ns: int, exact_ns: int) -> str:
    if ns == exact_ns:
        return f"{_ms(ns)} (exact)"
    return _ms(ns) if not exact_ns else f"{_ms(ns)} ({100 * (ns - exact_ns) / exact_ns:+.2f} %)"


def _table(rows: list[list[str]], heads: tuple[str, ...]) -> str:
    aligned = ["right" if "ms" in head or (rows and head == "inspect") else "left" for head in heads]
    return tabulate(rows, headers=heads, tablefmt="github", disable_numparse=True, colalign=aligned if rows else None)


if __name__ == "__main__":
    main()

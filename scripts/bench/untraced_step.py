"""How well the step without the profiler is estimated from a trace: the fit of the profiler's cost, and its errors.

    python -m scripts.bench.untraced_step                        # the recorded programs whose step was also timed
    python -m scripts.bench.untraced_step --pairs                # recordings with and without stacks must agree
    python -m scripts.bench.untraced_step TRACE...               # traces with "untraced_steps_ns", as diagnosis.record writes
    python -m scripts.bench.untraced_step --record tiny_batch    # time a program of the diagnosis benchmark on the CPU

Programs on a device are compared by the replay of their traces, the ranks of a job together. Programs on the CPU were timed by
the time of their process, with and without the profiler, which other processes do not disturb; then the estimate is that
time less the cost of the recorded events. An error is that of a program: its ranks and forms count once, with their
median. `left_out`: the error with the cost that fits the other programs best, so that no program is scored by a cost that
was fitted on it. `fixed`: the error with 3 us for each operator and 2 us for each Python call.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from tabulate import tabulate

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.summary import summarize
from profiler_kit.pipeline.trace_reading import extract_trace
from profiler_kit.records.samples import Interval
from profiler_kit.simulation.from_trace import trace_graph
from profiler_kit.simulation.graph import Graph, Item, Node, graph_of
from profiler_kit.simulation.profiler_cost import ON_HOST, ProfilerCost, cost_of, untraced_interval
from profiler_kit.simulation.ranks import job_intervals
from profiler_kit.simulation.replay import simulate
from profiler_kit.traces.reader import read
from scripts.bench.inspect_speed import TRACES

ROOT: Final = Path(__file__).resolve().parents[2]
FIXTURES: Final = ROOT / "tests" / "fixtures"
TABLE: Final = Path(__file__).with_name("untraced_steps.json")
SCALES: Final = tuple(round(0.2 * i, 1) for i in range(1, 13))  # times the cost: the choices of the fit
FIXED: Final = ProfilerCost(operator_ns=3_000, frame_ns=2_000, range_ns=0, call_ns=0, shapes_ns=0, kept_share=0.15)
STEPS: Final = 8


Transform = Callable[[ProfilerCost], ProfilerCost]  # from the usual cost of a recording to another one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One recording of a program whose step was also timed without the profiler; of a job, with its other ranks."""

    program: str
    form: str
    on_device: bool
    untraced_ns: float
    traced_ns: int
    interval: Callable[[Transform], Interval]

    def error(self, transform: Transform) -> float:
        """Return the relative error of the estimate with another cost."""
        return self.interval(transform).median / self.untraced_ns - 1


def usual(cost: ProfilerCost) -> ProfilerCost:
    """Return `cost` unchanged."""
    return cost


def fixed(_: ProfilerCost) -> ProfilerCost:
    """Return the cost to compare with."""
    return FIXED


def scaled(factor: float) -> Transform:
    """Return the function that scales a cost by `factor`."""
    return lambda cost: cost.scaled(factor)


def main() -> int:
    """Print the errors; returns 1 if a program of `--record` fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, help='traces with "untraced_steps_ns"')
    parser.add_argument("--pairs", action="store_true", help="compare recordings with and without stacks")
    parser.add_argument("--record", metavar="PROGRAM", help="time this program on the CPU, and add it to the table")
    options = parser.parse_args()
    if options.record:
        return _record(options.record)
    if options.pairs:
        _print_pairs()
        return 0
    _print_errors([*timed_traces(), *timed_programs(), *(case for path in options.traces for case in _stated(path))])
    return 0


# ---- cases


def _attribution(path: Path) -> Attribution:
    return attribute(read(path, details=False))


def _case(path: Path, program: str, untraced_ns: float) -> Case:
    attribution = _attribution(path)
    cost = cost_of(attribution, summarize(attribution).missing_share)
    return _graph_case(
        program, attribution.table.info.with_stack, len(attribution.device.rows) > 0, untraced_ns,
        trace_graph(attribution).graph, cost,
    )  # fmt: skip


def _graph_case(
    program: str, stacks: bool, on_device: bool, untraced_ns: float, graph: Graph, cost: ProfilerCost
) -> Case:
    return Case(
        program=program,
        form="stacks" if stacks else "plain",
        on_device=on_device,
        untraced_ns=untraced_ns,
        traced_ns=simulate(graph).step_ns,
        interval=lambda transform: untraced_interval(graph, transform(cost)),
    )


def _job(program: str, paths: Sequence[Path], untraced_ns: Sequence[float]) -> Iterator[Case]:
    """Yield a case for each rank, whose step without the profiler is that of the job."""
    extracts = [extract_trace(path) for path in paths]
    graphs = [extract.graph for extract in extracts if extract.graph is not None]
    if len(graphs) < len(paths):
        yield from (_case(path, program, ns) for path, ns in zip(paths, untraced_ns, strict=True))
        return

    @cache
    def intervals(transform: Transform) -> tuple[Interval, ...]:
        ranks = [replace(graph, cost=transform(graph.cost)) for graph in graphs]
        return job_intervals(ranks, [extract.rank for extract in extracts])

    for i, (graph, ns) in enumerate(zip(graphs, untraced_ns, strict=True)):
        yield Case(
            program=program,
            form="plain",
            on_device=True,
            untraced_ns=ns,
            traced_ns=simulate(graph.graph).step_ns,
            interval=lambda transform, i=i: intervals(transform)[i],  # type: ignore[misc]
        )


def timed_traces() -> Iterator[Case]:
    """Traces beside which a file states the time of a step without the profiler."""
    for folder in sorted((FIXTURES / "traces").glob("ranks*")):
        ranks = json.loads((folder / "truth.json").read_text())["ranks"]
        paths = [folder / f"rank{rank['rank']}.json.gz" for rank in ranks]
        yield from _job(folder.name, paths, [1e6 * rank["step_ms"] for rank in ranks])
    if not TRACES.is_dir():
        return
    truth = json.loads((TRACES / "h100" / "convnet_v0.truth.json").read_text())
    yield _case(TRACES / "h100" / "convnet_v0.json.gz", "convnet_v0", 1e6 * truth["v0"]["iter_ms_unprofiled"])
    ddp = TRACES / "h200_ddp"
    names = [f"ddp_plain_rank{rank}" for rank in (0, 1)]
    steps = [1e6 * json.loads((ddp / f"{name}.truth.json").read_text())["step_ms"] for name in names]
    yield from _job("ddp_resnet50", [ddp / f"{name}.json.gz" for name in names], steps)


def _stated(path: Path) -> Iterator[Case]:
    data = json.loads(gzip.decompress(path.read_bytes()))
    if steps := data.get("untraced_steps_ns"):
        yield _case(path, path.name.split(".")[0], statistics.median(steps))


def timed_programs() -> Iterator[Case]:
    """Programs on the CPU: a step is one stretch of host work, as long as the process took for it with the profiler."""
    for row in json.loads(TABLE.read_text()):
        step = Node(lane=0, duration_ns=row["traced_ns"], items=tuple(row["items"]))
        stacks = row["form"] == "stacks"
        cost = ON_HOST.with_shapes() if stacks else ON_HOST
        yield _graph_case(row["program"], stacks, False, row["untraced_ns"], graph_of([step]), cost)


# ---- errors


class Row(NamedTuple):
    """One line of the table: relative errors, and whether the range holds the time without the profiler."""

    program: str
    form: str
    place: str
    untraced_ms: float
    traced: float
    estimate: float
    left_out: float
    fixed: float
    in_range: str


ERRORS: Final = ("traced", "estimate", "left_out", "fixed")


def row(case: Case, cases: Sequence[Case]) -> Row:
    """Return the line of `case`. `cases`: all, of which the fit leaves out the program."""
    interval = case.interval(usual)
    return Row(
        program=case.program,
        form=case.form,
        place="device" if case.on_device else "host",
        untraced_ms=case.untraced_ns / 1e6,
        traced=case.traced_ns / case.untraced_ns - 1,
        estimate=case.error(usual),
        left_out=case.error(scaled(_fit(cases, case))),
        fixed=case.error(fixed),
        in_range="yes" if interval.low <= case.untraced_ns <= interval.high else "no",
    )


def _print_errors(cases: Sequence[Case]) -> None:
    rows = [row(case, cases) for case in cases]
    formats = ("", "", "", ".2f", "+.1%", "+.1%", "+.1%", "+.1%", "")
    print(tabulate(rows, ("program", "form", "", "untraced ms", *ERRORS, "in range"), floatfmt=formats))
    for place in ("device", "host"):
        part = [row for row in rows if row.place == place]
        for name in ERRORS:
            errors = [statistics.median(errors) for errors in by_program(part, name)]
            print(
                f"{place}, {name}: {len(errors)} programs, median error {statistics.median(errors):.1%}, "
                f"nine of ten within {np.quantile(errors, 0.9):.1%}"
            )
        print(f"{place}: {sum(row.in_range == 'yes' for row in part)} of {len(part)} in the range")


def by_program(rows: Sequence[Row], name: str) -> list[list[float]]:
    """Return the absolute errors called `name` of each program."""
    programs = dict.fromkeys(row.program for row in rows)
    return [[abs(float(getattr(row, name))) for row in rows if row.program == program] for program in programs]


def _fit(cases: Sequence[Case], left_out: Case) -> float:
    """Return the scale of the cost with the least mean error of the other programs on the same kind of machine."""
    others = [c for c in cases if c.on_device == left_out.on_device and c.program != left_out.program]
    return _best_scale(tuple(others)) if others else 1.0


@cache
def _errors(case: Case) -> tuple[float, ...]:
    return tuple(abs(case.error(scaled(scale))) for scale in SCALES)


def _best_scale(cases: tuple[Case, ...]) -> float:
    means = [statistics.fmean(errors) for errors in zip(*map(_errors, cases), strict=True)]
    return SCALES[means.index(min(means))]


def _print_pairs() -> None:
    """Print how far the steps of recordings with stacks differ from those without, as traced and as estimated."""
    rows = []
    for plain in sorted((FIXTURES / "diagnosis").glob("*.cuda.plain*.json.gz")):
        stacks = plain.with_name(plain.name.replace(".plain", ".stacks"))
        if not stacks.exists():
            continue
        sides = [_case(path, plain.name.split(".")[0], 1) for path in (plain, stacks)]
        traced = [case.traced_ns for case in sides]
        estimates = [case.interval(usual).median for case in sides]
        rows.append((sides[0].program, traced[0] / 1e6, traced[1] / traced[0] - 1, estimates[1] / estimates[0] - 1))
    print(tabulate(rows, ("program", "traced ms", "stacks: traced", "estimate"), floatfmt=("", ".2f", "+.1%", "+.1%")))
    for name, column in (("traced", 2), ("estimate", 3)):
        differences = [abs(float(row[column])) for row in rows]
        print(f"{name}: median {statistics.median(differences):.1%}, nine of ten {np.quantile(differences, 0.9):.1%}")


# ---- recording on the CPU


def _record(program: str) -> int:
    """Time steps of `program` without the profiler, with it, and with stacks and shapes; add the rows to the table."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    from scripts.bench.diagnosis.scenario import scenarios

    scenario = next(scenario for scenario in scenarios("visible") if scenario.name == program)
    if not scenario.runs_on("cpu") or scenario.ranks > 1 or not scenario.warmup:
        print(f"{program} does not run on the CPU in one process with a warm-up", file=sys.stderr)
        return 1
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loop = scenario.module.train("cpu")
    for _ in range(scenario.warmup):
        next(loop)
    untraced_ns, rows = _steps_ns(loop, STEPS), []
    for form in ("plain", "stacks"):
        stacks = form == "stacks"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            with profile(
                activities=[ProfilerActivity.CPU],
                record_shapes=stacks,
                with_stack=stacks,
                schedule=schedule(wait=0, warmup=1, active=STEPS, repeat=1),
                on_trace_ready=lambda profiler, path=path: profiler.export_chrome_trace(str(path)),
            ) as profiler:
                traced_ns = _steps_ns(loop, 1 + STEPS, profiler.step)[1:]
            items = trace_graph(_attribution(path)).graph.items.sum(axis=1) / STEPS
        untraced_ns += _steps_ns(loop, STEPS)
        row = {"program": program, "form": form, "traced_ns": round(statistics.median(traced_ns))}
        rows.append({**row, "items": [round(items[item]) for item in Item]})
    done = [row for row in json.loads(TABLE.read_text()) if row["program"] != program]
    done += [{**row, "untraced_ns": round(statistics.median(untraced_ns))} for row in rows]
    TABLE.write_text(
        "[\n" + ",\n".join(json.dumps(row) for row in sorted(done, key=lambda row: row["program"])) + "\n]\n"
    )
    return 0


def _steps_ns(loop: Iterator[None], count: int, after: Callable[[], object] = lambda: None) -> list[int]:
    times = []
    for _ in range(count):
        began = time.process_time_ns()
        next(loop)
        times.append(time.process_time_ns() - began)
        after()
    return times


if __name__ == "__main__":
    sys.exit(main())

"""A device that waits for the host to launch many short kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import attempt
from profiler_kit.diagnosis.pairs import is_limited, with_settings
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import device_share, kernels, median_kernel_ns, phase_shares
from profiler_kit.diagnosis.traced import gravest, idle_ns, on_device
from profiler_kit.diagnosis.traced import median_kernel_ns as median_of
from profiler_kit.diagnosis.words import capital, listing, plural, quoted, sentences, threshold
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import IdleCause, TraceSummary, idle_by_cause
from profiler_kit.statistics.noise import mean_saving, noise_of, verdict
from profiler_kit.units import percent, text

# Below this, launching decides how long the step takes.
BUSY: Final = 0.6
# Below this, launching less still saves up to a tenth; a device that is busier leaves nothing to gain at that side.
PARTLY: Final = 0.9
# What of the partly launch-bound is worth acting on: idle for more than a fifth of the step.
WORTH_ACTING: Final = 0.8
# Launching a kernel costs the host some 5 to 10 us through PyTorch; shorter kernels end before the next one is there.
SHORT_NS: Final = 10_000
# What launches fewer kernels, or gives each more to do: first what changes least of the training script.
TRIES: Final = ("cuda_graph", "compile", "batch=2x", "fused_optimizer")
TRIES_ON_TOP: Final = ("cuda_graph",)  # of what is tried already
LAUNCH_LESS: Final = frozenset({"cuda_graph", "compile"})  # they launch few kernels of their own accord

# What a trace says of idle time that launching less would save.
LAUNCHING: Final[tuple[IdleCause, ...]] = ("op dispatch", "python", "launch latency")
# Half of the idle time: launching is what the device waits for, rather than data or other processes.
HOST: Final = 0.5
MOST_CAUSES: Final = 3  # that are named
# Of fewer kernels a trace is no loop, and its gaps are whatever came between.
FEWEST: Final = 30

LAUNCH_ADVICE: Final = (
    "Give each kernel more to do or launch fewer: a larger batch, torch.compile, CUDA graphs "
    "(torch.compile(mode='reduce-overhead')), a fused optimizer (fused=True). cuDNN flags will not help."
)

DOC = f"""
In the baseline, kernels run for less than {threshold(BUSY)} of the step, and half of all launched kernels take less than
{SHORT_NS // 1000} us: the host cannot launch them as fast as they end. cuDNN flags do not help there.
From {threshold(BUSY)} to {threshold(PARTLY)} the step is *partly* launch-bound (`medium` up to {threshold(WORTH_ACTING)}, else
`low`): what launching less can save at most is said.

Where further configurations are faster than the baseline, the fastest of them is looked at too: half the arithmetic often leaves
a step that waits for its launches.

Kernel time comes from traced steps and the step from timed ones, so the share is right to a few percent. Not said of a CPU,
nor where the device mostly waits for its batch (rule `data_bound`).

In a trace the same limits hold for the share of the span in which the device works, where at least {threshold(HOST)} of the idle
time is the host's launching (dispatch, Python, launch latency) and there are at least {FEWEST} kernels. The profiler makes
launching slower, so a run without it is less launch-bound than its trace.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires for the baseline, and for the fastest of the further configurations that are faster: what holds that one back."""
    base = report.baseline()
    yield from _bound(report, base, TRIES)
    if base is None:
        return
    noise = noise_of(report)
    further = [run for run in with_settings(report) if not is_limited(run.config)]
    faster = [run for run in further if verdict(base, run, noise) == "better"]
    first = max(faster, key=lambda run: mean_saving(base, run, noise) or 0.0, default=None)
    if first is not None and not {item.name for item in first.config.settings} & LAUNCH_LESS:
        yield from _bound(report, first, TRIES_ON_TOP)


def _bound(report: Report, run: ConfigRun | None, tries: tuple[str, ...]) -> Iterator[Finding]:
    if run is None or run.clock != "kernel" or run.step_ns is None or run.device_ns is None:
        return
    busy, median = device_share(run), median_kernel_ns(run)
    if busy is None or median is None or busy >= PARTLY or median >= SHORT_NS:
        return
    if phase_shares(run, "stopwatch").get("data", 0.0) > (1.0 - busy) / 2:
        return  # the device waits for the loader
    tried = attempt(report, run, tries)
    name = "" if run is report.baseline() else f"{quoted(run)} is "
    count = sum(k.calls for k in kernels(run))
    idle = listing([f"{cause} {text(ns, 'ns')}" for cause, ns in idle_by_cause(run.idle).items()][:MOST_CAUSES])
    yield RULE.finding(
        severity="high" if busy < BUSY else "medium" if busy < WORTH_ACTING else "low",
        title=f"{_title(name, busy)}: kernels run for {percent(busy)} of the step, the device waits for the rest",
        explanation=sentences(
            f"In {quoted(run)} a step of {text(run.step_ns.median, 'ns')} holds {text(run.device_ns, 'ns')} of kernel time, in "
            f"{plural(count, 'kernel')}, half of them at most {text(median, 'ns')}.",
            "The host needs about as long to launch a kernel, so the device runs dry.",
            f"With no gap between kernels the step would take {percent(1.0 - busy)} less, at most.",
            f"Idle time of a traced step, by cause: {idle}." if idle else "",
            tried.sentence(),
        ),
        advice=LAUNCH_ADVICE,
        evidence=(
            Evidence(name="kernel time over step", value=100.0 * busy, unit="percent", where=run.config.name),
            Evidence(name="kernel time", value=run.device_ns, unit="ns", where=run.config.name),
            Evidence(name="median step", value=run.step_ns.median, unit="ns", where=run.config.name),
            Evidence(name="median kernel", value=median, unit="ns", where=run.config.name),
            Evidence(name="kernels a step", value=count, unit="count", where=run.config.name),
        ),
        attempt=tried,
        weight=1.0 - busy,
    )


def _title(name: str, busy: float) -> str:
    said = "launch-bound" if busy < BUSY else "partly launch-bound"
    return f"{name}{said}" if name else capital(said)


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires for the trace whose device waits for launches most."""
    if (seen := gravest(report, _waits_for_launches, lambda found: 1.0 - found[0])) is None:
        return
    (busy, median), trace = seen.found, seen.trace
    causes = [f"{cause} {text(ns, 'ns')}" for cause in LAUNCHING if (ns := idle_ns(trace, cause))]
    launching_ns = idle_ns(trace, *LAUNCHING)
    share = launching_ns / trace.span_ns
    yield RULE.finding(
        severity="high" if busy < BUSY else "medium" if busy < WORTH_ACTING else "low",
        title=f"{_title('', busy)}: the device works for {percent(busy)} of the time and waits for launches for {percent(share)}",
        explanation=sentences(
            f"{seen.place}In {text(trace.span_ns, 'ns')} the device works {text(trace.busy_ns, 'ns')}, in "
            f"{plural(trace.device_events, 'event')}; half of all kernels take at most {text(median, 'ns')}.",
            f"Idle time that the host's launching makes: {listing(causes)}.",
            "The profiler slows the host, so without it this is less.",
            seen.others(),
        ),
        advice=LAUNCH_ADVICE,
        evidence=(
            Evidence(name="busy, of the span", value=100.0 * busy, unit="percent", where=seen.where),
            Evidence(name="idle for launching", value=launching_ns, unit="ns", where=seen.where),
            Evidence(name="span", value=trace.span_ns, unit="ns", where=seen.where),
            Evidence(name="median kernel", value=median, unit="ns", where=seen.where),
            Evidence(name="device events", value=trace.device_events, unit="count", where=seen.where),
        ),
        weight=share,
    )


def _waits_for_launches(trace: TraceSummary) -> tuple[float, float] | None:
    """The busy share and the median kernel of a trace that is launch-bound."""
    if not on_device(trace):
        return None
    busy, median = trace.busy_ns / trace.span_ns, median_of(trace.kernels)
    if median is None or busy >= PARTLY or median >= SHORT_NS or trace.device_events < FEWEST:
        return None
    return (busy, median) if idle_ns(trace, *LAUNCHING) >= HOST * trace.idle_ns else None


RULE = Rule("launch_bound", DOC, check, "place", check_trace)

"""A device that waits for the host to launch many short kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnose.pairs import is_limited, with_settings
from profiler_kit.diagnose.rule import Rule
from profiler_kit.diagnose.timing import device_share, kernels, median_kernel_ns, phase_shares
from profiler_kit.diagnose.trials import attempt
from profiler_kit.diagnose.words import capital, percent, plural, quoted, sentences, threshold
from profiler_kit.records.noise import gain, noise_of, verdict
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import text

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

DOC = f"""
In the baseline, kernels run for less than {threshold(BUSY)} of the step, and half of all launched kernels take less than
{SHORT_NS // 1000} us: the host cannot launch them as fast as they end. cuDNN flags do not help there.
From {threshold(BUSY)} to {threshold(PARTLY)} the step is *partly* launch-bound (`medium` up to {threshold(WORTH_ACTING)}, else
`low`): what launching less can save at most is said.

Where further configurations are faster than the baseline, the fastest of them is looked at too: half the arithmetic often leaves
a step that waits for its launches.

Kernel time comes from traced steps and the step from timed ones, so the share is right to a few percent. Not said of a CPU,
nor where the device mostly waits for its batch (rule `data_bound`).
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires for the baseline, and for the fastest of the further configurations that are faster: what holds that one back."""
    base = report.baseline()
    yield from _bound(report, base, TRIES)
    noise = noise_of(report)
    faster = [
        run
        for run in with_settings(report)
        if base is not None and not is_limited(run.config) and verdict(base, run, noise) == "better"
    ]
    first = max(faster, key=lambda run: gain(base, run, noise) or 0.0, default=None) if base is not None else None
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
    tried = attempt(report, run, tries, noise_of(report))
    name = "" if run is report.baseline() else f"{quoted(run)} is "
    count = sum(k.calls for k in kernels(run))
    idle = ", ".join(f"{item.cause} {text(item.ns, 'ns')}" for item in sorted(run.idle, key=lambda i: -i.ns)[:3])
    yield Finding(
        rule=RULE.name,
        severity="high" if busy < BUSY else "medium" if busy < WORTH_ACTING else "low",
        title=f"{_title(name, busy)}: kernels run for {percent(busy)} of the step, the device waits for the rest",
        explanation=sentences(
            f"In {quoted(run)} a step of {text(run.step_ns.median, 'ns')} holds {text(run.device_ns, 'ns')} of kernel time, in "
            f"{plural(count, 'kernel')}, half of them at most {text(median, 'ns')}.",
            "The host needs about as long to launch a kernel, so the device runs dry.",
            f"With no gap between kernels the step would take {percent(1.0 - busy)} less, at most.",
            f"Idle time by cause: {idle}." if idle else "",
            tried.sentence(),
        ),
        advice="Give each kernel more to do or launch fewer: a larger batch, torch.compile, CUDA graphs "
        "(torch.compile(mode='reduce-overhead')), a fused optimizer (fused=True). cuDNN flags will not help.",
        evidence=(
            Evidence(name="kernel time over step", value=100.0 * busy, unit="percent", where=run.config.name),
            Evidence(name="kernel time", value=run.device_ns, unit="ns", where=run.config.name),
            Evidence(name="median step", value=run.step_ns.median, unit="ns", where=run.config.name),
            Evidence(name="median kernel", value=median, unit="ns", where=run.config.name),
            Evidence(name="kernels a step", value=count, unit="count", where=run.config.name),
        ),
        config=tried.config,
        trial=tried.trial,
        tries=tried.tries,
        weight=max(0.0, 1.0 - busy),
    )


def _title(name: str, busy: float) -> str:
    said = "launch-bound" if busy < BUSY else "partly launch-bound"
    return f"{name}{said}" if name else capital(said)


RULE = Rule("launch_bound", DOC, check, "place")

"""A device that waits for the host to launch many short kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnose.rule import Rule
from profiler_kit.diagnose.timing import device_share, kernels, median_kernel_ns, phase_shares
from profiler_kit.diagnose.trials import attempt
from profiler_kit.diagnose.words import percent, plural, quoted, sentences, threshold
from profiler_kit.records.noise import noise_of
from profiler_kit.records.report import Evidence, Finding, Report
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

DOC = f"""
In the baseline, kernels run for less than {threshold(BUSY)} of the step, and half of all launched kernels take less than
{SHORT_NS // 1000} us: the host cannot launch them as fast as they end. cuDNN flags do not help there.
From {threshold(BUSY)} to {threshold(PARTLY)} the step is *partly* launch-bound (`medium` up to {threshold(WORTH_ACTING)}, else
`low`): what launching less can save at most is said.

Kernel time comes from traced steps and the step from timed ones, so the share is right to a few percent. Not said of a CPU,
nor where the device mostly waits for its batch (rule `data_bound`).
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for the baseline."""
    run = report.baseline()
    if run is None or run.clock != "kernel" or run.step_ns is None or run.device_ns is None:
        return
    busy, median = device_share(run), median_kernel_ns(run)
    if busy is None or median is None or busy >= PARTLY or median >= SHORT_NS:
        return
    if phase_shares(run, "stopwatch").get("data", 0.0) > (1.0 - busy) / 2:
        return  # the device waits for the loader
    tried = attempt(report, run, TRIES, noise_of(report))
    count = sum(k.calls for k in kernels(run))
    idle = ", ".join(f"{item.cause} {text(item.ns, 'ns')}" for item in sorted(run.idle, key=lambda i: -i.ns)[:3])
    yield Finding(
        rule=RULE.name,
        severity="high" if busy < BUSY else "medium" if busy < WORTH_ACTING else "low",
        title=f"{'Launch-bound' if busy < BUSY else 'Partly launch-bound'}: kernels run for {percent(busy)} of the step, the "
        "device waits for the rest",
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


RULE = Rule("launch_bound", DOC, check, "place")

"""A forward pass that is slow the first time in every new thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.pairs import measured
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.diagnosis.words import listing, quoted, sentences, times
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import text

# A thread starts with cold caches and an empty queue; five passes' time is beyond that: algorithms are chosen again.
FACTOR: Final = 5.0
# Starting a thread and waking it up may take a fraction of this; less is not worth a finding.
LEAST_NS: Final = 1_000_000
# From here on a user waits visibly whenever a thread begins.
LONG_NS: Final = 1_000_000_000

DOC = f"""
The same process ran the forward pass until it was steady, then in a new thread: its first pass there took more than
{FACTOR:g}x the steady one there, and at least {text(LEAST_NS, "ns")} more. cuDNN's plans are kept per thread: a new one
chooses them anew, and with `cudnn.benchmark=True` searches anew. A server with a thread per request pays that in every
request, `nn.DataParallel`, which starts its threads in every step, in every step. The thread had a cuDNN handle already.

`medium` in the baseline from {text(LONG_NS, "ns")}, otherwise `low`. One finding, the baseline's where it is among them, else the
largest; the other runs are named.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for the baseline or the run that loses most."""
    found = [(run, factor) for run in measured(report) if (factor := _factor(run)) is not None]
    if not found:
        return
    baseline = report.baseline()
    run, factor = next(((r, f) for r, f in found if r is baseline), max(found, key=lambda item: _lost_ns(item[0])))
    assert run.new_thread is not None  # it has a factor
    first_ns, steady_ns = run.new_thread.first_ns, run.new_thread.steady_ns
    others = [f"{quoted(other)} ({times(f)})" for other, f in found if other is not run]
    yield RULE.finding(
        severity="medium" if run is baseline and first_ns - steady_ns >= LONG_NS else "low",
        title=f"The first forward pass in a new thread takes {times(factor)} a later one: {text(first_ns, 'ns')}, "
        f"then {text(steady_ns, 'ns')}",
        explanation=sentences(
            f"Under {quoted(run)} the main thread had run the same shapes before, but cuDNN's plans are kept per thread:",
            "the new one searches its algorithms again." if run.config.benchmark else "the new one chooses them again.",
            f"The same holds under {listing(others)}." if others else "",
        ),
        advice="Keep threads alive and let them run the model again (a pool of fixed size, warmed up once); train on several "
        "devices with DistributedDataParallel, not DataParallel, which starts its threads anew in every step.",
        evidence=(
            Evidence(name="first pass over a steady one", value=factor, unit="ratio", where=run.config.name),
            *(
                item
                for other, _ in found
                if (thread := other.new_thread) is not None
                for item in known(
                    other.config.name,
                    ("first pass in a new thread", thread.first_ns, "ns"),
                    ("steady pass there", thread.steady_ns, "ns"),
                )
            ),
        ),
        weight=1.0 - 1.0 / factor,
    )


def _factor(run: ConfigRun) -> float | None:
    """How many times as long the first pass takes; None where that is not known, or within the threshold."""
    if run.new_thread is None or _lost_ns(run) < LEAST_NS:
        return None
    factor = ratio(run.new_thread.first_ns, run.new_thread.steady_ns)
    return factor if factor is not None and factor > FACTOR else None


def _lost_ns(run: ConfigRun) -> int:
    return run.new_thread.first_ns - run.new_thread.steady_ns if run.new_thread is not None else 0


RULE = Rule("new_thread", DOC, check, "note")

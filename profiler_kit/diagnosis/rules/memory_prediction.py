"""Measured memory peaks that are not the predicted ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.diagnosis.words import layer, listing, phase, quoted, sentences, threshold
from profiler_kit.records.counts import DeviceMemory
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun, PeakMemory
from profiler_kit.units import percent, text

# Half of the predictions are within 0.1 % on the device that the rules are from; beyond this something is not modelled.
TOLERATED: Final = 0.03

DOC = f"""
On a GPU, the peak of a run differs by more than {threshold(TOLERATED)} from the predicted one. `info` where the scratch that
was measured op by op accounts for it, or where the prediction's own interval holds the measured peak: what a library takes is
not known without the device. Otherwise `low`: something takes memory that is not simulated, such as a custom kernel, a compiled
model or another version of a library; the finding names the op and the category that differ. Trust the measured peak, and the
predicted what-ifs less.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Miss:
    """A run whose peak is not as predicted: by `off` of what `by_rules` says, though not of what `best` says if `explained`."""

    run: ConfigRun
    measured: int
    by_rules: DeviceMemory
    off: float
    explained: bool

    @property
    def best(self) -> DeviceMemory:
        """The prediction with measured scratch, or by rules where there was no probe."""
        return self.run.predicted or self.by_rules


def check(report: Report) -> Iterator[Finding]:
    """Fires once for the runs that scratch accounts for, and once for those that it does not."""
    memory = report.static.memory if report.static is not None else None
    device = memory.device if memory is not None else None
    if device is None:
        return
    misses = [miss for run in report.runs if run.config.is_plain and (miss := _miss(run, device)) is not None]
    for explained in (False, True):
        found = [miss for miss in misses if miss.explained == explained]
        if found:
            yield _finding(found, report.baseline())


def _miss(run: ConfigRun, device: DeviceMemory) -> _Miss | None:
    measured = run.peak_allocated_bytes
    if measured is None or run.environment is None or not run.environment.device.startswith("cuda"):
        return None
    off = ratio(measured - device.allocated_bytes, device.allocated_bytes)
    best = ratio(measured - run.predicted.allocated_bytes, run.predicted.allocated_bytes) if run.predicted else None
    if best is not None and abs(best) > TOLERATED:
        return _Miss(run=run, measured=measured, by_rules=device, off=best, explained=False)
    if off is None or abs(off) <= TOLERATED:
        return None
    held = best is not None or device.allocated_low_bytes <= measured <= device.allocated_high_bytes
    return _Miss(run=run, measured=measured, by_rules=device, off=off, explained=held)


def _finding(misses: list[_Miss], baseline: ConfigRun | None) -> Finding:
    """One finding for `misses`, told of the baseline where it is among them, else of the worst."""
    first = max(misses, key=lambda miss: (miss.run is baseline, abs(miss.off)))
    told = first.by_rules if first.explained else first.best
    others = [miss.run.config.name for miss in misses if miss is not first]
    return RULE.finding(
        severity="info" if first.explained else "low",
        title=f"{quoted(first.run)} peaks at {text(first.measured, 'bytes')}, {percent(abs(first.off))} "
        f"{'above' if first.off > 0 else 'below'} the predicted {text(told.allocated_bytes, 'bytes')}",
        explanation=sentences(
            _explained(first) if first.explained else _unexplained(first),
            f"So it is with {listing(others)}." if others else "",
        ),
        advice="Plan with the measured peak; predictions for other batch sizes are likely off by as much.",
        evidence=tuple(piece for miss in misses for piece in _evidence(miss)),
        weight=max(abs(miss.off) for miss in misses),
    )


def _explained(miss: _Miss) -> str:
    rules = miss.by_rules
    if miss.run.predicted is None:
        low, high = text(rules.allocated_low_bytes, "bytes"), text(rules.allocated_high_bytes, "bytes")
        return sentences(
            f"It is within the predicted {low} to {high}: scratch of libraries is not known without the device.",
            _largest_scratch(miss.run),
        )
    found = miss.run.predicted
    return (
        f"Library scratch accounts for it: with what each op was seen to take, {text(found.allocated_bytes, 'bytes')} are "
        f"predicted. The peak is in {_place(found)} with {text(found.categories.workspace or 0, 'bytes')} of scratch; "
        f"the rules have it in {_place(rules)} with {text(rules.categories.workspace or 0, 'bytes')}."
    )


def _unexplained(miss: _Miss) -> str:
    predicted = miss.run.predicted
    if predicted is None:
        return sentences(
            "The prediction's interval does not hold it: something is not simulated.", _largest_scratch(miss.run)
        )
    if miss.run.memory is None:
        return "The scratch that each op was seen to take does not account for it: something is not simulated."
    probe = miss.run.memory
    name, was, said = max(_parts(probe, predicted), key=lambda part: abs(part[1] - part[2]))
    return (
        "The scratch that each op was seen to take does not account for it: something is not simulated. The probed step peaks "
        f"in {probe.peak_op} of {layer(probe.peak_path)} in {phase(probe.peak_phase)}, the predicted one in {_place(predicted)}; "
        f"what differs most there is {name}: {text(was, 'bytes')} measured, {text(said, 'bytes')} predicted."
    )


def _parts(probe: PeakMemory, predicted: DeviceMemory) -> tuple[tuple[str, int, int], ...]:
    """(category, measured, predicted). What the probe can't tell apart is one category: tensors between forward and backward."""
    said, kept = predicted.categories, predicted.kept_bytes or 0
    return (
        ("parameters", probe.parameters, said.parameters or 0),
        ("gradients", probe.gradients, said.gradients or 0),
        ("optimizer state", probe.optimizer_state, said.optimizer_state or 0),
        ("inputs", probe.inputs, said.inputs or 0),
        ("library scratch", probe.workspace, (said.workspace or 0) - kept),
        (
            "activations and other tensors",
            probe.saved_activations + probe.rest,
            (said.saved_activations or 0) + (said.temporaries or 0) + kept + predicted.rounding_bytes,
        ),
    )


def _place(device: DeviceMemory) -> str:
    return f"{device.peak_op} of {layer(device.peak_path)} in {phase(device.peak_phase)}"


def _largest_scratch(run: ConfigRun) -> str:
    if run.memory is None or not run.memory.ops:
        return ""
    most = run.memory.ops[0]
    return f"The most scratch was seen in {most.op} of {layer(most.path)}, {text(most.workspace_bytes, 'bytes')}."


def _evidence(miss: _Miss) -> Iterator[Evidence]:
    name, rules, found = miss.run.config.name, miss.by_rules, miss.run.predicted
    yield Evidence(name="measured peak", value=miss.measured, unit="bytes", where=name)
    yield Evidence(name="predicted peak", value=rules.allocated_bytes, unit="bytes", where=rules.profile)
    if found is not None:
        yield Evidence(name="predicted with measured scratch", value=found.allocated_bytes, unit="bytes", where=name)
        return
    yield Evidence(name="predicted at least", value=rules.allocated_low_bytes, unit="bytes", where=rules.profile)
    yield Evidence(name="predicted at most", value=rules.allocated_high_bytes, unit="bytes", where=rules.profile)


RULE = Rule("memory_prediction", DOC, check, "memory")

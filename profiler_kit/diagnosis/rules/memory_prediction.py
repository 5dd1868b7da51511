"""Measured memory peaks that differ from the predicted ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.phrases import (
    join_list,
    join_sentences,
    layer_name,
    limit_percent,
    phase_name,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.records.counts import DeviceMemory
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun, PeakMemory
from profiler_kit.units import percent, text

# Half of the predictions are within 0.1 % on the device that the workspace rules come from. Beyond this, something is not
# modeled.
MAX_ERROR: Final = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class _Miss:
    """A run whose peak differs from the prediction by the share `error`.

    `by_rules`: the prediction with workspace by rules. `explained`: measured workspace or the predicted interval explains the
    difference.
    """

    run: ConfigRun
    measured_bytes: int
    by_rules: DeviceMemory
    error: float
    explained: bool

    @property
    def best(self) -> DeviceMemory:
        """The prediction with measured workspace, or the one by rules if the workspace was not measured."""
        return self.run.predicted or self.by_rules


def _memory_prediction(report: Report) -> Iterator[Finding]:
    """Yield at most one finding for runs that workspace explains, and one for the other runs."""
    memory = report.static.memory if report.static is not None else None
    device = memory.device if memory is not None else None
    if device is None or report.target.parallel is not None:  # the prediction is that of a device that trains alone
        return
    misses = [miss for run in report.runs if run.config.is_plain and (miss := _miss(run, device)) is not None]
    for explained in (False, True):
        group = [miss for miss in misses if miss.explained == explained]
        if group:
            yield _prediction_finding(group, report.baseline())


def _miss(run: ConfigRun, device: DeviceMemory) -> _Miss | None:
    measured = run.peak_allocated_bytes
    if measured is None or run.environment is None or not run.environment.device.startswith("cuda"):
        return None
    rule_error = ratio(measured - device.allocated_bytes, device.allocated_bytes)
    best_error = (
        ratio(measured - run.predicted.allocated_bytes, run.predicted.allocated_bytes) if run.predicted else None
    )
    if best_error is not None and abs(best_error) > MAX_ERROR:
        return _Miss(run=run, measured_bytes=measured, by_rules=device, error=best_error, explained=False)
    if rule_error is None or abs(rule_error) <= MAX_ERROR:
        return None
    explained = best_error is not None or device.allocated_low_bytes <= measured <= device.allocated_high_bytes
    return _Miss(run=run, measured_bytes=measured, by_rules=device, error=rule_error, explained=explained)


def _prediction_finding(misses: list[_Miss], baseline: ConfigRun | None) -> Finding:
    """Return one finding for `misses`, about the baseline if it is among them, else about the largest error."""
    first = max(misses, key=lambda miss: (miss.run is baseline, abs(miss.error)))
    prediction = first.by_rules if first.explained else first.best
    others = [quoted_name(miss.run) for miss in misses if miss is not first]
    return new_finding(
        severity="info" if first.explained else "low",
        title=f"The memory peak of {quoted_name(first.run)} is {percent(abs(first.error))} "
        f"{'above' if first.error > 0 else 'below'} the prediction: {text(first.measured_bytes, 'bytes')} instead of "
        f"{text(prediction.allocated_bytes, 'bytes')}",
        explanation=join_sentences(
            _explained(first) if first.explained else _unexplained(first),
            f"The same holds for {join_list(others)}." if others else "",
        ),
        advice="Plan with the measured peak. Predictions for other batch sizes are probably off by as much.",
        evidence=tuple(piece for miss in misses for piece in _prediction_evidence(miss)),
        weight=max(abs(miss.error) for miss in misses),
    )


def _explained(miss: _Miss) -> str:
    rules = miss.by_rules
    if miss.run.predicted is None:
        low, high = text(rules.allocated_low_bytes, "bytes"), text(rules.allocated_high_bytes, "bytes")
        return join_sentences(
            f"It is within the predicted interval, {low} to {high}. The workspace of libraries is unknown without the device.",
            _largest_workspace(miss.run),
        )
    prediction = miss.run.predicted
    return (
        f"Library workspace explains the difference: with the measured workspace of each op, the prediction is "
        f"{text(prediction.allocated_bytes, 'bytes')}. Its peak is in {_place(prediction)}, with "
        f"{text(prediction.categories.workspace or 0, 'bytes')} of workspace. By the workspace rules, the peak is in "
        f"{_place(rules)}, with {text(rules.categories.workspace or 0, 'bytes')}."
    )


def _unexplained(miss: _Miss) -> str:
    predicted, probe = miss.run.predicted, miss.run.memory
    if predicted is None:
        return join_sentences(
            "It is outside the predicted interval: something takes memory that is not simulated.",
            _largest_workspace(miss.run),
        )
    cause = "The measured workspace of each op does not explain it: something takes memory that is not simulated."
    if probe is None:
        return cause
    category, measured, expected = max(_categories(probe, predicted), key=lambda part: abs(part[1] - part[2]))
    return (
        f"{cause} The measured peak is in {probe.peak_op} of {layer_name(probe.peak_path)} in "
        f"{phase_name(probe.peak_phase)}, the predicted one in {_place(predicted)}. The largest "
        f"difference is in {category}: {text(measured, 'bytes')} measured, {text(expected, 'bytes')} predicted."
    )


def _categories(probe: PeakMemory, predicted: DeviceMemory) -> tuple[tuple[str, int, int], ...]:
    """Return (category, measured bytes, predicted bytes) of each memory category.

    The probe does not separate saved activations from other tensors between forward and backward: they are one category.
    """
    categories, retained = predicted.categories, predicted.kept_bytes or 0
    return (
        ("parameters", probe.parameters, categories.parameters or 0),
        ("gradients", probe.gradients, categories.gradients or 0),
        ("optimizer state", probe.optimizer_state, categories.optimizer_state or 0),
        ("inputs", probe.inputs, categories.inputs or 0),
        ("library workspace", probe.workspace, (categories.workspace or 0) - retained),
        (
            "activations and other tensors",
            probe.saved_activations + probe.rest,
            (categories.saved_activations or 0) + (categories.temporaries or 0) + retained + predicted.rounding_bytes,
        ),
    )


def _place(device: DeviceMemory) -> str:
    return f"{device.peak_op} of {layer_name(device.peak_path)} in {phase_name(device.peak_phase)}"


def _largest_workspace(run: ConfigRun) -> str:
    if run.memory is None or not run.memory.ops:
        return ""
    largest = run.memory.ops[0]
    return (
        f"The largest measured workspace is in {largest.op} of {layer_name(largest.path)}: "
        f"{text(largest.workspace_bytes, 'bytes')}."
    )


def _prediction_evidence(miss: _Miss) -> Iterator[Evidence]:
    name, rules, prediction = miss.run.config.name, miss.by_rules, miss.run.predicted
    yield Evidence(name="measured peak", value=miss.measured_bytes, unit="bytes", where=name)
    yield Evidence(name="predicted peak", value=rules.allocated_bytes, unit="bytes", where=rules.profile)
    if prediction is not None:
        yield Evidence(
            name="predicted peak with measured workspace", value=prediction.allocated_bytes, unit="bytes", where=name
        )
        return
    yield Evidence(name="predicted at least", value=rules.allocated_low_bytes, unit="bytes", where=rules.profile)
    yield Evidence(name="predicted at most", value=rules.allocated_high_bytes, unit="bytes", where=rules.profile)


MEMORY_PREDICTION = Rule(
    "memory_prediction",
    f"""
Fires if the memory peak of a run on a GPU differs from the prediction by more than {limit_percent(MAX_ERROR)}.

- `info`: the workspace measured for each op explains the difference, or the measured peak is within the predicted interval. The
  workspace of libraries is unknown without the device.
- `low`: something takes memory that is not simulated, such as a custom kernel, a compiled model or another version of a library.
  The finding names the op and the category that differ.

Trust the measured peak. Predictions for other batch sizes are probably off by as much.
""",
    _memory_prediction,
    "memory",
)

"""cuDNN flags that the model changes while it runs."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.diagnosis.pairs import measured_runs
from profiler_kit.diagnosis.phrases import join_list, join_sentences, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.records.report import Evidence, Finding, Report

DOC = """
Fires when a cuDNN flag has another value after a run's steps than before them: the model, its loss or its optimizer sets it.
The run then does not match its configuration.

- `high`: the flag is `enabled`, so cuDNN is off for part of the step.
- `medium`: another flag.

Setting `benchmark` has no effect on shapes that already ran: PyTorch caches the algorithm, and the cache key does not contain
this flag. `deterministic` and `allow_tf32` are in the key, so a change of them selects an algorithm again, or searches again.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for all runs in which a flag changed."""
    runs = [run for run in measured_runs(report) if run.flags_changed]
    if not runs:
        return
    changes = list(dict.fromkeys(change for run in runs for change in run.flags_changed))
    flags = {change.partition(":")[0].rpartition(".")[2].strip() for change in changes}
    yield new_finding(
        severity="high" if "enabled" in flags else "medium",
        title=f"The model changes cuDNN's flags while it runs: {join_list(changes)}",
        explanation=join_sentences(
            f"{plural(len(runs), 'run')} ({join_list([quoted_name(run) for run in runs])}) "
            + ("does not match its configuration." if len(runs) == 1 else "do not match their configurations."),
            "Setting benchmark has no effect on shapes that already ran: their algorithm is cached."
            if "benchmark" in flags
            else "",
            "deterministic and TF32 are part of the cache key, so each change selects an algorithm again."
            if flags & {"deterministic", "allow_tf32"}
            else "",
            "While cuDNN is off, convolutions run as PyTorch's own im2col and matrix product."
            if "enabled" in flags
            else "",
        ),
        advice="Set cuDNN's flags once, before the first convolution, outside the model. In torch.backends.cudnn.flags(...), "
        "pass enabled=True: its default turns cuDNN off inside the block.",
        evidence=tuple(
            Evidence(name="flag changed", value=change, unit="text", where=run.config.name)
            for run in runs
            for change in run.flags_changed
        ),
    )


RULE = Rule("flags_changed", DOC, check, "reading")

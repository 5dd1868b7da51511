"""cuDNN flags that the model itself changes while it runs."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.diagnosis.pairs import measured
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.words import listing, plural, quoted, sentences
from profiler_kit.records.report import Evidence, Finding, Report

DOC = """
A cuDNN flag reads otherwise after a run's steps than before them, so the model, its loss or its optimizer sets it: `high` for
`enabled`, as then cuDNN is off for part of the step, otherwise `medium`. The run is not only what its configuration says.
Set after a shape was seen, `benchmark` changes nothing for that shape: the algorithm chosen first stays in PyTorch's cache,
whose key lacks the flag; `deterministic` and `allow_tf32` are in the key, so changing them chooses, or searches,
anew. No threshold.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once for all runs in which a flag changed."""
    runs = [run for run in measured(report) if run.flags_changed]
    if not runs:
        return
    changes = list(dict.fromkeys(change for run in runs for change in run.flags_changed))
    names = {change.partition(":")[0].rpartition(".")[2].strip() for change in changes}
    yield RULE.finding(
        severity="high" if "enabled" in names else "medium",
        title=f"The model changes cuDNN's flags while it runs: {listing(changes)}",
        explanation=sentences(
            f"It does so in {plural(len(runs), 'configuration')} ({listing([quoted(run) for run in runs])}): these runs are not "
            "only what their configurations say.",
            "benchmark, set after a shape was seen, changes nothing for that shape: its algorithm is kept."
            if "benchmark" in names
            else "",
            "deterministic and TF32 are part of what an algorithm is kept by, so each change chooses anew."
            if names & {"deterministic", "allow_tf32"}
            else "",
            "While cuDNN is off, convolutions run as PyTorch's own im2col and matrix product."
            if "enabled" in names
            else "",
        ),
        advice="Set cuDNN's flags once, before the first convolution, outside the model. Inside torch.backends.cudnn.flags(...) "
        "pass enabled=True: without it the block runs without cuDNN.",
        evidence=tuple(
            Evidence(name="flag changed", value=change, unit="text", where=run.config.name)
            for run in runs
            for change in run.flags_changed
        ),
    )


RULE = Rule("flags_changed", DOC, check, "reading")

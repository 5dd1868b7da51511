"""The registry of rules, and the reference page (docs/rules.md) made of their documentation."""

from __future__ import annotations

import profiler_kit.diagnosis.rules as family
from profiler_kit._family import members
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.words import threshold
from profiler_kit.statistics.noise import FLOOR

_INTRODUCTION = f"""# Rules

<!-- Written by scripts/docs/make_docs.py. Change the code it is read from, then run the script. -->

Which findings are there, and when do they appear? A rule reads a report or a trace and yields findings: a problem, the
numbers that show it, and advice. A rule does not fire if a number that it needs is missing.

- **Severity.**
  - `high`: most of the step or of the memory peak is affected, or figures that a user sees are misleading.
  - `medium`: a gain or a risk that is worth acting on.
  - `low`: useful before a decision.
  - `info`: no action is needed.
- **Order.** Findings are sorted by severity, then by topic: failed runs, where the time goes, the cause, remedies,
  misleading figures, memory, notes. Within a topic, the largest share of the step (or of the peak) comes first.
- **Faster and slower.** One run is faster than another if all three conditions hold: the 95 % bootstrap intervals of their
  median steps are disjoint, the gain exceeds the noise by {threshold(FLOOR)}, and the second round confirms it.
- **Noise.** Every configuration runs in two fresh processes, the second time in reverse order (A B C C B A), so that clock
  drift affects all of them equally. The noise is the largest difference between two processes of one configuration, over all
  configurations without `cudnn.benchmark` and the two that are compared. (With benchmark, the algorithm search may choose
  differently each time.) The gain is the mean of both rounds, and each round must show at least half of it. Without repeats,
  only the intervals and the {threshold(FLOOR)} decide, and the finding mentions this.
- **Per example.** If two steps have different numbers of examples (`batch=2x`), times are compared per example.
- **Trial.** If a configuration can try the advice, the finding names it; `--try` runs it. If several can, they are listed in
  order of preference. If the report has such a run, the finding shows the step before and after, the verdict (better, worse,
  same), and the change of memory, error and bitwise results. Of several trials, the finding shows the best.
- **Baseline.** The first run with samples whose configuration consists of cuDNN flags only. Runs are matched by flags and
  settings, not by names. Rule `further_axes` covers runs with other settings (`channels_last`, `batch=2x`).
- **Device time.** The time of kernels on a GPU. On a CPU, findings say *operator time*: the self time of operators.
"""


def all_rules() -> tuple[Rule, ...]:
    """Return all rules of `diagnosis/rules/` in name order.

    **Raises**: TypeError for a file without a rule, or with a rule of another name.
    """
    rules = []
    for member in members(family):
        rule = getattr(member, "RULE", None)
        name = member.__name__.rpartition(".")[2]
        if not isinstance(rule, Rule) or rule.name != name:
            raise TypeError(f"{member.__file__}: RULE is missing or misnamed; define RULE = Rule({name!r}, DOC, check)")
        rules.append(rule)
    return tuple(rules)


def rules_page() -> str:
    """Return the reference page of all rules as Markdown."""
    parts = [_INTRODUCTION]
    parts += [f"## {rule.name}\n\n{rule.doc.strip()}\n" for rule in all_rules()]
    return "\n".join(parts)

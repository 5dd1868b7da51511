"""The rules there are, and the reference page made of their own words."""

from __future__ import annotations

import profiler_kit.diagnosis.rules as family
from profiler_kit._family import members
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.words import threshold
from profiler_kit.statistics.noise import FLOOR

_INTRODUCTION = f"""# Rules

<!-- Written by scripts/docs/make_docs.py. Change the code it is read from, then run the script. -->

A rule looks at a report and yields findings: what was found, the numbers that show it, what to do. A number that is
missing never fires a rule, and a rule that has nothing to say says nothing.

- **Severity.** `high`: most of the step or of the peak is at stake, or the figures a user would see mislead.
  `medium`: a gain or a danger worth acting on. `low`: worth knowing before a decision. `info`: nothing to do.
  Findings of one severity come in the order a reader asks: did it run, where does the step go, why, what was tried and
  saves time, which figure misleads, memory, the rest. Within one of these questions, the one that is about the largest
  share of the step (or of the peak) comes first.
- **Surely faster.** One run is called faster than another when their 95 % bootstrap intervals of the median step are
  disjoint *and* the gain exceeds the noise by {threshold(FLOOR)} *and* the second round says the same. The noise is the
  largest distance between two fresh processes of one configuration, over all without benchmark (whose search may end
  otherwise) and the two that are compared. Every configuration runs twice, the second time in reverse order (A B C C B A), so
  that a clock that drifts shifts both alike; the gain is the mean of both rounds, and each has to show half of
  it. Where nothing ran twice, the finding says so, and the intervals and the {threshold(FLOOR)} decide.
- **Per example.** Where two steps hold different numbers of examples (`batch=2x`), times are compared per example.
- **Trial.** Advice that can be run names the configurations that try it, in order of preference, also where none was run
  (`--try` runs them). Where the report holds such a run, the finding shows the step before and after, whether it was
  better, worse or the same, and what it does to memory, to the error and to the bits; of several, the best.
- **Baseline.** The first run that has samples and differs in cuDNN's flags alone, if at all. Runs are matched by their flags
  and settings, not by their names. Runs with other settings (`channels_last`, `batch=2x`) are told in `further_axes`.
"""


def all_rules() -> tuple[Rule, ...]:
    """All rules of `diagnosis/rules/`, in name order. Raises TypeError for a file that holds none, or one of another name."""
    found = []
    for member in members(family):
        rule = getattr(member, "RULE", None)
        name = member.__name__.rpartition(".")[2]
        if not isinstance(rule, Rule) or rule.name != name:
            raise TypeError(f"{member.__file__}: wants RULE = Rule({name!r}, doc, check)")
        found.append(rule)
    return tuple(found)


def rules_page() -> str:
    """The reference page of all rules, as Markdown."""
    parts = [_INTRODUCTION]
    parts += [f"## {rule.name}\n\n{rule.doc.strip()}\n" for rule in all_rules()]
    return "\n".join(parts)

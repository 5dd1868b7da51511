"""The rules there are, and the reference page made of their own words."""

from __future__ import annotations

import profiler_kit.diagnose.rules as family
from profiler_kit._family import members
from profiler_kit.diagnose.rule import Rule

_INTRODUCTION = """# Rules

<!-- Written by scripts/make_docs.py. Change the code it is read from, then run the script. -->

A rule looks at a report and yields findings: what was found, the numbers that show it, what to do. A number that is
missing never fires a rule, and a rule that has nothing to say says nothing.

- **Severity.** `high`: most of the step or of the peak is at stake, or the figures a user would see mislead.
  `medium`: a gain or a danger worth acting on. `low`: worth knowing before a decision. `info`: nothing to do.
  Findings of one severity come in the order a reader asks: did it run, where does the step go, why, what was tried and
  saves time, which figure misleads, memory, the rest. Within one of these questions, the one that is about the largest
  share of the step (or of the peak) comes first.
- **Surely faster.** One run is called faster than another when their 95 % bootstrap intervals of the median step are
  disjoint *and* the gain exceeds the A/A gap: how far two fresh processes of the same configuration lay apart. Where no
  configuration ran twice, the finding says so and the intervals alone decide.
- **Trial.** Advice that is a configuration names it. Where the report holds that run, the finding shows the step before
  and after, and whether it was better, worse or the same.
- **Baseline.** The first run that has samples. Runs are matched by their flags, not by their names.
"""


def all_rules() -> tuple[Rule, ...]:
    """All rules of `diagnose/rules/`, in name order. Raises TypeError for a file that holds none, or one of another name."""
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

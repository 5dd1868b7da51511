"""The registry of rules."""

from __future__ import annotations

import profiler_kit.diagnosis.rules as family
from profiler_kit._family import members
from profiler_kit.diagnosis.rule import Rule


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

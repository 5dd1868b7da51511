"""The registry of rules."""

from __future__ import annotations

import profiler_kit.diagnosis.rules as family
from profiler_kit._family import members
from profiler_kit.diagnosis.rule import Rule


def all_rules() -> tuple[Rule, ...]:
    """Return all rules in the files of `diagnosis/rules/`, in the order of their names.

    **Raises**: TypeError for a file without a rule, and for two rules of one name.
    """
    rules: dict[str, Rule] = {}
    for member in members(family):
        own = [value for value in vars(member).values() if isinstance(value, Rule)]
        if not own or any(rule.name in rules for rule in own):
            raise TypeError(f"{member.__file__}: no rule, or one whose name another file uses; define NAME = Rule(...)")
        rules.update((rule.name, rule) for rule in own)
    return tuple(rule for _, rule in sorted(rules.items()))

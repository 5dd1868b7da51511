"""Laws that hold for every finding, and records with fields removed at random to test them."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import types
import typing
from collections.abc import Sequence
from typing import Any

from profiler_kit.diagnosis import all_rules
from profiler_kit.diagnosis.rule import TOPICS
from profiler_kit.records.claims import PEAK
from profiler_kit.records.counts import Cost
from profiler_kit.records.report import SEVERITIES, Finding
from profiler_kit.records.serde import to_json
from profiler_kit.units import text


def sound_finding(finding: Finding) -> None:
    """Assert that `finding` can be shown: its text has its main number, and its JSON is plain."""
    json.dumps(to_json(finding), allow_nan=False)
    assert finding.evidence
    assert 0.0 <= finding.weight <= 1.0
    for words in (finding.title, finding.explanation, finding.advice):
        assert words == words.strip()
        assert words
        assert "  " not in words
        assert not re.search(r"\bNone\b|\bnan\b|\binf\b", words), words
    assert finding.explanation.endswith(".")
    assert finding.advice.endswith(".")
    assert not finding.title.endswith(".")
    assert finding.remedy is not None
    assert finding.remedy.setting == (finding.config or "")
    assert finding.remedy.code in finding.advice
    assert finding.advice.startswith(finding.remedy.text)
    assert "{code}" not in finding.advice
    assert states_main_number(finding, f"{finding.title}\n{finding.explanation}")


def sound_order(findings: Sequence[Finding]) -> None:
    """Assert the order: what explains time, then what explains the peak, with disjoint shares; then the rest by severity."""
    pools = [2 if not finding.claims else int(PEAK in finding.claims) for finding in findings]
    assert pools == sorted(pools)
    for pool in (0, 1):
        shares = [finding.share or 0.0 for finding, other in zip(findings, pools, strict=True) if other == pool]
        assert all(0.0 <= share <= 1.0 for share in shares)
        assert sum(shares) <= 1.0 + 1e-9
    topic = {rule.name: TOPICS.index(rule.topic) for rule in all_rules()}
    notes = [finding for finding in findings if not finding.claims]
    assert all(finding.share is None for finding in notes)
    ranks = [(SEVERITIES.index(finding.severity), topic[finding.rule], -finding.weight) for finding in notes]
    assert ranks == sorted(ranks)


def states_main_number(finding: Finding, sentences: str) -> bool:
    """Return whether the sentences contain the first piece of evidence, the number that fired the rule."""
    main = finding.evidence[0]
    return main.unit in ("bool", "text") or text(main.value, main.unit).lstrip("-") in sentences


def thinned(record: Any, chance: random.Random, rate: float) -> Any:
    """Return `record` with random fields changed: optional ones to None, shorter lists, numbers to 0, 1 or far too large."""
    hints = typing.get_type_hints(type(record))
    values: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value, kind = getattr(record, field.name), hints[field.name]
        hit = chance.random() < rate
        if isinstance(value, tuple):
            items = tuple(thinned(v, chance, rate) if dataclasses.is_dataclass(v) else v for v in value)
            values[field.name] = tuple(v for v in items if chance.random() >= rate) if hit else items
        elif hit and optional(kind):
            values[field.name] = None
        elif isinstance(value, Cost):
            values[field.name] = Cost() if hit else value
        elif dataclasses.is_dataclass(value):
            values[field.name] = thinned(value, chance, rate)
        elif hit and isinstance(value, int) and not isinstance(value, bool):
            values[field.name] = chance.choice((0, 1, 10**15))
        else:
            values[field.name] = value
    return type(record)(**values)


def optional(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType) and type(None) in typing.get_args(kind)

"""The worst of several traces or steps on which a rule fires, and the names of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from profiler_kit.diagnosis.phrases import join_list, plural

Subject = TypeVar("Subject")
Match = TypeVar("Match")

MAX_LISTED_TRACES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """`other_names`: the names of the other traces on which the rule fires."""

    other_names: tuple[str, ...]

    def others_sentence(self) -> str:
        """Return a sentence that names the other traces on which the rule fires; empty without any."""
        if len(self.other_names) > MAX_LISTED_TRACES:
            return f"The same holds for {plural(len(self.other_names), 'other trace')}."
        return f"The same holds for {join_list(self.other_names)}." if self.other_names else ""


def find_worst(
    subjects: Iterable[Subject],
    find_match: Callable[[Subject], Match | None],
    weight: Callable[[Match], float],
    name: Callable[[Subject], str],
) -> tuple[Subject, Match, tuple[str, ...]] | None:
    """Return the subject whose match has the largest `weight`, its match, and the names of the others with a match.

    None if `find_match` returns None for every subject.
    """
    matches = [(subject, match) for subject in subjects if (match := find_match(subject)) is not None]
    if not matches:
        return None
    worst, match = max(matches, key=lambda pair: weight(pair[1]))
    return worst, match, tuple(name(subject) for subject, _ in matches if subject is not worst)

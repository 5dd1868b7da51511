"""Alignment of entries of two traces: PyTorch versions rename operators, kernels differ by GPU, and models are wrapped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from profiler_kit.records.trace_comparison import MatchKind, TimeChange

Key = TypeVar("Key", bound=Hashable)

_NAMESPACE: Final = re.compile(r"\A\w+::")
# Backends are ignored: aten::cudnn_convolution_backward of 2021 has been aten::convolution_backward since 2022.
_BACKEND: Final = re.compile(r"\A_*(cudnn|miopen|mkldnn|thnn|slow|native|hip|xpu|mps)_+")
_VARIANT: Final = re.compile(r"(_overrideable|_out|_(input|weight|bias)|_)\Z")
MAX_WRAPPERS: Final = 3  # modules that may wrap a model: DDP, a compiled module, a checkpoint wrapper


@dataclass(frozen=True, slots=True)
class TimedEntry:
    """The time and calls of one name and phase on one side."""

    name: str
    ns: int
    calls: int
    phase: str = ""
    family: str = ""


def operator_key(entry: TimedEntry) -> str:
    """The operator's name without namespace, backend and variant."""
    name = _NAMESPACE.sub("", entry.name)
    base_name = _BACKEND.sub("", name)
    while (shorter := _VARIANT.sub("", base_name)) != base_name and shorter:
        base_name = shorter
    return base_name.strip("_") or name


def kernel_key(entry: TimedEntry) -> str:
    """The kernel's family, which does not depend on the device."""
    return entry.family


def align_entries(
    a: Sequence[TimedEntry], b: Sequence[TimedEntry], key: Callable[[TimedEntry], str] | None = None
) -> tuple[TimeChange, ...]:
    """Match entries by name and phase, then the unmatched ones by `key` and phase, and list the remaining ones of each side.

    Every entry is in exactly one row, so the rows sum to each side's total. The largest change comes first.
    """
    a_groups, b_groups = _group(a, _name_and_phase), _group(b, _name_and_phase)
    rows = [_row(*place, a_groups[place], b_groups[place], "same") for place in a_groups if place in b_groups]
    a_unmatched = [entry for entry in a if _name_and_phase(entry) not in b_groups]
    b_unmatched = [entry for entry in b if _name_and_phase(entry) not in a_groups]
    if key is not None:
        a_groups = _group(a_unmatched, lambda entry: (key(entry), entry.phase))
        b_groups = _group(b_unmatched, lambda entry: (key(entry), entry.phase))
        rows += [_row(*place, a_groups[place], b_groups[place], "alike") for place in a_groups if place in b_groups]
        a_unmatched = [entry for place, entries in a_groups.items() if place not in b_groups for entry in entries]
        b_unmatched = [entry for place, entries in b_groups.items() if place not in a_groups for entry in entries]
    rows += [_row(*place, entries, [], "only a") for place, entries in _group(a_unmatched, _name_and_phase).items()]
    rows += [_row(*place, [], entries, "only b") for place, entries in _group(b_unmatched, _name_and_phase).items()]
    return tuple(sorted(rows, key=lambda row: (-abs(row.change_ns), row.name, row.phase)))


def wrapper_depths(a: Sequence[str], b: Sequence[str]) -> tuple[int, int]:
    """The number of outermost names to drop from each side's module paths so that the most paths match.

    The dropped names are wrappers around the model. Of equally good depths the smallest wins.
    """
    depths = [(i, j) for i in range(MAX_WRAPPERS + 1) for j in range(MAX_WRAPPERS + 1)]
    path_count = max(len(set(a)), len(set(b)))

    def count_matches(depth: tuple[int, int]) -> int:
        a_paths, b_paths = (
            {drop_outermost(path, count) for path in paths} - {None} for paths, count in zip((a, b), depth, strict=True)
        )
        return len(a_paths & b_paths)

    match_counts = Counter({depth: count_matches(depth) for depth in depths})
    most_matches = max(match_counts.values(), default=0)
    if not most_matches or not path_count:
        return 0, 0
    return next((depth for depth in sorted(depths, key=sum) if match_counts[depth] == most_matches), (0, 0))


def drop_outermost(path: str, count: int) -> str | None:
    """`path` without its first `count` names; None if it has no more names than that."""
    parts = path.split(".")
    return ".".join(parts[count:]) if len(parts) > count else None


def _name_and_phase(entry: TimedEntry) -> tuple[str, str]:
    return entry.name, entry.phase


def _group(entries: Sequence[TimedEntry], key: Callable[[TimedEntry], Key]) -> dict[Key, list[TimedEntry]]:
    groups: dict[Key, list[TimedEntry]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return groups


def _row(name: str, phase: str, a: Sequence[TimedEntry], b: Sequence[TimedEntry], alike: MatchKind) -> TimeChange:
    return TimeChange(
        name=name,
        phase=phase,
        a_ns=sum(entry.ns for entry in a),
        b_ns=sum(entry.ns for entry in b),
        a_calls=sum(entry.calls for entry in a),
        b_calls=sum(entry.calls for entry in b),
        alike=alike,
        a_names=tuple(dict.fromkeys(entry.name for entry in a)) if alike == "alike" else (),
        b_names=tuple(dict.fromkeys(entry.name for entry in b)) if alike == "alike" else (),
    )

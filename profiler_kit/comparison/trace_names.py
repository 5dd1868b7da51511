"""The same thing under two traces' names: versions of PyTorch rename operators, GPUs have kernels of their own, roots differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from profiler_kit.records.trace_comparison import Alike, TimeChange

Key = TypeVar("Key", bound=Hashable)

_NAMESPACE: Final = re.compile(r"\A\w+::")
# Who does it, not what is done: aten::cudnn_convolution_backward of 2021 is aten::convolution_backward since 2022.
_BACKEND: Final = re.compile(r"\A_*(cudnn|miopen|mkldnn|thnn|slow|native|hip|xpu|mps)_+")
_VARIANT: Final = re.compile(r"(_overrideable|_out|_(input|weight|bias)|_)\Z")
MOST_DROPPED: Final = 3  # outermost calls that may be wrapped around a model: DDP, a compiled or a checkpointed one


@dataclass(frozen=True, slots=True)
class Timed:
    """One entry of one side."""

    name: str
    ns: int
    calls: int
    phase: str = ""
    family: str = ""


def operator_key(one: Timed) -> str:
    """What an operator does, whichever backend it was named after."""
    name = _NAMESPACE.sub("", one.name)
    bare = _BACKEND.sub("", name)
    while (shorter := _VARIANT.sub("", bare)) != bare and shorter:
        bare = shorter
    return bare.strip("_") or name


def kernel_key(one: Timed) -> str:
    """What a kernel does, whichever device it was built for."""
    return one.family


def aligned(
    a: Sequence[Timed], b: Sequence[Timed], key: Callable[[Timed], str] | None = None
) -> tuple[TimeChange, ...]:
    """The entries of both sides by name and phase, then those left on both sides by `key`, then what only one has.

    Every entry stands in one row, so the rows sum to each side's total; the largest change comes first.
    """
    ours, theirs = _by(a, _place), _by(b, _place)
    rows = [_row(*place, ours[place], theirs[place], "same") for place in ours if place in theirs]
    left_a = [one for one in a if _place(one) not in theirs]
    left_b = [one for one in b if _place(one) not in ours]
    if key is not None:
        like_a = _by(left_a, lambda one: (key(one), one.phase))
        like_b = _by(left_b, lambda one: (key(one), one.phase))
        rows += [_row(*place, like_a[place], like_b[place], "alike") for place in like_a if place in like_b]
        left_a = [one for place, found in like_a.items() if place not in like_b for one in found]
        left_b = [one for place, found in like_b.items() if place not in like_a for one in found]
    rows += [_row(*place, found, [], "only a") for place, found in _by(left_a, _place).items()]
    rows += [_row(*place, [], found, "only b") for place, found in _by(left_b, _place).items()]
    return tuple(sorted(rows, key=lambda row: (-abs(row.change_ns), row.name, row.phase)))


def same_root(a: Sequence[str], b: Sequence[str]) -> tuple[int, int]:
    """How many outermost names to drop from the paths of each side so that most paths are the same: what only wraps the model."""
    ways = [(0, 0), *((i, j) for i in range(MOST_DROPPED + 1) for j in range(MOST_DROPPED + 1) if i or j)]
    full = max(len(set(a)), len(set(b)))

    def matches(way: tuple[int, int]) -> int:
        ours, theirs = (
            {dropped(path, count) for path in paths} - {None} for paths, count in zip((a, b), way, strict=True)
        )
        return len(ours & theirs)

    found = Counter({way: matches(way) for way in ways})
    best = max(found.values(), default=0)
    return next((way for way in sorted(ways, key=sum) if found[way] == best), (0, 0)) if best and full else (0, 0)


def dropped(path: str, count: int) -> str | None:
    """`path` without its first `count` names; None where it has no more than these."""
    parts = path.split(".")
    return ".".join(parts[count:]) if len(parts) > count else None


def _place(one: Timed) -> tuple[str, str]:
    return one.name, one.phase


def _by(entries: Sequence[Timed], key: Callable[[Timed], Key]) -> dict[Key, list[Timed]]:
    found: dict[Key, list[Timed]] = {}
    for one in entries:
        found.setdefault(key(one), []).append(one)
    return found


def _row(name: str, phase: str, a: Sequence[Timed], b: Sequence[Timed], alike: Alike) -> TimeChange:
    return TimeChange(
        name=name,
        phase=phase,
        a_ns=sum(one.ns for one in a),
        b_ns=sum(one.ns for one in b),
        a_calls=sum(one.calls for one in a),
        b_calls=sum(one.calls for one in b),
        alike=alike,
        a_names=tuple(dict.fromkeys(one.name for one in a)) if alike == "alike" else (),
        b_names=tuple(dict.fromkeys(one.name for one in b)) if alike == "alike" else (),
    )

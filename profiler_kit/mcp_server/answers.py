"""The JSON of a record, cut to a size: the fields of the first screen, the largest rows, shorter texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

MAX_CHARS: Final = 12_000  # of an answer, as JSON: about 3,000 tokens
ROWS: Final = 10  # of a list, at most
_NUMBERS: Final = 16  # of a list of numbers, such as a shape: it makes sense as a whole
_TEXTS: Final = (2_000, 500, 100)  # characters of a text: shorter ones where fewer rows are not enough

_FINDINGS: Final = tuple(
    f"findings.{name}"
    for name in ("rule", "severity", "title", "explanation", "advice", "evidence", "paths", "share", "saving", "trial")
)  # fmt: skip
_VERDICT: Final = tuple(
    f"verdict.{name}"
    for name in ("sentences", "bound", "busy", "idle", "cause", "step_ns", "remedies.action", "remedies.code",
                 "remedies.findings", "remedies.status", "remedies.gain_percent", "remedies.paths")
)  # fmt: skip
_LAYERS: Final = (
    "kind", "a_path", "b_path", "class_name", "change", "contribution", "a.flops", "a.params", "a.device_ns", "b.flops",
    "b.params", "b.device_ns",
)  # fmt: skip
_COMPARISON: Final = (
    "a.label", "a.spec", "b.label", "b.spec", "sentences", "notes", "metrics", "edits", "times.config", "times.sentence",
    "explanations.sentence", *(f"layers.{name}" for name in _LAYERS),
)  # fmt: skip
_CHECK: Final = (
    "target", "name", "spec", "exit_code", "verdict", "status", "failed_side", "reason", "hint", "base", "budgets", "notes",
    "accept", *(f"comparison.{name}" for name in _COMPARISON),
)  # fmt: skip
_STATIC: Final = (
    "params", "trainable_params", "param_bytes", "forward", "loss", "backward", "recompute", "saved_bytes", "uncounted.op",
    "uncounted.calls", "bounds", "notes", "convention_name", "coverage_percent", "modules.path", "modules.class_name",
    "modules.calls", "modules.params", "modules.forward.flops", "modules.backward.flops", "modules.saved_bytes",
    "memory.peak_bytes", "memory.peak_at", "memory.peak_path", "memory.categories", "memory.device.card",
    "memory.device.allocated_bytes", "memory.device.allocated_low_bytes", "memory.device.allocated_high_bytes",
    "memory.device.reserved_bytes", "memory.what_ifs", "memory.what_if_notes", "memory.parallel.plan",
    "memory.parallel.peak_bytes", "memory.parallel.communication", "memory.notes", "forecast.device", "forecast.kernel_ns",
    "forecast.host_ns", "forecast.step_ns", "forecast.settings",
)  # fmt: skip
_TRACE: Final = (
    "file", "clock", "devices", "rank", "world_size", "span_ns", "busy_ns", "idle_ns", "unattributed_ns", "step_ns",
    "host_step_ns", "untraced_step_ns", "phases", "idle", "modules", "kernels", "operators", "syncs", "notes",
)  # fmt: skip
# The fields of each kind of file. A name without further parts is the whole field.
SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "report": (
        "target", "notes", *_VERDICT, *_FINDINGS, *(f"static.{name}" for name in _STATIC),
        *(f"runs.{name}" for name in ("config.name", "failure", "step_ns", "peak_allocated_bytes", "phases", "modules.path",
                                             "modules.phase", "modules.kernel_ns")),
    ),
    "trace_report": (*_VERDICT, *_FINDINGS, *(f"traces.{name}" for name in _TRACE), "ranks", "notes"),
    "comparison": _COMPARISON,
    "trace_comparison": ("a", "b", "per", "span", "busy", "idle", "noise", "same_work", "kinds", "sentences", "notes",
                         "phases", "causes", "modules", "operators", "kernels", "waits"),
    "check": _CHECK,
    "checks": ("exit_code", "verdict", *(f"results.{name}" for name in _CHECK)),
}  # fmt: skip
# What the rows of a list are sorted by, largest first. Other lists are sorted in the file.
ORDER: Final[Mapping[str, Callable[[Mapping[str, Any]], float]]] = {
    "static.modules": lambda row: row["forward"]["flops"] + row["backward"]["flops"],
    "runs.modules": lambda row: row["kernel_ns"],
    "traces.modules": lambda row: row["kernel_ns"],
}


def cut(data: Mapping[str, Any], limit: int = MAX_CHARS) -> tuple[Any, dict[str, int]]:
    """The first screen of a file's JSON `data` in at most `limit` characters, and the length of each list that it cuts, by name.

    Names are those of the file. Fields without a value are left out. A file of no known kind is cut as a whole. The lists with
    the most text lose rows first; then texts get shorter.
    """
    selected = _select(data, _tree(SHOWN.get(data.get("kind", ""), tuple(data))))
    for characters in _TEXTS:
        cutter = _Cutter(characters)
        shown = cutter.shorten(selected, "", "")
        while cutter.sizes.total() > limit and cutter.lower_a_limit():
            shown = cutter.shorten(selected, "", "")
        if cutter.sizes.total() <= limit:
            break
    return shown, cutter.lengths


def _tree(names: Iterable[str]) -> dict[str, Any]:
    """Dotted `names` as nested dicts; an empty one is a whole field."""
    tree: dict[str, Any] = {}
    for name in names:
        branch = tree
        for part in name.split("."):
            branch = branch.setdefault(part, {})
    return tree


def _select(data: Any, tree: Mapping[str, Any]) -> Any:
    """The fields of `data` that are in `tree`, without those that have no value."""
    if isinstance(data, list):
        return [_select(item, tree) for item in data]
    if not isinstance(data, dict):
        return data
    names = tree or {name: {} for name in data}
    selected = {name: _select(data[name], branch) for name, branch in names.items() if name in data}
    return {name: value for name, value in selected.items() if value not in (None, "", [], {})}


class _Cutter:
    """Shortens lists and texts. `rows`: the most rows of a list, by its name.

    Of the last call of `shorten`: `sizes`, the characters of JSON in the rows of each list, without those of lists in it, and
    `lengths`, of the lists that are cut.
    """

    def __init__(self, characters: int) -> None:
        self.characters = characters
        self.rows: dict[str, int] = {}
        self.sizes: Counter[str] = Counter()
        self.lengths: dict[str, int] = {}

    def lower_a_limit(self) -> bool:
        """Lower the limit of the list with the most text. False if no list can be shorter."""
        longer = [name for name in self.sizes if self.rows.get(name, 1) > 1]
        if not longer:
            return False
        largest = max(longer, key=lambda name: self.sizes[name])
        self.rows[largest] = self.rows[largest] * 2 // 3
        self.sizes.clear()
        return True

    def shorten(self, data: Any, name: str, rows_of: str) -> Any:
        """`data` within the limits. `name`: its dotted name; `rows_of`: that of the list it is in."""
        if isinstance(data, dict):
            self.sizes[rows_of] += sum(len(key) + 6 for key in data)  # quotes, a colon, a comma
            return {key: self.shorten(value, f"{name}.{key}" if name else key, rows_of) for key, value in data.items()}
        if isinstance(data, list):
            return [self.shorten(item, name, name) for item in self._rows(data, name)]
        value = self._text(data) if isinstance(data, str) else data
        self.sizes[rows_of] += len(json.dumps(value, ensure_ascii=False)) + 2
        return value

    def _text(self, text: str) -> str:
        """The start of `text`, without halves of characters, which no JSON of the protocol can hold."""
        start = text if len(text) <= self.characters else f"{text[: self.characters]}…"
        return start.encode(errors="replace").decode()

    def _rows(self, data: list[Any], name: str) -> list[Any]:
        """The first rows of a list, in its order."""
        is_numeric = all(isinstance(item, (int, float)) for item in data)
        most = _NUMBERS if is_numeric else self.rows.setdefault(name, ROWS)
        if len(data) > most:
            self.lengths[name] = max(len(data), self.lengths.get(name, 0))
        return (sorted(data, key=ORDER[name], reverse=True) if name in ORDER else data)[:most]

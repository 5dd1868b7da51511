"""Module calls and call stacks of a trace, as torch-tb-profiler reads them."""

from __future__ import annotations

import json
from typing import Final

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.records import marks
from profiler_kit.records.paths import parent_path
from profiler_kit.traces.names import MODULE_PREFIX
from profiler_kit.traces.table import CALL_STACK, NONE, Kind, Table

MAX_FRAMES: Final = 20  # of a call stack, from the innermost


class ModuleCalls:
    """The module calls of a trace, `number_of` each position, and the module above each number in the tree of modules."""

    def __init__(self, attribution: Attribution) -> None:
        table, host = attribution.table, attribution.host
        self.modules = attribution.modules
        marked = np.array([name.startswith(marks.MODULE) for name in table.names], dtype=bool)
        in_python = np.array([name.startswith(MODULE_PREFIX) for name in table.names], dtype=bool)
        names, kind = table.name[host.rows], table.kind[host.rows]
        self.has_marks = bool(marked[names].any()) if len(names) else False
        is_call = marked[names] if self.has_marks else in_python[names] & (kind == Kind.PYTHON)
        is_call &= host.module != NONE
        calls = np.flatnonzero(is_call)
        self.number_of: dict[int, int] = dict(zip(calls.tolist(), host.module[calls].tolist(), strict=True))
        called = {self.modules[number].path: number for number in self.number_of.values()}
        self._above: dict[int, int] = {}
        for path, number in called.items():
            above = path
            while above:
                above = parent_path(above)
                if above in called and called[above] != number:
                    self._above[number] = called[above]
                    break

    def arguments(self, i: int) -> str:
        """The arguments of the module call at position `i`."""
        number = self.number_of[i]
        above = self._above.get(number)
        parent = "null" if above is None else str(above + 1)
        return f'"Python id":{number + 1},"Python parent id":{parent},"Python module id":{number}'


class CallStacks:
    """Call stacks of operators as JSON, from the innermost call to the outermost."""

    def __init__(self, attribution: Attribution) -> None:
        self._attribution = attribution
        self._recorded = sparse_texts(attribution.table, CALL_STACK)
        self._rows = attribution.host.rows.tolist()
        self._python = attribution.host.python.tolist()
        self._above = attribution.host.parent.tolist()
        self._of_call: dict[int, str] = {}

    def of(self, i: int) -> str:
        """The stack of the operator at position `i`; "" if it is unknown."""
        if self._rows[i] in self._recorded:
            return self._recorded[self._rows[i]]
        call = self._python[i]
        if call == NONE:
            module = int(self._attribution.host.module[i])
            path = self._attribution.modules[module].path if module != NONE else ""
            return json.dumps(path) if path else ""
        if call not in self._of_call:
            frames: list[str] = []
            table, rows = self._attribution.table, self._attribution.host.rows
            position = call
            while position != NONE and len(frames) < MAX_FRAMES:
                frames.append(table.names[int(table.name[rows[position]])])
                above = self._above[position]
                position = self._python[above] if above != NONE else NONE
            self._of_call[call] = json.dumps(";".join(frames))
        return self._of_call[call]


def sparse_texts(table: Table, key: str) -> dict[int, str]:
    """The values of a sparse column as JSON, by row."""
    sparse = table.more.get(key)
    if sparse is None:
        return {}
    values = sparse.values.tolist()
    if sparse.texts:
        texts = [text if text[:1] in '["' else json.dumps(text) for text in sparse.texts]
        return {row: texts[int(value)] for row, value in zip(sparse.rows.tolist(), values, strict=True) if value >= 0}
    return {row: repr(value) for row, value in zip(sparse.rows.tolist(), values, strict=True)}

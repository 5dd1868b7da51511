"""Records to JSON and back. JSON names are field names; a record never holds a dict.

`json` writes and msgspec reads; reading a file never executes code. Unknown keys are ignored, because newer minor versions
may add some. A missing or wrongly typed key raises a `ReportError` that names its place.
"""

from __future__ import annotations

import dataclasses
import json
import numbers
import re
import types
import typing
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, Union

from profiler_kit.command_lines import kit_command
from profiler_kit.errors import ReportError
from profiler_kit.records.check import CheckResult, CheckResults
from profiler_kit.records.claims import Claim, claim_of_text
from profiler_kit.records.comparison import Comparison
from profiler_kit.records.machine import Machine
from profiler_kit.records.notes import Note, note_of_line
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.run_file import merge_kernels, restore_kernels, summary_of_mean
from profiler_kit.records.runs import MEAN_NAMES
from profiler_kit.records.saved import HINT_GIVE_REPORT, HINT_REWRITE_FILE, Saved, kind_words
from profiler_kit.records.sweeps import Sweep
from profiler_kit.records.trace_comparison import TraceComparison
from profiler_kit.records.tuning import Tuning

T = TypeVar("T")
SavedRecord = (
    Report | TraceReport | Comparison | TraceComparison | CheckResult | CheckResults | Machine | Tuning | Sweep
)  # the records that `show` renders
SAVED_KINDS: Final[dict[str, type[SavedRecord]]] = {record.kind: record for record in typing.get_args(SavedRecord)}

LARGEST: Final = 10**30  # larger than any real count or time; a larger number cannot be divided as a float
_DIGITS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LONG: Final = b"0" * len(
    str(LARGEST)
)  # occurs in a text with a number of this length once its digits are translated to 0
_TRACED: Final = b'"traced"'  # a name of every run
_BUILTINS: Final[tuple[type[Any], ...]] = (str, int, float, tuple, list, dict)
# Values that older files have as text.
_FROM_TEXT: Final[dict[Any, Callable[[str], object]]] = {Note: note_of_line, Claim: claim_of_text}
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")  # one part of a path in msgspec's errors: $.runs[2].config.name


def to_json(record: object) -> Any:
    """`record` as JSON-compatible lists and dicts, with fields in declaration order."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {name: to_json(getattr(record, name)) for name in _names(type(record))}
    if isinstance(record, tuple):
        return [to_json(item) for item in record]
    return record


def _without_defaults(value: object) -> Any:
    """`value` as `to_json` returns it, without the fields that have their default: most fields of a summary of few steps."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: _without_defaults(item) for field, item in pairs if item != field.default}
    if isinstance(value, tuple):
        return [_without_defaults(item) for item in value]
    return value


@cache
def _names(record: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(record))


def dumps(record: Saved, *, indent: int | None = 1) -> str:
    """`record` as the text of a file: kind, schema, fields. The same record always gives the same bytes.

    `indent` None gives one line. Raises ValueError for NaN or infinity.
    """
    import msgspec

    data = {"kind": record.kind, "schema": record.schema, **msgspec.to_builtins(record, enc_hook=_to_builtin)}
    if isinstance(record, Report):
        for run, fields in zip(record.runs, data["runs"], strict=True):
            fields |= {name: _without_defaults(getattr(run, name)) for name in ("traced", "timed_phases")}
            fields |= {name: msgspec.to_builtins(getattr(run, name), enc_hook=_to_builtin) for name in MEAN_NAMES}
            merge_kernels(fields)
    # json encodes in C only without indent. A trace of 150,000 names takes 1.5 s this way, else 6 s.
    encoded = json.dumps(data, ensure_ascii=False, allow_nan=False)
    if indent is not None:
        encoded = msgspec.json.format(encoded.encode("utf-8", "surrogatepass"), indent=indent).decode(
            "utf-8", "surrogatepass"
        )
    return encoded + "\n"


def _to_builtin(value: object) -> object:
    """`value` of a subclass of a builtin type (torch.__version__, torch.Size) as that type, and numbers of other libraries."""
    for builtin in _BUILTINS:
        if isinstance(value, builtin):
            return builtin(value)
    for number, builtin in ((numbers.Integral, int), (numbers.Real, float)):  # of numpy
        if isinstance(value, number):
            return builtin(value)
    raise TypeError(f"cannot save a value of type {type(value).__name__}")


def loads(record: type[T], text: str | bytes, where: str) -> T:
    """The `record` in the file `text`; `where` names the file in errors.

    Raises ReportError for invalid content, with its place (``runs[2].config.name``), and for a file of another kind.
    """
    from profiler_kit.records.header import kind_of

    if issubclass(record, Saved):
        kind = kind_of(text, where)
        if kind not in (record.kind, None):
            raise _wrong_kind(kind, record.kind, where)
    return _decode(record, text, where)


def from_json(record: type[T], data: object, where: str = "") -> T:
    """A `record` from JSON-compatible `data`. Raises ReportError with the place of invalid content."""
    return loads(record, json.dumps(data), where or record.__name__)


def loads_report(text: str | bytes, where: str) -> Report:
    """The report in `text`; `where` names the file in errors. Raises ReportError, also for a file of another kind."""
    return _report(loads_saved(text, where), where)


def loads_saved(text: str | bytes, where: str) -> SavedRecord:
    """The record in `text`, of any kind that `show` renders; `where` names the file in errors. Raises ReportError."""
    from profiler_kit.records.header import kind_of

    if isinstance(text, bytes) and json.detect_encoding(text) != "utf-8":  # PowerShell's `>` writes UTF-16
        text = text.decode(json.detect_encoding(text), errors="replace")
    kind = kind_of(text, where)
    if kind is None:
        raise ReportError("not a profiler_kit report: no 'schema', or no 'kind'", where=where, hint=HINT_GIVE_REPORT)
    if kind not in SAVED_KINDS:
        raise _wrong_kind(kind, Report.kind, where)
    return _decode(SAVED_KINDS[kind], text, where)


def is_saved_report(path: Path) -> bool:
    """Whether `path` names a saved report: a .json file, or a folder with ``report.json``."""
    return path.suffix == ".json" or (path.is_dir() and (path / "report.json").is_file())


def read_report(path: str | Path) -> Report:
    """The report saved at `path` (a file, or a folder with ``report.json``).

    Raises ReportError, also for a file of another kind.
    """
    return _report(read_saved(path), str(path))


def read_saved(path: str | Path) -> SavedRecord:
    """The record saved at `path` (a file, or a folder with ``report.json``), of any kind that `show` renders.

    Raises ReportError.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "report.json"
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ReportError(
            f"cannot be read: {error.strerror}", where=str(file), hint="give a report.json or its folder"
        ) from error
    return loads_saved(text, str(file))


def _report(record: SavedRecord, where: str) -> Report:
    if not isinstance(record, Report):
        raise _wrong_kind(record.kind, Report.kind, where)
    return record


def _wrong_kind(kind: str, expected: str, where: str) -> ReportError:
    hint = f"to render it, run {kit_command('show', where)}" if kind in SAVED_KINDS else HINT_GIVE_REPORT
    return ReportError(f"{kind_words(kind)}, not {kind_words(expected)}", where=where, hint=hint)


def _decode(record: type[T], text: str | bytes, where: str) -> T:
    import msgspec

    try:
        data = text.encode() if isinstance(text, str) else text
        # Files written before 2026-11-23 have another spelling of this idle cause.
        data = data.replace(b'"synchronisation"', b'"synchronization"')  # codespell:ignore synchronisation
        if record is Report:
            data = _with_traced(data) if _TRACED not in data else _with_kernels(data)
        try:
            decoded = msgspec.json.decode(data, type=record)
        except msgspec.ValidationError:
            older = _older(record, data)
            if older is None:
                raise
            decoded = msgspec.convert(older, type=record)
        if _LONG in data.translate(_DIGITS):  # 14 times faster than a pattern
            _refuse_large(msgspec.json.decode(data), where)
    except msgspec.ValidationError as error:
        raise _misfit(record, text, where, str(error)) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ReportError(f"not JSON: {error}", where=where, hint=HINT_REWRITE_FILE) from error
    return decoded


def _older(record: type, data: bytes) -> Any:
    """The content of `data` in the form of this version; None unless an older version wrote it."""
    import msgspec

    try:
        content = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
    current = _with_values(record, content)
    return current if current != content else None


def _with_traced(data: bytes) -> bytes:
    """The report in `data` with the summary of each run's traced steps: older files have their mean alone (before 2026-11-28)."""
    import msgspec

    content = msgspec.json.decode(data)
    runs = content.get("runs") if isinstance(content, dict) else None
    for run in runs if isinstance(runs, list) else ():
        if not isinstance(run, dict):
            continue
        phases = run.get("phases") or []
        if run.get("unattributed_ns") is not None:
            run["traced"] = to_json(summary_of_mean(run))
            phases = [phase for phase in phases if phase.get("stopwatch_ns") is not None]
        run["timed_phases"] = phases
    return msgspec.json.encode(content)


def _with_kernels(data: bytes) -> bytes:
    """The report in `data` with the kernels of each traced module, which the file has in `modules` alone."""
    import msgspec

    content = msgspec.json.decode(data)
    runs = content.get("runs") if isinstance(content, dict) else None
    try:
        changed = [restore_kernels(run) for run in runs or ()]
    except (AttributeError, KeyError, TypeError, ValueError):  # not the names and types of a run: decoding says which
        return data
    return msgspec.json.encode(content) if any(changed) else data


def _with_values(kind: Any, value: Any) -> Any:
    """JSON `value` of type `kind` with the notes and claims that older files have as text (before 2026-11-28)."""
    if kind in _FROM_TEXT and isinstance(value, str):
        return to_json(_FROM_TEXT[kind](value))
    if _is_union(kind):
        kind = next(member for member in typing.get_args(kind) if member is not type(None))
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        return {name: _with_values(hints.get(name), item) for name, item in value.items()}
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        return [_with_values(typing.get_args(kind)[0], item) for item in value]
    return value


def _refuse_large(data: Any, where: str, path: str = "") -> None:
    """Raise ReportError if a whole number in `data` exceeds `LARGEST`."""
    if isinstance(data, dict):
        for name, value in data.items():
            _refuse_large(value, where, f"{path}.{name}")
    elif isinstance(data, list):
        for i, value in enumerate(data):
            _refuse_large(value, where, f"{path}[{i}]")
    elif isinstance(data, int) and abs(data) > LARGEST:
        raise ReportError("a number beyond 1e30", where=_place(where, path), hint=HINT_REWRITE_FILE)


def _misfit(record: type, text: str | bytes, where: str, message: str) -> ReportError:
    """The error for msgspec's `message`: the expected type and the actual value."""
    message, _, path = message.partition(" - at `$")
    path = path.rstrip("`")
    place = _place(where, path)
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", message):
        return ReportError(f"'{missing[1]}' is missing", where=place, hint=HINT_REWRITE_FILE)
    if message.endswith("out of range"):
        return ReportError("a number beyond 1e30", where=place, hint=HINT_REWRITE_FILE)
    if not message.startswith(("Expected `", "Invalid enum value")):  # raised by a record's own check
        return ReportError(message, where=place, hint=HINT_REWRITE_FILE)
    steps = [name or int(index) for name, index in _STEP.findall(path)]
    expected, actual = _words(_type_at(record, steps)), _value_at(text, steps)
    return ReportError(f"expected {expected}, found {actual}", where=place, hint=HINT_REWRITE_FILE)


def _type_at(kind: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        if _is_union(kind):  # of None and a record or a list
            kind = next(member for member in typing.get_args(kind) if member is not type(None))
        kind = typing.get_type_hints(kind)[step] if isinstance(step, str) else typing.get_args(kind)[0]
    return kind


def _value_at(text: str | bytes, steps: Sequence[str | int]) -> str:
    """The value at `steps` as text. msgspec stops at the first error, so the rest of `text` may not be JSON."""
    try:
        value = json.loads(text)
        for step in steps:
            value = value[step]
    except (ValueError, RecursionError, LookupError, TypeError):
        return "something else"
    value_text = repr(value)
    return value_text if len(value_text) <= 40 else f"{value_text[:37]}..."


def _place(where: str, path: str) -> str:
    return f"{where}: {path.lstrip('.')}" if path else where


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (Union, types.UnionType)


def _words(kind: Any) -> str:
    """The name of a type in errors."""
    if typing.get_origin(kind) is Literal:
        return " or ".join(map(repr, typing.get_args(kind)))
    if typing.get_origin(kind) is tuple:
        return "a list"
    if _is_union(kind):
        return " or ".join(_words(member) for member in typing.get_args(kind) if member is not type(None))
    return "an object" if dataclasses.is_dataclass(kind) else str(kind.__name__)

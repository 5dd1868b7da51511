"""Decode malformed events one by one: unexpected types, broken strings, values that JSON does not allow. This is slow."""

from __future__ import annotations

import contextlib
import json
import math
import re
from typing import Any, Final

import msgspec

from profiler_kit.traces.dialect import KINDS, NO_ARGUMENTS, NO_FLOAT, Arguments, Event, Times
from profiler_kit.traces.table import DEVICE_KINDS, NONE

# A string, or a value outside of strings, as ``inf``, ``-nan(ind)`` or ``true``.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s\[\]{},:"]+', re.DOTALL)
_DEVICE_EVENT: Final = re.compile(
    rf'"cat"\s*:\s*"({"|".join(category for category, kind in KINDS.items() if kind in DEVICE_KINDS)})"'.encode()
)


def event_of(text: bytes) -> Event | None:
    """Return the event in `text` despite unexpected types, broken UTF-8 or NaN; None if it is not an event."""
    fields = object_of(text)
    if fields is None:
        return None
    ph, cat, name = fields.get("ph"), fields.get("cat"), fields.get("name")
    if not isinstance(ph, str) or not isinstance(cat, (str, type(None))) or not isinstance(name, (str, type(None))):
        return None
    args = fields.get("args")
    times = {"ts": NO_FLOAT, "dur": NO_FLOAT}
    for key in times:
        with contextlib.suppress(ValueError):
            times[key] = _number(fields.get(key), NO_FLOAT)
    return Event(
        ph=ph,
        cat=clean(cat or ""),
        name=None if name is None else clean(name),
        pid=_label(fields.get("pid")),
        tid=_label(fields.get("tid")),
        args=NO_ARGUMENTS if args is None else msgspec.Raw(json.dumps(args).encode()),
        **times,
    )


def times_of(text: bytes) -> Times:
    """Return the times in the text of a malformed event."""
    fields = object_of(text, floats=str) or {}
    return Times(*(msgspec.Raw(str(fields.get(name, "0")).encode("ascii", "replace")) for name in ("ts", "dur")))


def arguments_of(text: bytes, arguments: type[Arguments]) -> Arguments:
    """Return malformed arguments, without the values that cannot be read: the event itself is valid."""
    fields = object_of(text) or {}
    values: dict[str, Any] = {}
    for info in msgspec.structs.fields(arguments):
        value = fields.get(info.encode_name)
        if value is None:
            continue
        if info.type is msgspec.Raw:
            values[info.name] = msgspec.Raw(json.dumps(value).encode())
        elif info.type == int | str | None:
            values[info.name] = _label(value)
        else:
            is_float = info.default != info.default
            with contextlib.suppress(ValueError):
                values[info.name] = _number(value, NO_FLOAT) if is_float else _number(value, NONE, int)
    return arguments(**values)


def is_device_event(text: bytes) -> bool:
    """Return whether `text`, which is not an event, has the category of a kernel, a copy or a fill."""
    return _DEVICE_EVENT.search(text) is not None


def object_of(text: bytes, floats: type[str] | None = None) -> dict[str, Any] | None:
    """Return the JSON object in `text`, even with broken strings; None for anything else."""
    value = value_of(text, floats)
    return value if isinstance(value, dict) else None


def is_json(text: bytes) -> bool:
    """Return whether `text` is a JSON value. Broken strings are allowed."""
    return text.strip() == b"null" or value_of(text) is not None


def value_of(text: bytes, floats: type[str] | None = None) -> Any:
    """Return the JSON value in `text`, even with broken strings; None for invalid JSON and for null.

    In an object, values that JSON does not allow are None, or numbers where Python reads them: ``inf``, ``.5``, ``0x1f``.
    """
    written = text.decode("utf-8", errors="replace")
    try:
        return json.loads(written, strict=False, parse_float=floats)
    except RecursionError:
        return None
    except ValueError:
        if not written.lstrip().startswith("{"):
            return None
    try:
        return json.loads(_TOKEN.sub(_repaired, written), strict=False, parse_float=floats)
    except (ValueError, RecursionError):
        return None


def _repaired(token: re.Match[str]) -> str:
    """Return the text of a JSON value in the place of `token`: itself if it is one, else a finite number, else null."""
    value: str = token[0]
    if value[0] == '"' or _is_literal(value):
        return value
    try:
        number = float(value)
    except ValueError:
        return "null"
    return repr(number) if math.isfinite(number) else "null"


def _is_literal(value: str) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


def clean(text: str) -> str:
    """Return `text` without lone surrogates, which cannot be encoded."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _label(value: Any) -> int | str:
    return value if type(value) is int else "" if value is None else clean(str(value))


def _number(value: Any, missing: float, kind: type[float] | type[int] = float) -> float:
    if value is None or isinstance(value, bool):
        return missing
    if isinstance(value, (int, float, str)):
        try:
            return kind(value)
        except OverflowError as error:
            raise ValueError("the number is too large") from error
    raise ValueError(f"{type(value).__name__} is not a number")

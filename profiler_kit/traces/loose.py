"""Events that do not decode as they should: other types, broken strings, what JSON does not have. One by one, and slowly."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from profiler_kit.traces.dialect import DENSE, NO_ARGUMENTS, NO_FLOAT, Arguments, Event, Times
from profiler_kit.traces.table import NONE


def event_of(text: bytes) -> Event | None:
    """The event in `text` where it does not decode as it should: other types, broken UTF-8, NaN; None for no event."""
    found = object_of(text)
    if found is None:
        return None
    ph, cat, name = found.get("ph"), found.get("cat"), found.get("name")
    if not isinstance(ph, str) or not isinstance(cat, (str, type(None))) or not isinstance(name, (str, type(None))):
        return None
    args = found.get("args")
    try:
        return Event(
            ph=ph,
            cat=clean(cat or ""),
            name=None if name is None else clean(name),
            pid=_label(found.get("pid")),
            tid=_label(found.get("tid")),
            ts=_number(found.get("ts"), NO_FLOAT),
            dur=_number(found.get("dur", 0.0), 0.0),
            args=NO_ARGUMENTS if args is None else msgspec.Raw(json.dumps(args).encode()),
        )
    except ValueError:
        return None


def times_of(text: bytes) -> Times:
    """The times in an event's text, where it does not decode as it should."""
    found = object_of(text, floats=str) or {}
    return Times(*(msgspec.Raw(str(found.get(name, "0")).encode("ascii", "replace")) for name in ("ts", "dur")))


def arguments_of(text: bytes, arguments: type[Arguments]) -> Arguments | None:
    """Arguments where they do not decode as they should; None where an id is no number, or they are no object."""
    if text == b"null":
        return arguments()
    found = object_of(text)
    if found is None:
        return None
    values: dict[str, Any] = {}
    for info in msgspec.structs.fields(arguments):
        value = found.get(info.encode_name)
        if value is None:
            continue
        if info.type is msgspec.Raw:
            values[info.name] = msgspec.Raw(json.dumps(value).encode())
        elif info.type == int | str | None:
            values[info.name] = _label(value)
        else:
            try:
                is_float = info.default != info.default
                values[info.name] = _number(value, NO_FLOAT) if is_float else _number(value, NONE, int)
            except ValueError:
                if info.name in DENSE:
                    return None
    return arguments(**values)


def object_of(text: bytes, floats: type[str] | None = None) -> dict[str, Any] | None:
    """The JSON object in `text`, also where its strings are broken; None for anything else."""
    found = value_of(text, floats)
    return found if isinstance(found, dict) else None


def is_json(text: bytes) -> bool:
    """Whether `text` is a JSON value, broken strings allowed."""
    return text.strip() == b"null" or value_of(text) is not None


def value_of(text: bytes, floats: type[str] | None = None) -> Any:
    """The JSON value in `text`, also where its strings are broken; None for what is none, and for null."""
    try:
        return json.loads(text.decode("utf-8", errors="replace"), strict=False, parse_float=floats)
    except (ValueError, RecursionError):
        return None


def clean(text: str) -> str:
    """`text` without halves of surrogate pairs, which no output takes."""
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
            raise ValueError("no number that fits") from error
    raise ValueError(f"{type(value).__name__} is no number")

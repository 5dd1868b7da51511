"""The reference of the JSON files, generated from the records: docstrings, fields with type and unit, and JSON Schemas."""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Iterator
from typing import Any, Final, Literal, Union

import msgspec

from profiler_kit.records.notes import Note
from profiler_kit.records.runs import MEAN_NAMES, ConfigRun
from profiler_kit.records.saved import SCHEMA, Saved
from profiler_kit.records.serde import SAVED_KINDS
from profiler_kit.render.markdown import code

WRITTEN_BY: Final = {
    "report": "`analyze`, `count`",
    "trace_report": "`inspect`",
    "comparison": "`compare` of targets and reports",
    "trace_comparison": "`compare` of traces",
    "check": "`check` of one target",
    "checks": "`check` of several targets",
    "machine": "`env`",
    "tuning": "`tune`",
    "sweep": "`sweep`",
}
# Unit by the ending of a name, longer endings first.
UNITS: Final = {
    "flops_per_s": "FLOP/s", "bytes_per_s": "byte/s", "flops_per_byte": "FLOP/byte", "bytes": "bytes", "percent": "percent",
    "celsius": "°C", "flops": "FLOPs", "macs": "MACs", "hz": "Hz", "ns": "ns",
}  # fmt: skip
JSON_TYPES: Final = {int: "integer", float: "number", str: "text", bool: "true or false"}


def json_parts(root: type[Saved]) -> dict[str, str]:
    """The generated parts of the page of files that hold a `root`: its records, the kinds of files, the schema number."""
    sections = [
        f"## {record.__name__}\n\n{description(record)}\n\n{chr(10).join(rows(record, root))}"
        for record in records(root)
    ]
    kinds = [f"| `{kind}` | {WRITTEN_BY[kind]} | [schema/{kind}.json](schema/{kind}.json) |" for kind in SAVED_KINDS]
    return {
        "schema": str(SCHEMA),
        "kinds": "\n".join(("| kind | written by | schema |", "|---|---|---|", *kinds)),
        "records": "\n\n".join(sections),
    }


def json_schema(record: type[Saved]) -> str:
    """The JSON Schema of the files that hold a `record`."""
    schema = msgspec.json.schema(record)
    if (run := schema["$defs"].get(ConfigRun.__name__)) is not None:
        of_means, nested = msgspec.json.schema_components(mean_types().values(), ref_template="#/$defs/{name}")
        run["properties"] |= dict(zip(mean_types(), of_means, strict=True))
        schema["$defs"] |= nested
    for definition in schema["$defs"].values():  # Python removes the indentation of docstrings from 3.13 on
        if "description" in definition:
            definition["description"] = inspect.cleandoc(definition["description"])
    if Note.__name__ in schema["$defs"]:  # a line in files before 2026-11-27
        schema["$defs"][Note.__name__]["type"] = ["object", "string"]
    fields = schema["$defs"][record.__name__]
    fields["properties"] = {"kind": {"const": record.kind}, "schema": {"const": SCHEMA}} | fields["properties"]
    fields["required"] = ["schema", *fields["required"]]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"profiler_kit {record.kind}"}
    return json.dumps(head | schema, indent=1, ensure_ascii=False) + "\n"


def mean_types() -> dict[str, Any]:
    """The types of the properties of a run that its file holds as well."""
    return {name: typing.get_type_hints(getattr(ConfigRun, name).fget)["return"] for name in MEAN_NAMES}


def field_types(record: type) -> dict[str, Any]:
    """The types of what a file holds of `record`."""
    return typing.get_type_hints(record) | (mean_types() if record is ConfigRun else {})


def records(annotation: Any, visited: set[type] | None = None) -> Iterator[type]:
    """`annotation` and every record nested in it, each once, in order of first use."""
    visited = set() if visited is None else visited
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        if annotation in visited:
            return
        visited.add(annotation)
        yield annotation
        nested: tuple[Any, ...] = tuple(field_types(annotation).values())
    else:
        nested = typing.get_args(annotation)
    for argument in nested:
        yield from records(argument, visited)


def description(record: type) -> str:
    """The docstring, as Markdown."""
    return inspect.cleandoc(record.__doc__ or "").replace("``", "`")


def rows(record: type, root: type[Saved] | None = None) -> Iterator[str]:
    """The table of the record's fields; for a file's `root`, `kind` and `schema` come first."""
    hints = field_types(record)
    yield from ("| field | type |", "|---|---|")
    if record is root:
        yield from (f'| `kind` | `"{root.kind}"` |', "| **`schema`** | integer |")
    for field in dataclasses.fields(record):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        name = f"**{code(field.name)}**" if required else code(field.name)
        yield f"| {name} | {type_text(hints[field.name])}{unit_text(field.name, hints[field.name])} |"
    for name in MEAN_NAMES if record is ConfigRun else ():
        yield f"| {code(name)} | {type_text(hints[name])}{unit_text(name, hints[name])} |"


def unit_text(name: str, annotation: Any) -> str:
    """`, ` and the unit of a number, from the ending of its `name`; empty without a unit."""
    if not {int, float} & _leaf_types(annotation):
        return ""
    return next((f", {unit}" for end, unit in UNITS.items() if f"_{name}".endswith(f"_{end}")), "")


def _leaf_types(annotation: Any) -> set[Any]:
    arguments = typing.get_args(annotation)
    return set().union(*map(_leaf_types, arguments)) if arguments else {annotation}


def type_text(annotation: Any) -> str:
    """The JSON type of a field with this annotation, in words."""
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is Literal:
        return " or ".join(code(f'"{value}"') for value in arguments)
    if origin is tuple:
        return f"list of {type_text(arguments[0])}"
    if origin in (Union, types.UnionType):
        members = [type_text(member) for member in arguments if member is not type(None)]
        return " or ".join([*members, "null"] if type(None) in arguments else members)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return JSON_TYPES[annotation]

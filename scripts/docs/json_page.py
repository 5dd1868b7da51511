"""The pages of the JSON files and their JSON Schema, read from the records: docstrings, and fields with type and unit."""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Iterator
from typing import Any, Final, Literal, Union

import msgspec

from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.saved import SCHEMA, Saved
from profiler_kit.records.serde import SHOWN
from profiler_kit.render.markdown import code

WRITTEN_BY: Final = {
    "report": "`analyze`, `count`",
    "trace_report": "`inspect`",
    "comparison": "`compare` of targets and reports",
    "trace_comparison": "`compare` of traces",
    "check": "`check`",
    "machine": "`env`",
}
KINDS: Final = "\n".join(
    f"| `{kind}` | {WRITTEN_BY[kind]} | [schema/{kind}.json](schema/{kind}.json) |" for kind in SHOWN
)

INTRODUCTION: Final = f"""\
`analyze` writes `report.json` into its folder; `-f json`, `-o FILE.json` and `show REPORT -f json` give the same. It is one
`Report`, and its names are those below: each section is a record, with what its fields mean and then all of them.

- `kind` is `"report"`, in files since 2026-11-22. `schema` is {SCHEMA}. It goes up where a name goes away or changes its
  meaning; names are added without that, so ignore those you do not know. A reader refuses a newer schema.
- `null` (None in the texts below) is *unknown*, never zero. A list that does not apply is empty. Every field is written;
  those in **bold** are always there, the others may be missing in older reports.
- Numbers are in base units, which most names end with: `_ns`, `_bytes`, `_percent` (of 100). Times of phases, layers and
  kernels are per step.
- Layers, ops and runs name each other by `path` and by `config`. A path is the module's name in `named_modules()`, `""` for
  the root, or one of `(loss)`, `(optimizer)`, `(transfer)`, `(data)`, which are no modules.

```
jq '.runs[] | select(.step_ns) | {{config: .config.name, ms: (.step_ns.median / 1e6)}}' report.json
jq '.findings[] | select(.trial.tried) | {{rule, config: .trial.config, verdict: .trial.verdict}}' report.json
jq '.runs[] | select(.failure) | {{config: .config.name, why: .failure.message}}' report.json
```

In Python `profiler_kit.read_report(path)` gives the records, and `profiler_kit.dataframe(report, "runs")` tables
([columns](columns.md)); neither needs torch. The JSON of `compare` and `check` is in [CI](ci.md#the-json).

## JSON Schema

Every JSON file that a verb writes says its kind, and `show` renders it again. Each kind has a JSON Schema (draft 2020-12):

| kind | written by | schema |
|---|---|---|
{KINDS}

Any validator checks a file against it, for example Python's `jsonschema`:

```python
import json, jsonschema

schema = json.load(open("docs/schema/report.json"))
jsonschema.validate(json.load(open("profiler_kit_out/my_model/report.json")), schema)  # raises where it does not fit
```

A schema allows names that it does not know, as newer versions add some, and files without `kind`, as older versions wrote
them."""

TRACES_INTRODUCTION: Final = f"""\
`inspect TRACE... -f json` and `-o FILE.json` give one `TraceReport` ([what `inspect` says](inspect.md)); `show FILE.json` renders
it again, in any format, without the traces. Its names are those below: each section is a record.

- `kind` is `"trace_report"`, in files since 2026-11-22. `schema` is {SCHEMA}, and goes up where a name goes away or changes
  its meaning. Ignore names that you do not know. The JSON Schema is [schema/trace_report.json](schema/trace_report.json); the
  page of [report.json](report_json.md#json-schema) has an example of its use.
- `null` (None in the texts below) is *unknown*, never zero. Every field is written; those in **bold** are always there.
- Times are whole ns of whole traces, not per step. In each trace `busy_ns + idle_ns == span_ns`; the phases' `kernel_ns` and
  `unattributed_ns` sum to `busy_ns`, the `idle` entries' `ns` to `idle_ns`, exactly.

```
jq '.traces[] | {{file, busy: (.busy_ns / .span_ns), step_ms: (.step_ns / 1e6)?}}' inspected.json
jq '.traces[0].phases[] | {{phase, host_ms: (.host_ns / 1e6)?, device_ms: (.kernel_ns / 1e6)}}' inspected.json
jq '[.traces[0].idle[] | select(.cause == "waiting for data").ns] | add' inspected.json
```

In Python `profiler_kit.inspect(paths).report` is this record, `profiler_kit.dataframe(report, "trace_kernels")` gives tables
([columns](columns.md)), and `profiler_kit.inspect(path).events()` the events themselves."""

# what a name ends with, the longer ending first
UNITS: Final = {
    "flops_per_s": "FLOP/s", "bytes_per_s": "byte/s", "flops_per_byte": "FLOP/byte", "bytes": "bytes", "percent": "percent",
    "celsius": "°C", "flops": "FLOPs", "macs": "MACs", "hz": "Hz", "ns": "ns",
}  # fmt: skip
WORDS: Final = {int: "integer", float: "number", str: "text", bool: "true or false"}


def json_page(generated: str) -> str:
    """The text of the page of reports on targets; `generated` is the line that says so."""
    return _page("report.json", generated, INTRODUCTION, Report)


def traces_page(generated: str) -> str:
    """The text of the page of reports on traces."""
    return _page("The JSON of inspect", generated, TRACES_INTRODUCTION, TraceReport)


def json_schema(record: type[Saved]) -> str:
    """The JSON Schema of the files that hold a `record`."""
    schema = msgspec.json.schema(record)
    fields = schema["$defs"][record.__name__]
    fields["properties"] = {"kind": {"const": record.kind}, "schema": {"const": SCHEMA}} | fields["properties"]
    fields["required"] = ["schema", *fields["required"]]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"profiler_kit {record.kind}"}
    return json.dumps(head | schema, indent=1, ensure_ascii=False) + "\n"


def _page(title: str, generated: str, introduction: str, root: type[Saved]) -> str:
    parts = [f"# {title}", generated, introduction]
    for record in records(root):
        parts += [f"## {record.__name__}", meaning(record), "\n".join(rows(record, root))]
    return "\n\n".join(parts) + "\n"


def records(kind: Any, seen: dict[type, None] | None = None) -> Iterator[type]:
    """`kind` and every record in it, each once, where it is met first."""
    seen = {} if seen is None else seen
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if kind in seen:
            return
        seen[kind] = None
        yield kind
        inner: tuple[Any, ...] = tuple(typing.get_type_hints(kind).values())
    else:
        inner = typing.get_args(kind)
    for one in inner:
        yield from records(one, seen)


def meaning(record: type) -> str:
    """The docstring, as Markdown."""
    return inspect.cleandoc(record.__doc__ or "").replace("``", "`")


def rows(record: type, root: type[Saved] | None = None) -> Iterator[str]:
    """The table of the record's fields, with those that a file begins with where it is the file's `root`."""
    hints = typing.get_type_hints(record)
    yield from ("| field | is |", "|---|---|")
    if record is root:
        yield from (f'| `kind` | `"{root.kind}"` |', "| **`schema`** | integer |")
    for field in dataclasses.fields(record):
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        name = f"**{code(field.name)}**" if needed else code(field.name)
        yield f"| {name} | {words(hints[field.name])}{unit(field.name, hints[field.name])} |"


def unit(name: str, kind: Any) -> str:
    """`, ` and the unit that a name ends with; empty for what is no number, or has none."""
    if not {int, float} & _leaves(kind):
        return ""
    return next((f", {unit}" for end, unit in UNITS.items() if f"_{name}".endswith(f"_{end}")), "")


def _leaves(kind: Any) -> set[Any]:
    inner = typing.get_args(kind)
    return set().union(*(_leaves(one) for one in inner)) if inner else {kind}


def words(kind: Any) -> str:
    """A field's type as JSON has it."""
    inner = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is Literal:
        return " or ".join(code(f'"{one}"') for one in inner)
    if origin is tuple:
        return f"list of {words(inner[0])}"
    if origin in (Union, types.UnionType):
        real = [words(one) for one in inner if one is not type(None)]
        return " or ".join([*real, "null"] if type(None) in inner else real)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    return WORDS[kind]

"""The JSON of a record, cut to a size: what stays, in which order, and that names and figures are those of the file."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any

import pytest
from sample_reports import transformer, v0_cuda

from profiler_kit.mcp_server.answers import MAX_CHARS, ORDER, ROWS, SHOWN, cut
from profiler_kit.records.runs import MEAN_NAMES, ConfigRun
from profiler_kit.records.serde import SAVED_KINDS, dumps, read_saved

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
SAVED = [*sorted((FIXTURES / "reports").glob("*.json")), *sorted((FIXTURES / "frozen").glob("*.json"))]


def file_of(record: Any) -> dict[str, Any]:
    return json.loads(dumps(record))


def record_of(kind: Any) -> type | None:
    """The record in a field of this type, also in a list or beside None."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) in (typing.Union, tuple):
        return next(filter(None, map(record_of, typing.get_args(kind))), None)
    return kind if dataclasses.is_dataclass(kind) else None


def fields_of(record: type) -> dict[str, Any]:
    hints = typing.get_type_hints(record)
    if record is ConfigRun:  # names of the file alone
        hints |= {name: typing.get_type_hints(getattr(ConfigRun, name).fget)["return"] for name in MEAN_NAMES}
    return hints


@pytest.mark.parametrize("kind", SHOWN)
def test_each_shown_name_is_a_field_of_the_file(kind: str) -> None:
    unknown = []
    for name in SHOWN[kind]:
        record: type | None = SAVED_KINDS[kind]
        for part in name.split("."):
            fields = fields_of(record) if record is not None else {}
            if part not in fields:
                unknown.append(name)
                break
            record = record_of(fields[part])
    assert unknown == []


@pytest.mark.parametrize("file", SAVED, ids=lambda file: f"{file.parent.name}_{file.stem}")
def test_an_answer_is_small_and_its_figures_are_those_of_the_file(file: Path) -> None:
    data = file_of(read_saved(file))
    shown, lengths = cut(data)
    assert len(json.dumps(shown, ensure_ascii=False)) <= MAX_CHARS
    assert {name for name in ("findings", "static", "traces", "metrics", "budgets") if data.get(name)} <= shown.keys()
    if data.get("static"):
        assert shown["static"]["forward"] == data["static"]["forward"]
        assert shown["static"]["params"] == data["static"]["params"]
    for name in ("findings", "metrics", "budgets"):
        assert lengths.get(name, len(shown.get(name, ()))) == len(data.get(name, ()))


def test_the_layers_with_the_most_work_come_first() -> None:
    data = file_of(transformer())
    shown, lengths = cut(data)
    layers = data["static"]["modules"]
    work = sorted((ORDER["static.modules"](layer) for layer in layers), reverse=True)
    assert [ORDER["static.modules"](layer) for layer in shown["static"]["modules"]] == work[:ROWS]
    assert lengths["static.modules"] == len(layers) > ROWS


def test_lists_with_the_most_text_lose_rows_first() -> None:
    report = v0_cuda()
    finding = dataclasses.replace(report.findings[0], explanation="long " * 300)
    data = file_of(dataclasses.replace(report, findings=(finding,) * 30))
    shown, lengths = cut(data)
    assert lengths["findings"] == 30
    assert 0 < len(shown["findings"]) < ROWS
    assert len(shown["runs"]) == min(ROWS, len(report.runs))
    assert shown["target"]["inputs"][0]["shape"] == [8, 3, 256, 256]


def test_names_of_any_length_fit() -> None:
    report = v0_cuda()
    assert report.static is not None
    modules = tuple(
        dataclasses.replace(node, path=f"{number}{'x' * 20_000}") for number, node in enumerate(report.static.modules)
    )
    finding = dataclasses.replace(report.findings[0], title="t" * 20_000, paths=("p" * 20_000,) * 50)
    static = dataclasses.replace(report.static, modules=modules)
    shown, _ = cut(file_of(dataclasses.replace(report, static=static, findings=(finding,) * 50)))
    assert len(json.dumps(shown, ensure_ascii=False)) <= MAX_CHARS
    assert shown["findings"][0]["rule"] == finding.rule


def test_zero_is_shown_and_unknown_is_not() -> None:
    shown, _ = cut({"kind": "other", "zero": 0, "no": False, "unknown": None, "empty": [], "shape": list(range(12))})
    assert shown == {"kind": "other", "zero": 0, "no": False, "shape": list(range(12))}


def test_texts_are_valid_in_json_of_any_reader() -> None:
    shown, _ = cut({"kind": "other", "half": "a\ud800b", "whole": "\N{GRINNING FACE}" * 3_000})
    assert shown["half"] == "a?b"
    assert json.dumps(shown, ensure_ascii=False).encode()

"""Tests of the published JSON Schemas: they accept saved files and refuse invalid ones. Skipped without `jsonschema`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from profiler_kit.records.serde import SAVED_KINDS, dumps, read_saved
from scripts.docs import json_page

pytestmark = pytest.mark.jobs

jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
RECORDED = sorted([*(ROOT / "docs" / "measured").glob("convnet_*.json"), *(FIXTURES / "reports").glob("*.json")])
FROZEN = sorted((FIXTURES / "frozen").glob("*.json"))


def schema(kind: str) -> dict[str, Any]:
    """Load the JSON Schema from docs/schema."""
    data: dict[str, Any] = json.loads((ROOT / "docs" / "schema" / f"{kind}.json").read_text())
    return data


@functools.cache
def validator(kind: str) -> Any:
    """A validator of the schema of `kind`. `jsonschema.validate` would check the schema itself with each file."""
    return jsonschema.Draft202012Validator(schema(kind))


def check(data: dict[str, Any], kind: str) -> None:
    """Raise the most relevant error of `data`, as `jsonschema.validate` does."""
    error = jsonschema.exceptions.best_match(validator(kind).iter_errors(data))
    if error is not None:
        raise error


@pytest.mark.parametrize("kind", SAVED_KINDS)
def test_a_schema_is_valid_and_matches_the_code(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(kind))
    assert json.loads(json_page.json_schema(SAVED_KINDS[kind])) == schema(kind)


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_a_recorded_report_fits(file: Path) -> None:
    data = json.loads(file.read_text())
    check(data, data["kind"])


@pytest.mark.parametrize("file", FROZEN, ids=lambda file: file.stem)
def test_a_frozen_file_fits_as_it_was_and_as_it_is_written_now(file: Path) -> None:
    record = read_saved(file)
    old = json.loads(file.read_text())
    if old.get("kind") != "trace comparison":  # the former kind of a trace comparison
        check(old, record.kind)
    check(json.loads(dumps(record)), record.kind)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "check"}, "'report' was expected"),
        ({"schema": 2}, "1 was expected"),
        ({"created": 5}, "5 is not of type 'string'"),
        ({"runs": {}}, "is not of type 'array'"),
    ],
)
def test_invalid_files_are_refused(change: dict[str, Any], message: str) -> None:
    data = json.loads((FIXTURES / "frozen" / "report_count.json").read_text())
    with pytest.raises(jsonschema.ValidationError, match=message):
        check(data | change, "report")
    del data["target"]
    with pytest.raises(jsonschema.ValidationError, match="'target' is a required property"):
        check(data, "report")

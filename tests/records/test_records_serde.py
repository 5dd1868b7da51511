"""Records to JSON and back: the first keys, valid files, and errors with their place."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import SAMPLES

from profiler_kit.errors import ReportError
from profiler_kit.records.comparison import Comparison
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.header import kind_of
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.saved import Saved
from profiler_kit.records.serde import (
    SAVED_KINDS,
    dumps,
    from_json,
    loads,
    loads_report,
    loads_saved,
    read_report,
    to_json,
)
from profiler_kit.records.traces import IdleTime

FROZEN = Path(__file__).parent.parent / "fixtures" / "frozen"
REPORT = json.loads((FROZEN / "report_cpu.json").read_text())


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A number that does not exceed its limit."""

    count: int
    limit: float = 10.0

    def __post_init__(self) -> None:
        if self.count > self.limit:
            raise ValueError("more than the limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree(Saved, kind="tree"):
    """A file of leaves."""

    leaves: tuple[Leaf, ...]
    name: str | None = None
    shown: bool = True


def tree(*leaves: object, **fields: object) -> str:
    return json.dumps({"kind": "tree", "schema": 1, "leaves": leaves, **fields})


def every_kind() -> list[str]:
    """The kinds of all records that are files, measurement's included."""
    records, todo = {}, [*Saved.__subclasses__()]
    while todo:
        record = todo.pop()
        todo += record.__subclasses__()
        if hasattr(record, "kind"):  # TargetJob is a base class without a kind
            records[record.__qualname__] = record.kind  # a dataclass with slots occurs twice
    return [kind for name, kind in records.items() if name != "Tree"]


def test_a_file_begins_with_its_kind_and_schema() -> None:
    assert list(json.loads(dumps(Tree(leaves=()))))[:2] == ["kind", "schema"]
    assert (
        dumps(Tree(leaves=()), indent=None)
        == '{"kind": "tree", "schema": 1, "leaves": [], "name": null, "shown": true}\n'
    )
    assert "kind" not in to_json(ConfigRun(config=RunConfig(name="default")))  # as part of a report


def test_kinds_are_unique() -> None:
    kinds = every_kind()
    assert len(kinds) == len(set(kinds))
    assert set(SAVED_KINDS) < set(kinds)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_report_survives_a_round_trip(name: str) -> None:
    report = SAMPLES[name]()
    assert loads_report(dumps(report), name) == report
    assert from_json(Report, to_json(report)) == report


def test_unknown_keys_are_ignored_and_defaults_are_filled_in() -> None:
    assert loads(Tree, tree({"count": 3, "color": "green"}, age=7), "x") == Tree(leaves=(Leaf(count=3),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (tree({"count": "3"}), "x.json: leaves[0].count: expected int, found '3'"),
        (tree({"count": 1}, {"count": 2.0}), "x.json: leaves[1].count: expected int, found 2.0"),
        (tree({"count": True}), "x.json: leaves[0].count: expected int, found True"),
        (tree({"count": 1, "limit": "high"}), "x.json: leaves[0].limit: expected float, found 'high'"),
        (tree({"count": 1, "limit": False}), "x.json: leaves[0].limit: expected float, found False"),
        (tree({"limit": 1}), "x.json: leaves[0]: 'count' is missing"),
        (tree({"count": 11}), "x.json: leaves[0]: more than the limit"),
        (tree(3), "x.json: leaves[0]: expected an object, found 3"),
        (tree(shown=1), "x.json: shown: expected bool, found 1"),
        (tree(name=["a" * 100]), f"x.json: name: expected str, found ['{'a' * 35}..."),
        (tree({"count": 10**30 + 1, "limit": 1e99}), "x.json: leaves[0].count: a number beyond 1e30"),
        (tree({"count": -(10**31)}), "x.json: leaves[0].count: a number beyond 1e30"),
        (tree({"count": 0, "limit": 10**40}), "x.json: leaves[0].limit: a number beyond 1e30"),
        (tree({"count": 0, "limit": 1}).replace("1}]", "1e999}]"), "x.json: leaves[0].limit: a number beyond 1e30"),
        (tree({"count": 0}).replace("0}]", "9" * 5000 + "}]"), "x.json: leaves[0].count: a number beyond 1e30"),
        (tree({"count": 0}).replace("0}]", "NaN}]"), "x.json: not JSON"),
        (tree()[:-3], "x.json: not JSON"),
        ("[" * 100_000, "x.json: a trace, not a report"),
        ('{"leaves": ' + "[" * 100_000, "x.json: not JSON"),
        ('{"kind": "tree", "schema": 2}', "x.json: written by a newer version (schema 2, this one reads up to 1)"),
        ('{"kind": "tree", "schema": true}', "x.json: 'schema' is True, not a version number"),
        ('{"kind": "tree", "schema": 0}', "x.json: 'schema' is 0, not a version number"),
    ],
)  # fmt: skip
def test_invalid_content_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ReportError) as raised:
        loads(Tree, text, "x.json")
    assert str(raised.value).startswith(message)
    assert raised.value.hint


def test_bytes_that_are_not_text_are_refused() -> None:
    for text in (b'{"kind": "tree", "schema": 1, "leaves": [], "name": "\xff"}', b"\xff", b"", b"\0"):
        with pytest.raises(ReportError, match="not JSON"):
            loads(Tree, text, "x.json")


def test_digits_in_a_string_are_not_a_large_number() -> None:
    assert loads(Tree, tree(name="1" * 50), "x").name == "1" * 50
    assert loads(Tree, tree({"count": 0, "limit": 10**30}), "x").leaves[0].limit == 1e30


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_report_in_another_encoding_is_read(encoding: str) -> None:
    report = SAMPLES["v0_cpu"]()
    assert loads_saved(dumps(report).encode(encoding), "x") == report


def test_another_kind_is_named_and_the_hint_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from profiler_kit.cli import main

    monkeypatch.chdir(FROZEN)
    for name, words in {
        "comparison": "a comparison",
        "check": "a check",
        "trace_report": "a trace report",
        "trace_comparison": "a trace comparison",
        "machine": "a machine",
    }.items():
        with pytest.raises(ReportError, match=f"^{name}.json: {words}, not a report") as raised:
            read_report(f"{name}.json")
        command = str(raised.value.hint).removeprefix("to render it, run profiler-kit ")
        assert main(command.split()) == 0
    job = '{"kind": "run_job", "schema": 1}'
    with pytest.raises(ReportError, match=r"x: a run job, not a report\nhint: give the report.json"):
        loads_saved(job, "x")
    with pytest.raises(ReportError, match="x: a run job, not a comparison"):
        loads(Comparison, job, "x")
    with pytest.raises(ReportError, match="x: a report, not a run job"):
        loads(RunJob, dumps(SAMPLES["v0_cpu"]()), "x")


def test_the_kind_of_an_old_file_follows_from_its_keys() -> None:
    assert kind_of('{"schema": 1, "target": {}, "traces": []}', "x") == "report"
    assert kind_of('{"schema": 1, "tool": {}, "traces": []}', "x") == "trace_report"
    assert kind_of('{"schema": 1, "tool": {}, "cores": 2}', "x") == "machine"
    assert kind_of('{"schema": 1, "kind": "trace comparison"}', "x") == "trace_comparison"
    assert kind_of('{"schema": 1, "kind": "poem"}', "x") == "poem"
    assert kind_of('{"schema": 1, "kind": 5}', "x") is None
    assert kind_of('{"target": {}}', "x") is None
    with pytest.raises(ReportError, match="x: not a profiler_kit report"):
        loads_saved('{"target": {}}', "x")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-(10**40), 10**40) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ns", "name", "kind"]), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip


@given(st.data())
def test_a_changed_report_is_read_or_refused(data: st.DataObject) -> None:
    """One value of a report is replaced, removed or duplicated: the file is read, or a ReportError names the place."""
    report = json.loads(json.dumps(REPORT))
    inner: Any = report
    while True:
        at = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
        if not isinstance(inner[at], dict | list) or not inner[at] or data.draw(st.integers(0, 3)) == 0:
            break
        inner = inner[at]
    change = data.draw(st.sampled_from(["replace", "remove", "add"]))
    if change == "replace":
        inner[at] = data.draw(JSON)
    elif change == "remove":
        del inner[at]
    elif isinstance(inner, list):
        inner.insert(at, data.draw(JSON))
    else:
        inner["unknown_key"] = data.draw(JSON)
    _read_or_refused(json.dumps(report).encode())


@given(st.data())
def test_a_damaged_report_is_read_or_refused(data: st.DataObject) -> None:
    text = bytearray((FROZEN / "report_failed.json").read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(text) - 1), min_size=1, max_size=4)):
        text[at] = data.draw(st.integers(0, 255) | st.sampled_from(list(b'[]{}:,"0129.eE-ntf\\u')))
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    _read_or_refused(bytes(text if data.draw(st.booleans()) else text[:start] + text[end:]))


def _read_or_refused(text: bytes) -> None:
    try:
        record = loads_saved(text, "x.json")
    except ReportError as error:
        refusal = error
    else:
        assert loads_saved(dumps(record), "again") == record
        return
    assert str(refusal).startswith("x.json: ")
    assert refusal.hint


def test_the_old_spelling_of_an_idle_cause_is_read() -> None:
    old = f'{{"cause": "{"synchronization".replace("z", "s")}", "ns": 3, "gaps": 1}}'
    assert loads(IdleTime, old, "old").cause == "synchronization"


def test_a_check_of_a_record_applies_on_reading() -> None:
    data = json.loads(dumps(SAMPLES["v0_cuda"]()))
    data["static"]["modules"][0]["forward"] |= {"macs": 5, "flops": 9}
    message = r"x.json: static.modules\[0\].forward: 9 FLOPs are fewer than twice 5 MACs"
    with pytest.raises(ReportError, match=message):
        loads_saved(json.dumps(data), "x.json")


@pytest.mark.parametrize("argv", [["--help"], ["show", "--help"], ["--version"]])
def test_help_and_version_do_not_import_msgspec(argv: list[str]) -> None:
    code = f"import sys; from profiler_kit.cli import main; main({argv!r}); sys.exit('msgspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""The table of events with its owners, and docs/events.md against it."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profiler_kit.pipeline.annotation import events_frame, export_events
from profiler_kit.traces.reader import read

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
FIXTURES = ROOT / "tests" / "fixtures" / "traces"
TRACE = FIXTURES / "train.cuda.json.gz"
QUESTIONS = re.findall(r"```python\n([^`]*)```\n```sql\n([^`]*)```", PAGE)

pandas = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def shaped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded trace, with a shape for each operator."""
    document = json.loads(gzip.decompress(TRACE.read_bytes()))
    for event in document["traceEvents"]:
        if event.get("cat") == "cpu_op":
            event["args"]["Input Dims"] = [[len(event["name"]), 2]]
    path = tmp_path_factory.mktemp("shaped") / "trace.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def frame(shaped: Path) -> Any:
    return events_frame(shaped)


@pytest.fixture(scope="module")
def database(shaped: Path) -> Path:
    path = shaped.with_suffix(".sqlite")
    export_events(shaped, path, "sqlite")
    return path


def test_the_page_asks_five_questions() -> None:
    assert len(QUESTIONS) == 5


@pytest.mark.parametrize(("python", "sql"), QUESTIONS, ids=range(len(QUESTIONS)))
def test_both_ways_to_ask_give_the_same_answer(frame: Any, database: Path, python: str, sql: str) -> None:
    names: dict[str, Any] = {"events": frame}
    exec(python, names)
    answer = names["answer"].reset_index()
    expected = sorted(tuple(map(plain, row)) for row in answer.itertuples(index=False))
    with closing(sqlite3.connect(database)) as connection:
        found = sorted(tuple(map(plain, row)) for row in connection.execute(sql))
    assert found == expected
    assert len(found) >= 1


def plain(value: Any) -> Any:
    return round(float(value), 3) if not isinstance(value, str) else value


def test_the_page_names_every_column_and_no_other(frame: Any) -> None:
    table = PAGE.partition("| column |")[2].partition("\n\n")[0]
    named = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    more = set(frame.columns) - set(named)
    assert set(named) - {"row"} <= set(frame.columns)
    assert len(named) == len(set(named))
    said = {re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_") for key in read(TRACE).more}
    assert more == said


def test_the_python_of_the_page_gives_the_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(TRACE, tmp_path / "trace.json.gz")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], names)
    pandas.testing.assert_frame_equal(names["events"], events_frame(TRACE))


@pytest.mark.parametrize("trace", sorted(FIXTURES.glob("*.json.gz")), ids=lambda path: path.name)
def test_owners_point_to_what_they_say(trace: Path) -> None:
    frame = events_frame(trace)
    device = frame[frame.kind.isin(["kernel", "memcpy", "memset"])]
    host = frame[frame.kind.isin(["operator", "annotation", "python", "runtime"])]
    launched = device[device.launch_row.notna()]
    launches = frame.loc[launched.launch_row]
    assert (launches.kind == "runtime").all()
    assert (launches.correlation.to_numpy() == launched.correlation.to_numpy()).all()
    assert (launches.start_ns.to_numpy() <= launched.start_ns.to_numpy()).all()
    children = host[host.parent_row.notna()]
    parents = frame.loc[children.parent_row]
    assert (parents.thread.astype(str).to_numpy() == children.thread.astype(str).to_numpy()).all()
    assert (parents.start_ns.to_numpy() <= children.start_ns.to_numpy()).all()
    called = frame[frame.operator_row.notna()]
    assert (
        frame.loc[called.operator_row, "name"].astype(str).to_numpy() == called.operator.astype(str).to_numpy()
    ).all()
    assert host.launch_row.isna().all()
    assert device.parent_row.isna().all()
    assert frame[~frame.index.isin(device.index) & ~frame.index.isin(host.index)].phase.isna().all()
    if len(device):
        assert device.phase.notna().mean() > 0.9
        assert device.family.notna().all()


@pytest.mark.parametrize("chosen", ["csv", "sqlite", "parquet"])
def test_every_format_holds_every_event(tmp_path: Path, chosen: Any) -> None:
    if chosen == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"events.{chosen}"
    count = export_events(TRACE, path, chosen)
    assert count == len(read(TRACE))
    if chosen == "csv":
        back = pandas.read_csv(path, low_memory=False)
    elif chosen == "parquet":
        back = pandas.read_parquet(path)
    else:
        with closing(sqlite3.connect(path)) as connection:
            back = pandas.read_sql("SELECT * FROM events", connection)
    frame = events_frame(TRACE)
    assert back.columns.tolist() == ["row", *frame.columns]
    assert (back.start_ns == frame.start_ns.reset_index(drop=True)).all()
    assert back.module.notna().sum() == frame.module.notna().sum() > 0
    for name in ("correlation", "launch_row", "step", "sequence"):
        assert back[name].sum() == frame[name].sum()

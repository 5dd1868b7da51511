"""Data frames: raw values, exact integers, NA for what is not known."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from profiler_kit.comparison.compare import compare
from profiler_kit.errors import KitError, UsageError
from profiler_kit.records.report import Report
from profiler_kit.records.serde import SavedRecord, read_report, read_saved
from profiler_kit.report import dataframe
from profiler_kit.report.columns import all_tables
from profiler_kit.report.frames import SHARED_NAMES

ROOT = Path(__file__).resolve().parents[2]
FROZEN = ROOT / "tests" / "fixtures" / "frozen"
MEASURED = ROOT / "docs" / "measured"


def test_layers_can_be_asked_questions(v0_report: Report) -> None:
    frame = dataframe(v0_report)
    assert v0_report.static is not None
    assert frame["saved_bytes"].sum() == v0_report.static.saved_bytes
    assert frame.set_index("path").loc["conv2", "params"] == 384_050
    assert frame["kernel_ns"].sum() == v0_report.runs[0].device_ns


def test_integers_stay_exact_beside_unknown_values(v0_report: Report) -> None:
    frame = dataframe(v0_report)
    assert frame["macs_forward"].dtype == "Int64"
    assert frame["macs_forward"].isna().any()
    assert frame["macs_forward"].sum() == 25_327_125_920 * 8


@pytest.mark.parametrize(
    ("table", "rows"), [("runs", 10), ("phases", 36), ("kernels", 59), ("findings", 4)]
)  # fmt: skip
def test_other_tables_hold_all_runs(v0_report: Report, table: str, rows: int) -> None:
    frame = dataframe(v0_report, table)
    assert len(frame) == rows


def test_layers_of_another_run(v0_report: Report) -> None:
    slow, fast = (dataframe(v0_report, run=name)["kernel_ns"].sum() for name in ("no-tf32", "benchmark"))
    assert slow > 3 * fast


def test_all_samples_make_all_tables(any_report: Report) -> None:
    for table in ("layers", "runs", "phases", "kernels", "findings", "ops"):
        assert isinstance(dataframe(any_report, table), pd.DataFrame)


def test_an_unknown_table_is_refused(v0_report: Report) -> None:
    with pytest.raises(UsageError, match="'cats'"):
        dataframe(v0_report, "cats")


def test_without_pandas_the_message_says_how_to_get_it(v0_report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(KitError, match="pandas") as error:
        dataframe(v0_report)
    assert "pip install" in (error.value.hint or "")


def shared_names() -> dict[str, dict[str, str]]:
    """The table of docs/python.md: the file of each kind of record, its names, and the table that columns.md describes."""
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    lines = page.partition("| name | report | trace |")[2].partition("\n\n")[0].splitlines()[2:]
    kinds: dict[str, dict[str, str]] = {}
    for line in lines:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for kind, cell in zip(("report_cuda", "trace_report", "comparison", "trace_comparison"), cells, strict=True):
            if cell:
                described = re.search(r"\(`(\w+)`\)", cell)
                kinds.setdefault(kind, {})[name.strip("`")] = described[1] if described else name.strip("`")
    return kinds


SHARED = shared_names()


@pytest.mark.parametrize("name", SHARED)
def test_records_share_the_names_of_tables(name: str) -> None:
    record = read_saved(FROZEN / f"{name}.json")
    with pytest.raises(UsageError, match="has no table 'cats'") as error:
        record.to_dataframe("cats")
    listed = (error.value.hint or "").removeprefix("choose one of: ").split(", ")
    assert set(SHARED[name]) - set(listed) == set()
    columns = {table.name: [c.key for c in table.columns if c.place != "page"] for table in all_tables()}
    for table, described in SHARED[name].items():
        place = {"file": "config"} if isinstance(record, Report) else {}
        assert list(record.to_dataframe(table).columns) == [place.get(key, key) for key in columns[described]]
    assert len(set(listed)) == len(listed)
    for table in listed:
        assert list(record.to_dataframe(table).columns)


def test_the_page_has_all_shared_names() -> None:
    assert [name for names in SHARED_NAMES.values() for name in names if name not in page_names()] == []


def page_names() -> set[str]:
    return {name for names in SHARED.values() for name in names} | {"steps", "streams"}  # of traces alone


def test_a_shared_name_and_the_own_name_of_a_table_give_the_same(any_record: SavedRecord) -> None:
    for shared, own in SHARED_NAMES.get(type(any_record), {}).items():
        assert any_record.to_dataframe(shared).equals(any_record.to_dataframe(own))


@pytest.fixture(params=["trace_report", "comparison", "trace_comparison", "check"])
def any_record(request: pytest.FixtureRequest) -> SavedRecord:
    return read_saved(FROZEN / f"{request.param}.json")


def test_the_main_tables() -> None:
    main = {"report_cuda": "layers", "trace_report": "phases", "comparison": "layers", "trace_comparison": "changes"}
    for name, table in {**main, "check": "budgets"}.items():
        record = read_saved(FROZEN / f"{name}.json")
        assert record.to_dataframe().equals(record.to_dataframe(table))


def test_memory_of_a_report_adds_up_to_its_peaks() -> None:
    frame = read_report(MEASURED / "convnet_v0_h100.json").to_dataframe("memory")
    parts = ["parameters", "gradients", "optimizer_state", "inputs", "saved_activations", "temporaries", "workspace"]
    assert (frame[parts].fillna(0).sum(axis=1) + frame["rounding"].fillna(0) == frame["peak_bytes"]).all()
    assert {"tensors", "default", "benchmark"} <= set(frame["source"])


def test_memory_of_a_comparison_has_both_sides_in_bytes() -> None:
    sides = [read_report(MEASURED / f"convnet_{name}_h100.json") for name in ("v0", "v1")]
    comparison = compare(*sides)
    frame = comparison.to_dataframe("memory")
    assert (frame["b_bytes"] - frame["a_bytes"]).equals(frame["change_bytes"])
    for split in comparison.memory:
        part = frame[frame["config"].isna() if split.config is None else frame["config"] == split.config]
        assert (part["a_bytes"].sum(), part["b_bytes"].sum()) == (split.a_peak_bytes, split.b_peak_bytes)
    runs = comparison.to_dataframe("runs")
    assert list(runs["config"]) == [ratio.config for ratio in comparison.times]


def test_only_reports_have_runs_to_choose() -> None:
    with pytest.raises(UsageError, match="no configurations"):
        read_saved(FROZEN / "comparison.json").to_dataframe("layers", run="default")

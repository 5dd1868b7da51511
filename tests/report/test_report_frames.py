"""Data frames: raw values, exact integers, NA for what is not known."""

from __future__ import annotations

import sys

import pandas as pd
import pytest

from profiler_kit.errors import KitError, UsageError
from profiler_kit.records.report import Report
from profiler_kit.report import dataframe


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

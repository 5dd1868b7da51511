"""The columns: each is one line, documented, and means what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import profiler_kit
from profiler_kit._family import members
from profiler_kit.records.report import Report
from profiler_kit.report import columns
from profiler_kit.report.columns import all_tables
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.layers import LAYER_COLUMNS
from profiler_kit.report.columns.runs import break_even
from profiler_kit.report.rows import LayerRow, layer_rows
from profiler_kit.report.tables import run_rows


def layer_value(report: Report, path: str, key: str) -> object:
    column: Column[LayerRow] = next(c for c in LAYER_COLUMNS if c.key == key)
    row = next(r for r in layer_rows(report, report.baseline()).rows if r.path == path)
    return column.value(row)


def test_every_table_of_columns_is_in_the_reference() -> None:
    listed = [id(table.columns) for table in all_tables()]
    for file in members(columns):
        for name, value in vars(file).items():
            assert not name.endswith("_COLUMNS") or id(value) in listed, f"{file.__name__}: {name} is in no TABLES"
    names = [table.name for table in all_tables()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("table", all_tables(), ids=lambda table: table.name)
def test_columns_have_unique_keys_and_say_what_they_are(table: ColumnTable) -> None:
    keys = [column.key for column in table.columns]
    assert len(set(keys)) == len(keys)
    assert table.doc.endswith(".")
    for column in table.columns:
        assert column.key.isidentifier()
        assert column.title
        assert column.doc
        assert not column.doc.endswith(".")


@pytest.mark.parametrize("table", all_tables(), ids=lambda table: table.name)
def test_a_table_for_people_keeps_at_least_its_first_column(table: ColumnTable) -> None:
    page_columns = [column for column in table.columns if column.place != "data"]
    assert page_columns[0].rank == 0


@pytest.mark.parametrize(("key", "unit"), [("flops_share_percent", "percent"), ("kernel_share_percent", "percent")])
def test_shares_add_up_to_the_whole(v0_report: Report, key: str, unit: str) -> None:
    column: Column[LayerRow] = next(c for c in LAYER_COLUMNS if c.key == key)
    layers = layer_rows(v0_report, v0_report.baseline())
    rows = [*layers.rows, *([layers.unattributed] if layers.unattributed else [])]
    values = [column.value(row) for row in rows]
    assert column.unit == unit
    assert sum(v for v in values if isinstance(v, float)) == pytest.approx(100)
    assert column.value(layers.total) == pytest.approx(100)


def test_achieved_is_two_flops_per_mac_over_the_device_time(v0_report: Report) -> None:
    assert v0_report.static is not None
    conv2 = next(node for node in v0_report.static.modules if node.path == "conv2")
    run = v0_report.baseline()
    assert run is not None
    ns = sum(timing.kernel_ns for timing in run.modules if timing.path == "conv2")
    macs = conv2.forward.macs + conv2.backward.macs
    assert layer_value(v0_report, "conv2", "achieved_flops_per_s") == pytest.approx(2 * macs / (ns / 1e9))


def test_without_contractions_nothing_is_achieved(v0_report: Report) -> None:
    assert layer_value(v0_report, "(loss)", "achieved_flops_per_s") is None


def test_known_zero_and_unknown_are_told_apart(v0_report: Report) -> None:
    assert layer_value(v0_report, "", "macs_forward") == 0
    assert layer_value(v0_report, "(optimizer)", "macs_forward") is None


def test_the_family_is_the_one_that_takes_most_time(v0_report: Report) -> None:
    assert layer_value(v0_report, "conv2", "family") == "conv:xmma_igemm"
    assert layer_value(v0_report, "conv1", "family") == "conv:cutlass_igemm"


def test_break_even_counts_against_the_same_configuration_without_tuning(v0_report: Report) -> None:
    steps_by_config = {row.run.config.name: break_even(row) for row in run_rows(v0_report)}
    assert steps_by_config["default"] is None
    assert steps_by_config["benchmark"] == 443  # 4947 ms / (26.20 - 15.03) ms
    assert steps_by_config["benchmark+no-tf32"] == 819  # against no-tf32, not against default
    assert steps_by_config["benchmark+deterministic+no-tf32"] is None  # no difference is established


def test_break_even_is_unknown_where_the_other_run_failed(v0_report: Report) -> None:
    failure = next(run.failure for run in v0_report.runs if run.failure)
    first, *others = v0_report.runs
    broken = replace(first, failure=failure, step_ns=None, steps_ns=())
    rows = run_rows(replace(v0_report, runs=(broken, *others)))
    assert break_even(next(row for row in rows if row.run.config.name == "benchmark")) is None


def run_in_copy(folder: Path, script: str, *arguments: str) -> None:
    """Runs `script` with the copy of the package that lies in `folder`."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def copied(folder: Path) -> Path:
    """The folder of columns in a copy of the package in `folder`."""
    package = Path(profiler_kit.__file__).parent
    shutil.copytree(package, folder / "profiler_kit", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "profiler_kit" / "report" / "columns"


def test_a_new_column_is_one_line(tmp_path: Path) -> None:
    """Adds one line to columns/layers.py in a copy of the package; the column is then in the page, the CSV and the reference."""
    file = copied(tmp_path) / "layers.py"
    before = file.read_text()
    at = before.index("\nLAYER_COLUMNS") + 1
    at = before.index("\n", at) + 1
    line = (
        '    Column("vowels", "vowels", "count", lambda r: sum(c in "aeiou" for c in r.path), "vowels of the path"),\n'
    )
    file.write_text(before[:at] + line + before[at:])
    script = (
        "import sys, pathlib\n"
        "from profiler_kit.records.serde import read_report\n"
        "from profiler_kit.render import RenderOptions, renderer_by_name\n"
        "from profiler_kit.report import report_document\n"
        "document = report_document(read_report(sys.argv[1]))\n"
        "for name in ('terminal', 'markdown', 'csv'):\n"
        "    assert 'vowels' in renderer_by_name(name).render(document, RenderOptions(width=160)), name\n"
    )
    sample = Path(__file__).parent.parent / "fixtures" / "reports" / "v0_cpu.json"
    run_in_copy(tmp_path, script, str(sample))


def test_a_new_family_of_tables_is_one_file(tmp_path: Path) -> None:
    (copied(tmp_path) / "weather.py").write_text(
        "from profiler_kit.report.columns.column import Column, ColumnTable\n"
        "WEATHER_COLUMNS = (Column('rain', 'rain', 'percent', lambda row: row, 'share of the day'),)\n"
        "TABLES = (ColumnTable('weather', WEATHER_COLUMNS, 'One row per day.'),)\n"
    )
    run_in_copy(
        tmp_path,
        "from profiler_kit.report.columns import all_tables\n"
        "assert any(table.name == 'weather' for table in all_tables())\n",
    )

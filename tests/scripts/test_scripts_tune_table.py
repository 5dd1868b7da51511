"""The table of tuned networks is made from saved results and written between the markers of a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulated_device import INFO, SimulatedDevice

from profiler_kit.errors import UsageError
from profiler_kit.measurement import sweep
from profiler_kit.records.serde import dumps
from scripts.docs.tune_table import main, page_with_table, tune_table

pytestmark = pytest.mark.jobs


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    device = SimulatedDevice(times={"benchmark": 0.5, "amp_bf16": 0.6, "channels_last": 1.5}, noise=0.0005)
    monkeypatch.setattr(sweep, "measure_visits", device.measure_visits)
    tuning = device.tune(tmp_path, ("benchmark", "amp_bf16", "channels_last"))
    tuning = replace(tuning, target=replace(INFO, name="Net|<b>"))
    file = tmp_path / "tuned.json"
    file.write_text(dumps(tuning))
    (tmp_path / "nothing.json").write_text(
        dumps(
            replace(
                tuning, outcome="nothing better", chosen=None, gain=None, changes=(), contributions=(), reduced=None
            )
        )
    )
    return file


def test_an_answer_is_a_row_with_the_figures_of_its_file(saved: Path) -> None:
    table = tune_table([saved, saved.parent / "nothing.json"])
    same, reduced, nothing = table.splitlines()[-3:]
    assert all(r"Net\|\<b>, 8x3x32x32 float32 (time)" in row for row in (same, reduced))
    assert same.split(" | ")[1] == "`benchmark`"
    assert {*reduced.split(" | ")[1].split(", ")} == {"`benchmark`", "`amp_bf16`"}
    assert same.split(" | ")[2].startswith(("50.", "49.9"))
    assert reduced.split(" | ")[2].startswith(("70.", "69.9"))
    assert all("% less (" in row and "worse: `channels_last`" in row for row in (same, reduced))
    assert "| nothing better | - | 10" in nothing
    assert {row.replace(r"\|", "").count("|") for row in (same, reduced, nothing)} == {9}


def test_the_table_replaces_only_its_part_of_the_page(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = saved.parent / "page.md"
    page.write_text("# A\n<!-- tuned: begin -->\nold\n<!-- tuned: end -->\nlast\n")
    assert main([str(saved), "--page", str(page)]) == 0
    once = page.read_text()
    assert once.startswith("# A\n<!-- tuned: begin -->\nMeasured on ")
    assert once.endswith("|\n<!-- tuned: end -->\nlast\n")
    assert "old" not in once
    assert main([str(saved), "--page", str(page)]) == 0
    assert page.read_text() == once
    assert main([str(saved)]) == 0
    assert capsys.readouterr().out.strip() in once


def test_other_files_and_pages_are_refused(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="no markers"):
        page_with_table("# A page\n", "table")
    frozen = Path(__file__).parents[1] / "fixtures" / "frozen" / "machine.json"
    assert main([str(frozen)]) == 2
    assert "not a result of tune" in capsys.readouterr().err

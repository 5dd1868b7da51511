"""The notebooks of docs/ run, and their saved outputs are those of the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from scripts.docs import notebook  # noqa: E402 - after the packages that it needs

pytestmark = pytest.mark.jobs

SOURCES = sorted(notebook.SOURCES.glob("*.py"))
MAX_BYTES = 300_000


@pytest.mark.parametrize("source", SOURCES, ids=lambda file: file.stem)
def test_a_notebook_runs_and_is_current(source: Path) -> None:
    pytest.importorskip("matplotlib")
    file = notebook.NOTEBOOKS / f"{source.stem}.ipynb"
    saved = nbformat.read(file, as_version=4)
    executed = notebook.executed(source.read_text(encoding="utf-8"))
    nbformat.validate(executed)
    assert notebook.texts(saved) == notebook.texts(executed), "run python -m scripts.docs.notebook"
    assert kinds(saved) == kinds(executed)
    assert file.stat().st_size < MAX_BYTES


def kinds(cells: Any) -> list[list[str]]:
    """The formats of each output."""
    return [sorted(output.get("data", {})) for cell in cells.cells for output in cell.get("outputs", ())]


def test_every_notebook_has_a_source() -> None:
    assert [file.stem for file in sorted(notebook.NOTEBOOKS.glob("*.ipynb"))] == [file.stem for file in SOURCES]


def test_cells_of_a_source() -> None:
    cells = notebook.unexecuted("# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 1\nx\n").cells
    assert [(cell.cell_type, cell.source) for cell in cells] == [("markdown", "# Title\n\nText."), ("code", "x = 1\nx")]


def test_pages_are_removed_from_outputs_and_tables_stay() -> None:
    output = {"data": {"text/html": '<div><iframe srcdoc=""></iframe></div>', "text/plain": "<Report>"}}
    notebook.remove_pages(output)
    assert output == {"data": {"text/plain": "<Report>"}}
    table = {"data": {"text/html": "<table></table>"}}
    notebook.remove_pages(table)
    assert table == {"data": {"text/html": "<table></table>"}}

"""Build and execute the notebooks of docs/notebooks: `python -m scripts.docs.notebook`; `--check` fails if one is stale.

The source of a notebook is a script in scripts/docs/notebooks with cells that begin with ``# %%`` or ``# %% [markdown]``. The
notebook holds its outputs as text, tables and pictures. Pages and interactive charts are removed, because they take a megabyte
each and GitHub does not show them.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = Path(__file__).parent / "notebooks"
NOTEBOOKS: Final = ROOT / "docs" / "notebooks"
LIMIT_S: Final = 120
_CELL: Final = re.compile(r"^# %%(?P<markdown> \[markdown\])?\n(?P<body>.*?)(?=^# %%|\Z)", re.DOTALL | re.MULTILINE)


def unexecuted(source: str) -> NotebookNode:
    """The notebook of a script, without outputs."""
    from nbformat import v4

    cells = []
    for number, match in enumerate(_CELL.finditer(source)):
        body = match["body"].strip()
        if match["markdown"]:
            cells.append(v4.new_markdown_cell(re.sub(r"^# ?", "", body, flags=re.MULTILINE), id=f"cell-{number}"))
        else:
            cells.append(v4.new_code_cell(body, id=f"cell-{number}"))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook: NotebookNode = v4.new_notebook(
        cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}}
    )
    return notebook


def executed(source: str, folder: Path = NOTEBOOKS) -> NotebookNode:
    """The notebook of a script with its outputs; `folder` is the current folder of its cells.

    Raises: CellExecutionError of nbclient for a cell that fails.
    """
    from nbclient import NotebookClient

    notebook = unexecuted(source)
    client = NotebookClient(
        notebook,
        timeout=LIMIT_S,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--log-level=ERROR"],
    )
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    client.execute(env={**os.environ, "PYTHONPATH": path})
    notebook.metadata.language_info = {"name": "python"}  # without the version of this Python
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            remove_pages(output)
    return notebook


def remove_pages(output: Any) -> None:
    """Remove pages and interactive charts from the output of a cell. Tables and pictures stay."""
    data = output.get("data", {})
    if "<iframe" in data.get("text/html", ""):
        del data["text/html"]


def texts(notebook: NotebookNode) -> list[tuple[str, list[str]]]:
    """Each cell's source, and its outputs without pictures, which differ between versions of matplotlib."""
    return [
        (
            cell.source,
            [
                output["text"] if output.output_type == "stream" else output["data"]["text/plain"]
                for output in cell.get("outputs", ())
            ],
        )
        for cell in notebook.cells
    ]


def main(arguments: list[str] | None = None) -> int:
    """Write or check every notebook, and return the exit code."""
    import nbformat

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if a notebook is stale, and write nothing")
    options = parser.parse_args(arguments)
    stale = []
    for source in sorted(SOURCES.glob("*.py")):
        file = NOTEBOOKS / f"{source.stem}.ipynb"
        notebook = executed(source.read_text(encoding="utf-8"))
        if options.check:
            stale += [file] if texts(nbformat.read(file, as_version=4)) != texts(notebook) else []
        else:
            nbformat.write(notebook, file)
    for file in stale:
        print(f"{file.relative_to(ROOT)} is stale: run python -m scripts.docs.notebook", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())

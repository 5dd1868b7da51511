"""Tables of the strangers benchmark. Prints them from a saved result: `python -m scripts.bench.stranger_tables RESULT.jsonl`."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Result = dict[str, Any]  # one FileResult of scripts.bench.strangers, as its JSON


def markdown_tables(results: Sequence[Result]) -> str:
    """Return a table of totals and a table of files for each repository."""
    repositories = list(dict.fromkeys(result["repository"] for result in results))
    parts = [totals_table(results)]
    for name in repositories:
        rows = [result for result in results if result["repository"] == name]
        parts.append(f"### {name}\n\n{files_table(rows)}")
    return "\n\n".join(parts)


def totals_table(results: Sequence[Result]) -> str:
    """Return one row for each repository and each group: scored files, ok, right, right after the first hint."""
    header = ["repository", "files", "ok", "right", "right after the first hint", "median s", "side effects"]
    rows = []
    for group in dict.fromkeys(result["group"] for result in results):
        in_group = [result for result in results if result["group"] == group]
        for name in dict.fromkeys(result["repository"] for result in in_group):
            rows.append(_totals(name, [result for result in in_group if result["repository"] == name]))
        rows.append(_totals(f"**all {group}**", in_group))
    return _table(header, rows)


def _totals(name: str, results: Sequence[Result]) -> list[str]:
    scored = [result for result in results if result["scored"]]
    effects = sum(bool(result["side_effects"]) for result in results)
    seconds = statistics.median(result["seconds"] for result in results)
    if not scored:
        handled = sum(result["right"] for result in results)
        return [name, str(len(results)), "", f"{handled} handled", "", f"{seconds:.1f}", str(effects)]
    after = sum(result["right"] or bool(result["right_after_hint"]) for result in scored)
    return [
        name,
        str(len(scored)),
        _share(sum(result["ok"] for result in scored), len(scored)),
        _share(sum(result["right"] for result in scored), len(scored)),
        _share(after, len(scored)),
        f"{seconds:.1f}",
        str(effects),
    ]


def files_table(results: Iterable[Result]) -> str:
    """Return one row for each file: class, input, MACs, parameters, evidence and the problem, if any."""
    header = ["file", "", "class", "input", "MACs", "parameters", "evidence or problem", "s"]
    return _table(header, [_file_row(result) for result in results])


def _file_row(result: Result) -> list[str]:
    verdict = (
        "right"
        if result["right"]
        else "after the hint"
        if result["right_after_hint"]
        else "wrong"
        if result["ok"]
        else "no"
    )
    if result["role"] == "no_model":
        verdict = "no model" if result["right"] else "wrong"
    elif not result["scored"]:
        verdict = result["role"] if result["repository"] != "hazards" else verdict
    return [
        f"`{result['path']}`",
        verdict,
        result["class_name"],
        result["inputs"],
        _count_text(result["macs"]),
        _count_text(result["parameters"]),
        _cell(result["problem"] or evidence_of(result["notes"])),
        f"{result['seconds']:.1f}",
    ]


def evidence_of(notes: Sequence[str]) -> str:
    """Return the notes that say where the model and its inputs come from."""
    return "; ".join(note for note in notes if note.startswith(("model", "inputs", "input")))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _count_text(count: int | None) -> str:
    if count is None:
        return ""
    for limit, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= limit:
            return f"{count / limit:.4g}{suffix}"
    return str(count)


def _share(part: int, total: int) -> str:
    return f"{part} ({part / total:.0%})"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    """Print the tables of the results in the file of the first argument."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    print(markdown_tables([json.loads(line) for line in lines]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

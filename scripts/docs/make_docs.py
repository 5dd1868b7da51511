"""Writes what docs/ and README.md take from the code: `python -m scripts.docs.make_docs`; with `--check`, fails if one is stale.

- A reference page is an entry of `PAGES`: its file's name and the function that returns its text.
- The reports of real runs in docs/measured/ get the findings that today's rules draw from what was measured then.
- An output that a page shows is the fenced block after a marker, `<!-- output: show docs/measured/….json -->`: the command's
  arguments, run in this process. `first=N` before them keeps the first N lines, `from=TITLE` the section of that title
  (`~` for a space).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final
from unittest import mock

from profiler_kit.cli import main as run_command
from profiler_kit.configurations.naming import FLAGS, all_axes, spelled
from profiler_kit.devices.architectures import GPUS
from profiler_kit.devices.registry import devices
from profiler_kit.diagnosis import diagnose, diagnose_traces, rules_page
from profiler_kit.measurement import plan as configs
from profiler_kit.records.report import TraceReport
from profiler_kit.records.serde import SHOWN, dumps, read_report, read_saved
from profiler_kit.render.markdown import code, escape
from profiler_kit.report.columns import all_tables
from profiler_kit.units import DASH, text
from scripts.docs.json_page import json_page, json_schema, traces_page

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
GENERATED = "<!-- Written by scripts/docs/make_docs.py. Change the code it is read from, then run the script. -->"
MEASURED: Final = ("convnet_v0_h100.json", "convnet_v1_h100.json")
INSPECTED: Final = ("convnet_v0_inspected_h100.json",)
WIDTH: Final = 100  # of the terminal whose output is shown
OUTPUT: Final = re.compile(
    r"(?P<head><!-- output: (?:first=(?P<first>\d+) |from=(?P<title>\S+) )?(?P<command>[^\n]+) -->\n```[^\n]*\n)"
    r"(?P<old>.*?)(?P<end>^```$)",
    re.DOTALL | re.MULTILINE,
)

PLACES = {"both": "", "page": "people", "data": "programs"}


def columns_page() -> str:
    """The reference of every table's columns."""
    parts = [
        "# Columns",
        GENERATED,
        "`key` names the column in CSV and data frames, `title` in what people read. Base units are what CSV, data frames and "
        "JSON hold: bytes, ns, FLOPs; percent is of 100. *For* says who sees a column where that is not everybody. A column "
        "that is empty for a report is not shown; on a narrow terminal those of highest *rank* are left out first. A name in "
        "braces stands for a word of the report: `{a}` and `{b}` for what the two sides of a comparison are called.",
    ]
    for table in all_tables():
        lines = ["| key | title | unit | for | rank | what it is |", "|---|---|---|---|--:|---|"]
        for column in table.columns:
            fields = (code(column.key), escape(column.title), column.unit, PLACES[column.place], str(column.rank or ""))
            lines.append(f"| {' | '.join(fields)} | {escape(column.doc)} |")
        parts += [f"## {table.name}", table.doc, "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


DEVICES: Final = {"cuda": "CUDA", "cpu": "CPU", "mps": "Metal"}


def configurations_page() -> str:
    """The reference page of the words in configuration names."""
    flags = [f"| {code(name)} | {escape(doc)} |" for name, doc in FLAGS.items()]
    axes = []
    for axis in all_axes():
        where = ", ".join(DEVICES[kind] for kind in DEVICES if kind in axis.devices)
        brings = f" Also sets {code(axis.flag)}." if axis.flag else ""
        others = f" Excludes {', '.join(code(other) for other in sorted(axis.excludes))}." if axis.excludes else ""
        several = " May be repeated." if axis.several else ""
        axes.append(f"| {code(spelled(axis))} | {where} | {escape(axis.doc)}.{brings}{others}{several} |")
    instead = [
        f"| {DEVICES[kind]} | {', '.join(code(name) for name in names)} |" for kind, names in configs.INSTEAD.items()
    ]
    parts = [
        "# Configurations",
        GENERATED,
        "Which configurations can `analyze` measure, and how do you name them? A name lists the differences from "
        f"{code('default')}, joined by `+`:",
        "```\nprofiler-kit analyze my_model.py --also benchmark+channels_last,amp_bf16+batch=2x\n```",
        "`--also A,B` adds configurations to the device's own; `--configs A,B` replaces these. The order of the words does not "
        "matter, and duplicate names are measured once. Each configuration is measured in fresh processes. A configuration "
        "that would change nothing on the device or for the target is skipped, and a note says why.",
        "## cuDNN's flags",
        "On a CUDA device, `analyze` measures all meaningful combinations of these flags unless `--configs` is given. "
        f"{code('default')} is torch's own setting: cuDNN on, TF32 in convolutions allowed.",
        "\n".join(["| word | effect |", "|---|---|", *flags]),
        "## Axes",
        "Axes are off by default. `=` sets a value; `[=…]` is optional.",
        "\n".join(["| word | devices | effect |", "|---|---|---|", *axes]),
        "- `batch=2x` is a multiple of the target's batch, which `--batch` may have set. The step then does more work: compare "
        "times per row. A target with its own data loader sets its batch size itself, so the axis is skipped.",
        "- `compile` and `cuda_graph` compile or capture in the first step, which is longer by this time. torch caches compiled "
        "code on disk, so a second process compiles faster. Their ops cannot be observed one by one: the step's time is "
        "attributed to the model's root, and its memory is not split into parts.",
        "- `cuda_graph` replays one shape on one device. A forward cannot be captured if it waits for the device, branches on "
        "values, or handles the state of random numbers itself. The run then fails and names the cause.",
        "- `no_item` changes the waits, not the computation. Its step is timed by events on the device, because the host runs "
        "ahead by as many steps as the launch queue holds.",
        "- `memory_limit` limits the memory that torch's caching allocator reserves. cuDNN then picks an algorithm whose "
        "workspace fits.",
        "- `deterministic` affects cuDNN only. `deterministic_algorithms` affects every op of torch. Some ops have no "
        "deterministic implementation: the run then fails and names the op.",
        "## Devices without cuDNN",
        "After the baseline and its repeat, `analyze` measures these configurations in this order, while `--budget` allows and "
        "if they apply to the target:",
        "\n".join(["| device | configurations |", "|---|---|", *instead]),
    ]
    return "\n\n".join(parts) + "\n"


ARCHITECTURE_FIGURES: Final = ("threads", "blas_workspace", "blaslt_workspace", "dropout_state", "context")


def devices_page() -> str:
    """The reference page of the registered devices."""
    cards = [
        "| name | card | torch's name | architecture | multiprocessors | fp32 | tf32 | fp16 | bf16 | bandwidth |",
        "|---|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    sources = []
    for device in devices():
        peaks = device.peaks
        cells = [", ".join(map(code, device.short)), device.label, "<br>".join(map(code, device.names))]
        cells += [device.architecture.name, text(device.multiprocessors.value, "count")]
        cells += [text(rate, "flops/s") for rate in peaks.rates().values()] if peaks else [DASH] * 4
        cards.append(f"| {' | '.join([*cells, text(peaks.bandwidth if peaks else None, 'bytes/s')])} |")
        if peaks:
            cited = re.sub(r"https://[^ ,;]+", r"<\g<0>>", peaks.source)
            sources.append(f"- {device.label}: {cited}. Multiprocessors: {device.multiprocessors.source}.")
    figures = [f"| architecture | attention | {' | '.join(ARCHITECTURE_FIGURES)} |", "|---|---|--:|--:|--:|--:|--:|"]
    reasons: dict[str, dict[str, list[str]]] = {}
    for architecture in GPUS:
        reasons.setdefault("attention", {}).setdefault(architecture.attention.source, []).append(architecture.name)
        cells = [architecture.name, ", ".join(architecture.attention.kernels)]
        for name in ARCHITECTURE_FIGURES:
            figure = getattr(architecture, name)
            reasons.setdefault(name, {}).setdefault(figure.source, []).append(architecture.name)
            cells.append(text(figure.value, "count" if name == "threads" else "bytes"))
        figures.append(f"| {' | '.join(cells)} |")
    why = [
        f"- {code(name)}" + (f" ({', '.join(names)})" if len(names) < len(GPUS) else "") + f": {source}."
        for name, by_source in reasons.items()
        for source, names in by_source.items()
    ]
    parts = [
        "# Devices",
        GENERATED,
        "Which devices does profiler_kit know? `count --gpu NAME` predicts memory for a device, and `count --hardware NAME` "
        "computes lower bounds of times from its peaks:",
        "```\nprofiler-kit count my_model.py --gpu h100 --hardware h100\n```",
        "Both options accept any name of the first three columns, in any case, with or without dashes. A part of a name is "
        "enough if only one device matches. A measured run uses the peaks of the device with exactly torch's name. A slice of a "
        "device (MIG) has another name and no peaks.",
        "\n".join(cards),
        "Peaks are dense and at boost clock. Peaks that a datasheet states with sparsity are halved.",
        "\n".join(sources),
        "## Architectures",
        "The memory of a step also depends on these figures. `threads` and `dropout_state` are per multiprocessor. The GPU of "
        "this machine is simulated with its architecture, or with the nearest older one, and its own number of multiprocessors.",
        "\n".join(figures),
        "\n".join(why),
    ]
    return "\n\n".join(parts) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "columns.md": columns_page,
    "configurations.md": configurations_page,
    "devices.md": devices_page,
    "inspect_json.md": lambda: traces_page(GENERATED),
    "report_json.md": lambda: json_page(GENERATED),
    "rules.md": rules_page,
}


def output_of(command: str, first: int | None = None) -> str:
    """What `command` (the arguments as one would type them) prints to a terminal `WIDTH` columns wide. Raises RuntimeError."""
    printed = io.StringIO()
    plain = {**os.environ, "COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    with contextlib.redirect_stdout(printed), mock.patch.dict(os.environ, plain):
        status = run_command(shlex.split(command))
    if status:
        raise RuntimeError(f"profiler_kit {command}: exit status {status}")
    lines = printed.getvalue().rstrip("\n").split("\n")
    return "".join(f"{line.rstrip()}\n" for line in lines[:first])


def section_of(printed: str, title: str) -> str:
    """The lines of `printed` from the one that begins with `title` to the next empty one. Raises RuntimeError."""
    lines = printed.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if line.startswith(title)), None)
    if start is None:
        raise RuntimeError(f"no section {title!r} was printed")
    end = next((i for i in range(start, len(lines)) if not lines[i].strip()), len(lines))
    return "".join(lines[start:end])


def with_outputs(text: str) -> str:
    """The page `text` with each marked block holding what its command prints now."""

    def renewed(found: re.Match[str]) -> str:
        first = found["first"]
        printed = output_of(found["command"], int(first) if first else None)
        if found["title"]:
            printed = section_of(printed, found["title"].replace("~", " "))
        return found["head"] + printed + found["end"]

    return OUTPUT.sub(renewed, text)


def pages() -> Iterator[tuple[Path, str]]:
    """Every file that is written from the code, and its text; a file that others are read from comes before them."""
    for name in MEASURED:
        file = DOCS / "measured" / name
        report = read_report(file)
        # worked out anew from what was measured, as the code does it now
        report = replace(report, runs=configs.with_tuning(report.runs))
        yield file, dumps(replace(report, findings=diagnose(report)))
    for name in INSPECTED:
        file = DOCS / "measured" / name
        inspected = read_saved(file)
        if isinstance(inspected, TraceReport):
            yield file, dumps(replace(inspected, findings=diagnose_traces(inspected)))
    for kind, record in SHOWN.items():
        yield DOCS / "schema" / f"{kind}.json", json_schema(record)
    for name, page in PAGES.items():
        yield DOCS / name, page()
    for file in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))):
        text = file.read_text(encoding="utf-8")
        if OUTPUT.search(text):
            yield file, with_outputs(text)


def main() -> int:
    """Writes the pages, or compares them; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a page differs from the code")
    check = parser.parse_args().check
    os.chdir(ROOT)  # the commands that pages show name files from there
    stale = []
    for file, content in pages():
        if file.exists() and file.read_text(encoding="utf-8") == content:
            continue
        stale.append(str(file.relative_to(ROOT)))
        if not check:
            file.parent.mkdir(exist_ok=True)
            file.write_text(content, encoding="utf-8")
    if check and stale:
        print(f"stale: {', '.join(stale)}; run: python -m scripts.docs.make_docs", file=sys.stderr)
        return 1
    if stale:
        print(f"wrote {', '.join(stale)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

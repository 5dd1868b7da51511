"""Writes what docs/ and README.md take from the code: `python scripts/make_docs.py`; with `--check`, fails where one is stale.

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

from json_page import json_page, traces_page

from profiler_kit.cli import main as run_command
from profiler_kit.configurations.naming import FLAGS, all_axes, spelled
from profiler_kit.diagnosis import diagnose, diagnose_traces, rules_page
from profiler_kit.measurement import plan as configs
from profiler_kit.records.report import TraceReport
from profiler_kit.records.serde import dumps, read_report, read_saved
from profiler_kit.render.markdown import code, escape
from profiler_kit.report.columns import TABLES

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
GENERATED = "<!-- Written by scripts/make_docs.py. Change the code it is read from, then run the script. -->"
MEASURED: Final = ("convnet_v0_h100.json", "convnet_v1_h100.json")
INSPECTED: Final = ("convnet_v0_inspected_h100.json",)
WIDTH: Final = 100  # of the terminal whose output is shown
OUTPUT: Final = re.compile(
    r"(?P<head><!-- output: (?:first=(?P<first>\d+) |from=(?P<title>\S+) )?(?P<command>[^\n]+) -->\n```[^\n]*\n)"
    r"(?P<old>.*?)(?P<end>^```$)",
    re.DOTALL | re.MULTILINE,
)

TABLE_DOCS = {
    "layers": "One row per owner of work: modules, `(loss)`, `(optimizer)`, and `(unattributed)` device time. Figures are the "
    "owner's own, so the rows add up; `total_*` columns include descendants. `layers.csv` holds this table.",
    "ops": "One row per op (in data: per op and phase); the same total as the layers', cut the other way. "
    "`count --by op -o FILE.csv` writes it.",
    "runs": "One row per configuration.",
    "phases": "One row per phase of a step.",
    "kernels": "One row per kernel (on a CPU: per operator).",
    "idle": "One row per configuration and cause of idle time, per traced step.",
    "waits": "One row per configuration and kind of call in which the host waits for the device, per traced step.",
    "findings": "One row per finding.",
    "cross_check": "`count --cross-check`: one row per op, module and phase that the kit or a peer counts MACs for, and per "
    "figure of the peer's that its formulas do not explain.",
    "cross_check_layers": "`count --cross-check`: modules, with their descendants, on which the kit and a peer differ.",
    "convolutions": "How each part of each convolution was done, in each run ([what the words mean](algorithms.md)); on a page "
    "those of one run.",
    "convolution_changes": "One row per part of a convolution that another configuration does in another way, or in another "
    "time: more than 5 % apart, and by at least 0.5 % of what all convolutions take.",
    "schedules": "One row per configuration that was run over changing shapes (`analyze --shapes`, [how](changing_shapes.md)).",
    "shapes": "One row per shape of such a run and configuration.",
    "cost": "What one step asks for, counted.",
    "memory": "The step's peak, predicted and measured, by what it is for.",
    "peaks": "The peak of each run, as it was predicted by rules, with the scratch that was measured, and as it was measured.",
    "kept": "What is kept for backward, parameters and inputs excluded: who made it, who keeps it. Predicted.",
    "timeline": "The bytes of tensors held over the step. Predicted.",
    "scratch": "Ops whose scratch memory is not known exactly, those that may lift the predicted peak most first.",
    "what_ifs": "The predicted memory with something changed: `count --batch 8,16 --fits 24GiB --checkpoint PATH --what-if amp`. "
    "`--by what-if -o FILE.csv` writes it.",
    "roofline": "One row per phase: the least time that its counted work can take under a roof "
    "([what that means](counting.md#bytes-intensity-and-the-roofline)).",
    "ceilings": "What the device was measured to reach, beside its datasheet (`env`).",
    "devices": "The devices that torch sees (`env`).",
    "configurations": "The cuDNN configurations that mean something on the device (`env`).",
    "packages": "What is installed (`env`).",
    "workspaces": "The ops of the probe step that used most scratch memory.",
    "ranks": "`inspect` of several ranks: one row per rank ([how they are held against each other](ranks.md)).",
    "traces": "`inspect`: one row per trace ([what it says](inspect.md)).",
    "trace_phases": "`inspect`: one row per phase of a trace, and one for work without a phase. Times are of the whole trace; "
    "`kernel_ns` adds up to the busy time.",
    "trace_idle": "`inspect`: idle time of the device by cause and by the phase whose work ended it.",
    "trace_causes": "`inspect`: the same by cause alone, on a page.",
    "trace_modules": "`inspect`: one row per module and phase, the module's own work.",
    "trace_tree": "`inspect`: the modules as a tree, each with all below it, on a page.",
    "trace_operators": "`inspect`: one row per operator; its time is that of the work it launched itself.",
    "trace_shapes": "`inspect`: one row per operator and its inputs' shapes, twenty a trace; backward with its forward.",
    "trace_kernels": "`inspect`: one row per kernel, copy or fill.",
    "trace_families": "`inspect`: kernels by what they do, on a page.",
    "trace_streams": "`inspect`: one row per stream of a device.",
    "trace_steps": "`inspect`: one row per marked step.",
    "trace_syncs": "`inspect`: where the host waited for the device, and whose kernels ran meanwhile.",
    "uncounted": "Ops that no formula covers: the FLOPs are a lower bound by them.",
}
PLACES = {"both": "", "page": "people", "data": "programs"}


def columns_page() -> str:
    """The reference of every table's columns."""
    parts = [
        "# Columns",
        GENERATED,
        "`key` names the column in CSV and data frames, `title` in what people read. Base units are what CSV, data frames and "
        "JSON hold: bytes, ns, FLOPs; percent is of 100. *For* says who sees a column where that is not everybody. A column "
        "that is empty for a report is not shown; on a narrow terminal those of highest *rank* are left out first.",
    ]
    for name, columns in TABLES.items():
        lines = ["| key | title | unit | for | rank | what it is |", "|---|---|---|---|--:|---|"]
        for column in columns:
            fields = (code(column.key), escape(column.title), column.unit, PLACES[column.place], str(column.rank or ""))
            lines.append(f"| {' | '.join(fields)} | {escape(column.doc)} |")
        parts += [f"## {name}", TABLE_DOCS[name], "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


DEVICES: Final = {"cuda": "CUDA", "cpu": "CPU", "mps": "Metal"}


def configurations_page() -> str:
    """The reference of the words that configurations are named with."""
    flags = [f"| {code(name)} | {escape(doc)} |" for name, doc in FLAGS.items()]
    axes = []
    for axis in all_axes():
        where = ", ".join(DEVICES[kind] for kind in DEVICES if kind in axis.devices)
        brings = f" Brings {code(axis.flag)} along." if axis.flag else ""
        others = f" Not beside {', '.join(code(other) for other in sorted(axis.excludes))}." if axis.excludes else ""
        several = " May come several times." if axis.several else ""
        axes.append(f"| {code(spelled(axis))} | {where} | {escape(axis.doc)}.{brings}{others}{several} |")
    instead = [
        f"| {DEVICES[kind]} | {', '.join(code(name) for name in names)} |" for kind, names in configs.INSTEAD.items()
    ]
    parts = [
        "# Configurations",
        GENERATED,
        f"A configuration is named by what differs from {code('default')}, words joined by `+`: "
        "`benchmark+channels_last`, `amp_bf16+batch=2x`. `--configs A,B` measures those instead of the device's own, "
        "`--also A,B` those besides. The order of the words does not matter; a name that comes twice is measured once. "
        "Each is measured in fresh processes of its own. What would change nothing, on the device or for the target, is "
        "not run, and a note says why.",
        "## cuDNN's flags",
        "On a CUDA device all combinations that mean something are measured unless `--configs` says otherwise. The device's "
        f"{code('default')} is what torch sets: cuDNN on, TF32 in convolutions allowed.",
        "\n".join(["| word | what it does |", "|---|---|", *flags]),
        "## Axes",
        "Off by default. `=` gives a value; `[=…]` may be left out.",
        "\n".join(["| word | on | what it does |", "|---|---|---|", *axes]),
        "- `batch=2x` is a multiple of the batch that the target is fed otherwise, by `--batch` too. A step then does more "
        "work: compare time by row. A target with a loader of its own has no such choice: it decides how large its batches are.",
        "- `compile` and `cuda_graph` do their work in the first step, which is as long as that takes; torch keeps compiled "
        "code on disk, so that a second process compiles faster. What they run is not seen op by op: the step's time by layer "
        "stands at the model's root, and its memory is not taken apart.",
        "- `cuda_graph` replays one shape on one device. A forward that waits for the device, branches on values, or draws "
        "on the state of random numbers by hand can't be captured; the run then fails and says what it met.",
        "- `no_item` changes what is waited for, not what is computed. Its step is timed by events on the device, as the host "
        "runs ahead by as many steps as the launch queue holds.",
        "- `memory_limit` caps what torch's caching allocator reserves. cuDNN takes the next algorithm whose workspace fits.",
        "- `deterministic` is about cuDNN alone; `deterministic_algorithms` about every op of torch, some of which have no "
        "implementation that repeats: such a run fails with the op's name.",
        "## Where cuDNN has nothing to choose",
        "These are measured after the baseline and its repetition, in this order, as far as `--budget` goes and where they "
        "mean something for the target:",
        "\n".join(["| on | configurations |", "|---|---|", *instead]),
    ]
    return "\n\n".join(parts) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "columns.md": columns_page,
    "configurations.md": configurations_page,
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
    for file, text in pages():
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(file.relative_to(ROOT)))
        if not check:
            file.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"stale: {', '.join(stale)}; run: python scripts/make_docs.py", file=sys.stderr)
        return 1
    if stale:
        print(f"wrote {', '.join(stale)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

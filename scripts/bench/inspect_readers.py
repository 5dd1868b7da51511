"""What `inspect_speed` compares: each way to read a trace behind the same two functions, run in a process of its own.

    python -m scripts.bench.inspect_readers NAME FILE     # prints a line of JSON: seconds, peak memory, a figure

It imports nothing but what the one reader needs, so that it also runs in an environment that holds only the peers. The clock
starts when that is imported; the memory is the process's, or its children's where one of them had more.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import json
import logging
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Work = Callable[[Path, "Clock"], str]  # reads the file; returns a word about what came of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A way to read a trace. `package` is what is installed, `modules` what is imported before the clock starts."""

    package: str
    modules: tuple[str, ...]
    does: str
    work: Work
    heavy: bool = False  # takes gigabytes and minutes of large files: run last, alone, once

    def version(self) -> str:
        """The installed version."""
        if self.modules and self.modules[0] == "profiler_kit.traces.reader":
            return str(importlib.import_module("profiler_kit._version").VERSION)  # it may be run from its sources
        return importlib.metadata.version(self.package) if self.package else ""


class Clock:
    """Seconds since it was made, and since the part before."""

    def __init__(self) -> None:
        self.start = self.last = time.perf_counter()
        self.parts: dict[str, float] = {}

    def part(self, name: str) -> None:
        """What was done since the part before is called `name`."""
        now = time.perf_counter()
        self.parts[name] = round(now - self.last, 3)
        self.last = now


def _bytes(path: Path, clock: Clock) -> str:
    return f"{len(path.read_bytes()):,} bytes"


def _json(path: Path, clock: Clock) -> str:
    with path.open() as file:
        return f"{len(json.load(file)['traceEvents']):,} events"


def _orjson(path: Path, clock: Clock) -> str:
    return f"{len(importlib.import_module('orjson').loads(path.read_bytes())['traceEvents']):,} events"


def _orjson_without_gc(path: Path, clock: Clock) -> str:
    gc.disable()
    return _orjson(path, clock)


def _msgspec(path: Path, clock: Clock) -> str:
    """What it takes to decode typed events, and none of the fields that few of them have."""
    msgspec: Any = importlib.import_module("msgspec")
    arguments = [(name, Any, None) for name in ("correlation", "external", "sequence", "forward", "stream", "device")]
    names = {"external": "External id", "sequence": "Sequence number", "forward": "Fwd thread id"}
    args = msgspec.defstruct("Args", arguments, rename=names, gc=False)
    fields = [("ph", str, ""), ("name", Any, ""), ("cat", str, ""), ("ts", Any, 0), ("dur", Any, 0)]
    more = [("pid", Any, 0), ("tid", Any, 0), ("id", Any, None), ("args", args | None, None)]
    event: Any = msgspec.defstruct("Event", [*fields, *more], gc=False)
    trace = msgspec.defstruct("Trace", [("traceEvents", list.__class_getitem__(event))])
    return f"{len(msgspec.json.decode(path.read_bytes(), type=trace).traceEvents):,} events"


def _read(path: Path, clock: Clock) -> str:
    return f"{importlib.import_module('profiler_kit.traces.reader').read(path).events:,} events"


def _inspect(path: Path, clock: Clock) -> str:
    table = importlib.import_module("profiler_kit.traces.reader").read(path)
    clock.part("read")
    attribution = importlib.import_module("profiler_kit.attribution.engine").attribute(table)
    clock.part("attribute")
    summary = importlib.import_module("profiler_kit.attribution.summary").summarize(attribution)
    clock.part("summarize")
    return f"busy {summary.busy_ns:,} ns, {len(summary.modules)} modules"


def _hta(path: Path, clock: Clock) -> str:
    analysis: Any = importlib.import_module("hta.trace_analysis").TraceAnalysis(
        trace_files={0: str(path.resolve())}, include_last_profiler_step=True
    )
    clock.part("load")
    times = analysis.get_temporal_breakdown(visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    clock.part("breakdowns")
    busy_us = float(times["compute_time(us)"].iloc[0] + times["non_compute_time(us)"].iloc[0])
    return f"busy {busy_us * 1000:,.0f} ns"


def _tensorboard(path: Path, clock: Clock) -> str:
    data: Any = importlib.import_module("torch_tb_profiler.profiler.data")
    generator: Any = importlib.import_module("torch_tb_profiler.profiler.run_generator")
    cache: Any = importlib.import_module("torch_tb_profiler.io").Cache()
    parsed = data.RunProfileData.parse("worker", None, str(path.resolve()), cache)
    clock.part("parse")
    parsed.process()
    run = generator.RunGenerator("worker", None, parsed).generate_run_profile()
    clock.part("generate")
    return f"{len(run.kernel_table['data']['rows']) if run.has_kernel else 0} kernels"


def _tracelens(path: Path, clock: Clock) -> str:
    analyzer: Any = importlib.import_module("TraceLens").TreePerfAnalyzer.from_file(profile_filepath=str(path))
    clock.part("load")
    launchers = analyzer.get_df_kernel_launchers()
    clock.part("launchers")
    return f"{len(launchers):,} launchers"


READERS: Final[dict[str, Reader]] = {
    "read only": Reader(package="", modules=(), does="bytes into memory: the floor", work=_bytes),
    "msgspec": Reader(package="msgspec", modules=("msgspec",), does="parse, typed, whole file", work=_msgspec),
    "orjson": Reader(package="orjson", modules=("orjson",), does="parse", work=_orjson),
    "orjson, gc off": Reader(package="orjson", modules=("orjson",), does="parse", work=_orjson_without_gc),
    "json": Reader(package="", modules=(), does="parse", work=_json),
    "profiler-kit read": Reader(
        package="profiler-kit", modules=("profiler_kit.traces.reader",), does="parse, typed, columns", work=_read
    ),
    "profiler-kit inspect": Reader(
        package="profiler-kit",
        modules=(
            "profiler_kit.traces.reader",
            "profiler_kit.attribution.engine",
            "profiler_kit.attribution.summary",
        ),
        does="all: owners, time line, idle causes",
        work=_inspect,
    ),
    "torch-tb-profiler": Reader(
        package="torch-tb-profiler",
        modules=("torch_tb_profiler.profiler.data", "torch_tb_profiler.profiler.run_generator"),
        does="parse, generate its views",
        work=_tensorboard,
        heavy=True,
    ),
    "TraceLens": Reader(
        package="TraceLens", modules=("TraceLens",), does="load, kernel launchers", work=_tracelens, heavy=True
    ),
    "HTA": Reader(
        package="traceinsight",
        modules=("hta.trace_analysis",),
        does="load, 2 of its breakdowns",
        work=_hta,
        heavy=True,
    ),
}


def main() -> None:
    """Runs one reader over one file; what the reader itself prints goes to stderr."""
    name, path = sys.argv[1], Path(sys.argv[2])
    reader = READERS[name]
    out = sys.stdout
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with contextlib.redirect_stdout(sys.stderr):
        for module in reader.modules:
            importlib.import_module(module)
        version = reader.version()
        clock = Clock()
        found = reader.work(path, clock)
        seconds = time.perf_counter() - clock.start
    peak = max(own_peak_bytes(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
    answer = {"seconds": seconds, "peak_bytes": peak, "version": version, "found": found, "parts": clock.parts}
    print(json.dumps(answer), file=out)


def own_peak_bytes() -> int:
    """The most memory this program has held. What `getrusage` says also counts the one that started it, up to the exec."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()

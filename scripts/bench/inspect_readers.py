"""The trace readers that `inspect_speed` compares. Each runs in its own process::

    python -m scripts.bench.inspect_readers NAME FILE     # prints one line of JSON: seconds, peak memory, a result

A process imports only the modules of one reader, so that it also runs in an environment without profiler_kit. The clock
starts after these imports. Peak memory is that of the process or of its largest child.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import json
import logging
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Work = Callable[[Path, "Clock"], str]  # reads the file; returns a short result, for example the number of events


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A trace reader. `package` is its distribution; `modules` are imported before the clock starts."""

    package: str
    modules: tuple[str, ...]
    description: str
    work: Work
    heavy: bool = False  # needs gigabytes and minutes for large files, so it runs once and last

    def version(self) -> str:
        """Return the installed version, or "" without a package."""
        if self.modules and self.modules[0] == "profiler_kit.traces.reader":
            return str(importlib.import_module("profiler_kit._version").VERSION)  # also works from a source checkout
        return importlib.metadata.version(self.package) if self.package else ""


class Clock:
    """A clock that starts on creation and measures the parts of a run."""

    def __init__(self) -> None:
        self.start = self.last = time.perf_counter()
        self.parts: dict[str, float] = {}

    def part(self, name: str) -> None:
        """End a part: record the seconds since the previous part as `name`."""
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
    """Decode typed events with the common fields only."""
    msgspec: Any = importlib.import_module("msgspec")
    arguments = [(name, Any, None) for name in ("correlation", "external", "sequence", "forward", "stream", "device")]
    names = {"external": "External id", "sequence": "Sequence number", "forward": "Fwd thread id"}
    args = msgspec.defstruct("Args", arguments, rename=names, gc=False)
    fields = [("ph", str, ""), ("name", Any, ""), ("cat", str, ""), ("ts", Any, 0), ("dur", Any, 0)]
    optional_fields = [("pid", Any, 0), ("tid", Any, 0), ("id", Any, None), ("args", args | None, None)]
    event: Any = msgspec.defstruct("Event", [*fields, *optional_fields], gc=False)
    trace = msgspec.defstruct("Trace", [("traceEvents", list.__class_getitem__(event))])
    return f"{len(msgspec.json.decode(path.read_bytes(), type=trace).traceEvents):,} events"


def _read(path: Path, clock: Clock) -> str:
    return f"{importlib.import_module('profiler_kit.traces.reader').read(path).events:,} events"


def _inspect(path: Path, clock: Clock) -> str:
    """Run the command as a user does, with start-up, findings and the report, and processes for a large file."""
    command = [sys.executable, "-m", "profiler_kit", "inspect", str(path)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[1]


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
    "read only": Reader(package="", modules=(), description="read bytes into memory: the lower bound", work=_bytes),
    "msgspec": Reader(package="msgspec", modules=("msgspec",), description="parse, typed, whole file", work=_msgspec),
    "orjson": Reader(package="orjson", modules=("orjson",), description="parse", work=_orjson),
    "orjson, gc off": Reader(package="orjson", modules=("orjson",), description="parse", work=_orjson_without_gc),
    "json": Reader(package="", modules=(), description="parse", work=_json),
    "profiler-kit read": Reader(
        package="profiler-kit", modules=("profiler_kit.traces.reader",), description="parse, typed, columns", work=_read
    ),
    "profiler-kit inspect": Reader(
        package="profiler-kit",
        modules=("profiler_kit.traces.reader",),
        description="the whole command: attribution, idle causes, replay, findings",
        work=_inspect,
    ),
    "torch-tb-profiler": Reader(
        package="torch-tb-profiler",
        modules=("torch_tb_profiler.profiler.data", "torch_tb_profiler.profiler.run_generator"),
        description="parse, generate views",
        work=_tensorboard,
        heavy=True,
    ),
    "TraceLens": Reader(
        package="TraceLens", modules=("TraceLens",), description="load, kernel launchers", work=_tracelens, heavy=True
    ),
    "HTA": Reader(
        package="traceinsight",
        modules=("hta.trace_analysis",),
        description="load, 2 breakdowns",
        work=_hta,
        heavy=True,
    ),
}


def main() -> None:
    """Run one reader on one file. The reader's own output goes to stderr."""
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
        result = reader.work(path, clock)
        seconds = time.perf_counter() - clock.start
    peak = max(own_peak_bytes(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
    answer = {"seconds": seconds, "peak_bytes": peak, "version": version, "result": result, "parts": clock.parts}
    print(json.dumps(answer), file=out)


def own_peak_bytes() -> int:
    """Return the peak memory of this process. On Linux, `getrusage` would include the parent process before exec."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()

"""Small hand-written traces in Kineto's format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from profiler_kit.attribution.result import Attribution, Evidence
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import NONE, Table

Event = dict[str, Any]
MAIN = 100  # the thread of the training loop
ENGINE = 200  # autograd's
PROCESS = 1


def span(category: str, name: str, start: float, end: float, *, thread: int | str = MAIN, **args: Any) -> Event:
    """A complete event of the host, times in us. `args` are those of the trace, with _ for the spaces in their names."""
    return {
        "ph": "X", "cat": category, "name": name, "pid": PROCESS, "tid": thread, "ts": start, "dur": round(end - start, 3),
        "args": {name.replace("_", " "): value for name, value in args.items()},
    }  # fmt: skip


def op(
    name: str,
    start: float,
    end: float,
    *,
    sequence: int | None = None,
    forward_thread: int | None = None,
    thread: int = MAIN,
) -> Event:
    """An operator; one with a number makes autograd nodes, one with a forward thread too is a node."""
    args: dict[str, Any] = {}
    if sequence is not None:
        args["Sequence number"] = sequence
    if forward_thread is not None:
        args["Fwd thread id"] = forward_thread
    return {**span("cpu_op", name, start, end, thread=thread), "args": args}


def node(name: str, start: float, end: float, sequence: int, *, forward_thread: int = 1, thread: int = ENGINE) -> Event:
    """An autograd node as the engine evaluates it."""
    full = f"autograd::engine::evaluate_function: {name}"
    return op(full, start, end, sequence=sequence, forward_thread=forward_thread, thread=thread)


def mark(name: str, start: float, end: float, *, thread: int = MAIN) -> Event:
    """A named range."""
    return span("user_annotation", name, start, end, thread=thread)


def call(name: str, start: float, end: float, *, thread: int = MAIN) -> Event:
    """A Python call; `nn.Module: Linear_0` is a module's."""
    return span("python_function", name, start, end, thread=thread)


def launch(
    correlation: int, start: float, end: float | None = None, *, name: str = "cudaLaunchKernel", thread: int = MAIN
) -> Event:
    """A call of the device's runtime."""
    return span("cuda_runtime", name, start, start + 1 if end is None else end, thread=thread, correlation=correlation)


def kernel(
    name: str, start: float, end: float, correlation: int | None = None, *, stream: int = 7, category: str = "kernel"
) -> Event:
    """A kernel on device 0 (or, by category, a copy or a fill)."""
    args: dict[str, Any] = {"device": 0, "stream": stream}
    if correlation is not None:
        args["correlation"] = correlation
    return {**span(category, name, start, end, thread=stream), "pid": 0, "args": args}


def copy(name: str, start: float, end: float, correlation: int | None = None, *, stream: int = 7) -> Event:
    """A copy: "Memcpy HtoD (Pageable -> Device)"."""
    return kernel(name, start, end, correlation, stream=stream, category="gpu_memcpy")


def write(path: Path, events: Iterable[Event], **top: Any) -> Path:
    """The trace file at `path` that holds `events`; `top` is written beside them."""
    document: Mapping[str, Any] = {"schemaVersion": 1, **top, "traceEvents": list(events)}
    path.write_text(json.dumps(document))
    return path


def table(tmp_path: Path, events: Iterable[Event], **top: Any) -> Table:
    """The columns of a trace that holds `events`."""
    return read(write(tmp_path / "trace.json", events, **top))


class Said(NamedTuple):
    """What was found of one event: its phase and module path ("" for none), by what, and its step's index (-1 for none)."""

    phase: str
    module: str
    evidence: str
    within: str
    step: int


def device_attribution(attribution: Attribution) -> dict[str, Said]:
    """What was found of the device's events, by their name (the last of a name)."""
    table, device = attribution.table, attribution.device
    return {
        table.names[table.name[row]]: Said(
            phase_name(device.phase[i]),
            module_path(attribution, device.module[i]),
            Evidence(device.evidence[i]).name,
            phase_name(device.within[i]),
            int(device.step[i]),
        )
        for i, row in enumerate(device.rows.tolist())
    }


def host_attribution(attribution: Attribution) -> dict[str, tuple[str, str]]:
    """Phase and module of the host's events, by their name (the last of a name)."""
    table, host = attribution.table, attribution.host
    return {
        table.names[table.name[row]]: (phase_name(host.phase[i]), module_path(attribution, host.module[i]))
        for i, row in enumerate(host.rows.tolist())
    }


def phase_name(number: int) -> str:
    """The phase's name, "" for none."""
    return TRACE_PHASES[number] if number != NONE else ""


def module_path(attribution: Attribution, number: int) -> str:
    """The module's path, "" for none."""
    return attribution.modules[number].path if number != NONE else ""

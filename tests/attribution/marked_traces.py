"""Tiny traces written by hand: host and device events with times in ns, as the JSON that torch.profiler exports."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from inspection_written import assert_sums_hold as assert_summary_sums_hold

from profiler_kit.attribution import engine
from profiler_kit.attribution.annotation_lanes import build_annotation
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.run_figures import Clock, attribute_run
from profiler_kit.records import marks
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.runs import ConfigRun, Span
from profiler_kit.traces.reader import read

MAIN, ENGINE = 100, 200  # host threads: the training loop's, and the one autograd runs on where there is a device
EVALUATE = "autograd::engine::evaluate_function: "
MEAN_NAMES = (
    *("clock", "phases", "modules", "kernels", "unattributed_ns", "span_ns", "idle", "activities", "syncs", "queue"),
    "untraced_step_ns",
)
PLAIN = ConfigRun(config=RunConfig(name="x", enabled=None, benchmark=None, deterministic=None, allow_tf32=None))


def attribution(path: Path) -> Attribution:
    return engine.attribute(read(path, partial=False))


def attribute(path: Path, clock: Clock | None = None) -> ConfigRun:
    """A run of which the trace is all that is known."""
    return attribute_run(PLAIN, attribution(path), clock=clock)


def figures(run: ConfigRun) -> dict[str, object]:
    """The mean of the traced steps."""
    return {name: getattr(run.mean_step, name) for name in MEAN_NAMES}


def lanes(path: Path) -> dict[str, list[Span]]:
    spans = build_annotation(attribution(path)).spans
    return {lane: [s for s in spans if s.lane == lane] for lane in dict.fromkeys(s.lane for s in spans)}


class TraceText:
    """Events gathered one by one; times are ns."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._correlation = 1000

    def host(self, category: str, name: str, start: int, end: int, tid: int = MAIN, **args: Any) -> None:
        self._add(category, name, start, end, pid=1, tid=tid, args=args)

    def step(self, index: int, start: int, end: int) -> None:
        self.host("user_annotation", marks.step(index), start, end)

    def phase(self, name: str, start: int, end: int) -> None:
        self.host("user_annotation", marks.phase(name), start, end)

    def module(self, path: str, start: int, end: int, tid: int = MAIN) -> None:
        self.host("user_annotation", marks.module(path), start, end, tid)

    def op(self, name: str, start: int, end: int, sequence: int | None = None, tid: int = MAIN) -> None:
        args = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": 0}
        self.host("cpu_op", name, start, end, tid, **args)

    def node(
        self, name: str, start: int, end: int, sequence: int | None = None, tid: int = ENGINE, forward_thread: int = 1
    ) -> None:
        """An autograd node as the engine runs it; without a number it is one that accumulates a gradient."""
        args = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": forward_thread}
        self.host("cpu_op", EVALUATE + name, start, end, tid, **args)

    def kernel(
        self, name: str, start: int, end: int, launched: int | None, *, tid: int = MAIN, stream: int = 7,
        category: str = "kernel", device: int = 0, launch: str = "cudaLaunchKernel",
    ) -> None:  # fmt: skip
        """A device event, and the runtime call that enqueued it at `launched` (None: that call is not in the trace)."""
        self._correlation += 1
        if launched is not None:
            self.host("cuda_runtime", launch, launched, launched + 1, tid, correlation=self._correlation)
        args = {"device": device, "stream": stream, "correlation": self._correlation}
        self._add(category, name, start, end, pid=device, tid=stream, args=args)

    def _add(self, category: str, name: str, start: int, end: int, *, pid: int, tid: int, args: dict[str, Any]) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": start,
                "dur": end - start,
                "args": args,
            }
        )

    def text(self) -> str:
        """The JSON, times as µs with three decimals, as Kineto writes them."""
        lines = []
        for event in self.events:
            fields = json.dumps({k: v for k, v in event.items() if k not in ("ts", "dur")})
            lines.append(f'{fields[:-1]}, "ts": {microseconds(event["ts"])}, "dur": {microseconds(event["dur"])}}}')
        return '{"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"

    def save(self, folder: Path, name: str = "trace.json.gz") -> Path:
        path = folder / name
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    def attribute(self, folder: Path, clock: Clock | None = None) -> ConfigRun:
        result = attribute(self.save(folder), clock)
        assert_sums_hold(result)
        return result


def microseconds(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def assert_sums_hold(found: ConfigRun) -> None:
    """The laws of every run's attribution: parts sum to wholes, exactly."""
    assert found.traced is not None
    assert_summary_sums_hold(found.traced)
    assert found.unattributed_ns is not None
    assert found.device_ns == sum(layer.kernel_ns for layer in found.modules) + found.unattributed_ns
    assert sum(kernel.kernel_ns for kernel in found.kernels) == found.device_ns
    for layer in found.modules:
        assert sum(kernel.kernel_ns for kernel in layer.kernels) == layer.kernel_ns
    owners = [(layer.path, layer.phase) for layer in found.modules]
    assert len(owners) == len(set(owners))
    for timing in found.phases:
        assert timing.kernel_ns == sum(layer.kernel_ns for layer in found.modules if layer.phase == timing.phase)
    assert found.mean_step is not None
    assert all(part.ns >= 0 for part in found.idle)
    assert sum(part.ns for part in found.idle) <= found.mean_step.span_ns
    for wait in found.mean_step.syncs:
        assert sum(part.ns for part in wait.waited_for) == wait.wait_ns


def assert_busy_and_idle_are_the_span(found: ConfigRun) -> None:
    """On one device, where nothing but work of the marked steps ran in them."""
    assert found.device_ns is not None
    assert found.device_ns + sum(part.ns for part in found.idle) == found.span_ns


def covered_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """How many ns lie in any of the intervals."""
    total = reached = 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def by_owner(found: ConfigRun) -> dict[tuple[str, str], int]:
    """ns by (path, phase)."""
    return {(layer.path, layer.phase): layer.kernel_ns for layer in found.modules}

"""A trace file to a `Table`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from profiler_kit.errors import TraceError
from profiler_kit.traces.table import NONE, Kind, Sparse, Stream, Table, Thread, TraceInfo

CATEGORIES = {
    "cpu_op": Kind.OPERATOR, "Operator": Kind.OPERATOR, "user_annotation": Kind.ANNOTATION, "python_function": Kind.PYTHON,
    "cuda_runtime": Kind.RUNTIME, "cuda_driver": Kind.RUNTIME, "Runtime": Kind.RUNTIME, "hip_runtime": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME, "privateuse1_runtime": Kind.RUNTIME, "mtia_runtime": Kind.RUNTIME, "kernel": Kind.KERNEL, "Kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY, "Memcpy": Kind.MEMCPY, "gpu_memset": Kind.MEMSET, "Memset": Kind.MEMSET, "cuda_sync": Kind.SYNC,
    "gpu_user_annotation": Kind.MIRROR,
}  # fmt: skip


def read(path: Path) -> Table:
    """The events of the trace at `path`."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    document = json.loads(data.decode("utf-8", errors="replace"), parse_float=str, strict=False)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list) or not any(isinstance(e, dict) and "ph" in e for e in events):
        raise TraceError("not a trace: no 'traceEvents' list", where=str(path))
    pools: dict[str, dict[Any, int]] = {n: {} for n in ("name", "cat", "thread", "stream", "text")}

    def put(pool: str, key: Any) -> int:
        return pools[pool].setdefault(key, len(pools[pool]))

    rows: list[tuple[int, ...]] = []
    thread_names = {}
    memory: list[tuple[int, int]] = []
    counts = {"flows": 0, "metadata": 0, "malformed": 0}
    for e in events:
        ph = e.get("ph")
        if ph in ("s", "t", "f"):
            counts["flows"] += 1
            continue
        a = e.get("args") or {}
        if ph == "M":
            counts["metadata"] += 1
            if e.get("name") == "thread_name":
                thread_names[str(e.get("pid")), str(e.get("tid"))] = str(a.get("name"))
            continue
        cat = str(e.get("cat", ""))
        kind = CATEGORIES.get(cat, Kind.OTHER)
        if ph != "X":
            kind = Kind.MEMORY if e.get("name") == "[memory]" else Kind.COUNTER if ph == "C" else Kind.INSTANT
        if kind == Kind.MEMORY and a.get("Device Type") == 1:
            memory.append((len(rows), int(a.get("Total Allocated", 0))))
        device = kind in (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
        number = lambda k, none=NONE: int(float(a[k])) if a.get(k) is not None else none  # noqa: E731
        rows.append((
            ns(e["ts"]), ns(e.get("dur", 0)), int(kind), put("name", str(e.get("name"))), put("cat", cat), put("thread", (str(e.get("pid")), str(e.get("tid")))),
            put("stream", Stream(str(a.get("device", e.get("pid"))), str(a.get("stream", e.get("tid"))))) if device else NONE,
            number("correlation"), number("External id"), number("Sequence number"), number("Fwd thread id", 0),
            put("text", json.dumps(a["Input Dims"])) if "Input Dims" in a else NONE, put("text", json.dumps(a["Concrete Inputs"])) if "Concrete Inputs" in a else NONE,
        ))  # fmt: skip
    c = list(zip(*rows)) if rows else [()] * 13
    f = lambda i, d: np.array(c[i], dtype=d)  # noqa: E731
    dist = document.get("distributedInfo") or {} if isinstance(document, dict) else {}
    info = TraceInfo(
        rank=dist.get("rank"), world_size=dist.get("world_size"), backend=str(dist.get("backend", "")),
        devices=tuple(str(p.get("name", "")) for p in document.get("deviceProperties") or []) if isinstance(document, dict) else (),
        base_ns=int(document.get("baseTimeNanoseconds", 0)) if isinstance(document, dict) else 0,
    )  # fmt: skip
    return Table(
        file=str(path), start_ns=f(0, np.int64), duration_ns=f(1, np.int64), kind=f(2, np.int8), name=f(3, np.int32), category=f(4, np.int32),
        thread=f(5, np.int32), stream=f(6, np.int32), correlation=f(7, np.int64), external=f(8, np.int64), sequence=f(9, np.int64),
        forward_thread=f(10, np.int64), shapes=f(11, np.int32), inputs=f(12, np.int32), names=tuple(pools["name"]), categories=tuple(pools["cat"]),
        threads=tuple(Thread(p, t, thread_names.get((p, t), "")) for p, t in pools["thread"]), streams=tuple(pools["stream"]), texts=tuple(pools["text"]),
        more={"Total Allocated": Sparse(rows=np.array([r for r, _ in memory], dtype=np.int32), values=np.array([v for _, v in memory], dtype=np.int64))},
        info=info, events=len(events), **counts,
    )  # fmt: skip


def ns(us: int | str) -> int:
    """Whole ns."""
    if isinstance(us, int):
        return us * 1000
    whole, _, fraction = us.partition(".")
    return int(whole) * 1000 + int((fraction + "000")[:3])

"""Reads the caching allocator around one call: what it took beyond what it returned, allocation by allocation.

All figures are requested bytes (what was asked of the allocator, before it rounds), except where a name says otherwise.
On a device without such an allocator every figure is zero, so that the whole grid can be walked without one.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

FAILURES: Final = (
    RuntimeError,  # out of memory is one of these
    ValueError,
    TypeError,
    NotImplementedError,
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    ImportError,
)
DTYPES: Final[Mapping[str, torch.dtype]] = {
    "tf32": torch.float32,
    "mmtf32": torch.float32,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
SHORT: Final[Mapping[torch.dtype, str]] = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.uint8: "u8",
    torch.bool: "b8",
    torch.complex64: "c64",
}
MOST_EVENTS: Final = 40  # listed per call
MOST_KEPT: Final = 2000  # entries of the allocator's ring buffer: what is read back is never more
MOST_OPS_METERED: Final = 1500  # per pass; loops over samples or steps reach it
# A dead context answers every further call with an error; only a new process helps.
DEAD: Final = re.compile(
    r"illegal (memory access|instruction)|unspecified launch|misaligned|device-side assert|context is destroyed"
)
ENGINE: Final = re.compile(r"EXECUTION_PLAN_DESCRIPTOR : ([^,\n]*),.*?workSpaceSize: (\d+)")


class Meter:
    """The allocator's figures of one device, and the list of allocations inside a call."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.real = self.device.type == "cuda"
        self.tracing = self.real
        self.tracing_s = 0.0
        self.took_s = 0.0
        self.failures = 0

    def now(self) -> tuple[int, int, int, int]:
        """Requested bytes and their peak, allocated bytes and their peak."""
        if not self.real:
            return 0, 0, 0, 0
        stats = torch.cuda.memory_stats_as_nested_dict()
        requested, allocated = stats["requested_bytes"]["all"], stats["allocated_bytes"]["all"]
        return requested["current"], requested["peak"], allocated["current"], allocated["peak"]

    def reset(self) -> None:
        """Start the peaks afresh."""
        if self.real:
            torch.cuda.reset_peak_memory_stats()

    def wait(self) -> None:
        """Let the device finish, so that an error shows at the call that made it."""
        if self.real:
            torch.cuda.synchronize()

    def clean(self, *, blas: bool = False) -> None:
        """Give cached blocks back; with `blas` cuBLAS's workspaces too."""
        if self.real:
            torch.cuda.synchronize()
            if blas:
                getattr(torch._C, "_cuda_clearCublasWorkspaces", int)()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def call(self, function: Callable[[], object], known: frozenset[int] = frozenset()) -> list[int]:
        """Peak over what was live, growth, bytes of the new outputs, allocated peak over what was allocated.

        `took_s` is then how long the device needed.
        """
        self.reset()
        requested, _, allocated, _ = self.now()
        started = time.perf_counter()
        out = function()
        self.wait()
        self.took_s = time.perf_counter() - started
        grown, peak, _, peak_allocated = self.now()
        figures = [peak - requested, grown - requested, fresh_bytes(out, known), peak_allocated - allocated]
        del out
        return figures

    def allocations(self, function: Callable[[], object], most: int = MOST_EVENTS) -> list[Any]:
        """Allocations (+bytes) and frees (-bytes) inside a call, in order; [] where the allocator doesn't tell.

        Behind the first `most` of them stands how many more there were.
        """
        if not self.tracing:
            return []
        started = time.perf_counter()
        memory = torch.cuda.memory
        try:
            memory._record_memory_history(enabled="all", context=None, max_entries=MOST_KEPT)
            out = function()
            entries = memory._snapshot()["device_traces"][self.device.index or 0]
            del out
        except FAILURES:
            self.failures += 1
            self.tracing = self.failures < 8
            return []
        finally:
            with contextlib.suppress(*FAILURES):
                memory._record_memory_history(enabled=None)
            self.tracing_s += time.perf_counter() - started
        signed: list[Any] = [
            entry["size"] if entry["action"] == "alloc" else -entry["size"]
            for entry in entries
            if entry["action"] in ("alloc", "free_completed")
        ]
        if len(signed) <= most:
            return signed
        full = " or more, the first of all lost" if len(entries) >= MOST_KEPT else ""
        return [*signed[:most], f"... {len(signed) - most} more{full}"]


def fresh_bytes(out: object, known: frozenset[int]) -> int:
    """Bytes of the storages in `out` that are not among `known` data pointers."""
    sizes = {
        t.untyped_storage()._cdata: t.untyped_storage().nbytes()
        for t in tensors_of(out)
        if t.device.type != "cpu" and t.layout == torch.strided and pointer(t) not in known
    }
    return sum(sizes.values())


def pointer(t: Tensor) -> int:
    """Where the storage starts; 0 for tensors without data."""
    return 0 if t.device.type == "meta" or t.layout != torch.strided else t.untyped_storage().data_ptr()


def tensors_of(value: object) -> list[Tensor]:
    """Every tensor in nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for item in value.values() for t in tensors_of(item)]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_of(item)]
    return []


def described(value: object) -> Any:
    """A JSON form of an op's argument: a tensor as shape:dtype, then cl or its strides unless contiguous."""
    if isinstance(value, Tensor):
        text = f"{'x'.join(map(str, value.shape))}:{SHORT.get(value.dtype, str(value.dtype)[6:])}"
        if value.layout != torch.strided:
            return f"{text}:{value.layout}"
        if value.is_contiguous():
            return text
        if value.dim() in (4, 5) and value.is_contiguous(
            memory_format=torch.channels_last if value.dim() == 4 else torch.channels_last_3d
        ):
            return f"{text}:cl"
        return f"{text}:{'.'.join(map(str, value.stride()))}"
    if isinstance(value, (list, tuple)):
        if len(value) > 24 and isinstance(value[0], Tensor):
            total = sum(t.numel() * t.element_size() for t in tensors_of(value))
            return [described(value[0]), f"... {len(value)} in all, {total} bytes"]
        return [described(item) for item in value]
    if isinstance(value, (torch.UntypedStorage, torch.TypedStorage)):
        return f"storage of {value.nbytes()} bytes"  # str() would read every byte from the device, one copy each
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return str(value)
    return type(value).__name__


# Ops that never take anything: leaving them out keeps the answer small.
PLAIN: Final = frozenset(
    (
        "detach",
        "view",
        "_unsafe_view",
        "t",
        "transpose",
        "permute",
        "expand",
        "alias",
        "unsqueeze",
        "squeeze",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "unbind",
        "as_strided",
        "empty",
        "empty_like",
        "empty_strided",
        "zeros",
        "zeros_like",
        "ones",
        "ones_like",
        "full",
        "full_like",
        "fill_",
        "zero_",
        "new_empty",
        "new_zeros",
        "new_ones",
        "new_empty_strided",
        "chunk",
        "unfold",
        "lift_fresh",
        "_local_scalar_dense",
        "arange",
        "scalar_tensor",
        "is_same_size",
        "_reshape_alias",
    )
)


class OpMeter(TorchDispatchMode):
    """Measures every op that reaches the dispatcher, in forward and (on the autograd thread) in backward.

    With `traced` the ops of those ordinals are run with the allocator's history on, for `events`.
    """

    def __init__(self, meter: Meter, traced: frozenset[int] = frozenset()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.meter = meter
        self.traced = traced
        self.phase = "fwd"
        self.ops: list[list[Any]] = []
        self.events: dict[int, list[Any]] = {}
        self.unmetered = 0
        self.highest = 0
        self.base = meter.now()[0]

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the op between two readings of the allocator."""
        kwargs = kwargs or {}
        name = func._opname
        if name in PLAIN:
            return func(*args, **kwargs)
        ordinal = len(self.ops)
        if ordinal >= MOST_OPS_METERED:
            self.unmetered += 1
            return func(*args, **kwargs)
        if ordinal in self.traced:
            kept: list[Any] = []
            self.ops.append([])
            self.events[ordinal] = self.meter.allocations(lambda: kept.append(func(*args, **kwargs)))
            return kept[0] if kept else func(*args, **kwargs)
        known = frozenset(pointer(t) for t in tensors_of((args, kwargs)))
        before, earlier, allocated, _ = self.meter.now()
        self.highest = max(self.highest, earlier - self.base)
        self.meter.reset()
        out = func(*args, **kwargs)
        grown, peak, _, peak_allocated = self.meter.now()
        self.highest = max(self.highest, peak - self.base)
        figures = [peak - before, grown - before, fresh_bytes(out, known), peak_allocated - allocated]
        overload = "" if func._overloadname == "default" else f".{func._overloadname}"
        inputs = (
            [described(list(args)), {k: described(v) for k, v in kwargs.items()}] if kwargs else [described(list(args))]
        )
        self.ops.append([self.phase, name + overload, inputs, figures])
        return out

    def phase_total(self) -> list[int]:
        """Peak and growth since the last call of this (or the start), both over what was live then."""
        self.meter.wait()
        grown, peak, _, _ = self.meter.now()
        total = [max(self.highest, peak - self.base), grown - self.base]
        self.base, self.highest = grown, 0
        self.meter.reset()
        return total


SLOW_S: Final = 0.25  # a call that needs longer, warmed up, ends its case
STUCK_S: Final = 4.0  # and a first call that needs longer too


def write_json(path: Path, body: object) -> None:
    """Write compact JSON, compressed where the path ends in .gz, replacing the file at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(body, separators=(",", ":")).encode()
    beside = path.with_name(path.name + ".tmp")
    beside.write_bytes(gzip.compress(data, 6) if path.suffix == ".gz" else data)
    beside.replace(path)


def read_json(path: Path) -> Any:
    """What `write_json` wrote."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


class EngineLog:
    """Reads what cuDNN's frontend writes about the plans it builds: engine and workspace."""

    def __init__(self) -> None:
        """Read where the environment sends the log; without one there is nothing to read."""
        path = os.environ.get("CUDNN_FRONTEND_LOG_FILE", "")
        self.path = Path(path) if path and path not in ("stdout", "stderr") else None
        self.at = 0
        self.samples: list[str] = []

    def plans(self) -> list[list[Any]]:
        """[engine, workspace bytes] of each plan built since the last call; at most the last 12."""
        if self.path is None or not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self.at)
            data = file.read(4_000_000)
            self.at = file.seek(0, os.SEEK_END)
        text = data.decode("utf-8", "replace")
        if text and len(self.samples) < 6:
            self.samples.append(text[:1500] + " ... " + text[-1500:])
        return [[tag, int(size)] for tag, size in ENGINE.findall(text)][-12:]


@contextlib.contextmanager
def configured(dtype: str, *, deterministic: bool = False, benchmark: bool = False) -> Iterator[None]:
    """The library flags of a case: TF32 as its dtype says (see `probe_case.Case`), the others as asked."""
    cudnn = torch.backends.cudnn
    cudnn.allow_tf32 = dtype != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = dtype == "mmtf32"
    cudnn.deterministic, cudnn.benchmark = deterministic, benchmark
    try:
        yield
    finally:
        cudnn.allow_tf32 = True
        torch.backends.cuda.matmul.allow_tf32 = False
        cudnn.deterministic = cudnn.benchmark = False

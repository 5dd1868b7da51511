"""Readings of the caching allocator around one call: temporary memory beyond the call's outputs, allocation by allocation.

All figures are requested bytes, before the allocator rounds them, unless a name says otherwise. On a device without a caching
allocator every figure is zero, so that the whole grid can run anywhere.
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
    RuntimeError,  # includes out of memory
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
MAX_LISTED_EVENTS: Final = 40  # listed per call
MAX_HISTORY_ENTRIES: Final = 2000  # entries of the allocator's ring buffer, the most that can be read back
MAX_METERED_OPS: Final = 1500  # per pass; loops over samples or steps may exceed it
# A dead context fails every further call. Only a new process recovers.
DEAD: Final = re.compile(
    r"illegal (memory access|instruction)|unspecified launch|misaligned|device-side assert|context is destroyed"
)
ENGINE: Final = re.compile(r"EXECUTION_PLAN_DESCRIPTOR : ([^,\n]*),.*?workSpaceSize: (\d+)")


class Meter:
    """The allocator's figures of one device, and the allocations inside a call."""

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
        """Reset the peaks."""
        if self.real:
            torch.cuda.reset_peak_memory_stats()

    def wait(self) -> None:
        """Synchronize, so that an error is raised at the call that caused it."""
        if self.real:
            torch.cuda.synchronize()

    def clean(self, *, blas: bool = False) -> None:
        """Release cached blocks; with `blas` also cuBLAS's workspaces."""
        if self.real:
            torch.cuda.synchronize()
            if blas:
                getattr(torch._C, "_cuda_clearCublasWorkspaces", int)()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def call(self, function: Callable[[], object], input_pointers: frozenset[int] = frozenset()) -> list[int]:
        """[peak above live bytes, growth, bytes of new outputs, allocated peak above allocated bytes]. Sets `took_s`."""
        self.reset()
        requested, _, allocated, _ = self.now()
        started = time.perf_counter()
        out = function()
        self.wait()
        self.took_s = time.perf_counter() - started
        grown, peak, _, peak_allocated = self.now()
        figures = [peak - requested, grown - requested, fresh_bytes(out, input_pointers), peak_allocated - allocated]
        del out
        return figures

    def allocations(self, function: Callable[[], object], most: int = MAX_LISTED_EVENTS) -> list[Any]:
        """Allocations (+bytes) and frees (-bytes) inside a call, in order; [] without an allocation history.

        After the first `most` entries, a last entry states the number of further ones.
        """
        if not self.tracing:
            return []
        started = time.perf_counter()
        memory = torch.cuda.memory
        try:
            memory._record_memory_history(enabled="all", context=None, max_entries=MAX_HISTORY_ENTRIES)
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
        full = " or more, the earliest are lost" if len(entries) >= MAX_HISTORY_ENTRIES else ""
        return [*signed[:most], f"... {len(signed) - most} more{full}"]


def fresh_bytes(out: object, input_pointers: frozenset[int]) -> int:
    """Bytes of the storages in `out` whose data pointers are not among `input_pointers`."""
    sizes = {
        t.untyped_storage()._cdata: t.untyped_storage().nbytes()
        for t in tensors_of(out)
        if t.device.type != "cpu" and t.layout == torch.strided and pointer(t) not in input_pointers
    }
    return sum(sizes.values())


def pointer(t: Tensor) -> int:
    """The address of the storage; 0 for tensors without data."""
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


def describe_argument(value: object) -> Any:
    """An op's argument as JSON: a tensor is shape:dtype, followed by cl or its strides unless contiguous."""
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
            return [describe_argument(value[0]), f"... {len(value)} in all, {total} bytes"]
        return [describe_argument(item) for item in value]
    if isinstance(value, (torch.UntypedStorage, torch.TypedStorage)):
        return f"storage of {value.nbytes()} bytes"  # str() would copy every byte from the device, one by one
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return str(value)
    return type(value).__name__


# Ops that never allocate temporary memory: skipping them keeps the result small.
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

    The ops whose ordinals are in `traced` run with the allocator's history enabled, for `events`.
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
        if ordinal >= MAX_METERED_OPS:
            self.unmetered += 1
            return func(*args, **kwargs)
        if ordinal in self.traced:
            results: list[Any] = []
            self.ops.append([])
            self.events[ordinal] = self.meter.allocations(lambda: results.append(func(*args, **kwargs)))
            return results[0] if results else func(*args, **kwargs)
        input_pointers = frozenset(pointer(t) for t in tensors_of((args, kwargs)))
        before, earlier, allocated, _ = self.meter.now()
        self.highest = max(self.highest, earlier - self.base)
        self.meter.reset()
        out = func(*args, **kwargs)
        grown, peak, _, peak_allocated = self.meter.now()
        self.highest = max(self.highest, peak - self.base)
        figures = [peak - before, grown - before, fresh_bytes(out, input_pointers), peak_allocated - allocated]
        overload = "" if func._overloadname == "default" else f".{func._overloadname}"
        inputs = (
            [describe_argument(list(args)), {k: describe_argument(v) for k, v in kwargs.items()}]
            if kwargs
            else [describe_argument(list(args))]
        )
        self.ops.append([self.phase, name + overload, inputs, figures])
        return out

    def phase_total(self) -> list[int]:
        """[peak, growth] above the live bytes at the last call of `phase_total` (or at the start)."""
        self.meter.wait()
        grown, peak, _, _ = self.meter.now()
        total = [max(self.highest, peak - self.base), grown - self.base]
        self.base, self.highest = grown, 0
        self.meter.reset()
        return total


SLOW_S: Final = 0.25  # a longer call after warm-up ends its case
STUCK_S: Final = 4.0  # so does a longer first call


def write_json(path: Path, body: object) -> None:
    """Write compact JSON, compressed if the path ends in .gz. The file is replaced atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(body, separators=(",", ":")).encode()
    beside = path.with_name(path.name + ".tmp")
    beside.write_bytes(gzip.compress(data, 6) if path.suffix == ".gz" else data)
    beside.replace(path)


class EngineLog:
    """Reads cuDNN frontend's log of the plans it builds: engine and workspace."""

    def __init__(self) -> None:
        """Find the log file in the environment; without one, no plans are read."""
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
def library_flags(dtype: str, *, deterministic: bool = False, benchmark: bool = False) -> Iterator[None]:
    """Set the library flags of a case: TF32 by its dtype (see `probe_case.Case`), and the other flags as given."""
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

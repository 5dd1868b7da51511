"""The form of a run in a report's file: the kernels of a module stand in `modules` alone, with their sums over the traced steps.

    {"name": "gemm", "family": "gemm", "calls": 2, "kernel_ns": 500, "traced": [4, 1001]}   # 4 calls, 1001 ns in two steps

Reading restores them in `traced`. A file of an earlier version (before 2026-11-28) has the mean of the traced steps alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from profiler_kit.records.counts import PHASES
from profiler_kit.records.mean_step import mean_step
from profiler_kit.records.traces import TraceOperator, TraceSummary

Json = dict[str, Any]

# Names of `phases`, `modules` and their kernels that `traced` has alone.
_OF_TRACED: Final = ("sum_ns", "idle_ns", "events", "class_name", "within")
# The figures of a summary in files of earlier versions.
_OF_MEAN: Final = (
    "phases", "modules", "kernels", "unattributed_ns", "span_ns", "idle", "activities", "queue", "untraced_step_ns",
)  # fmt: skip
_NO_FIGURES: Final = dict.fromkeys(("span_ns", "busy_ns", "idle_ns", "sum_ns", "unattributed_ns"), 0)


def merge_kernels(run: Json) -> None:
    """Move the kernels of each module of `traced` to `modules`, where this loses nothing."""
    kernels = (kernel for module in run["modules"] for kernel in module["kernels"])
    for item in (*run["phases"], *run["modules"], *kernels):
        for name in _OF_TRACED:
            item.pop(name, None)
    for module, layer in _pairs(run):
        kernels = module.get("kernels", [])
        sums = {kernel["name"]: [kernel["calls"], kernel["kernel_ns"]] for kernel in kernels}
        merged = [{**kernel, "traced": sums.get(kernel["name"])} for kernel in layer["kernels"]]
        if kernels and None not in (kernel["traced"] for kernel in merged) and _traced_kernels(merged) == kernels:
            layer["kernels"] = merged
            del module["kernels"]


def restore_kernels(run: Json) -> bool:
    """Undo `merge_kernels`. Return whether `run` changed."""
    changed = False
    for module, layer in _pairs(run):
        kernels = layer.get("kernels") or []
        if kernels and "kernels" not in module and all("traced" in kernel for kernel in kernels):
            module["kernels"] = _traced_kernels(kernels)
            changed = True
    return changed


def summary_of_mean(run: Json) -> TraceSummary:
    """Return the mean of the traced steps of a `run` whose file has its figures under names of a run. Raises ValidationError."""
    import msgspec

    mean = {"syncs": run.get("waits") or [], **{name: run[name] for name in _OF_MEAN if run.get(name) is not None}}
    summary = msgspec.convert({"file": "", "clock": "device", **_NO_FIGURES, **mean}, type=TraceSummary)
    in_modules = tuple(kernel for module in summary.modules for kernel in module.kernels)
    attributed = Counter[str]()
    for kernel in in_modules:
        attributed[kernel.name] += kernel.kernel_ns
    rest = (replace(kernel, kernel_ns=kernel.kernel_ns - attributed[kernel.name]) for kernel in summary.kernels)
    idle_ns, on_host = sum(part.ns for part in summary.idle), run.get("clock") == "operator"
    operators = tuple(
        TraceOperator(name=k.name, family=k.family, calls=k.calls, kernel_ns=k.kernel_ns, host_self_ns=k.kernel_ns)
        for k in summary.kernels or in_modules
    )
    summary = replace(
        summary,
        clock="host" if on_host else "device",
        busy_ns=(summary.span_ns or idle_ns) - idle_ns,
        idle_ns=idle_ns,
        operators=operators if on_host else (),
        unattributed=tuple(kernel for kernel in rest if kernel.kernel_ns > 0),
    )
    return mean_step(summary)


def _pairs(run: Json) -> Iterator[tuple[Json, Json]]:
    """Yield each module of `traced` with the only entry of `modules` that has its work, and no other work."""
    layers = {(layer.get("path"), layer.get("phase")): layer for layer in run.get("modules") or ()}
    modules = (run.get("traced") or {}).get("modules") or ()
    counts = Counter(map(_key, modules))
    yield from ((module, layers[key]) for module in modules if counts[key := _key(module)] == 1 and key in layers)


def _key(module: Json) -> tuple[object, object]:
    """The path, and the phase that launched the work; None for the phase "other", which no entry of `modules` has."""
    phase = module.get("within") if module.get("phase") == "communication" else module.get("phase")
    return module.get("path"), phase if phase in PHASES and phase != "other" else None


def _traced_kernels(kernels: list[Json]) -> list[Json]:
    """The kernels of all traced steps, longest first."""
    stats = []
    for kernel in kernels:
        calls, kernel_ns = kernel["traced"]
        names = {name: value for name in ("op", "math") if (value := kernel.get(name)) is not None}
        stats.append(
            {"name": kernel["name"], "family": kernel["family"], "calls": calls, "kernel_ns": kernel_ns, **names}
        )
    return sorted(stats, key=lambda kernel: (-kernel["kernel_ns"], kernel["name"]))

"""The form of a run in a report's file: the kernels of a module stand in `modules` alone, with their sums over the traced steps.

    {"name": "gemm", "family": "gemm", "calls": 2, "kernel_ns": 500, "traced": [4, 1001]}   # 4 calls, 1001 ns in two steps

Reading restores them in `traced`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from profiler_kit.records.counts import PHASES

Json = dict[str, Any]


def merge_kernels(run: Json) -> None:
    """Move the kernels of each module of `traced` to `modules`, where this loses nothing."""
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

"""The batch size of `analyze` for inputs that are one example: the largest power of two that fits the time and the memory.

One example shows a device mostly idle, which says little about training. The choice uses the static count only, so it takes no
time on the device, and errs on the small side.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from profiler_kit.devices.registry import peaks_of
from profiler_kit.errors import TargetError
from profiler_kit.pipeline.memory_prediction import Counted, counted_if_possible
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.notes import Note
from profiler_kit.records.target import Pinned, TargetInfo, TargetSpec

BATCHES: Final = (8, 4, 2)
ONE_EXAMPLE_SOURCES: Final = ("search", "evidence", "data_set", "example_inputs")
STEPS: Final = 12  # of one process: warm-up, timed and traced
PROCESSES: Final = 2  # of one configuration
# Small layers and memory-bound layers reach a small part of the peak.
SHARE_OF_PEAK: Final = 0.1
GPU_FLOPS: Final = 1e12  # per second, of a GPU that `devices/` does not list
CORE_FLOPS: Final = 4e9  # per second, of one CPU core
SHARE_OF_MEMORY: Final = 0.5


def with_chosen_batch(
    counted: Counted, spec: TargetSpec, convention: str, device: str, *, configs: int, budget_s: float
) -> Counted:
    """`counted` again with the chosen batch size; `counted` itself if its inputs are no single example, or nothing fits."""
    from profiler_kit.worker import environment

    static, target = counted.by_kit, counted.target
    if static is None or target is None or not is_one_example(spec, counted.info):
        return counted
    seconds = static.step.flops / _flops_per_second(device) * STEPS * PROCESSES * max(configs, 1)
    free = environment.free_memory_bytes(device)
    batch = next(
        (
            size
            for size in BATCHES
            if size * seconds <= budget_s and _peak_bytes(static, size) <= SHARE_OF_MEMORY * free
        ),
        None,
    )
    if batch is None:
        return counted
    pinned = replace(target.spec.pinned or Pinned(candidate=""), batch=batch)
    try:
        larger = counted_if_possible(replace(target.spec, pinned=pinned), convention, device)
    except TargetError:
        return counted  # the model works with one example only
    if larger.static is None:
        return counted
    note = f"{batch}, the largest of 1, 2, 4 and 8 that surely fits into {budget_s:g} s (--batch sets another)"
    # The notes of the first count say where the inputs come from; those of the second say that they are pinned.
    first = counted.info
    notes = (*first.notes, Note(subject="batch", text=note))
    info = replace(larger.info, notes=notes, choices=first.choices, inputs_from=first.inputs_from)
    return replace(larger, info=info)


def is_one_example(spec: TargetSpec, info: TargetInfo) -> bool:
    """Whether the tool chose the inputs, and they are a batch of one."""
    if spec.batch is not None or spec.batch_factor is not None or info.inputs_from not in ONE_EXAMPLE_SOURCES:
        return False
    shapes = [tensor.shape for tensor in info.inputs if tensor.shape]
    return bool(shapes) and shapes[0][0] == 1


def _flops_per_second(device: str) -> float:
    from profiler_kit.worker import environment

    if device.startswith("cuda"):
        peaks = peaks_of(environment.device_name(device))
        return SHARE_OF_PEAK * peaks.fp32 if peaks is not None else GPU_FLOPS
    return CORE_FLOPS * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else CORE_FLOPS


def _peak_bytes(static: StaticCount, batch: int) -> int:
    """The peak of a step at `batch`: everything but parameters, gradients and optimizer state grows with the batch."""
    if static.memory is None:
        return batch * (static.saved_bytes + static.param_bytes)
    fixed = static.memory.categories
    constant = sum(size or 0 for size in (fixed.parameters, fixed.gradients, fixed.optimizer_state))
    return constant + batch * max(static.memory.peak_bytes - constant, 0)

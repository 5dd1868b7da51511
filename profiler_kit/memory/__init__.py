"""Predict the memory of a step without a device: run the step on meta tensors and simulate the device's behavior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from profiler_kit.devices.architectures import nearest_architecture
from profiler_kit.devices.cards.cpu import CPU
from profiler_kit.devices.device import Device, Figure
from profiler_kit.devices.registry import DEFAULT_DEVICE
from profiler_kit.loading import Target
from profiler_kit.loading.tensor_kinds import run_on_first_kind
from profiler_kit.memory.measured_workspace import MeasuredWorkspace, with_measured_workspace
from profiler_kit.memory.prediction import predict, predict_on_device
from profiler_kit.memory.steps import Setup, record_steps
from profiler_kit.memory.workspace import LibraryConfig
from profiler_kit.meta.eager import compilation_disabled
from profiler_kit.records.calls import StepCall
from profiler_kit.records.counts import DeviceMemory, MemoryEstimate
from profiler_kit.records.runs import PeakMemory

__all__ = [
    "LibraryConfig",
    "Setup",
    "local_device",
    "settings_of_process",
    "simulate",
    "simulate_measured",
    "simulate_step",
]


def simulate(target: Target, device: Device = DEFAULT_DEVICE, setup: Setup | None = None) -> MemoryEstimate:
    """The memory of `simulate_step`, which explains it."""
    return simulate_step(target, device, setup)[0]


def simulate_step(
    target: Target, device: Device = DEFAULT_DEVICE, setup: Setup | None = None
) -> tuple[MemoryEstimate, tuple[StepCall, ...]]:
    """Simulate the memory of a training step of `target` in its steady state, or of a forward pass in ``infer`` mode.

    The step runs twice on meta tensors, with the CUDA behavior of `device`. A model that needs tensor values runs on another
    kind of tensors (see `loading.tensor_kinds`), without CUDA behavior; a note names the line in the model that needs the values.

    Returns the memory, and the op calls of a step where `setup` records them and they are those of the device.

    Raises: TargetError if the model does not run on any kind of tensors.
    """

    def attempt(variant: Target) -> tuple[MemoryEstimate, tuple[StepCall, ...]]:
        log = record_steps(variant, device, setup or Setup())
        return predict(log, device), tuple(log.calls)

    with compilation_disabled():
        result = run_on_first_kind(target, attempt)
    estimate, calls = result.value
    notes = list(estimate.notes)
    if target.info.has_note("compiled", "compiled_whole"):
        notes.append("memory simulated without torch.compile: compiled code allocates and saves other tensors")
    if result.note:
        notes.append(f"memory simulated {result.note}")
    if device.is_cuda and result.kind != "meta":
        notes.append(
            "memory simulated with CPU ops: dropout, attention and recurrent layers save less for backward on CUDA"
        )
    estimate = replace(estimate, traced_on=result.kind, notes=tuple(notes))
    return estimate, calls if result.kind == "meta" else ()


def settings_of_process() -> LibraryConfig:
    """torch's flags for libraries in this process."""
    flags = torch.backends.cudnn
    return LibraryConfig(
        benchmark=flags.benchmark,
        deterministic=flags.deterministic,
        cudnn=flags.enabled,
        conv_tf32=_allows_tf32(flags, "conv"),
        matmul_tf32=_allows_tf32(torch.backends.cuda, "matmul"),
    )


def _allows_tf32(flags: Any, operation: str) -> bool:
    """Whether `operation` may use TF32. torch refuses to read the old switch after a program has set the new one."""
    setting = getattr(flags, operation, flags)
    precision = getattr(setting, "fp32_precision", None)  # from torch 2.9 on; follows the old switch
    return bool(precision == "tf32" if precision is not None else setting.allow_tf32)


def simulate_measured(
    target: Target, device: Device, probes: Sequence[tuple[PeakMemory, LibraryConfig]]
) -> tuple[DeviceMemory, ...]:
    """Simulate the memory of `target`'s step on the probed device, once per probe, with the workspace that it measured.

    The step runs at most twice, with and without cuDNN: other configurations differ in workspace only. An op without a
    measured workspace uses its rule.

    Raises: TargetError if the model does not run on any kind of tensors.
    """
    measured = [MeasuredWorkspace(probe.calls) for probe, _ in probes]
    watched = frozenset[str]().union(*(workspace.ops for workspace in measured))

    def attempt(variant: Target) -> tuple[DeviceMemory, ...]:
        logs = {
            cudnn: record_steps(variant, device, Setup(watched=watched, config=LibraryConfig(cudnn=cudnn)))
            for cudnn in {config.cudnn for _, config in probes}
        }
        return tuple(
            predict_on_device(with_measured_workspace(logs[config.cudnn], workspace), device)
            for workspace, (_, config) in zip(measured, probes, strict=True)
        )

    with compilation_disabled():
        return run_on_first_kind(target, attempt).value


def local_device(place: str | None = None) -> Device:
    """The device at `place` (``cpu``, ``cuda:0``). Default: this machine's GPU, or the default device without one.

    A GPU uses the entry of its architecture, or of the nearest older one, with its own number of multiprocessors.
    """
    if place is not None and not place.startswith("cuda"):
        return CPU
    if torch.version.hip is not None or not torch.cuda.is_available():
        return DEFAULT_DEVICE
    properties = torch.cuda.get_device_properties(place if place is not None else "cuda")
    return Device(
        label=properties.name,
        torch_names=(properties.name,),
        architecture=nearest_architecture(10 * properties.major + properties.minor),
        multiprocessors=Figure(properties.multi_processor_count, f"queried from this machine's {properties.name}"),
    )

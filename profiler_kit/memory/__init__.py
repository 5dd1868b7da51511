"""The memory of a step, without a device: the step itself runs on tensors without data, and a device's ways are imitated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from profiler_kit.devices.architectures import nearest_architecture
from profiler_kit.devices.cards.cpu import CPU
from profiler_kit.devices.device import Device, Figure
from profiler_kit.devices.registry import DEFAULT
from profiler_kit.loading import Target
from profiler_kit.loading.compiled import COMPILED_NOTE, nothing_compiled
from profiler_kit.loading.kinds import on_first_kind
from profiler_kit.memory.measured import MeasuredScratch, priced
from profiler_kit.memory.prediction import on_device, predicted
from profiler_kit.memory.scratch import LibraryConfig
from profiler_kit.memory.steps import Setup, record
from profiler_kit.records.counts import DeviceMemory, MemoryEstimate
from profiler_kit.records.runs import PeakMemory

__all__ = ["LibraryConfig", "Setup", "device_here", "simulate", "simulate_measured"]


def simulate(target: Target, device: Device = DEFAULT, setup: Setup | None = None) -> MemoryEstimate:
    """The memory of a training step of `target` in its steady state, or of a forward pass in ``infer`` mode.

    The step runs twice on meta tensors, where CUDA is imitated as `device` does it. A model that needs values runs on other
    kinds of tensors (see `loading.kinds`), as on their own device; a note says so, and where in the model that is.

    Raises: TargetError where the model can't be run on any kind of tensors.
    """
    with nothing_compiled():
        found = on_first_kind(target, lambda one: predicted(record(one, device, setup or Setup()), device))
    notes = list(found.value.notes)
    if any(note.startswith(COMPILED_NOTE) for note in target.info.notes):
        notes.append("memory simulated eager, op by op: what is compiled keeps and makes other tensors")
    if found.note:
        notes.append(f"memory simulated {found.note}")
    if device.is_cuda and found.kind != "meta":
        notes.append(
            "memory simulated with the ops of the CPU: dropout, attention and recurrent layers keep less on CUDA"
        )
    return replace(found.value, traced_on=found.kind, notes=tuple(notes))


def simulate_measured(
    target: Target, device: Device, probes: Sequence[tuple[PeakMemory, LibraryConfig]]
) -> tuple[DeviceMemory, ...]:
    """The memory of `target`'s step on the device that was probed, for each of `probes`, with the scratch it saw.

    The step is simulated once with cuDNN and once without it, as far as there are such probes: what else differs between
    configurations is scratch. An op whose like no probe saw has that of its rule.

    Raises: TargetError where the model can't be run on any kind of tensors.
    """
    seen = [MeasuredScratch(probe.calls) for probe, _ in probes]
    watched = frozenset[str]().union(*(scratch.ops for scratch in seen))

    def attempt(one: Target) -> tuple[DeviceMemory, ...]:
        logs = {
            cudnn: record(one, device, Setup(watched=watched, config=LibraryConfig(cudnn=cudnn)))
            for cudnn in {config.cudnn for _, config in probes}
        }
        found = zip(seen, probes, strict=True)
        return tuple(on_device(priced(logs[config.cudnn], scratch), device) for scratch, (_, config) in found)

    with nothing_compiled():
        return on_first_kind(target, attempt).value


def device_here(place: str | None = None) -> Device:
    """The device at `place` (``cpu``, ``cuda:0``), by default the GPU that is here; without one, the default device.

    A GPU is simulated by the row of its architecture, or of the nearest older one, with its own number of multiprocessors.
    """
    if place is not None and not place.startswith("cuda"):
        return CPU
    if torch.version.hip is not None or not torch.cuda.is_available():
        return DEFAULT
    properties = torch.cuda.get_device_properties(place if place is not None else "cuda")
    return Device(
        label=properties.name,
        names=(properties.name,),
        architecture=nearest_architecture(10 * properties.major + properties.minor),
        multiprocessors=Figure(properties.multi_processor_count, f"asked of this machine's {properties.name}"),
    )

"""The memory of a step, without a device: the step itself runs on tensors without data, and a device's ways are imitated."""

from __future__ import annotations

from profiler_kit.memory.prediction import predicted
from profiler_kit.memory.profiles import PROFILES, SM90, Profile, profile_named
from profiler_kit.memory.steps import Setup, SimulationError, record
from profiler_kit.records.counts import MemoryEstimate
from profiler_kit.target import Target

__all__ = ["PROFILES", "Profile", "Setup", "SimulationError", "profile_named", "simulate"]


def simulate(target: Target, profile: Profile = SM90, setup: Setup | None = None) -> MemoryEstimate:
    """The memory of a training step of `target` in its steady state, or of a forward pass in ``infer`` mode.

    Raises: SimulationError where the model can't be run on the kind of tensors it is on.
    """
    log = record(target, profile, setup or Setup())
    return predicted(log, profile, traced_on=target.device.type)

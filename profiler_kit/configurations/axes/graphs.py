"""CUDA graphs."""

from __future__ import annotations

from typing import Final

from profiler_kit.configurations.axis import Axis, StepControls


def _runner(value: str, runner: StepControls) -> None:
    runner.capture_graphs()
    runner.unseen = "a CUDA graph replays without torch's dispatcher, from memory of its own"
    runner.memory_apart = True


AXES: Final = (
    Axis(
        name="cuda_graph",
        doc="forward and backward of the model replayed as CUDA graphs; loss and optimizer as they are. The first step captures",
        devices=frozenset({"cuda"}),
        runner=_runner,
    ),
)

"""CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from profiler_kit.configurations.axis import Axis

if TYPE_CHECKING:
    from profiler_kit.worker.steps import Runner


def _runner(value: str, runner: Runner) -> None:
    from profiler_kit.worker.graphed import Graphed

    runner.run_as(Graphed(runner.target.runs, runner.target.model))
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

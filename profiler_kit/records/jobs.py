"""What a worker process is told: one configuration of one target, as a JSON file."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.saved import Saved
from profiler_kit.records.target import TargetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Saved, kind="run_job"):
    """One run: what, how, on which device, for how long, and where the result and the traces go.

    `budget_s` is the time for steps (start-up and the model's import excluded); `steps` fixes the number of timed steps
    instead. `checks` asks for the memory probe, the repeated pass and the float64 comparison after the steps. `algorithms`
    is where the trace of convolutions' parts goes. `again`: the second process of a configuration, which times steps and
    takes digests, and nothing more. `waits`: it loads the target, and waits for `GO` on stdin before it touches the device.
    """

    spec: TargetSpec
    config: RunConfig
    device: str
    budget_s: float
    result: str
    trace: str | None
    algorithms: str | None = None
    steps: int | None = None
    checks: bool = True
    again: bool = False
    waits: bool = False

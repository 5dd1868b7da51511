"""Model files for tests of measurement: they count correctly and may fail on a CPU. Also jobs that run them."""

from __future__ import annotations

from pathlib import Path

from profiler_kit.measurement.sweep import spawn_run
from profiler_kit.measurement.visits import Visit
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetSpec

INPUTS = "example_inputs = torch.linspace(-1, 1, 8).reshape(2, 4)\n"


def net(on_cpu: str = "pass", result: str = "self.out(self.fc(x).relu())", after: str = INPUTS) -> str:
    """Return the text of a file with a two-layer network.

    Forward on a CPU first runs the statement `on_cpu` (line 11); `self.calls` counts these calls.
    """
    return (
        "import os, sys, time\nimport torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc, self.out, self.calls = nn.Linear(4, 8), nn.Linear(8, 3), 0\n"
        "    def forward(self, x):\n"
        "        if x.device.type == 'cpu':\n"
        "            self.calls += 1\n"
        f"            {on_cpu}\n"
        f"        return {result}\n"
        f"{after}"
    )


def job(folder: Path, text: str, *, budget_s: float = 0.05, trace: bool = False, **fields: object) -> RunJob:
    """Write `text` to `folder` and return a job that runs it. `fields` go to `TargetSpec` and `RunJob`."""
    file = folder / "net.py"
    file.write_text(text)
    job_fields = {name: fields.pop(name) for name in ("steps", "checks") if name in fields}
    return RunJob(
        spec=TargetSpec(spec=str(file), **fields),  # type: ignore[arg-type]
        config=RunConfig(name="default"),
        device="cpu",
        budget_s=budget_s,
        trace=str(folder / "trace.json.gz") if trace else None,
        **job_fields,  # type: ignore[arg-type]
    )


def measure(
    spec: TargetSpec,
    config: RunConfig,
    *,
    device: str,
    budget_s: float,
    on_progress: OnProgress = ignore_progress,
    **fields: object,
) -> ConfigRun:
    """Run `config` on `device` in its own process. `fields` go to `Visit`."""
    visit = Visit(config=config, budget_s=budget_s, **fields)  # type: ignore[arg-type]
    with spawn_run(spec, visit, device=device, on_progress=on_progress) as process:
        process.go()
        return process.result()

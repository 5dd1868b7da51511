"""Read a trace with another trace reader. `compare_inspect_peers` runs this script with that reader's interpreter.

python -m scripts.bench.peer_figures HTA trace.json.gz      # prints one line of JSON with device times in ns
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

PHASES_BY_ANNOTATION: Final = {"DistributedDataParallel.forward": "forward", "Optimizer.step": "optimizer"}


def hta(path: Path) -> dict[str, Any]:
    """Read with HolisticTraceAnalysis: busy time from its temporal breakdown, phases from its GPU annotation breakdown."""
    analysis: Any = importlib.import_module("hta.trace_analysis").TraceAnalysis(
        trace_files={0: str(path.resolve())}, include_last_profiler_step=True
    )
    times = analysis.get_temporal_breakdown(visualize=False)
    busy_us = float(times["compute_time(us)"].iloc[0] + times["non_compute_time(us)"].iloc[0])
    annotations = analysis.get_gpu_user_annotation_breakdown(visualize=False)
    phases: dict[str, int] = {}
    for _, row in () if annotations is None else annotations.iterrows():
        name = str(row["name"])
        phase = PHASES_BY_ANNOTATION.get(name.split("#")[0], name.strip("# "))
        phases[phase] = max(phases.get(phase, 0), round(1000 * float(row["sum (us)"])))
    return {"busy_ns": round(1000 * busy_us), "phases": phases}


def tensorboard(path: Path) -> dict[str, Any]:
    """Read with torch-tb-profiler: device time from its operator table."""
    data: Any = importlib.import_module("torch_tb_profiler.profiler.data")
    cache: Any = importlib.import_module("torch_tb_profiler.io").Cache()
    parsed = data.RunProfileData.parse("worker", None, str(path.resolve()), cache)
    parsed.process()
    operators_us = sum(float(operator.self_device_duration) for operator in parsed.op_list_groupby_name)
    return {"operators_ns": round(1000 * operators_us)}


PEERS: Final[dict[str, Callable[[Path], dict[str, Any]]]] = {"HTA": hta, "torch-tb-profiler": tensorboard}


def main() -> None:
    """Run one reader on one file."""
    out = sys.stdout
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(sys.stderr):
        answer = PEERS[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps(answer), file=out)


if __name__ == "__main__":
    main()

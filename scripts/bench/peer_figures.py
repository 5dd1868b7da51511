"""What other readers of traces say of one: run by `compare_inspect_peers` with the interpreter that has them.

python -m scripts.bench.peer_figures HTA trace.json.gz      # a line of JSON; ns, of the device
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

PHASE_NAMES: Final = {"DistributedDataParallel.forward": "forward", "Optimizer.step": "optimizer"}


def hta(path: Path) -> dict[str, Any]:
    """HolisticTraceAnalysis: busy time by its temporal breakdown, phases by its breakdown of annotations on the GPU."""
    analysis: Any = importlib.import_module("hta.trace_analysis").TraceAnalysis(
        trace_files={0: str(path.resolve())}, include_last_profiler_step=True
    )
    times = analysis.get_temporal_breakdown(visualize=False)
    busy_us = float(times["compute_time(us)"].iloc[0] + times["non_compute_time(us)"].iloc[0])
    marks = analysis.get_gpu_user_annotation_breakdown(visualize=False)
    phases: dict[str, int] = {}
    for _, row in () if marks is None else marks.iterrows():
        name = str(row["name"])
        phase = PHASE_NAMES.get(name.split("#")[0], name.strip("# "))
        phases[phase] = max(phases.get(phase, 0), round(1000 * float(row["sum (us)"])))
    return {"busy_ns": round(1000 * busy_us), "phases": phases}


def tensorboard(path: Path) -> dict[str, Any]:
    """torch-tb-profiler: device time that its table of operators has."""
    data: Any = importlib.import_module("torch_tb_profiler.profiler.data")
    cache: Any = importlib.import_module("torch_tb_profiler.io").Cache()
    parsed = data.RunProfileData.parse("worker", None, str(path.resolve()), cache)
    parsed.process()
    under_us = sum(float(operator.self_device_duration) for operator in parsed.op_list_groupby_name)
    return {"operators_ns": round(1000 * under_us)}


PEERS: Final[dict[str, Callable[[Path], dict[str, Any]]]] = {"HTA": hta, "torch-tb-profiler": tensorboard}


def main() -> None:
    """Asks one peer of one file."""
    out = sys.stdout
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(sys.stderr):
        answer = PEERS[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps(answer), file=out)


if __name__ == "__main__":
    main()

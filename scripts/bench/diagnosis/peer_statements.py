"""States what another trace reader says about a trace. `peers` runs this script with that reader's interpreter.

python scripts/bench/diagnosis/peer_statements.py HTA trace.json.gz    # one line of JSON: [[statement, share of the time], ...]
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Statements = list[tuple[str, float | None]]

# A recommendation of torch-tb-profiler, by words of its text.
RECOMMENDATIONS: Final = {
    "input data loading": "data loading",
    "low utilization": "low GPU utilization",
    "Tensor Cores": "tensor cores",
    "limit of device memory": "memory limit",
    "cost on communication": "communication",
    "Nccl backend": "communication backend",
    "DataParallel": "DataParallel",
}
SHARE: Final = re.compile(r"([\d.]+) ?%")


def hta(paths: list[Path]) -> Statements:
    """Shares of the time: idle time by cause, kernels that compute nothing, and ranks that start late."""
    files = {rank: str(path.resolve()) for rank, path in enumerate(paths)}
    analysis: Any = importlib.import_module("hta.trace_analysis").TraceAnalysis(
        trace_files=files, include_last_profiler_step=True
    )
    times = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    total_us = float(times["idle_time(us)"] + times["compute_time(us)"] + times["non_compute_time(us)"])
    idle_share = float(times["idle_time(us)"]) / total_us
    idle = analysis.get_idle_time_breakdown(visualize=False)[0].groupby("idle_category")["idle_time"].sum()
    statements: Statements = [
        (str(cause), idle_share * float(value) / float(idle.sum() or 1)) for cause, value in idle.items()
    ]
    kinds = analysis.get_gpu_kernel_breakdown(visualize=False)[0]
    for _, row in kinds.iterrows():
        if row["kernel_type"] in ("COMMUNICATION", "MEMORY"):
            statements.append((f"{row['kernel_type'].lower()} kernels", float(row["sum"]) / len(paths) / total_us))
    if len(paths) > 1:
        with contextlib.suppress(ValueError):  # no steps
            analysis.get_potential_stragglers(num_candidates=1)
            statements.append(("straggler", None))
    return statements


def tensorboard(paths: list[Path]) -> Statements:
    """The recommendations of the first rank, in their order."""
    data: Any = importlib.import_module("torch_tb_profiler.profiler.data")
    cache: Any = importlib.import_module("torch_tb_profiler.io").Cache()
    parsed = data.RunProfileData.parse("worker", None, str(paths[0].resolve()), cache)
    parsed.process()
    parsed.analyze()
    statements: Statements = []
    for text in parsed.recommendations:
        name = next((name for words, name in RECOMMENDATIONS.items() if words in text), text)
        share = SHARE.search(text)
        statements.append((name, float(share.group(1)) / 100 if share else None))
    return statements


def tracelens(paths: list[Path]) -> Statements:
    """Shares of the time: idle, exposed communication and copies, and each category of operators."""
    report: Any = importlib.import_module("TraceLens.Reporting.generate_perf_report_pytorch")
    with tempfile.TemporaryDirectory() as folder:
        sheets = report.generate_perf_report_pytorch(
            profile_json_path=str(paths[0].resolve()), output_csvs_dir=folder, collective_analysis=False
        )
    timeline = {str(row["type"]): float(row["percent"]) / 100 for _, row in sheets["gpu_timeline"].iterrows()}
    names = {"idle_time": "idle", "exposed_comm_time": "exposed communication", "exposed_memcpy_time": "exposed copies"}
    statements: Statements = [(names[kind], share) for kind, share in timeline.items() if kind in names]
    busy = timeline.get("computation_time", 0.0)
    for _, row in sheets["ops_summary_by_category"].iterrows():
        statements.append((f"operators: {row['op category']}", busy * float(row["Percentage (%)"]) / 100))
    return statements


PEERS: Final[dict[str, Callable[[list[Path]], Statements]]] = {
    "HTA": hta,
    "TraceLens": tracelens,
    "torch-tb-profiler": tensorboard,
}


def main() -> None:
    """Run one reader on the traces of one job."""
    out = sys.stdout
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(sys.stderr):
        answer = PEERS[sys.argv[1]]([Path(name) for name in sys.argv[2:]])
    print(json.dumps(answer), file=out)


if __name__ == "__main__":
    main()

"""The child process of `probe_scratch`: measures the grid case by case.

Each line of the journal is a JSON object: {"head"}, {"micro"}, {"row"}, {"error"}, {"walked"} or {"done"}.
The position file is written before each case and names it: a crash or a hang loses only that case.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from scripts.lab import probe_convolution, probe_convolution_runs, probe_convolutions, probe_operators, probe_runs
from scripts.lab.probe_case import Case
from scripts.lab.probe_device import DEAD, FAILURES, EngineLog, Meter

Run = Callable[[], Any]
Planned = tuple[dict[str, Any], Run]
TUNED_FROM: Final = 1_000_000  # ordinals of the cases for cudnn.benchmark
LOST_DEVICE: Final = 3  # exit status: only a new process can continue


class Journal:
    """The file that every result is appended to immediately, and the file with the current case."""

    def __init__(self, path: Path, position: Path) -> None:
        """Append to an existing journal."""
        self.file = path.open("a", encoding="utf-8")
        self.position = position

    def at(self, ordinal: int, name: dict[str, Any]) -> None:
        """Record the next case."""
        beside = self.position.with_name(self.position.name + ".new")
        beside.write_text(json.dumps({"i": ordinal, **name}))
        beside.replace(self.position)

    def add(self, kind: str, value: object) -> None:
        """Append a line."""
        self.file.write(json.dumps({kind: value}, separators=(",", ":")) + "\n")
        self.file.flush()


def head(meter: Meter) -> dict[str, Any]:
    """The device and the versions behind the figures."""
    real = meter.real
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if real else str(meter.device),
        "capability": list(torch.cuda.get_device_capability()) if real else None,
        "memory_bytes": torch.cuda.get_device_properties(0).total_memory if real else None,
        "environment": {
            k: v for k, v in os.environ.items() if k.startswith(("PYTORCH", "CUBLAS", "CUDNN", "NVIDIA_TF32"))
        },
        "started": time.time(),
    }


def micro(meter: Meter) -> dict[str, Any]:
    """One-time allocations: the context, cuBLAS's workspaces per thread and stream, the first convolution."""
    figures: dict[str, Any] = {}
    if not meter.real:
        return figures

    def bytes_outside_allocator() -> int:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return int(total - free - torch.cuda.memory_reserved())

    def allocation_figures(work: Run) -> list[int]:
        meter.reset()
        before = meter.now()[0]
        out = work()
        torch.cuda.synchronize()
        now, peak, _, _ = meter.now()
        size = sum(t.untyped_storage().nbytes() for t in out) if isinstance(out, (list, tuple)) else 0
        return [peak - before, now - before - size]

    x = torch.randn(256, 256, device=meter.device)
    half = x.bfloat16()
    bias = torch.zeros(256, device=meter.device)
    figures["outside_allocator_start"] = bytes_outside_allocator()
    figures["mm_first"] = allocation_figures(lambda: (torch.mm(x, x),))
    figures["mm_second"] = allocation_figures(lambda: (torch.mm(x, x),))
    figures["mm_bf16"] = allocation_figures(lambda: (torch.mm(half, half),))
    figures["addmm_bias"] = allocation_figures(lambda: (torch.addmm(bias, x, x),))
    figures["addmm_bias_again"] = allocation_figures(lambda: (torch.addmm(bias, x, x),))
    figures["addmm_bias_bf16"] = allocation_figures(lambda: (torch.addmm(bias.bfloat16(), half, half),))
    figures["addmm_gelu"] = allocation_figures(lambda: (torch._addmm_activation(bias, x, x, use_gelu=True),))
    figures["bmm"] = allocation_figures(lambda: (torch.bmm(x.view(4, 64, 256), x.view(4, 256, 64)),))

    def backward() -> Any:
        leaf = x.clone().requires_grad_()
        nn.functional.linear(leaf, x, bias).sum().backward()
        return ()

    figures["backward_first"], figures["backward_second"] = allocation_figures(backward), allocation_figures(backward)

    def on_thread() -> Any:
        thread = threading.Thread(target=lambda: torch.mm(x, x))
        thread.start()
        thread.join()
        return ()

    figures["thread_first"], figures["thread_second"] = allocation_figures(on_thread), allocation_figures(on_thread)

    def on_stream() -> Any:
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.mm(x, x)
        return ()

    figures["stream"] = allocation_figures(on_stream)
    figures["outside_after_cublas"] = bytes_outside_allocator()
    image, kernel = torch.randn(2, 16, 32, 32, device=meter.device), torch.randn(16, 16, 3, 3, device=meter.device)
    figures["conv_first"] = allocation_figures(lambda: (nn.functional.conv2d(image, kernel),))
    figures["conv_second"] = allocation_figures(lambda: (nn.functional.conv2d(image, kernel),))
    figures["outside_after_cudnn"] = bytes_outside_allocator()
    lstm = nn.LSTM(32, 32, 2, dropout=0.5).to(meter.device)
    sequence = torch.randn(8, 4, 32, device=meter.device)

    def recurrent() -> Any:
        lstm(sequence)
        return ()

    figures["lstm_dropout_first"], figures["lstm_dropout_second"] = (
        allocation_figures(recurrent),
        allocation_figures(recurrent),
    )
    figures["outside_after_rnn"] = bytes_outside_allocator()
    return figures


def warm(meter: Meter) -> None:
    """Create cuBLAS's workspaces on this thread and on autograd's, so that they do not count for a case."""
    if not meter.real:
        return
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.randn(8, 64, 64, device=meter.device, dtype=dtype, requires_grad=True)
        layer = nn.Linear(64, 64).to(meter.device, dtype)
        torch.bmm(layer(x), x).sum().backward()
    torch.cuda.synchronize()


def planned_cases(meter: Meter, log: EngineLog) -> list[tuple[dict[str, Any], Run]]:
    """All cases without cudnn.benchmark. Groups are interleaved, so that a shortened run covers all of them."""
    spread: list[tuple[float, dict[str, Any], Run]] = []
    for group, convs in probe_convolutions.convolutions().items():
        for i, conv in enumerate(convs):

            def run(conv: probe_convolution.Conv = conv) -> Any:
                return probe_convolution_runs.measure_convolution(conv, meter, log)

            spread.append(((i + 0.5) / len(convs), {"group": group, "conv": probe_convolutions.case_json(conv)}, run))
    for group, cases in probe_operators.operators().items():
        for i, case in enumerate(cases):

            def run_case(case: Case = case) -> Any:
                return probe_runs.measure_case(case, meter)

            name = {"group": group, "case": case.name, "parameters": case.parameters}
            spread.append(((i + 0.5) / len(cases), {**name, "det": True} if case.deterministic else name, run_case))
    spread.sort(key=lambda item: item[0])
    return [(name, run) for _, name, run in spread]


def attempt(journal: Journal, ordinal: int, name: dict[str, Any], run: Run, meter: Meter) -> None:
    """Run one case and record its row. Exit if the device is lost."""
    journal.at(ordinal, name)
    started = time.perf_counter()
    try:
        figures = run()
    except FAILURES as error:
        journal.add("error", {"i": ordinal, **name, "error": f"{type(error).__name__}: {str(error)[:300]}"})
        if DEAD.search(str(error)):
            os._exit(LOST_DEVICE)  # a lost context may hang in its cleanup
        meter.clean()
        return
    took_ms = round(1000 * (time.perf_counter() - started), 1)
    journal.add("row", {"i": ordinal, **name, "ms": took_ms, "is": figures})
    if any(DEAD.search(str(v.get("error"))) for v in figures.values() if isinstance(v, dict)):
        os._exit(LOST_DEVICE)


def run_grid(options: argparse.Namespace) -> None:
    """Measure the grid from case `first` until `until`, then the cudnn.benchmark cases in their share of the time."""
    meter, log = Meter(options.device), EngineLog()
    journal = Journal(options.journal, options.position)
    journal.at(options.first - 1, {"group": "start"})

    def left_s() -> float:
        return float(options.until - time.time())

    if options.first == 0:
        journal.add("head", head(meter))
        try:
            journal.add("micro", micro(meter))
        except FAILURES as error:
            journal.add("error", {"micro": str(error)[:300]})
    warm(meter)
    meter.clean()
    cases = planned_cases(meter, log)[: options.most]
    start_s, traced_s = time.perf_counter(), meter.tracing_s
    for ordinal in range(options.first, len(cases)):
        if left_s() < options.tuned_s:
            break
        attempt(journal, ordinal, *cases[ordinal], meter)
        if meter.real and torch.cuda.memory_reserved() > 24 << 30:
            meter.clean()
        if ordinal % 100 == 0 and meter.tracing_s - traced_s > 60 + 0.5 * (time.perf_counter() - start_s):
            meter.tracing = False  # prefer more figures to lists of allocations
    journal.add("walked", {"of": len(cases), "left_s": round(left_s(), 1)})

    def tune() -> None:
        for ordinal, conv in enumerate(probe_convolutions.tuning_cases()[: options.most], TUNED_FROM):
            if ordinal < options.first:
                continue
            if left_s() < 4:
                break

            def run(conv: probe_convolution.Conv = conv) -> Any:
                meter.clean()
                return probe_convolution_runs.measure_convolution(conv, meter, log, benchmark=True)

            attempt(journal, ordinal, {"group": "tuned", "conv": probe_convolutions.case_json(conv)}, run, meter)

    # cuDNN's plan cache is per thread and ignores benchmark: a new thread builds new plans.
    thread = threading.Thread(target=tune)
    thread.start()
    thread.join()
    tracing = {"tracing": meter.tracing, "tracing_failures": meter.failures, "tracing_s": round(meter.tracing_s, 1)}
    journal.add("done", {"engine_log": log.samples, **tracing})


def print_grid() -> None:
    """Print the number of cases and an example of each group."""
    convs = {**probe_convolutions.convolutions(), "tuned": probe_convolutions.tuning_cases()}
    rows = [(group, len(some), probe_convolutions.case_json(some[0])) for group, some in convs.items()]
    rows += [(g, len(cases), {cases[0].name: cases[0].parameters}) for g, cases in probe_operators.operators().items()]
    for group, count, example in rows:
        print(f"{group:14s} {count:5d}  {json.dumps(example)[:150]}")
    print(f"{sum(count for _, count, _ in rows)} cases")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments from `probe_scratch`, and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--position", type=Path, required=True)
    parser.add_argument("--first", type=int, required=True, help="the first case")
    parser.add_argument("--until", type=float, required=True, help="end time, in seconds since the epoch")
    parser.add_argument("--tuned-s", type=float, required=True, help="seconds at the end for cudnn.benchmark")
    parser.add_argument(
        "--most", type=int, required=True, help="maximum number of cases of the grid, and of cudnn.benchmark"
    )
    parser.add_argument("--device", required=True)
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device: list the grid with probe_scratch.py --dry-run, or run it with --device meta")
    run_grid(options)


if __name__ == "__main__":
    main()

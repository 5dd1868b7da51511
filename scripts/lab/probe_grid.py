"""Measures the grid of `probe_scratch`, case by case, in the process that `probe_scratch` watches.

Each line of the journal is a JSON object: {"head"}, {"micro"}, {"row"}, {"error"}, {"walked"} or {"done"}.
The position file holds the case being tried, written before it is: a crash or a hang costs that case alone.
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
LOST_DEVICE: Final = 3  # exit status: only a new process can go on


class Journal:
    """The file that every result is appended to at once, and the one that says where we are."""

    def __init__(self, path: Path, position: Path) -> None:
        """Go on behind what is already in the journal."""
        self.file = path.open("a", encoding="utf-8")
        self.position = position

    def at(self, ordinal: int, name: dict[str, Any]) -> None:
        """Note which case is tried next."""
        beside = self.position.with_name(self.position.name + ".new")
        beside.write_text(json.dumps({"i": ordinal, **name}))
        beside.replace(self.position)

    def add(self, kind: str, value: object) -> None:
        """Append a line."""
        self.file.write(json.dumps({kind: value}, separators=(",", ":")) + "\n")
        self.file.flush()


def head(meter: Meter) -> dict[str, Any]:
    """Where the figures come from."""
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
    """What is taken once: the context, cuBLAS's workspaces on each thread and stream, the first convolution."""
    told: dict[str, Any] = {}
    if not meter.real:
        return told

    def outside() -> int:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return int(total - free - torch.cuda.memory_reserved())

    def kept(work: Run) -> list[int]:
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
    told["outside_allocator_start"] = outside()
    told["mm_first"] = kept(lambda: (torch.mm(x, x),))
    told["mm_second"] = kept(lambda: (torch.mm(x, x),))
    told["mm_bf16"] = kept(lambda: (torch.mm(half, half),))
    told["addmm_bias"] = kept(lambda: (torch.addmm(bias, x, x),))
    told["addmm_bias_again"] = kept(lambda: (torch.addmm(bias, x, x),))
    told["addmm_bias_bf16"] = kept(lambda: (torch.addmm(bias.bfloat16(), half, half),))
    told["addmm_gelu"] = kept(lambda: (torch._addmm_activation(bias, x, x, use_gelu=True),))
    told["bmm"] = kept(lambda: (torch.bmm(x.view(4, 64, 256), x.view(4, 256, 64)),))

    def backward() -> Any:
        leaf = x.clone().requires_grad_()
        nn.functional.linear(leaf, x, bias).sum().backward()
        return ()

    told["backward_first"], told["backward_second"] = kept(backward), kept(backward)

    def on_thread() -> Any:
        thread = threading.Thread(target=lambda: torch.mm(x, x))
        thread.start()
        thread.join()
        return ()

    told["thread_first"], told["thread_second"] = kept(on_thread), kept(on_thread)

    def on_stream() -> Any:
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.mm(x, x)
        return ()

    told["stream"] = kept(on_stream)
    told["outside_after_cublas"] = outside()
    image, kernel = torch.randn(2, 16, 32, 32, device=meter.device), torch.randn(16, 16, 3, 3, device=meter.device)
    told["conv_first"] = kept(lambda: (nn.functional.conv2d(image, kernel),))
    told["conv_second"] = kept(lambda: (nn.functional.conv2d(image, kernel),))
    told["outside_after_cudnn"] = outside()
    lstm = nn.LSTM(32, 32, 2, dropout=0.5).to(meter.device)
    sequence = torch.randn(8, 4, 32, device=meter.device)

    def recurrent() -> Any:
        lstm(sequence)
        return ()

    told["lstm_dropout_first"], told["lstm_dropout_second"] = kept(recurrent), kept(recurrent)
    told["outside_after_rnn"] = outside()
    return told


def warm(meter: Meter) -> None:
    """Make cuBLAS's workspaces on this thread and on autograd's, so that no case is charged for them."""
    if not meter.real:
        return
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.randn(8, 64, 64, device=meter.device, dtype=dtype, requires_grad=True)
        layer = nn.Linear(64, 64).to(meter.device, dtype)
        torch.bmm(layer(x), x).sum().backward()
    torch.cuda.synchronize()


def planned(meter: Meter, log: EngineLog) -> list[tuple[dict[str, Any], Run]]:
    """Every case but the tuned ones: groups side by side, so that a cut leaves some of each."""
    spread: list[tuple[float, dict[str, Any], Run]] = []
    for group, convs in probe_convolutions.convolutions().items():
        for i, conv in enumerate(convs):

            def run(conv: probe_convolution.Conv = conv) -> Any:
                return probe_convolution_runs.measured(conv, meter, log)

            spread.append(((i + 0.5) / len(convs), {"group": group, "conv": probe_convolutions.key(conv)}, run))
    for group, cases in probe_operators.operators().items():
        for i, case in enumerate(cases):

            def run_case(case: Case = case) -> Any:
                return probe_runs.measured(case, meter)

            name = {"group": group, "case": case.name, "parameters": case.parameters}
            spread.append(((i + 0.5) / len(cases), {**name, "det": True} if case.deterministic else name, run_case))
    spread.sort(key=lambda item: item[0])
    return [(name, run) for _, name, run in spread]


def attempt(journal: Journal, ordinal: int, name: dict[str, Any], run: Run, meter: Meter) -> None:
    """Run one case into the journal; end the process where the device is lost."""
    journal.at(ordinal, name)
    started = time.perf_counter()
    try:
        told = run()
    except FAILURES as error:
        journal.add("error", {"i": ordinal, **name, "error": f"{type(error).__name__}: {str(error)[:300]}"})
        if DEAD.search(str(error)):
            os._exit(LOST_DEVICE)  # a lost context may hang in its own clean-up
        meter.clean()
        return
    took_ms = round(1000 * (time.perf_counter() - started), 1)
    journal.add("row", {"i": ordinal, **name, "ms": took_ms, "is": told})
    if any(DEAD.search(str(v.get("error"))) for v in told.values() if isinstance(v, dict)):
        os._exit(LOST_DEVICE)


def run_grid(options: argparse.Namespace) -> None:
    """Measure the grid from case `first` on until `until`, then the tuned cases in the share kept for them."""
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
    cases = planned(meter, log)[: options.most]
    begun_s, traced_s = time.perf_counter(), meter.tracing_s
    for ordinal in range(options.first, len(cases)):
        if left_s() < options.tuned_s:
            break
        attempt(journal, ordinal, *cases[ordinal], meter)
        if meter.real and torch.cuda.memory_reserved() > 24 << 30:
            meter.clean()
        if ordinal % 100 == 0 and meter.tracing_s - traced_s > 60 + 0.5 * (time.perf_counter() - begun_s):
            meter.tracing = False  # the figures matter more than the lists behind them
    journal.add("walked", {"of": len(cases), "left_s": round(left_s(), 1)})

    def tune() -> None:
        for ordinal, conv in enumerate(probe_convolutions.tuned()[: options.most], TUNED_FROM):
            if ordinal < options.first:
                continue
            if left_s() < 4:
                break

            def run(conv: probe_convolution.Conv = conv) -> Any:
                meter.clean()
                return probe_convolution_runs.measured(conv, meter, log, benchmark=True)

            attempt(journal, ordinal, {"group": "tuned", "conv": probe_convolutions.key(conv)}, run, meter)

    # cuDNN's plans are cached per thread and the cache doesn't ask about benchmark: a new thread asks again.
    thread = threading.Thread(target=tune)
    thread.start()
    thread.join()
    tracing = {"tracing": meter.tracing, "tracing_failures": meter.failures, "tracing_s": round(meter.tracing_s, 1)}
    journal.add("done", {"engine_log": log.samples, **tracing})


def listed() -> None:
    """Print how many cases each group has, and an example of each."""
    convs = {**probe_convolutions.convolutions(), "tuned": probe_convolutions.tuned()}
    rows = [(group, len(some), probe_convolutions.key(some[0])) for group, some in convs.items()]
    rows += [(g, len(cases), {cases[0].name: cases[0].parameters}) for g, cases in probe_operators.operators().items()]
    for group, count, example in rows:
        print(f"{group:14s} {count:5d}  {json.dumps(example)[:150]}")
    print(f"{sum(count for _, count, _ in rows)} cases")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read what `probe_scratch` passed on, and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--position", type=Path, required=True)
    parser.add_argument("--first", type=int, required=True, help="the first case to try")
    parser.add_argument("--until", type=float, required=True, help="when to stop, in seconds since the epoch")
    parser.add_argument("--tuned-s", type=float, required=True, help="seconds at the end kept for cudnn.benchmark")
    parser.add_argument("--most", type=int, required=True, help="at most so many cases of the grid, and of the tuned")
    parser.add_argument("--device", required=True)
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device; probe_scratch.py --dry-run lists the grid, --device meta walks it")
    run_grid(options)


if __name__ == "__main__":
    main()

"""What libraries take beside the tensors an op returns, measured on a CUDA device over a broad grid of ops.

The memory simulation's scratch rules are written from, and tested against, what this writes::

    python scripts/probe_scratch.py --out scratch.json.gz --seconds 280
    python scripts/probe_scratch.py --models --out memory_models.json.gz --seconds 280

It needs nothing but torch. `--dry-run` lists the grid; `--device meta` walks it without CUDA (every figure is then 0).
Each figure is [peak over what was live, growth, bytes of the outputs, peak in allocated bytes]: scratch is the peak less
the growth. `ev` lists the allocations (+) and frees (-) inside the steady call; `plans` cuDNN's engines and workspaces.
A case that fails is written with its error. After an error that leaves the device unusable the script starts itself
again behind that case. The answer is rewritten every 20 seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

if "--no-engine-log" not in sys.argv:  # read once, when cuDNN's frontend is first used
    os.environ.setdefault("CUDNN_FRONTEND_LOG_INFO", "1")
    os.environ.setdefault(
        "CUDNN_FRONTEND_LOG_FILE", str(Path(tempfile.gettempdir()) / f"cudnn_plans_{os.getpid()}.log")
    )

import probe_convolutions
import probe_operators
import torch
from probe_device import DEAD, FAILURES, EngineLog, Meter, read_json, write_json
from torch import nn

Run = Callable[[], Any]
SAVE_EVERY_S: Final = 20.0


class Answer:
    """The rows gathered so far, and the file they go to."""

    def __init__(self, path: Path, head: dict[str, Any], *, resume: bool) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.position = path.with_name(path.name + ".at")
        if not resume:
            self.position.unlink(missing_ok=True)
        self.body: dict[str, Any] = {**head, "rows": [], "errors": [], "micro": {}}
        if resume and path.exists():
            self.body = read_json(path)
        self.saved_at = time.monotonic()

    def at(self, ordinal: int) -> None:
        """Note which case is tried, so that a crash in a library costs that case alone."""
        self.position.write_text(str(ordinal))

    def next(self) -> int:
        """The case behind the last that was tried."""
        return int(self.position.read_text()) + 1 if self.position.exists() else 0

    def save(self, *, force: bool = False) -> None:
        """Write the file, if it is time."""
        if not force and time.monotonic() - self.saved_at < SAVE_EVERY_S:
            return
        write_json(self.path, self.body)
        self.saved_at = time.monotonic()


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

            def run(conv: probe_convolutions.Conv = conv) -> Any:
                return probe_convolutions.measured(conv, meter, log)

            spread.append(((i + 0.5) / len(convs), {"group": group, "conv": probe_convolutions.key(conv)}, run))
    for group, cases in probe_operators.operators().items():
        for i, case in enumerate(cases):

            def run_case(case: probe_operators.Case = case) -> Any:
                return probe_operators.measured(case, meter)

            name = {"group": group, "case": case.name, "parameters": case.parameters}
            spread.append(((i + 0.5) / len(cases), {**name, "det": True} if case.deterministic else name, run_case))
    spread.sort(key=lambda item: item[0])
    return [(name, run) for _, name, run in spread]


def attempt(answer: Answer, ordinal: int, name: dict[str, Any], run: Run, meter: Meter) -> None:
    """Run one case into the answer; start the script again where the device is lost."""
    answer.at(ordinal)
    started = time.perf_counter()
    try:
        told = run()
    except FAILURES as error:
        text = f"{type(error).__name__}: {str(error)[:300]}"
        answer.body["errors"].append({"i": ordinal, **name, "error": text})
        if DEAD.search(str(error)):
            answer.save(force=True)
            restart()
        meter.clean()
    else:
        took = round(1000 * (time.perf_counter() - started), 1)
        answer.body["rows"].append({"i": ordinal, **name, "ms": took, "is": told})
        if any(DEAD.search(str(v.get("error"))) for v in told.values() if isinstance(v, dict)):
            answer.save(force=True)
            restart()
    answer.save()


def restart() -> None:
    """Replace this process by one that goes on behind the last case."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *[a for a in sys.argv if a != "--resume"], "--resume"])  # noqa: S606


def run_grid(options: argparse.Namespace, meter: Meter) -> None:
    """Measure the grid within the time, then the tuned cases in what is left."""
    log = EngineLog()
    answer = Answer(options.out, head(meter), resume=options.resume)
    begun = answer.body["started"]

    def left() -> float:
        return float(options.seconds - (time.time() - begun))

    if not options.resume:
        try:
            answer.body["micro"] = micro(meter)
        except FAILURES as error:
            answer.body["errors"].append({"micro": str(error)[:300]})
    warm(meter)
    meter.clean()
    cases = planned(meter, log)
    share = options.tuned_share * options.seconds
    first = answer.next()
    ordinal = -1
    for ordinal, (name, run) in enumerate(cases[: options.most]):
        if ordinal < first:
            continue
        if left() < share:
            break
        attempt(answer, ordinal, name, run, meter)
        if meter.real and torch.cuda.memory_reserved() > 24 << 30:
            meter.clean()
        if ordinal % 250 == 0:
            print(f"{ordinal} of {len(cases)} cases, {options.seconds - left():.0f} s", flush=True)
        if meter.tracing_s > 0.3 * options.seconds:  # the figures matter more than the lists behind them
            meter.tracing = False
    answer.body.setdefault("walked", ordinal + 1)
    answer.body.setdefault("grid_s", options.seconds - left())
    answer.save(force=True)

    def tune() -> None:
        for at, conv in enumerate(probe_convolutions.tuned()[: options.most]):
            ordinal = 1_000_000 + at
            if ordinal < first:
                continue
            if left() < 4:
                break

            def run(conv: probe_convolutions.Conv = conv) -> Any:
                meter.clean()
                return probe_convolutions.measured(conv, meter, log, benchmark=True)

            attempt(answer, ordinal, {"group": "tuned", "conv": probe_convolutions.key(conv)}, run, meter)

    # cuDNN's plans are cached per thread and the cache doesn't ask about benchmark: a new thread asks again.
    thread = threading.Thread(target=tune)
    thread.start()
    thread.join()
    answer.body["engine_log"] = log.samples
    answer.body["wall_s"] = options.seconds - left()
    answer.body["tracing"] = [meter.tracing, meter.failures, round(meter.tracing_s, 1)]
    answer.save(force=True)
    answer.position.unlink(missing_ok=True)
    rows, errors = answer.body["rows"], answer.body["errors"]
    print(
        f"{len(rows)} cases, {len(errors)} errors, {answer.body['wall_s']:.0f} s, {options.out.stat().st_size / 1e6:.1f} MB"
    )
    for one in errors[:10]:
        print("  ", json.dumps(one)[:240])


def listed() -> None:
    """Print how many cases each group has, and an example of each."""
    convs = {**probe_convolutions.convolutions(), "tuned": probe_convolutions.tuned()}
    rows = [(group, len(some), probe_convolutions.key(some[0])) for group, some in convs.items()]
    rows += [(g, len(cases), {cases[0].name: cases[0].parameters}) for g, cases in probe_operators.operators().items()]
    for group, count, example in rows:
        print(f"{group:14s} {count:5d}  {json.dumps(example)[:150]}")
    print(f"{sum(count for _, count, _ in rows)} cases")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("scratch.json.gz"))
    parser.add_argument("--seconds", type=float, default=280.0, help="when to stop")
    parser.add_argument("--tuned-share", type=float, default=0.22, help="part of the time kept for cudnn.benchmark")
    parser.add_argument("--models", action="store_true", help="measure the steps of scripts/memory_models.py instead")
    parser.add_argument("--only", default="", help="with --models: names, separated by commas")
    parser.add_argument("--most", type=int, default=1_000_000, help="at most so many cases")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dry-run", action="store_true", help="list the grid and stop")
    parser.add_argument("--resume", action="store_true", help="go on with the file that --out names")
    parser.add_argument("--no-engine-log", action="store_true", help="leave cuDNN's log alone")
    options = parser.parse_args(arguments)
    if options.models:
        import probe_models  # its models take a while to define

        probe_models.run(options)
    elif options.dry_run:
        listed()
    else:
        if options.device == "cuda" and not torch.cuda.is_available():
            sys.exit("no CUDA device; --dry-run lists the grid, --device meta walks it")
        run_grid(options, Meter(options.device))


if __name__ == "__main__":
    main()

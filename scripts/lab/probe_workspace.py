"""Temporary memory of a random, stratified sample of convolutions on a CUDA device, for the rules of `memory.workspace`.

The strata: kernels of 1 to 11, dilations of 1 to 4, strides, transposed, grouped and depthwise convolutions, one to three
dimensions, float32 with and without TF32, float16, bfloat16, channels last, and cudnn.benchmark. Every case runs forward and
both gradients. The figures are requested bytes beyond operands and results.

    python -m scripts.lab.probe_workspace --out points.json.gz --seconds 80 --processes 7 [--seed 1] [--device meta]

The cases of one seed are the same in every run; a shortened run covers all strata. Other seeds give a hold-out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from scripts.lab.probe_convolution import Conv, conv
from scripts.lab.probe_device import FAILURES, SLOW_S, Meter, library_flags, write_json

CASES: Final = 20_000  # more than any run can measure
KINDS: Final = (
    "dense",
    "dense",
    "dense",
    "strided",
    "dilated",
    "dilated",
    "large",
    "large",
    "pointwise",
    "rectangular",
    "transposed",
    "grouped",
    "depthwise",
    "depthwise",
    "1d",
    "3d",
)
DTYPES: Final = ("tf32", "fp32", "bf16", "fp16", "tf32", "fp32", "bf16")
CHANNELS: Final = (
    1, 2, 3, 3, 4, 8, 12, 16, 16, 20, 24, 32, 32, 40, 48, 58, 64, 64, 64, 80, 96, 112, 116, 128, 128, 144, 160, 192, 232, 256,
    256, 320, 384, 464, 512, 512, 640, 768, 1024, 2048,
)  # fmt: skip
PASSES: Final = (("forward", None), ("dgrad", [True, False, False]), ("wgrad", [False, True, False]))


def sampled_case(rng: random.Random, kind: str, dtype: str) -> Conv:
    """A random convolution of a stratum; it may be invalid or too large."""
    dims = {"1d": 1, "3d": 3}.get(kind, 2)
    kernel: int | tuple[int, ...]
    kernel = rng.choice((1, 2, 3, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9, 10, 11)) if dims < 3 else rng.choice((1, 2, 3, 3, 3, 5))
    stride, dilation, groups = 1, 1, 1
    in_channels, out_channels = rng.choice(CHANNELS), rng.choice(CHANNELS)
    if rng.random() < 0.35:
        out_channels = in_channels
    if kind == "dense":
        kernel = rng.choice((3, 3, 3, 3, 2, 4, 5, 5, 6, 7))
    elif kind == "strided":
        stride = rng.choice((2, 2, 2, 3, 4))
    elif kind == "dilated":
        kernel, dilation = rng.choice((2, 3, 3, 3, 5, 7)), rng.choice((2, 2, 3, 4))
    elif kind == "large":
        kernel = rng.choice((7, 8, 9, 10, 11, 11))
        in_channels, out_channels = min(in_channels, 256), min(out_channels, 256)
    elif kind == "pointwise":
        kernel = 1
        stride = rng.choice((1, 1, 1, 2))
    elif kind == "rectangular":
        rectangle = (rng.choice((1, 2, 3, 5, 7)), rng.choice((3, 4, 5, 7, 9, 11)))
        kernel = rectangle if rng.random() < 0.5 else rectangle[::-1]
    elif kind == "transposed":
        kernel, stride = rng.choice((2, 3, 4, 4, 5)), rng.choice((1, 2, 2, 3))
    elif kind == "grouped":
        groups = rng.choice((2, 3, 4, 8, 16, 32))
        in_channels, out_channels = (-(-c // groups) * groups for c in (in_channels, out_channels))
        kernel, stride = rng.choice((1, 3, 3, 3, 5)), rng.choice((1, 1, 2))
    elif kind == "depthwise":
        groups = in_channels = max(in_channels, 8)
        out_channels = in_channels * rng.choice((1, 1, 1, 1, 1, 2))
        kernel, stride = rng.choice((3, 3, 3, 5, 5, 7, 9, 11)), rng.choice((1, 1, 2))
        dilation = rng.choice((1, 1, 1, 1, 2))
    elif kind == "1d":
        stride, dilation = rng.choice((1, 1, 1, 2, 4)), rng.choice((1, 1, 1, 2, 4))
    elif kind == "3d":
        stride = rng.choice((1, 1, 1, 2))
    sides = {
        1: (50, 100, 200, 400, 1000, 4000, 16000),
        2: (1, 3, 4, 6, 7, 8, 10, 12, 13, 14, 16, 19, 20, 24, 28, 28, 32, 32, 40, 48, 56, 56, 64, 75, 80, 96, 112, 128, 160, 224),
        3: (4, 8, 12, 16, 24, 32),
    }[dims]  # fmt: skip
    height = rng.choice(sides)
    size = (height,) * dims if dims != 2 or rng.random() < 0.8 else (height, rng.choice(sides))
    padding = None if rng.random() < 0.85 else rng.choice((0, 1))
    batch = rng.choice((1, 2, 3, 4, 6, 8, 8, 12, 16, 16, 24, 32, 32, 48, 64, 128))
    case = conv(
        batch, in_channels, out_channels, size, kernel, stride, padding, dilation,
        dims=dims, g=groups, t=kind == "transposed",
    )  # fmt: skip
    return replace(case, dtype=dtype, cl=dims > 1 and rng.random() < 0.2)


def sampled_cases(seed: int, count: int = CASES) -> list[tuple[Conv, bool]]:
    """Valid cases, each with its cudnn.benchmark flag, in turn from every stratum."""
    rng = random.Random(seed)
    cases: list[tuple[Conv, bool]] = []
    while len(cases) < count:
        kind, dtype = rng.choice(KINDS), rng.choice(DTYPES)
        case = sampled_case(rng, kind, dtype)
        if _is_measurable(case):
            cases.append((case, rng.random() < 0.12))
    return cases


def _is_measurable(case: Conv) -> bool:
    kernel_fits = all(
        i + 2 * p >= d * (k - 1) + 1 for i, p, d, k in zip(case.size, case.p, case.d, case.k, strict=True)
    )
    return (case.t or kernel_fits) and case.fits() and case.macs() < 2e10


def case_fields(case: Conv) -> dict[str, Any]:
    """The case as JSON, without default values."""
    default = {"t": False, "g": 1, "cl": False, "det": False}
    return {key: value for key, value in asdict(case).items() if key not in default or default[key] != value}


def measure(case: Conv, meter: Meter, *, benchmark: bool, traced: bool) -> dict[str, Any]:
    """Per pass: [peak of the first call, peak of a later call, bytes of its results, reserved bytes added by the first call].

    `ev`, for traced cases: the allocations and frees of a later call, in order.
    """
    import torch

    from scripts.lab.probe_convolution_runs import operands

    row: dict[str, Any] = {}
    with torch.no_grad(), library_flags(case.dtype, benchmark=benchmark):
        x, w, b, dy = operands(case, meter.device)
        shape = [list(case.s), list(case.p), list(case.d), case.t, list(case.op), case.g]
        for name, mask in PASSES:

            def work(mask: list[bool] | None = mask) -> object:
                if mask is None:
                    return torch.ops.aten.convolution(x, w, None, *shape)
                return torch.ops.aten.convolution_backward(dy, x, w, [b.shape[0]], *shape, mask)

            try:
                reserved = torch.cuda.memory_reserved() if meter.real else 0
                first = meter.call(work)
                reserved = torch.cuda.memory_reserved() - reserved if meter.real else 0
                later = meter.call(work)
                row[name] = [first[0], later[0], later[2], reserved]
                if meter.took_s > SLOW_S:
                    break
                if traced and later[0] > later[2]:
                    row.setdefault("ev", {})[name] = meter.allocations(work, 24)
            except RuntimeError as error:
                row[name] = f"{type(error).__name__}: {str(error)[:80]}"
                meter.clean()
    return row


def run_share(index: int, options: argparse.Namespace, until: float, out: Path) -> None:
    """Measure every n-th case of the sample until the time is over."""
    import torch

    meter = Meter(options.device)
    cases = sampled_cases(options.seed, options.cases)[index :: options.processes]
    rows: list[Any] = []
    saved = time.time()
    for number, (case, benchmark) in enumerate(cases):
        if time.time() > until:
            break
        try:
            row = measure(case, meter, benchmark=benchmark, traced=number % 3 == 0)
        except FAILURES as error:
            row = {"error": f"{type(error).__name__}: {str(error)[:80]}"}
            meter.clean()
        rows.append([case_fields(case), int(benchmark), row])
        if meter.real and torch.cuda.memory_reserved() > 5 << 30:
            meter.clean()
        if time.time() - saved > 10:
            write_json(out, rows)
            saved = time.time()
    write_json(out, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the processes and join their results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=80)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    until = time.time() + options.seconds
    context = multiprocessing.get_context("spawn")
    parts = [options.out.with_name(f".part{index}.json") for index in range(options.processes)]
    children = [
        context.Process(target=run_share, args=(index, options, until, part)) for index, part in enumerate(parts)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(max(until + 15 - time.time(), 0.1))
        if child.is_alive():
            child.kill()
    join_parts(parts, options)
    return 0


def join_parts(parts: Sequence[Path], options: argparse.Namespace) -> None:
    """Write the rows of all processes, with the versions, to one file."""
    import json

    import torch

    rows = [row for part in parts if part.exists() for row in json.loads(part.read_bytes())]
    for part in parts:
        part.unlink(missing_ok=True)
    about = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "seed": options.seed,
        "fields": "conv, benchmark, per pass [first peak, later peak, results, reserved], requested bytes",
        "rows": rows,
    }
    write_json(options.out, about)
    failed = sum("error" in row[2] for row in rows)
    print(f"{len(rows)} convolutions, {failed} failed, {options.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    sys.exit(main())

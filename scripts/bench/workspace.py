"""Score the workspace rules on random convolutions: is what the libraries of this device take inside the interval?

    python -m scripts.bench.workspace [--seconds 80] [--seed 1] [--by kind,dtype,pass] [--worst 10]

The sample is stratified: kernels of 1 to 11, dilations of 1 to 4, strides, transposed, grouped and depthwise convolutions, one
to three dimensions, float32 with and without TF32, float16, bfloat16, channels last, and cudnn.benchmark. A case runs forward
and both gradients. Its figures are requested bytes beyond operands and results. The cases of a seed are the same in every run;
another seed is a hold-out.

Columns: the share of points inside the interval, above it and below it; the share whose likely size is within 1 % or 4 KiB; and
the median width of the interval, in multiples of the copies of all operands.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Final

import torch
from tabulate import tabulate
from torch import Tensor

from profiler_kit.devices.cards.data_center import H100
from profiler_kit.memory.workspace import LibraryConfig, WorkspaceBytes, workspace_of
from profiler_kit.meta.emulation.library_calls import OpCall, facts_of

MAX_MACS: Final = 2e10
MAX_MACS_DEPTHWISE: Final = 2e9  # ATen's own kernels are slow for their work
MAX_ELEMENTS: Final = 100e6
MAX_EXPECTED_S: Final = 0.25
MAX_RESERVED_BYTES: Final = 5 << 30  # then the cache is emptied
NEAR_BYTES: Final = 4096
NEAR_SHARE: Final = 0.01
KINDS: Final = (
    "dense", "dense", "dense", "strided", "dilated", "dilated", "large", "large", "pointwise", "rectangular", "transposed",
    "grouped", "depthwise", "depthwise", "1d", "3d",
)  # fmt: skip
DTYPES: Final = ("tf32", "fp32", "bf16", "fp16", "tf32", "fp32", "bf16")
TORCH_DTYPES: Final = {
    "tf32": torch.float32, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
}  # fmt: skip
CHANNELS: Final = (
    1, 2, 3, 3, 4, 8, 12, 16, 16, 20, 24, 32, 32, 40, 48, 58, 64, 64, 64, 80, 96, 112, 116, 128, 128, 144, 160, 192, 232, 256,
    256, 320, 384, 464, 512, 512, 640, 768, 1024, 2048,
)  # fmt: skip
SIDES: Final = {
    1: (50, 100, 200, 400, 1000, 4000, 16000),
    2: (1, 3, 4, 6, 7, 8, 10, 12, 13, 14, 16, 19, 20, 24, 28, 28, 32, 32, 40, 48, 56, 56, 64, 75, 80, 96, 112, 128, 160, 224),
    3: (4, 8, 12, 16, 24, 32),
}  # fmt: skip
BATCHES: Final = (1, 2, 3, 4, 6, 8, 8, 12, 16, 16, 24, 32, 32, 48, 64, 128)
MASKS: Final = {"forward": None, "dgrad": (True, False, False), "wgrad": (False, True, False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution: its sizes, and the settings of the libraries. Stride, padding and dilation are equal in all dimensions."""

    batch: int
    channels: tuple[int, int]
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int
    padding: tuple[int, ...]
    dilation: int
    groups: int
    is_transposed: bool
    dtype: str
    is_channels_last: bool
    is_tuned: bool = False

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is a group."""
        return self.groups > 1 and self.groups == self.channels[0]

    def out_size(self) -> tuple[int, ...]:
        """The output's spatial size."""
        rows = zip(self.size, self.kernel, self.padding, strict=True)
        if self.is_transposed:
            return tuple((i - 1) * self.stride - 2 * p + self.dilation * (k - 1) + 1 for i, k, p in rows)
        return tuple((i + 2 * p - self.dilation * (k - 1) - 1) // self.stride + 1 for i, k, p in rows)

    def macs(self) -> float:
        """Multiply-accumulates of the forward pass."""
        steps = math.prod(self.size if self.is_transposed else self.out_size()) * math.prod(self.channels)
        return self.batch * steps / self.groups * math.prod(self.kernel)

    def is_measurable(self) -> bool:
        """Whether the case is valid and small enough to measure quickly."""
        out, macs, dims = self.out_size(), self.macs(), len(self.size)
        if min(out) < 1 or any(count % self.groups for count in self.channels) or (self.is_channels_last and dims == 1):
            return False
        # Multiply-accumulates per second of the slowest call, low estimates for an H100.
        rate = 2e12
        if self.is_depthwise:  # one thread computes a whole window, or all positions of the weights
            rate = 2e10 if dims == 3 else 1e11
        elif self.groups > 1:
            rate = 5e10 if dims == 3 else 3e11
        elif dims == 3:  # cuDNN may only offer engines without tensor cores
            rate = 1e12 if max(self.kernel) <= 5 else 2e11
        elements = self.batch * max(
            count * math.prod(side) for count, side in zip(self.channels, (self.size, out), strict=True)
        )
        most = MAX_MACS_DEPTHWISE if self.is_depthwise else MAX_MACS
        return elements <= MAX_ELEMENTS and macs < most and macs / rate <= MAX_EXPECTED_S

    def operands(self, device: str) -> tuple[Tensor, Tensor, Tensor]:
        """Input, weight and output."""
        cin, cout = self.channels
        outer = (cin, cout // self.groups) if self.is_transposed else (cout, cin // self.groups)
        layout = torch.channels_last if len(self.size) == 2 else torch.channels_last_3d
        x, w, y = (
            torch.empty(shape, device=device, dtype=TORCH_DTYPES[self.dtype]).normal_()
            for shape in ((self.batch, cin, *self.size), (*outer, *self.kernel), (self.batch, cout, *self.out_size()))
        )
        if self.is_channels_last:
            x, w, y = (tensor.contiguous(memory_format=layout) for tensor in (x, w, y))
        return x, w, y

    def key(self, direction: str, parts: Sequence[str]) -> tuple[str, ...]:
        """The names of its families, one for each of `parts`."""
        kind = "dense" if self.groups == 1 else "depthwise" if self.is_depthwise else "grouped"
        names = {
            "kind": ("transposed " if self.is_transposed else "") + kind,
            "dims": f"{len(self.size)}-d",
            "kernel": "x".join(map(str, self.kernel)),
            "side": str(max(self.kernel)),
            "dilated": "dilated" if self.dilation > 1 else "",
            "stride": f"stride {self.stride}",
            "dtype": "half" if self.dtype in ("bf16", "fp16") else self.dtype,
            "layout": "channels last" if self.is_channels_last else "",
            "pass": direction,
            "tuned": "benchmark" if self.is_tuned else "",
        }
        return tuple(names[part] for part in parts)


@dataclass(frozen=True, slots=True)
class Point:
    """A measured pass of a convolution: its workspace in bytes, and what the rules predict."""

    case: Convolution
    direction: str
    measured: int
    rule: WorkspaceBytes
    operand_bytes: int

    @property
    def is_above(self) -> bool:
        """Whether the measurement exceeds the interval."""
        return self.measured > self.rule.high * 1.001 + NEAR_BYTES

    @property
    def is_below(self) -> bool:
        """Whether the interval exceeds the measurement."""
        return self.measured * 1.001 + NEAR_BYTES < self.rule.low

    @property
    def is_near(self) -> bool:
        """Whether the likely size is what was measured."""
        return abs(self.rule.likely - self.measured) <= max(NEAR_BYTES, NEAR_SHARE * self.measured)


def sampled_case(rng: random.Random, kind: str, dtype: str) -> Convolution:
    """A random convolution of a stratum; it may be invalid or too large."""
    dims = {"1d": 1, "3d": 3}.get(kind, 2)
    kernel: int | tuple[int, int]
    kernel = rng.choice((1, 2, 3, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9, 10, 11)) if dims < 3 else rng.choice((1, 2, 3, 3, 3, 5))
    stride, dilation, groups = 1, 1, 1
    cin, cout = rng.choice(CHANNELS), rng.choice(CHANNELS)
    if rng.random() < 0.35:
        cout = cin
    match kind:
        case "dense":
            kernel = rng.choice((3, 3, 3, 3, 2, 4, 5, 5, 6, 7))
        case "strided":
            stride = rng.choice((2, 2, 2, 3, 4))
        case "dilated":
            kernel, dilation = rng.choice((2, 3, 3, 3, 5, 7)), rng.choice((2, 2, 3, 4))
        case "large":
            kernel, cin, cout = rng.choice((7, 8, 9, 10, 11, 11)), min(cin, 256), min(cout, 256)
        case "pointwise":
            kernel, stride = 1, rng.choice((1, 1, 1, 2))
        case "rectangular":
            rectangle = (rng.choice((1, 2, 3, 5, 7)), rng.choice((3, 4, 5, 7, 9, 11)))
            kernel = rectangle if rng.random() < 0.5 else rectangle[::-1]
        case "transposed":
            kernel, stride = rng.choice((2, 3, 4, 4, 5)), rng.choice((1, 2, 2, 3))
        case "grouped":
            groups = rng.choice((2, 3, 4, 8, 16, 32))
            cin, cout = (-(-count // groups) * groups for count in (cin, cout))
            kernel, stride = rng.choice((1, 3, 3, 3, 5)), rng.choice((1, 1, 2))
        case "depthwise":
            groups = cin = max(cin, 8)
            cout = cin * rng.choice((1, 1, 1, 1, 1, 2))
            kernel, stride = rng.choice((3, 3, 3, 5, 5, 7, 9, 11)), rng.choice((1, 1, 2))
            dilation = rng.choice((1, 1, 1, 1, 2))
        case "1d":
            stride, dilation = rng.choice((1, 1, 1, 2, 4)), rng.choice((1, 1, 1, 2, 4))
        case "3d":
            stride = rng.choice((1, 1, 1, 2))
    height = rng.choice(SIDES[dims])
    size = (height,) * dims if dims != 2 or rng.random() < 0.8 else (height, rng.choice(SIDES[dims]))
    kernels = (kernel,) * dims if isinstance(kernel, int) else kernel
    padding = tuple(dilation * (side - 1) // 2 for side in kernels)  # keeps the size at stride 1
    if rng.random() >= 0.85:
        padding = (rng.choice((0, 1)),) * dims
    return Convolution(
        batch=rng.choice(BATCHES), channels=(cin, cout), size=size, kernel=kernels, stride=stride, padding=padding,
        dilation=dilation, groups=groups, is_transposed=kind == "transposed", dtype=dtype,
        is_channels_last=dims > 1 and rng.random() < 0.2,
    )  # fmt: skip


def sampled_cases(seed: int) -> Iterator[Convolution]:
    """Measurable cases of random strata, without end."""
    rng = random.Random(seed)
    while True:
        case = sampled_case(rng, rng.choice(KINDS), rng.choice(DTYPES))
        if case.is_measurable():
            yield replace(case, is_tuned=rng.random() < 0.12)


def points_of(case: Convolution, device: str, workspace_bytes: Callable[[Callable[[], Any]], int]) -> Iterator[Point]:
    """Measure each pass of `case` with `workspace_bytes`, and ask the rules. Passes that the libraries refuse are left out."""
    cudnn = torch.backends.cudnn
    with torch.no_grad(), cudnn.flags(True, case.is_tuned, deterministic=False, allow_tf32=case.dtype != "fp32"):
        config = LibraryConfig(conv_tf32=case.dtype != "fp32", benchmark=case.is_tuned)
        x, w, y = case.operands(device)
        dims = len(case.size)
        shape = (
            [case.stride] * dims, [*case.padding], [case.dilation] * dims, case.is_transposed, [0] * dims, case.groups,
        )  # fmt: skip
        for direction, mask in MASKS.items():
            arguments: tuple[Any, ...] = (x, w, None, *shape)
            name, results = "convolution", facts_of((y,))
            if mask:
                arguments = (y, x, w, [case.channels[1]], *shape, list(mask))
                name, results = "convolution_backward", ()
            function = getattr(torch.ops.aten, name)
            try:
                measured = workspace_bytes(partial(function, *arguments))
            except RuntimeError:
                continue
            call = OpCall(f"aten.{name}", facts_of(arguments), outputs=results, in_backward=mask is not None)
            yield Point(case, direction, measured, workspace_of(call, H100, config), sum(t.nbytes for t in (x, w, y)))


def cuda_workspace_bytes(call: Callable[[], Any]) -> int:
    """The peak of requested bytes in the second call beyond live tensors and results. The first call may keep handles."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    results = call()
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    kept = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in (results if isinstance(results, tuple) else (results,))
        if tensor is not None
    }
    taken: int = peak - before - sum(kept.values())
    return max(taken, 0)


def measured_points(seed: int, seconds: float) -> Iterator[Point]:
    """The points of the first cases of a sample, until the time is over."""
    until = time.monotonic() + seconds
    for case in sampled_cases(seed):
        if time.monotonic() > until:
            break
        yield from points_of(case, "cuda", cuda_workspace_bytes)
        if torch.cuda.memory_reserved() > MAX_RESERVED_BYTES:
            torch.cuda.empty_cache()


def format_scores(points: Sequence[Point], parts: Sequence[str], worst: int) -> str:
    """The table of all families, and the points farthest above their intervals."""
    families: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for point in points:
        families[point.case.key(point.direction, parts)].append(point)
    rows = [[" ".join(filter(None, name)), *_scores(family)] for name, family in sorted(families.items())]
    rows.append(["all", *_scores(points)])
    above = sorted((point for point in points if point.is_above), key=lambda point: point.rule.high - point.measured)
    return "\n".join(
        [
            tabulate(rows, ["family", "points", "inside %", "above", "below", "near %", "width"], floatfmt=".1f"),
            *(f"{point.direction}: {point.measured} bytes, {point.rule}, {point.case}" for point in above[:worst]),
        ]
    )


def _scores(points: Sequence[Point]) -> list[Any]:
    above, below = sum(point.is_above for point in points), sum(point.is_below for point in points)
    near = sum(point.is_near for point in points)
    widths = [(point.rule.high - point.rule.low) / point.operand_bytes for point in points]
    total = len(points)
    return [total, 100 * (total - above - below) / total, above, below, 100 * near / total, round(median(widths), 2)]


def main() -> int:
    """Print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=80)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--by",
        default="kind,dtype,pass",
        help="parts of a family's name: those of Convolution.key",
    )
    parser.add_argument("--worst", type=int, default=10)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("error: the workspace of libraries can be measured on a CUDA device only", file=sys.stderr)
        return 2
    print(format_scores([*measured_points(options.seed, options.seconds)], options.by.split(","), options.worst))
    return 0


if __name__ == "__main__":
    sys.exit(main())

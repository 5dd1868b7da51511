"""Score the workspace rules on measured convolutions, family by family.

    python -m scripts.lab.score_workspace points.json.gz [--by kernel,dtype] [--worst 10]

The points come from `probe_workspace`. Columns: the share of points inside the interval, above it and below it; the share
whose likely size is within 1 % or 4 KiB; and the median width of the interval, in multiples of the copies of all operands.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from tabulate import tabulate

from profiler_kit.devices.cards.data_center import H100
from profiler_kit.memory.workspace import LibraryConfig, WorkspaceBytes, workspace_of
from profiler_kit.meta.emulation.library_calls import OpCall, TensorFacts
from scripts.lab.probe_convolution import Conv

MASKS: Final = {"dgrad": (True, False, False), "wgrad": (False, True, False)}
DTYPES: Final = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
NEAR_BYTES: Final = 4096
NEAR_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Point:
    """A measured pass of a convolution: its workspace in bytes and what the rules predict."""

    conv: Conv
    direction: str
    is_tuned: bool
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

    def key(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The names of its families, one for each of `parts`."""
        conv = self.conv
        kind = "dense" if conv.g == 1 else "depthwise" if conv.g == conv.cin else "grouped"
        every = {
            "kind": ("transposed " if conv.t else "") + kind,
            "dims": f"{len(conv.k)}-d",
            "kernel": "x".join(map(str, conv.k)),
            "side": str(max(conv.k)),
            "dilated": "dilated" if max(conv.d) > 1 else "",
            "stride": f"stride {max(conv.s)}",
            "dtype": "half" if conv.dtype in ("bf16", "fp16") else conv.dtype,
            "layout": "channels last" if conv.cl else "",
            "pass": self.direction,
            "tuned": "benchmark" if self.is_tuned else "",
        }
        return tuple(every[part] for part in parts)


def points_of(path: Path) -> Iterator[Point]:
    """The points of a file of `probe_workspace`; passes that failed are left out."""
    for fields, is_tuned, row in json.loads(gzip.decompress(path.read_bytes()))["rows"]:
        arguments: dict[str, Any] = {
            n: tuple(value) if isinstance(value, list) else value for n, value in fields.items()
        }
        conv = Conv(**arguments)
        config = LibraryConfig(conv_tf32=conv.dtype != "fp32", benchmark=bool(is_tuned))
        for direction in ("forward", "dgrad", "wgrad"):
            figures = row.get(direction)
            if not isinstance(figures, list):
                continue
            _, later, results, _ = figures
            call, operands = call_of(conv, direction)
            rule = workspace_of(call, H100, config)
            yield Point(conv, direction, bool(is_tuned), max(later - results, 0), rule, operands)


def call_of(conv: Conv, direction: str) -> tuple[OpCall, int]:
    """The call of a pass, and the bytes of image, weight and result."""
    outer = (conv.cin, conv.cout // conv.g) if conv.t else (conv.cout, conv.cin // conv.g)
    x = _facts(conv, (conv.n, conv.cin, *conv.size))
    w = _facts(conv, (*outer, *conv.k))
    y = _facts(conv, (conv.n, conv.cout, *conv.out_size()))
    shape = (conv.s, conv.p, conv.d, conv.t, conv.op, conv.g)
    operands = x.nbytes + w.nbytes + y.nbytes
    if direction == "forward":
        return OpCall("aten.convolution", (x, w, None, *shape), outputs=(y,)), operands
    arguments = (y, x, w, (conv.cout,), *shape, MASKS[direction])
    return OpCall("aten.convolution_backward", arguments, in_backward=True), operands


def _facts(conv: Conv, shape: tuple[int, ...]) -> TensorFacts:
    order = [0, *range(2, len(shape)), 1] if conv.cl else list(range(len(shape)))
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim], step = step, step * shape[dim]
    return TensorFacts(shape, tuple(strides), DTYPES[conv.dtype], 2 if conv.dtype in ("bf16", "fp16") else 4)


def format_scores(points: Sequence[Point], parts: Sequence[str], worst: int) -> str:
    """The table of all families, and the points farthest above and below their intervals."""
    families: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for point in points:
        families[point.key(parts)].append(point)
    rows = [[" ".join(filter(None, name)), *_scores(family)] for name, family in sorted(families.items())]
    rows.append(["all", *_scores(points)])
    lines = [tabulate(rows, ["family", "points", "inside %", "above", "below", "near %", "width"], floatfmt=".1f")]
    missed = sorted(points, key=lambda point: -(point.measured - point.rule.high) if point.is_above else 0)[:worst]
    lines += [_line(point) for point in missed if point.is_above]
    return "\n".join(lines)


def _scores(points: Sequence[Point]) -> list[Any]:
    above, below = sum(point.is_above for point in points), sum(point.is_below for point in points)
    near = sum(point.is_near for point in points)
    widths = [(point.rule.high - point.rule.low) / point.operand_bytes for point in points]
    total = len(points)
    return [total, 100 * (total - above - below) / total, above, below, 100 * near / total, round(median(widths), 2)]


def _line(point: Point) -> str:
    c, mib = point.conv, 1 << 20
    sizes = f"n{c.n} {c.cin}>{c.cout} {c.size} k{c.k} s{c.s} d{c.d} g{c.g} {c.dtype}{' cl' if c.cl else ''}{' t' if c.t else ''}"
    rule = " ".join(f"{size / mib:.1f}" for size in (point.rule.low, point.rule.likely, point.rule.high))
    return f"  {point.direction} {sizes}: {point.measured / mib:.1f} MiB, rule {rule}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the scores."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("points", type=Path)
    parser.add_argument("--by", default="kind,dtype,pass")
    parser.add_argument("--worst", type=int, default=10)
    options = parser.parse_args(arguments)
    print(format_scores([*points_of(options.points)], options.by.split(","), options.worst))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The grid of convolutions: sweeps of one property at a time, layers of known networks, and a seeded random sample."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Final

from scripts.lab.probe_convolution import Conv, conv, in_dtypes

KERNELS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 17, 19, 21, 25, 31)


def networks() -> list[Conv]:
    """Layers of known networks, including both variants of the case study's network."""
    small = [conv(b, 3, 30, 256, 4, p=2) for b in (4, 8, 16, 32)]
    small += [conv(b, 30, 50, 257, 16, p=7) for b in (1, 2, 4, 8)]
    small += [conv(b, 50, 20, 256, 2, 2, 0) for b in (4, 8, 16)] + [conv(b, 20, 2, 128, 2, 2, 0) for b in (4, 8, 32)]
    small += [conv(b, 3, 50, 256, 4, 2, 1) for b in (4, 8, 16, 32)]
    small += [conv(b, 50, 40, 128, 15) for b in (1, 2, 4, 8, 16)]
    small += [conv(b, 40, 25, 128, 3) for b in (4, 8, 32)] + [conv(b, 25, 25, 128, 2, 2, 0) for b in (8, 32)]
    small += [conv(b, 50, 15, 128, 4, 2, 1) for b in (8, 32)] + [conv(b, 40, 2, 64, 1) for b in (8, 32)]
    layers = [conv(b, 3, 64, 224, 7, 2, 3) for b in (4, 16, 32)]
    layers += [conv(32, c, c, 3584 // c, 3) for c in (64, 128, 256, 512)]
    layers += [conv(32, c // 2, c, 7168 // c, 3, 2, 1) for c in (128, 256, 512)]
    layers += [conv(32, c // 2, c, 7168 // c, 1, 2, 0) for c in (128, 256, 512)]
    layers += [
        conv(16, 256, 64, 56, 1),
        conv(16, 64, 256, 56, 1),
        conv(16, 1024, 256, 14, 1),
        conv(16, 512, 2048, 7, 1),
    ]
    layers += [conv(16, 3, 64, 224, 3), conv(16, 64, 64, 224, 3), conv(16, 128, 256, 56, 3), conv(16, 512, 512, 14, 3)]
    layers += [conv(32, 3, 64, 224, 11, 4, 2), conv(32, 64, 192, 27, 5), conv(32, 192, 384, 13, 3)]
    layers += [conv(16, 3, 96, 224, 4, 4, 0), conv(16, 3, 768, 224, 16, 16, 0), conv(16, 96, 192, 56, 2, 2, 0)]
    layers += [
        conv(32, 3, 32, 224, 3, 2, 1),
        conv(32, 1, 32, 28, 3),
        conv(32, 1, 20, 28, 5, p=0),
        conv(32, 20, 50, 12, 5, p=0),
    ]
    layers += [
        conv(8, 128, 192, 17, (1, 7)),
        conv(8, 192, 192, 17, (7, 1)),
        conv(8, 64, 64, 33, (1, 3)),
        conv(8, 1, 32, (80, 200), (41, 11), (2, 2), (20, 5)),
    ]
    layers += [conv(4, 3, 64, 96, 9), conv(4, 64, 32, 96, 1), conv(4, 32, 3, 96, 5), conv(4, 64, 256, 96, 3)]
    return (
        in_dtypes(small, "tf32", "fp32", "bf16")
        + in_dtypes(layers, "tf32", "bf16", "fp32")
        + in_dtypes(layers[::2], "fp16", "bf16cl", "tf32cl")
    )


def kernels() -> list[Conv]:
    """Every kernel size over a few widths."""
    few = [conv(8, i, o, 64, k, p=k // 2) for k in KERNELS for i, o in ((30, 50), (64, 64))]
    more = [
        conv(8, i, o, hw, k)
        for k in KERNELS
        for i, o, hw in ((3, 32, 64), (16, 16, 128), (128, 128, 32), (50, 40, 128))
    ]
    batches = [conv(b, 32, 48, 56, k) for k in (3, 7, 15) for b in (1, 2, 4, 16, 32, 64)]
    return (
        in_dtypes(few, "tf32", "fp32", "bf16", "fp16")
        + in_dtypes(more, "tf32", "bf16", "fp32")
        + in_dtypes(batches, "tf32", "fp32", "bf16")
    )


def channels() -> list[Conv]:
    """Channel counts on and off the alignment, and strides."""
    pairs = [
        (1, 8),
        (3, 16),
        (8, 8),
        (12, 20),
        (16, 32),
        (17, 33),
        (24, 24),
        (32, 10),
        (40, 40),
        (60, 100),
        (96, 96),
        (128, 64),
        (130, 70),
        (256, 256),
        (512, 128),
        (1024, 64),
    ]
    wide = [conv(16, i, o, 28, k) for k in (1, 3, 5) for i, o in pairs]
    strided = [conv(8, 32, 64, 64, k, s) for k in (1, 2, 3, 4, 5, 7, 8, 11) for s in (2, 3, 4, 8)]
    odd = [conv(3, 48, 80, hw, k) for k in (3, 5) for hw in (7, 15, 31, 63, (20, 120), 127)]
    return (
        in_dtypes(wide, "tf32", "bf16", "fp32")
        + in_dtypes(strided, "tf32", "bf16", "fp32")
        + in_dtypes(odd, "tf32", "bf16", "fp32")
    )


def one_dimensional() -> list[Conv]:
    """Audio and sequence layers."""

    def c(*a: Any, **k: Any) -> Conv:
        return conv(*a, dims=1, **k)

    cases = [c(b, 1, 32, 16000, 80, 4, 38) for b in (4, 32)] + [c(b, 1, 128, 16000, 80, 16, 38) for b in (4, 32)]
    cases += (
        [c(b, 1, 512, 16000, 10, 5, 0) for b in (4, 16)]
        + [c(4, 512, 512, L, 3, 2, 0) for L in (3199, 1599, 799)]
        + [c(4, 512, 512, 199, 2, 2, 0)]
    )
    cases += [
        c(8, 768, 768, 99, 128, 1, 64, g=16),
        c(b := 8, 80, 512, 400, 7),
        c(b, 512, 512, 400, 5),
        c(16, 80, 384, 3000, 3),
        c(8, 384, 384, 3000, 3, 2),
    ]
    cases += [c(16, 32, 32, 1000, 3, d=dd) for dd in (1, 2, 4, 8, 32)] + [
        c(16, 64, 64, 4096, k) for k in (1, 2, 3, 5, 7, 9, 15, 31, 63, 127)
    ]
    cases += [c(b, 64, 128, 512, 3) for b in (1, 4, 64)] + [
        c(8, i, o, 256, 5) for i, o in ((3, 16), (30, 50), (100, 100), (256, 512))
    ]
    cases += [
        c(8, 256, 256, 200, 31, g=256),
        c(8, 512, 512, 400, 7, g=512),
        c(8, 64, 64, 1024, 3, g=64),
        c(4, 1, 16, 22050, 1024, 256, 512),
        c(32, 300, 100, 60, 4, p=0),
    ]
    return in_dtypes(cases, "tf32", "bf16", "fp32")


def three_dimensional() -> list[Conv]:
    """Video and volume layers."""

    def c(*a: Any, **k: Any) -> Conv:
        return conv(*a, dims=3, **k)

    cases = [c(b, 3, 64, (16, 112, 112), 3) for b in (1, 2)] + [
        c(2, 64, 128, (16, 56, 56), 3),
        c(4, 128, 256, (8, 28, 28), 3),
        c(4, 512, 512, (2, 7, 7), 3),
    ]
    cases += [
        c(2, 3, 64, (16, 112, 112), 7, (1, 2, 2)),
        c(2, 3, 45, (16, 112, 112), (1, 7, 7), (1, 2, 2)),
        c(2, 45, 64, (16, 56, 56), (3, 1, 1)),
    ]
    cases += [
        c(4, 64, 144, (8, 28, 28), (1, 3, 3)),
        c(4, 144, 64, (8, 28, 28), (3, 1, 1)),
        c(4, 64, 64, (8, 28, 28), 1),
        c(4, 32, 32, 32, 3),
        c(4, 1, 16, 48, 3),
        c(4, 1, 32, 32, 5),
    ]
    cases += (
        [c(b, 16, 32, 32, k) for k in (1, 2, 3, 5, 7, 9) for b in (2, 8)]
        + [c(4, 32, 64, 32, k, 2) for k in (1, 2, 3, 4)]
        + [c(4, i, o, 16, 3) for i, o in ((3, 8), (8, 8), (30, 50), (64, 64), (128, 32))]
    )
    cases += [
        c(2, 32, 32, 24, 3, d=2),
        c(4, 32, 32, 16, 3, g=32),
        c(4, 64, 64, 16, 3, g=4),
        c(2, 3, 768, (16, 224, 224), (2, 16, 16), (2, 16, 16), 0),
    ]
    return in_dtypes(cases, "tf32", "bf16", "fp32") + in_dtypes(cases[::4], "bf16cl", "tf32cl", "fp16")


def transposed() -> list[Conv]:
    """Transposed convolutions of one, two and three dimensions."""
    cases = [
        conv(b, i, o, hw, 2, 2, 0, t=True)
        for b in (4, 16)
        for i, o, hw in ((64, 32, 64), (128, 64, 32), (512, 256, 16), (50, 30, 40))
    ]
    cases += [
        conv(b, i, o, hw, 4, 2, 1, t=True)
        for b in (8, 32)
        for i, o, hw in ((512, 256, 4), (256, 128, 8), (128, 64, 16), (64, 3, 32), (30, 20, 30))
    ]
    cases += [
        conv(32, 100, 512, 1, 4, 1, 0, t=True),
        conv(8, 64, 64, 28, 3, 2, 1, op=1, t=True),
        conv(8, 32, 32, 56, 3, t=True),
        conv(4, 21, 21, 16, 16, 8, 4, t=True),
        conv(4, 21, 21, 16, 64, 32, 16, t=True),
    ]
    cases += [conv(4, 32, 16, 32, k, 1, t=True) for k in (1, 5, 7, 9, 15)] + [
        conv(4, 64, 64, 28, 4, 2, 1, t=True, g=64),
        conv(4, 64, 64, 28, 4, 2, 1, t=True, g=4),
        conv(4, 48, 24, 32, 3, 1, d=2, t=True),
        conv(4, 32, 32, 30, 5, 3, 2, t=True),
    ]
    flat = [
        conv(b, i, i // 2, n, k, k // 2, k // 4, dims=1, t=True)
        for b in (4, 16)
        for i, n, k in ((512, 32, 16), (256, 256, 16), (128, 2048, 4), (64, 4096, 4), (100, 100, 8))
    ]
    deep = [
        conv(2, i, o, n, 2, 2, 0, dims=3, t=True)
        for i, o, n in ((256, 128, 4), (128, 64, 8), (64, 32, 16), (30, 20, 16))
    ] + [conv(4, 64, 32, 8, 4, 2, 1, dims=3, t=True), conv(4, 16, 16, 16, 3, dims=3, t=True)]
    return in_dtypes(cases + flat + deep, "tf32", "bf16", "fp32") + in_dtypes(cases[::3], "bf16cl", "tf32cl", "fp16")


def dilated() -> list[Conv]:
    """Dilated convolutions, as in segmentation and audio."""
    cases = [
        conv(4, i, o, hw, 3, d=d) for d in (2, 4, 6, 12, 18) for i, o, hw in ((64, 64, 64), (512, 64, 32), (30, 50, 48))
    ]
    cases += [conv(b, 32, 32, 64, k, d=d) for b in (2, 16) for k, d in ((3, 2), (3, 3), (5, 2), (7, 3), (2, 2))] + [
        conv(4, 64, 64, 64, 3, 2, 2, 2),
        conv(2, 256, 256, 28, 3, d=2),
    ]
    return in_dtypes(cases, "tf32", "bf16", "fp32") + in_dtypes(cases[::5], "bf16cl", "tf32cl", "fp16")


def depthwise() -> list[Conv]:
    """Depthwise convolutions: one filter per channel."""
    cases = [
        conv(b, c, c, hw, k, s, g=c)
        for b in (8, 32)
        for c, hw, k, s in (
            (32, 112, 3, 1),
            (96, 112, 3, 2),
            (144, 56, 3, 1),
            (192, 28, 3, 2),
            (384, 14, 3, 1),
            (960, 7, 3, 1),
            (240, 28, 5, 1),
            (672, 14, 5, 2),
        )
    ]
    cases += (
        [conv(8, c, c, hw, 7, g=c) for c, hw in ((96, 56), (192, 28), (384, 14), (768, 7), (50, 40))]
        + [conv(2, 64, 64, 28, k, g=64) for k in (2, 4, 9, 11, 13, 21, 31)]
        + [conv(2, 256, 256, 32, k, g=256) for k in (9, 17, 31)]
    )
    cases += [conv(4, 64, 128, 28, 3, g=64), conv(4, 64, 64, 28, 3, d=4, g=64), conv(4, 30, 30, 64, 3, g=30)]
    return in_dtypes(cases, "tf32", "bf16", "bf16cl", "tf32cl", "fp16")


def grouped() -> list[Conv]:
    """Grouped convolutions: several filters per group."""
    cases = [
        conv(b, c, c, hw, 3, s, g=32)
        for b in (8, 32)
        for c, hw, s in ((128, 56, 1), (256, 56, 2), (512, 14, 1), (1024, 7, 1))
    ]
    cases += [
        conv(8, i, o, hw, k, g=g)
        for i, o, hw, k, g in (
            (64, 64, 56, 3, 2),
            (64, 128, 28, 3, 4),
            (96, 96, 28, 5, 8),
            (240, 60, 28, 1, 3),
            (48, 192, 56, 1, 3),
            (30, 60, 32, 3, 2),
            (64, 64, 32, 7, 4),
            (64, 64, 32, 15, 2),
            (232, 232, 28, 3, 2),
        )
    ]
    return in_dtypes(cases, "tf32", "bf16", "fp32", "bf16cl", "tf32cl")


def sampled(count: int, seed: int) -> list[Conv]:
    """Random convolutions of plausible shapes; one seed always gives the same ones."""
    rng = random.Random(seed)
    cases: list[Conv] = []
    widths = (
        1,
        3,
        4,
        8,
        12,
        16,
        20,
        24,
        30,
        32,
        40,
        48,
        50,
        64,
        64,
        80,
        96,
        100,
        128,
        128,
        160,
        192,
        256,
        256,
        320,
        384,
        512,
        512,
        768,
        1024,
    )
    while len(cases) < count:
        dims = rng.choices((1, 2, 3), (22, 62, 16))[0]
        k = rng.choice(
            (
                (1, 2, 3, 3, 4, 5, 7, 8, 9, 11, 15, 16, 25, 31, 63, 80),
                (1, 1, 2, 3, 3, 3, 3, 4, 5, 5, 7, 7, 9, 11, 13, 15, 16, 17, 19, 21, 25, 31),
                (1, 2, 3, 3, 3, 4, 5, 7),
            )[dims - 1]
        )
        kernel = tuple(1 if dims > 1 and rng.random() < 0.06 else k for _ in range(dims))
        top = (4, 9.7, 6), (2, 5.5, 0), (1.6, 4, 0)
        low, high, _ = top[dims - 1]
        size = (
            (round(math.exp(rng.uniform(low, high))),) * dims
            if rng.random() < 0.8
            else tuple(round(math.exp(rng.uniform(low, high))) for _ in range(dims))
        )
        cin, cout = rng.choice(widths), rng.choice(widths)
        kind = rng.choices(("dense", "depthwise", "grouped"), (72, 16, 12))[0]
        g = 1
        if kind == "depthwise":
            g, cout = cin, cin * rng.choice((1, 1, 1, 1, 2))
        elif kind == "grouped":
            g = rng.choice((2, 3, 4, 8, 16, 32))
        t = rng.random() < 0.13
        s = rng.choices((1, 2, 3, 4, max(kernel)), (60, 26, 3, 5, 6))[0]
        d = rng.choice((2, 2, 3, 4, 8, 12)) if max(kernel) <= 7 and rng.random() < 0.14 else 1
        p = None if rng.random() < 0.82 else rng.choice((0, 0, 1))
        case = conv(
            rng.choice((1, 2, 3, 4, 8, 8, 16, 16, 32, 32, 64)),
            cin,
            cout,
            size,
            kernel,
            s,
            p,
            d,
            dims=dims,
            t=t,
            op=1 if t and s == 2 and rng.random() < 0.3 else 0,
            g=g,
        )
        case = replace(
            case,
            dtype=rng.choices(("tf32", "bf16", "fp32", "fp16"), (42, 27, 20, 11))[0],
            cl=dims > 1 and rng.random() < 0.15,
            det=rng.random() < 0.08,
        )
        if case.fits() and max(case.p) <= 64:
            cases.append(case)
    return cases


def convolutions() -> dict[str, list[Conv]]:
    """All groups by name. Each group is shuffled, so that a shortened run still covers every property."""
    builders: dict[str, Callable[[], list[Conv]]] = {
        "networks": networks, "kernels": kernels, "channels": channels, "conv1d": one_dimensional, "conv3d": three_dimensional,
        "transposed": transposed, "dilated": dilated, "depthwise": depthwise, "grouped": grouped,
        "sampled": lambda: sampled(900, 1), "held_out": lambda: sampled(250, 2),
    }  # fmt: skip
    groups: dict[str, list[Conv]] = {}
    for name, make in builders.items():
        cases = [c for c in make() if c.fits()]
        random.Random(name).shuffle(cases)
        groups[name] = cases
    repeatable = (
        networks()[::5] + kernels()[::9] + transposed()[::9] + three_dimensional()[::9] + one_dimensional()[::9]
    )
    groups["deterministic"] = [replace(c, det=True) for c in repeatable if c.fits()]
    return groups


def tuning_cases() -> list[Conv]:
    """The cases for cudnn.benchmark, the most informative first."""
    first = [c for c in networks() if c.dtype in ("tf32", "fp32") and not c.cl and c.n in (8, 32)]
    others = [
        *kernels()[::11],
        *channels()[::17],
        *one_dimensional()[::11],
        *three_dimensional()[::11],
        *transposed()[::13],
        *dilated()[::11],
        *depthwise()[::17],
    ]
    random.Random(3).shuffle(others)
    interleaved = [c for pair in zip(first, others, strict=False) for c in pair] + others[len(first) :]
    return [c for c in interleaved if c.fits()]


def case_json(case: Conv) -> dict[str, Any]:
    """The case as JSON, without default values."""
    default = {"t": False, "g": 1, "cl": False, "det": False}
    return {k: v for k, v in asdict(case).items() if k not in default or default[k] != v}

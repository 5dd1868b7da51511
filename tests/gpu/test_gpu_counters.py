"""GPU tests of hardware counters (Nsight Compute): executed and counted FLOPs of V1's largest convolution."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.measurement import counters  # noqa: E402
from profiler_kit.measurement import plan as configs  # noqa: E402
from profiler_kit.measurement.counters import CountedPart, Counters  # noqa: E402
from profiler_kit.records.experiments import CONVOLUTION_PARTS  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(counters.find_ncu() is None, reason="needs Nsight Compute (ncu)"),
]

V1 = TargetSpec(spec=str(Path(__file__).resolve().parents[2] / "models" / "convnet_v1.py"))
CONV_R1_FLOPS = 2 * 8 * 50 * 40 * 15**2 * 128**2  # at batch 8, and the same for each of its three parts
WIDTHS = {"conv0", "conv_r1", "conv_r2", "conv_r3", "conv_b1", "conv1"}


def counted(name: str) -> Counters:
    config = next(c for c in configs.make_plan("cudnn").configs if c.name == name)
    counts, notes = counters.count(V1, config, device="cuda", on_progress=print)
    if counts is None and "CAP_SYS_ADMIN" in notes[0]:  # this user has no permission to read the counters
        pytest.skip(notes[0])
    assert counts is not None, notes
    assert notes == ()
    return counts


def part(counts: Counters, path: str, name: str | None) -> CountedPart:
    (counted_part,) = (p for p in counts.parts if (p.path, p.part) == (path, name))
    print(
        counts.config,
        path,
        name,
        f"{counted_part.counters.flops / CONV_R1_FLOPS:.3f} of conv_r1's counted FLOPs,",
        counted_part.counters,
    )
    for kernel in counted_part.kernels:
        print("   ", kernel.counters.flops, kernel.counters.dram_bytes, kernel.name[:120])
    return counted_part


@pytest.fixture(scope="module")
def tf32() -> Counters:
    return counted("default")


def test_tf32_tiles_execute_twice_the_counted_flops(tf32: Counters) -> None:
    conv_r1 = part(tf32, "conv_r1", "fprop")
    assert conv_r1.counters.flops / CONV_R1_FLOPS > 1.5
    assert conv_r1.counters.complete


def test_fft_executes_a_seventh_of_the_counted_flops(tf32: Counters) -> None:
    without = counted("no-tf32")
    conv_r1 = part(without, "conv_r1", "fprop")
    assert conv_r1.counters.flops / CONV_R1_FLOPS < 0.3
    assert conv_r1.counters.dram_bytes > 3 * part(tf32, "conv_r1", "fprop").counters.dram_bytes


def test_every_convolution_part_is_counted_and_the_remainder_is_small(tf32: Counters) -> None:
    parts = {(p.path, p.part) for p in tf32.parts}
    expected = {(path, name) for path in WIDTHS for name in CONVOLUTION_PARTS} - {
        ("conv0", "dgrad")
    }  # the step's input
    assert parts == expected | {(counters.OTHER_KERNELS, None)}
    for name in CONVOLUTION_PARTS:
        assert part(tf32, "conv_r1", name).counters.flops > 0.9 * CONV_R1_FLOPS
    total_flops = sum(p.counters.flops for p in tf32.parts)
    assert part(tf32, counters.OTHER_KERNELS, None).counters.flops < 0.01 * total_flops


def test_the_algorithm_search_is_not_counted() -> None:
    """Otherwise the kernels of all tried algorithms would be counted, several times the FLOPs of the step."""
    counts = counted("benchmark")
    conv_r1 = part(counts, "conv_r1", "fprop")
    assert conv_r1.counters.flops / CONV_R1_FLOPS < 4
    assert len(conv_r1.kernels) < 10

"""On a CUDA device with Nsight Compute: V1's dominant convolution executes less than is counted by FFT, more by TF32 tiles."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.measurement import counters  # noqa: E402
from profiler_kit.measurement import plan as configs  # noqa: E402
from profiler_kit.measurement.counters import CountedPart, Counters  # noqa: E402
from profiler_kit.records.laboratory import CONVOLUTION_PARTS  # noqa: E402
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
    found, notes = counters.count(V1, config, device="cuda", on_progress=print)
    if found is None and "ERR_NVGPUCTRPERM" in notes[0]:
        pytest.skip(notes[0])
    assert found is not None, notes
    assert notes == ()
    return found


def part(found: Counters, path: str, name: str | None) -> CountedPart:
    (one,) = (p for p in found.parts if (p.path, p.part) == (path, name))
    print(
        found.config, path, name, f"{one.counters.flops / CONV_R1_FLOPS:.3f} of conv_r1's counted FLOPs,", one.counters
    )
    for kernel in one.kernels:
        print("   ", kernel.counters.flops, kernel.counters.dram_bytes, kernel.name[:120])
    return one


@pytest.fixture(scope="module")
def tf32() -> Counters:
    return counted("default")


def test_tf32_tiles_execute_twice_what_is_counted(tf32: Counters) -> None:
    one = part(tf32, "conv_r1", "fprop")
    assert one.counters.flops / CONV_R1_FLOPS > 1.5
    assert one.counters.complete


def test_fft_executes_a_seventh(tf32: Counters) -> None:
    without = counted("no-tf32")
    one = part(without, "conv_r1", "fprop")
    assert one.counters.flops / CONV_R1_FLOPS < 0.3
    assert one.counters.dram_bytes > 3 * part(tf32, "conv_r1", "fprop").counters.dram_bytes


def test_every_part_of_every_convolution_is_there_and_the_rest_is_small(tf32: Counters) -> None:
    there = {(p.path, p.part) for p in tf32.parts}
    wanted = {(path, name) for path in WIDTHS for name in CONVOLUTION_PARTS} - {("conv0", "dgrad")}  # the step's input
    assert there == wanted | {(counters.OTHER_KERNELS, None)}
    for name in CONVOLUTION_PARTS:
        assert part(tf32, "conv_r1", name).counters.flops > 0.9 * CONV_R1_FLOPS
    whole = sum(p.counters.flops for p in tf32.parts)
    assert part(tf32, counters.OTHER_KERNELS, None).counters.flops < 0.01 * whole


def test_a_search_is_over_before_the_counted_step() -> None:
    """Were it not, the kernels of all the algorithms it tries would be counted, several times what the step executes."""
    found = counted("benchmark")
    one = part(found, "conv_r1", "fprop")
    assert one.counters.flops / CONV_R1_FLOPS < 4
    assert len(one.kernels) < 10

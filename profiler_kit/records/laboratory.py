"""What the laboratory measures beyond a step's time: each convolution's algorithm, changing shapes, second processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from profiler_kit.records.samples import Interval
from profiler_kit.records.saved import Saved
from profiler_kit.records.sums import added

ConvolutionPart = Literal["fprop", "dgrad", "wgrad"]
CONVOLUTION_PARTS: Final[tuple[ConvolutionPart, ...]] = get_args(ConvolutionPart)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCounters:
    """What hardware counters said about kernels, summed: operations executed (an FMA is 2), bytes moved to and from DRAM.

    `flops` includes what tiles pad and what an algorithm adds or saves, so it is not the counted work. `kernels` is how many
    were counted. `complete`: False where tensor cores worked and the device has no counter for their operations, so that
    `flops` lacks them.
    """

    flops: int
    dram_read_bytes: int
    dram_write_bytes: int
    kernels: int
    complete: bool = True

    @property
    def dram_bytes(self) -> int:
        """Bytes read and written."""
        return self.dram_read_bytes + self.dram_write_bytes

    def __add__(self, other: KernelCounters) -> KernelCounters:
        fields = ("flops", "dram_read_bytes", "dram_write_bytes", "kernels")
        return added((self, other), *fields, complete=self.complete and other.complete)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedKernel:
    """What hardware counters said about all launches of one kernel in one convolution's part, per step."""

    name: str
    counters: KernelCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionTiming:
    """How one convolution was done in one run, per step: forward (``fprop``), gradient by data (``dgrad``) or by weight.

    Measured in a step of its own, in which the two gradients run one after the other under marks; the kernels and the
    algorithms are the same as in any step. `kernel_ns` is all device time of the part, of which `layout_ns` only converts
    layouts; `family`, `math` and `kernel` are those of the kernel that takes most of the rest. `tensor_core`: the name says
    so (False: it does not say). `workspace_bytes`: what the part took beyond its inputs and outputs while it ran. `macs`:
    what the part is asked to do, by count. `counters` are those of all its kernels, `counted_kernels` the same by kernel.
    """

    path: str
    part: ConvolutionPart
    calls: int
    kernel_ns: int
    layout_ns: int
    family: str
    kernel: str
    math: str | None = None
    tensor_core: bool = False
    workspace_bytes: int | None = None
    macs: int | None = None
    counters: KernelCounters | None = None
    counted_kernels: tuple[CountedKernel, ...] = ()

    @property
    def flops_per_s(self) -> float | None:
        """Effective rate: 2 x MACs over all device time; None without a count or time."""
        return 2 * self.macs / (self.kernel_ns * 1e-9) if self.macs is not None and self.kernel_ns > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWorkspace:
    """The most scratch memory that one call of a convolution's part took beyond its inputs and outputs, bytes."""

    path: str
    part: ConvolutionPart
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """The same configuration in a second fresh process, in the sweep's reverse pass: times, and hashes to compare bits with."""

    first_step_ns: int | None = None
    steps_ns: tuple[int, ...] = ()
    step_ns: Interval | None = None
    output_digest: str | None = None
    loss_digest: str | None = None
    gradient_digest: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewThread:
    """The forward pass in a thread that has not run it before: its first time there, and the steady one after it, ns."""

    first_ns: int
    steady_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """The device right after the timed steps: SM clock, temperature, and why its clock was held down (empty: it was not)."""

    sm_clock_hz: int | None = None
    temperature_celsius: int | None = None
    throttled_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeStep(Saved, kind="shape_step"):
    """One step of a schedule of shapes. `shape`: that of the input whose size changes. `seen`: it came before.

    `rss_bytes`: host memory after the step. `last_batch`: a batch smaller than the others, as a data set's last one is.
    """

    cycle: int
    shape: tuple[int, ...]
    seen: bool
    ns: int
    peak_bytes: int | None = None
    rss_bytes: int | None = None
    last_batch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeSchedule:
    """A run over changing shapes under the configuration called `config`, in a process of its own: steps, or a failure.

    `source`: where the shapes are from (``generated``, ``given`` or a file's name). `steps` are in the order they ran, each
    with the device waited for before and after. `benchmark`: the configuration's flag, `device`: the kind of device it ran on.
    `notes`: how the other inputs follow, and what could not be done.
    """

    config: str
    source: str
    steps: tuple[ShapeStep, ...] = ()
    failure: str | None = None
    benchmark: bool | None = None
    device: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTime:
    """How long all runs together took on the clock, and how much of it their processes needed the device, ns."""

    wall_ns: int
    needed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaboratoryQuestions:
    """What is asked of `analyze` beyond the cuDNN configurations.

    `also`: further configurations by name, as ``channels_last`` or ``benchmark+amp_bf16``. `trials`: try the findings'
    advice. `steps_planned`: how many steps the user means to train, for verdicts. `shapes`: a schedule of input shapes as
    text, ``auto`` for a generated one. `memory_limit_bytes`: also measure what a device with so much memory would do.
    `counters`: read hardware counters where a profiler for them is installed.
    """

    also: tuple[str, ...] = ()
    trials: bool = False
    steps_planned: int | None = None
    shapes: str | None = None
    memory_limit_bytes: int | None = None
    counters: bool = False

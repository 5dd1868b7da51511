"""Measurements beyond the step time: algorithms of convolutions, changing shapes, second processes, device state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from profiler_kit.records.samples import Interval
from profiler_kit.records.saved import Saved
from profiler_kit.records.sums import sum_fields

ConvolutionPart = Literal["fprop", "dgrad", "wgrad"]
CONVOLUTION_PARTS: Final[tuple[ConvolutionPart, ...]] = get_args(ConvolutionPart)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCounters:
    """Hardware counters summed over kernels.

    - `flops`: executed floating-point operations; an FMA is two. Includes padding of tiles, so it differs from the counted work.
    - `dram_read_bytes`, `dram_write_bytes`: bytes read from and written to device memory.
    - `kernels`: the number of counted kernel launches.
    - `complete`: False where tensor cores ran and the device has no counter for their operations, so `flops` is too low.
    """

    flops: int
    dram_read_bytes: int
    dram_write_bytes: int
    kernels: int
    complete: bool = True

    @property
    def dram_bytes(self) -> int:
        """Bytes read from and written to device memory."""
        return self.dram_read_bytes + self.dram_write_bytes

    def __add__(self, other: KernelCounters) -> KernelCounters:
        fields = ("flops", "dram_read_bytes", "dram_write_bytes", "kernels")
        return sum_fields((self, other), *fields, complete=self.complete and other.complete)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedKernel:
    """Hardware counters of all launches of one kernel in one part of a convolution, per step."""

    name: str
    counters: KernelCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionTiming:
    """One part of one convolution in one run: forward (``fprop``), input gradient (``dgrad``) or weight gradient (``wgrad``).

    All figures are per step. They come from a separate step that computes the two gradients one after the other, under marks.
    The kernels and algorithms are those of any other step.

    - `kernel_ns`: device time of the part. `layout_ns`: the part of it that converts layouts.
    - `family`, `kernel`, `math`: those of the kernel with the most time, layout conversion excluded.
    - `tensor_core`: True where the kernel name states tensor cores; False where it does not state them.
    - `workspace_bytes`: the peak memory beyond inputs and outputs while the part ran; None where not measured.
    - `macs`: counted multiply-accumulates; None without a count.
    - `counters`: hardware counters of all its kernels, which only older reports have. `counted_kernels`: the same by kernel.
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
        """The effective rate: 2 x MACs divided by device time; None where either is missing."""
        return 2 * self.macs / (self.kernel_ns * 1e-9) if self.macs is not None and self.kernel_ns > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWorkspace:
    """The largest workspace of one call of a convolution's part, beyond its inputs and outputs."""

    path: str
    part: ConvolutionPart
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """What the host did during the timed steps of one process. A figure is None where the system does not report it.

    - `wall_ns`: the duration of the timed steps. `cores`: the cores that the process may use. `machine_cores`: those of the
      machine.
    - `own_cpu_ns`: CPU time of the process and its children, such as workers of a DataLoader. `other_cpu_ns`: CPU time of
      everything else on the machine, other virtual machines on the same cores included.
    - `running_ns`, `waiting_ns`: the time that the threads of the process ran, and were ready to run and waited for a core.
    - `contended_ns`: the time in which any thread of the machine (of the container) was ready to run and waited for a core.
    - `throttled_ns`: the time in which a CPU limit of the container stopped it.
    - `start_clock_hz`, `end_clock_hz`: the clock of the core that ran the main thread, before and after the steps.
    - `start_loop_ns`, `end_loop_ns`: how long the main thread needed for a fixed piece of Python, before and after the steps. It
      shows the speed of the core where its clock is unknown, as in virtual machines.
    """

    wall_ns: int
    cores: int
    machine_cores: int | None = None
    own_cpu_ns: int | None = None
    other_cpu_ns: int | None = None
    running_ns: int | None = None
    waiting_ns: int | None = None
    contended_ns: int | None = None
    throttled_ns: int | None = None
    start_clock_hz: int | None = None
    end_clock_hz: int | None = None
    start_loop_ns: int | None = None
    end_loop_ns: int | None = None

    @property
    def other_cores(self) -> float | None:
        """The mean number of cores that other work used."""
        return self.other_cpu_ns / self.wall_ns if self.other_cpu_ns is not None and self.wall_ns > 0 else None

    @property
    def waiting_share(self) -> float | None:
        """The share of the time in which the threads of the process were ready to run and waited for a core."""
        if self.running_ns is None or self.waiting_ns is None or self.running_ns + self.waiting_ns <= 0:
            return None
        return self.waiting_ns / (self.running_ns + self.waiting_ns)

    @property
    def contended_share(self) -> float | None:
        """The share of the time in which more threads were ready to run than cores were free."""
        return (
            min(1.0, self.contended_ns / self.wall_ns) if self.contended_ns is not None and self.wall_ns > 0 else None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """The second process of a configuration, from the reverse pass of the sweep: step times, and hashes of its results.

    - `failure`: the error message if the process failed; None otherwise.
    - `round_ns`: when its round of processes was composed (Unix time), if its steps were timed in turns with those of the other
      processes of the round; None for one series of steps.
    - `host_load`: the load of the host during its timed steps.
    """

    first_step_ns: int | None = None
    steps_ns: tuple[int, ...] = ()
    step_ns: Interval | None = None
    output_digest: str | None = None
    loss_digest: str | None = None
    gradient_digest: str | None = None
    failure: str | None = None
    round_ns: int | None = None
    host_load: HostLoad | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewThread:
    """The forward pass in a new thread: its first call and the steady time afterwards, in ns."""

    first_ns: int
    steady_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """The device right after the timed steps.

    - `start_sm_clock_hz`: its clock right before them.
    - `throttled_by`: what reduced the SM clock; empty if nothing did.
    """

    sm_clock_hz: int | None = None
    start_sm_clock_hz: int | None = None
    temperature_celsius: int | None = None
    throttled_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeStep(Saved, kind="shape_step"):
    """One step of a schedule of shapes.

    - `cycle`: the number of the pass over all shapes, from 1.
    - `shape`: the shape of the input that changes. `seen`: True if an earlier step had this shape.
    - `peak_bytes`: peak device memory of the step; None on a CPU. `rss_bytes`: resident host memory after the step.
    - `last_batch`: True for a smaller batch, as at the end of a dataset.
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
    """A run over changing shapes in a separate process. It keeps the completed steps even if it failed.

    - `config`: the name of the configuration. `benchmark`: the configuration's flag. `device`: the type of the device.
    - `source`: the origin of the shapes: ``generated``, ``given`` or the name of a file.
    - `steps`: in the order they ran. The device is synchronized before and after each step.
    - `failure`: why it stopped early; None if it completed.
    - `notes`: how the other inputs follow the changing one, and limits.
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
    """The duration of all runs, in ns.

    - `wall_ns`: wall time of all runs and trials. `needed_ns`: the sum of the times that their processes needed the device.
    """

    wall_ns: int
    needed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOptions:
    """The options of `analyze` beyond the cuDNN configurations.

    - `also`: further configurations by name, such as ``channels_last`` or ``benchmark+amp_bf16``.
    - `trials`: run the findings' advice (``--try``).
    - `steps_planned`: the number of steps the user plans to train, for break-even verdicts.
    - `shapes`: a schedule of input shapes as text; ``auto`` generates one.
    - `memory_limit_bytes`: also measure under this limit of device memory.
    """

    also: tuple[str, ...] = ()
    trials: bool = False
    steps_planned: int | None = None
    shapes: str | None = None
    memory_limit_bytes: int | None = None

"""Which configurations are worth running: cuDNN's, which collapse into fewer on some devices, and those of other axes.

Source: PyTorch's `ConvParams`/cuDNN v8 plan cache (key: shapes, dtype, layout, deterministic, allow_tf32; not benchmark).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.configurations.axes.choice import size_text
from profiler_kit.configurations.naming import DEFAULT, all_axes, axes_by_name, named, parse
from profiler_kit.records.configs import Backend, NamedValue, RunConfig
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetInfo

AGAIN = "default (again)"
MEMORY_LIMIT: Final = "memory_limit"

# Where cuDNN has nothing to choose, what else may change a step's time. On a CPU channels_last comes last: oneDNN has
# weight gradients in NHWC for which its only implementation is the reference one ("ref:any"), a hundred times slower.
INSTEAD: Final[dict[Backend, tuple[str, ...]]] = {
    "cpu": ("amp_bf16", "threads=half", "no_onednn", "channels_last"),
    "mps": ("channels_last", "amp_fp16"),
}
_DEVICE_OF: Final[dict[Backend, str]] = {
    "cudnn": "cuda", "miopen": "cuda", "native": "cuda", "mps": "mps", "cpu": "cpu",
}  # fmt: skip
_DEVICE_WORDS: Final = {"cuda": "a CUDA device", "cpu": "a CPU", "mps": "Metal (MPS)"}
_WITHOUT_CUDNN: Final[Mapping[Backend, str]] = {
    "cpu": "The cuDNN flags can be set on a CPU and change nothing: its convolutions run in oneDNN.",
    "mps": "Metal (MPS) ignores the cuDNN flags.",
    "native": "One configuration: this torch has no cuDNN (torch.backends.cudnn.is_available() is False), so its flags change "
    "nothing and convolutions run in torch's own kernels; install a torch that comes with cuDNN.",
}
_OF_CONVOLUTIONS: Final = frozenset({"no_onednn", "channels_last"})  # what changes convolutions and what is around them


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The configurations to run, in order, and a sentence for each of those, or family of them, that was left out.

    `optional` are run after them, in order, as far as the time goes.
    """

    configs: tuple[RunConfig, ...]
    notes: tuple[str, ...]
    optional: tuple[RunConfig, ...] = ()


def plan(
    backend: Backend,
    *,
    has_tf32: bool = True,
    float32: bool = True,
    uses_cudnn: bool = True,
    only: Sequence[str] | None = None,
    also: Sequence[str] = (),
    info: TargetInfo | None = None,
    again: bool = True,
) -> Plan:
    """The configurations worth running on `backend`.

    `has_tf32`: the device computes in TF32 (compute capability 8.0 and later). `float32`: convolutions see float32 inputs.
    `uses_cudnn`: the model has an op that cuDNN runs. `only` and `also` name configurations (see `naming.parse`): these
    instead of the device's own, these besides; `info` says what is pointless for the target. `again` appends the A/A
    repetition of the first where there is anything to compare. Raises UsageError for a name that makes no sense.
    """
    own, notes = _valid(backend, has_tf32 and float32, has_tf32, uses_cudnn)
    chooser = _Chooser(own, _DEVICE_OF[backend], info)
    named_flags = [c for c in (chooser.read(name) for name in only or ()) if c is not None]
    in_order = [*(c for c in own if c in named_flags), *(c for c in named_flags if c not in own)]
    configs = own if only is None else in_order or own[:1]
    more = [c for c in (chooser.read(name) for name in also) if c is not None]
    configs = list(dict.fromkeys([*configs, *more]))
    optional: list[RunConfig] = []
    if only is None and backend in INSTEAD:
        quiet = _Chooser(own, _DEVICE_OF[backend], info)  # nobody asked for these, so nobody is told why not
        tried = (quiet.read(name) for name in INSTEAD[backend])
        hidden = _OF_CONVOLUTIONS if not uses_cudnn else frozenset()
        fitting = [c for c in tried if c is not None and hidden.isdisjoint(item.name for item in c.settings)]
        optional = [c for c in dict.fromkeys(fitting) if c not in configs]
    if again and len(configs) + len(optional) > 1:
        configs = [*configs, replace(configs[0], name=f"{configs[0].name} (again)", repeat_of=configs[0].name)]
    return Plan(configs=tuple(configs), notes=(*notes, *chooser.notes()), optional=tuple(optional))


def capped(config: RunConfig, limit_bytes: int) -> RunConfig:
    """The twin of `config` on a device with so much memory; of a configuration that has a limit, one with this limit."""
    others = [item for item in config.settings if item.name != MEMORY_LIMIT]
    settings = sorted(
        [*others, NamedValue(name=MEMORY_LIMIT, value=size_text(limit_bytes))], key=lambda item: item.name
    )
    return named(replace(config, settings=tuple(settings), repeat_of=None))


class _Chooser:
    """Reads names for one device and target, and collects why some are not run."""

    def __init__(self, own: Sequence[RunConfig], device: str, info: TargetInfo | None) -> None:
        self._own = own
        self._device = device
        self._info = info
        self._same: list[str] = []
        self._said: list[str] = []

    def read(self, name: str) -> RunConfig | None:
        """The configuration that `name` names here, or None where it would be another one under another name."""
        plain = self._own[0]
        everywhere = parse(name, _EVERYWHERE)  # so that flags which this device does not have are read too
        config = parse(name, plain)
        flags = replace(config, name="", settings=())
        if all(flags != replace(own_config, name="") for own_config in self._own):
            config = named(replace(plain, settings=config.settings))  # the flags change nothing here
        reason = self._pointless(config)
        if reason is not None:
            self._said.append(f"{everywhere.name} is not run: {reason}.")
            return None
        if config.name == everywhere.name:
            return config
        if config == plain:
            self._same.append(everywhere.name)
            return None
        self._said.append(f"{everywhere.name} is run as {config.name}: the rest of it changes nothing here.")
        return config

    def notes(self) -> tuple[str, ...]:
        """One sentence about what would be the same, and one about each that is pointless."""
        same = ", ".join(dict.fromkeys(self._same))
        first = (f"Not run here, as they would be the same as {self._own[0].name}: {same}.",) if same else ()
        return (*first, *dict.fromkeys(self._said))

    def _pointless(self, config: RunConfig) -> str | None:
        axes = axes_by_name()
        for item in config.settings:
            axis = axes[item.name]
            if self._device not in axis.devices:
                return f"{axis.name} means nothing on {_DEVICE_WORDS[self._device]}"
            reason = axis.pointless(item.value, self._device, self._info)
            if reason is not None:
                return reason
        return None


_EVERYWHERE: Final = RunConfig(name=DEFAULT, enabled=True, benchmark=False, deterministic=False, allow_tf32=True)


def _valid(backend: Backend, tf32: bool, has_tf32: bool, uses_cudnn: bool) -> tuple[list[RunConfig], list[str]]:
    if backend in _WITHOUT_CUDNN:
        return [RunConfig(name=DEFAULT)], [_WITHOUT_CUDNN[backend]]
    if not uses_cudnn:
        note = "One cuDNN configuration: the model has no convolution, recurrent layer or batch norm, so no op that it runs."
        return [_EVERYWHERE], [note]
    notes: list[str] = []
    if backend == "miopen":
        notes.append("No TF32 rows: MIOpen (ROCm) has no such choice.")
    elif not tf32:
        reason = (
            "convolutions see no float32 input" if has_tf32 else "the device predates TF32 (compute capability 8.0)"
        )
        notes.append(f"No TF32 rows: {reason}, so the flag changes nothing.")
    choices: tuple[bool | None, ...] = (True, False) if tf32 and backend == "cudnn" else (None,)
    configs = [
        named(RunConfig(name="", enabled=True, benchmark=benchmark, deterministic=deterministic, allow_tf32=allow_tf32))
        for allow_tf32, deterministic, benchmark in itertools.product(choices, (False, True), (False, True))
    ]
    off = RunConfig(name="cudnn-off", enabled=False, benchmark=False, deterministic=False, allow_tf32=choices[0])
    return [*configs, off], notes


def with_tuning(runs: Sequence[ConfigRun]) -> tuple[ConfigRun, ...]:
    """`runs` with `tuning_ns` filled in: (first - steady) of a benchmark run minus the same of its twin without benchmark.

    Of a configuration's two processes the one that began faster counts: the first to use a library waits for the disk.
    """
    return tuple(_with_tuning(run, runs) for run in runs)


def _with_tuning(run: ConfigRun, runs: Sequence[ConfigRun]) -> ConfigRun:
    if not run.config.benchmark:
        return run
    twin_config = _without_benchmark(run.config)
    twin = next((r for r in runs if r.config.benchmark is False and _without_benchmark(r.config) == twin_config), None)
    start = _start_up(run, runs)
    base = _start_up(twin, runs) if twin is not None else None
    return run if start is None or base is None else replace(run, tuning_ns=start - base)


def _without_benchmark(config: RunConfig) -> RunConfig:
    """`config` as it is without benchmark, and without the axes that only say how to benchmark."""
    tuning = {axis.name for axis in all_axes() if axis.flag == "benchmark"}
    settings = tuple(item for item in config.settings if item.name not in tuning)
    return replace(config, name="", benchmark=False, repeat_of=None, settings=settings)


def _start_up(run: ConfigRun, runs: Sequence[ConfigRun]) -> int | None:
    again = next((other for other in runs if other.config.repeat_of == run.config.name), None)
    start_ups_ns = [
        process.first_step_ns - process.step_ns.median
        for process in (run, run.repeat, again)
        if process is not None and process.first_step_ns is not None and process.step_ns is not None
    ]
    return min(start_ups_ns, default=None)

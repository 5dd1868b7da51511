"""The configurations worth running on a device: combinations of cuDNN's flags, and further axes.

Source: PyTorch's `ConvParams`/cuDNN v8 plan cache (key: shapes, dtype, layout, deterministic, allow_tf32; not benchmark).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.configurations.axes.algorithms import exact_size_text
from profiler_kit.configurations.naming import (
    DEFAULT_CONFIG,
    EVERYWHERE,
    all_axes,
    axes_by_name,
    parse_config,
    with_name,
)
from profiler_kit.records.configs import Backend, NamedValue, RunConfig
from profiler_kit.records.notes import Note, plain_notes
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetInfo

MEMORY_LIMIT: Final = "memory_limit"

# Further axes for devices without cuDNN. On a CPU channels_last comes last: oneDNN's only weight gradient in NHWC is its
# reference implementation ("ref:any"), which is a hundred times slower.
ALTERNATIVE_AXES: Final[dict[Backend, tuple[str, ...]]] = {
    "cpu": ("amp_bf16", "threads=half", "no_onednn", "channels_last"),
    "mps": ("channels_last", "amp_fp16"),
}
_DEVICE_OF: Final[dict[Backend, str]] = {
    "cudnn": "cuda", "miopen": "cuda", "native": "cuda", "mps": "mps", "cpu": "cpu",
}  # fmt: skip
_DEVICE_WORDS: Final = {"cuda": "a CUDA device", "cpu": "a CPU", "mps": "Metal (MPS)"}
_WITHOUT_CUDNN: Final[Mapping[Backend, str]] = {
    "cpu": "cuDNN's flags have no effect on a CPU.",
    "mps": "cuDNN's flags have no effect on Metal (MPS).",
    "native": "This torch has no cuDNN (torch.backends.cudnn.is_available() is False), so cuDNN's flags have no effect and "
    "torch's own kernels run the convolutions. Install a torch build with cuDNN to use it.",
}
_CONVOLUTION_AXES: Final = frozenset({"no_onednn", "channels_last"})  # without effect on models without convolutions


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The configurations to run, in order, and notes about those that were skipped.

    `optional` configurations run after them, in order, while there is time.
    """

    configs: tuple[RunConfig, ...]
    notes: tuple[Note, ...]
    optional: tuple[RunConfig, ...] = ()


def make_plan(
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

    - `has_tf32`: the device supports TF32 (compute capability 8.0 and later).
    - `float32`: convolutions have float32 inputs.
    - `uses_cudnn`: the model has an op that cuDNN runs.
    - `only`: names of configurations to run instead of the device's own (see `naming.parse_config`). `also`: names to add.
    - `info`: the target, to skip axes without effect on it.
    - `again`: append the A/A repetition of the first configuration if there are several.

    Raises UsageError for an invalid name.
    """
    defaults, notes = _flag_configs(backend, has_tf32 and float32, has_tf32, uses_cudnn)
    parser = _ConfigParser(defaults, _DEVICE_OF[backend], info)
    named_configs = [c for c in (parser.read(name) for name in only or ()) if c is not None]
    in_order = [*(c for c in defaults if c in named_configs), *(c for c in named_configs if c not in defaults)]
    configs = defaults if only is None else in_order or defaults[:1]
    more = [c for c in (parser.read(name) for name in also) if c is not None]
    configs = list(dict.fromkeys([*configs, *more]))
    optional: list[RunConfig] = []
    if only is None and backend in ALTERNATIVE_AXES:
        quiet = _ConfigParser(defaults, _DEVICE_OF[backend], info)  # its notes are dropped: the user did not name these
        candidates = (quiet.read(name) for name in ALTERNATIVE_AXES[backend])
        excluded = _CONVOLUTION_AXES if not uses_cudnn else frozenset()
        fitting = [c for c in candidates if c is not None and excluded.isdisjoint(item.name for item in c.settings)]
        optional = [c for c in dict.fromkeys(fitting) if c not in configs]
    if again and len(configs) + len(optional) > 1:
        configs = [*configs, replace(configs[0], name=f"{configs[0].name} (again)", repeat_of=configs[0].name)]
    if backend == "cpu" and not parser.notes():
        notes = []  # nobody expects cuDNN on a CPU; the note explains why a requested configuration is skipped
    return Plan(configs=tuple(configs), notes=(*plain_notes(notes), *parser.notes()), optional=tuple(optional))


def with_memory_limit(config: RunConfig, limit_bytes: int) -> RunConfig:
    """`config` with a memory limit of `limit_bytes`, which replaces an existing limit."""
    others = [item for item in config.settings if item.name != MEMORY_LIMIT]
    settings = sorted(
        [*others, NamedValue(name=MEMORY_LIMIT, value=exact_size_text(limit_bytes))], key=lambda item: item.name
    )
    return with_name(replace(config, settings=tuple(settings), repeat_of=None))


class _ConfigParser:
    """Parses configuration names for one device and target, and collects notes on skipped ones."""

    def __init__(self, defaults: Sequence[RunConfig], device: str, info: TargetInfo | None) -> None:
        self._defaults = defaults
        self._device = device
        self._info = info
        self._same: list[str] = []
        self._notes: list[Note] = []

    def read(self, name: str) -> RunConfig | None:
        """The configuration `name` on this device; None if it has no effect here or equals the default."""
        plain = self._defaults[0]
        everywhere = parse_config(name, EVERYWHERE)  # also accepts flags that this device does not have
        config = parse_config(name, plain)
        flags = replace(config, name="", settings=())
        if all(flags != replace(default, name="") for default in self._defaults):
            config = with_name(replace(plain, settings=config.settings))  # the flags have no effect here
        reason = self._reason_to_skip(config)
        if reason is not None:
            self._notes.append(Note(subject=everywhere.name, code="skipped", text=f"{reason}."))
            return None
        if config.name == everywhere.name:
            return config
        if config == plain:
            self._same.append(everywhere.name)
            return None
        text = "its other parts have no effect here."
        self._notes.append(Note(subject=f"{everywhere.name} runs as {config.name}", text=text))
        return config

    def notes(self) -> tuple[Note, ...]:
        """A note on the configurations that equal the default, and one on each that has no effect."""
        same = ", ".join(dict.fromkeys(self._same))
        text = f"the same as {self._defaults[0].name} here."
        first = (Note(subject=same, code="skipped", text=text),) if same else ()
        return (*first, *dict.fromkeys(self._notes))

    def _reason_to_skip(self, config: RunConfig) -> str | None:
        axes = axes_by_name()
        for item in config.settings:
            axis = axes[item.name]
            if self._device not in axis.devices:
                return f"{axis.name} is not supported on {_DEVICE_WORDS[self._device]}"
            reason = axis.skip_reason(item.value, self._device, self._info)
            if reason is not None:
                return reason
        return None


def _flag_configs(backend: Backend, tf32: bool, has_tf32: bool, uses_cudnn: bool) -> tuple[list[RunConfig], list[str]]:
    if backend in _WITHOUT_CUDNN:
        return [RunConfig(name=DEFAULT_CONFIG)], [_WITHOUT_CUDNN[backend]]
    if not uses_cudnn:
        note = "Only one cuDNN configuration runs: the model has no convolution, recurrent layer or batch norm."
        return [EVERYWHERE], [note]
    notes: list[str] = []
    if backend == "miopen":
        notes.append("No TF32 configurations: MIOpen (ROCm) has no TF32 flag.")
    elif not tf32:
        reason = (
            "convolutions have no float32 input"
            if has_tf32
            else "the device does not support it (compute capability 8.0)"
        )
        notes.append(f"No TF32 configurations: {reason}, so the flag has no effect.")
    choices: tuple[bool | None, ...] = (True, False) if tf32 and backend == "cudnn" else (None,)
    configs = [
        with_name(
            RunConfig(name="", enabled=True, benchmark=benchmark, deterministic=deterministic, allow_tf32=allow_tf32)
        )
        for allow_tf32, deterministic, benchmark in itertools.product(choices, (False, True), (False, True))
    ]
    off = RunConfig(name="cudnn-off", enabled=False, benchmark=False, deterministic=False, allow_tf32=choices[0])
    return [*configs, off], notes


def with_tuning(runs: Sequence[ConfigRun]) -> tuple[ConfigRun, ...]:
    """`runs` with `tuning_ns` set: (first - steady step) of a benchmark run minus the same of its twin without benchmark.

    The faster of a configuration's two processes counts, because the first process to use a library waits for the disk.
    """
    return tuple(_with_tuning_ns(run, runs) for run in runs)


def _with_tuning_ns(run: ConfigRun, runs: Sequence[ConfigRun]) -> ConfigRun:
    if not run.config.benchmark:
        return run
    twin_config = _without_benchmark(run.config)
    twin = next((r for r in runs if r.config.benchmark is False and _without_benchmark(r.config) == twin_config), None)
    start = _start_up_ns(run, runs)
    base = _start_up_ns(twin, runs) if twin is not None else None
    return run if start is None or base is None else replace(run, tuning_ns=start - base)


def _without_benchmark(config: RunConfig) -> RunConfig:
    """`config` without benchmark and without the axes that only affect algorithm search."""
    tuning = {axis.name for axis in all_axes() if axis.flag == "benchmark"}
    settings = tuple(item for item in config.settings if item.name not in tuning)
    return replace(config, name="", benchmark=False, repeat_of=None, settings=settings)


def _start_up_ns(run: ConfigRun, runs: Sequence[ConfigRun]) -> int | None:
    again = next((other for other in runs if other.config.repeat_of == run.config.name), None)
    start_ups_ns = [
        process.first_step_ns - process.step_ns.median
        for process in (run, run.repeat, again)
        if process is not None and process.first_step_ns is not None and process.step_ns is not None
    ]
    return min(start_ups_ns, default=None)

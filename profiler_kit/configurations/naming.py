"""Names of configurations: ``benchmark+no-tf32``, ``channels_last+batch=2x``. A name lists the differences from ``default``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import profiler_kit.configurations.axes as family
from profiler_kit._family import members
from profiler_kit.configurations.axis import ON, SAME_PRECISION, Axis, Change
from profiler_kit.errors import UsageError, did_you_mean
from profiler_kit.records.configs import NamedValue, RunConfig

DEFAULT_CONFIG: Final = "default"
# PyTorch's own flags, on a device that has all of them
EVERYWHERE: Final = RunConfig(name=DEFAULT_CONFIG, enabled=True, benchmark=False, deterministic=False, allow_tf32=True)
OFF: Final = "cudnn-off"
CUDNN_FLAGS: Final = {
    "benchmark": "cuDNN times its algorithms for each new shape and keeps the fastest",
    "deterministic": "only bitwise reproducible cuDNN algorithms",
    "no-tf32": "float32 convolutions without TF32",
    OFF: "cuDNN disabled: torch's native convolutions",
}
FLAG_CHANGES: Final = {
    "benchmark": Change(
        line="torch.backends.cudnn.benchmark = True", memory="may use more workspace", numerics=SAME_PRECISION
    ),
    "deterministic": Change(
        line="torch.backends.cudnn.deterministic = True", numerics="bitwise reproducible convolutions"
    ),
    "no-tf32": Change(line="torch.backends.cudnn.allow_tf32 = False", numerics="full float32"),
    OFF: Change(line="torch.backends.cudnn.enabled = False", numerics=SAME_PRECISION),
    DEFAULT_CONFIG: Change(line="torch.backends.cudnn.allow_tf32 = True", numerics="TF32 rounds inputs to 10 bits"),
}

_TWO_CONFIGURATIONS: Final = "measure two configurations: separate their names with a comma"


def all_axes() -> tuple[Axis, ...]:
    """All axes of `configurations/axes/`, sorted by name. Raises TypeError for a file without axes."""
    return tuple(axes_by_name().values())


def axes_by_name() -> dict[str, Axis]:
    """All axes by name. Raises TypeError for a file without axes or a duplicate name."""
    axes: dict[str, Axis] = {}
    for member in members(family):
        family_axes = getattr(member, "AXES", None)
        if not isinstance(family_axes, tuple) or not all(isinstance(axis, Axis) for axis in family_axes):
            raise TypeError(f"{member.__file__}: expected AXES = (Axis(...), ...)")
        for axis in family_axes:
            if axis.name in axes:
                raise TypeError(f"{member.__file__}: duplicate axis {axis.name!r}")
            axes[axis.name] = axis
    return dict(sorted(axes.items()))


def change_of(word: str) -> Change | None:
    """The change of one word of a configuration's name, with its value; None where no line applies it."""
    if word in FLAG_CHANGES:
        return FLAG_CHANGES[word]
    name, _, value = word.partition("=")
    axis = axes_by_name().get(name)
    if axis is None or axis.change is None or (not value and "{}" in axis.change.line):
        return None
    return axis.change.filled(value=value)


def axis_syntax(axis: Axis) -> str:
    """The syntax of an axis: ``batch=N|Fx``, ``compile[=MODE]``, ``no_item``."""
    if not axis.values:
        return axis.name
    return f"{axis.name}[={axis.values}]" if axis.bare else f"{axis.name}={axis.values}"


def parse_config(name: str, plain: RunConfig) -> RunConfig:
    """Parse a configuration's name. The result is `plain` (the device's default configuration) with the named changes.

    Raises:
        UsageError: a word is neither a flag nor an axis, a value is invalid, or words exclude each other.
    """
    axes = axes_by_name()
    flags: set[str] = set()
    values: dict[str, list[str]] = {}
    for word in (part.strip() for part in name.split("+")):
        key, has_value, value = word.partition("=")
        if word in CUDNN_FLAGS:
            flags.add(word)
        elif key in axes:
            axis = axes[key]
            values.setdefault(key, []).append(_value(axis, value.strip() if has_value else axis.bare, word))
            flags.update({axis.flag} - {""})
        elif word != DEFAULT_CONFIG:
            near = did_you_mean(key, (DEFAULT_CONFIG, *CUDNN_FLAGS, *axes))
            raise UsageError(
                f"configuration {name!r}: unknown word {word!r}{near}", hint=f"choose from {config_choices()}"
            )
    for key, axis_values in values.items():
        _require_compatible(axes[key], axis_values, values, name)
    settings = tuple(NamedValue(name=key, value=",".join(sorted(set(values[key])))) for key in sorted(values))
    return with_name(replace(_with_flags(plain, flags), settings=settings))


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError if one of `names` is not the name of a configuration. What a device lacks is found out later."""
    for name in names:
        parse_config(name, EVERYWHERE)


def _with_flags(plain: RunConfig, flags: set[str]) -> RunConfig:
    """`plain` with `flags`. Flags that the device lacks stay unset; with cuDNN disabled, all other flags are dropped."""
    if OFF in flags and plain.enabled is not None:
        return replace(plain, enabled=False)
    return replace(
        plain,
        benchmark=plain.benchmark if plain.benchmark is None else "benchmark" in flags,
        deterministic=plain.deterministic if plain.deterministic is None else "deterministic" in flags,
        allow_tf32=plain.allow_tf32 if plain.allow_tf32 is None else "no-tf32" not in flags,
    )


def _value(axis: Axis, value: str, word: str) -> str:
    try:
        if not value:
            raise ValueError("it needs a value")
        return axis.parse_value(value)
    except ValueError as error:
        raise UsageError(f"configuration {word!r}: {error}", hint=f"write {axis_syntax(axis)} ({axis.doc})") from error


def _require_compatible(axis: Axis, axis_values: list[str], values: dict[str, list[str]], name: str) -> None:
    if len(set(axis_values)) > 1 and not axis.several:
        raise UsageError(f"configuration {name!r}: {axis.name} is set twice", hint=_TWO_CONFIGURATIONS)
    other = next((key for key in values if key in axis.excludes), None)
    if other is not None:
        raise UsageError(
            f"configuration {name!r}: {axis.name} and {other} exclude each other", hint=_TWO_CONFIGURATIONS
        )


def with_name(config: RunConfig) -> RunConfig:
    """`config` with the name that follows from its flags and settings."""
    return replace(config, name=name_of(config))


def name_of(config: RunConfig) -> str:
    """The configuration's name: its differences from the defaults, joined by ``+``; ``default`` without any."""
    flags = {
        "benchmark": config.benchmark,
        "deterministic": config.deterministic,
        "no-tf32": config.allow_tf32 is False,
    }
    words = [OFF] if config.enabled is False else [flag for flag, is_set in flags.items() if is_set]
    for item in config.settings:
        words += (item.name if value == ON else f"{item.name}={value}" for value in item.value.split(","))
    return "+".join(words) or DEFAULT_CONFIG


def config_choices() -> str:
    """All words of configuration names, for messages and help."""
    return ", ".join([DEFAULT_CONFIG, *CUDNN_FLAGS, *(axis_syntax(axis) for axis in all_axes())])

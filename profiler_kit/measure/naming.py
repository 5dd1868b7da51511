"""Configurations by name: ``benchmark+no-tf32``, ``channels_last+batch=2x``. What a name says is what differs from default."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import profiler_kit.measure.axes as family
from profiler_kit._family import members
from profiler_kit.errors import UsageError
from profiler_kit.measure.axis import ON, Axis
from profiler_kit.records.configs import NamedValue, RunConfig

DEFAULT: Final = "default"
OFF: Final = "cudnn-off"
_FLAGS: Final = ("benchmark", "deterministic", "no-tf32", OFF)


def all_axes() -> tuple[Axis, ...]:
    """All axes of `measure/axes/`, in the order of their names. Raises TypeError for a file that holds none."""
    found: dict[str, Axis] = {}
    for member in members(family):
        axes = getattr(member, "AXES", None)
        if not isinstance(axes, tuple) or not all(isinstance(axis, Axis) for axis in axes):
            raise TypeError(f"{member.__file__}: wants AXES = (Axis(...), ...)")
        for axis in axes:
            if axis.name in found:
                raise TypeError(f"{member.__file__}: there is an axis {axis.name!r} already")
            found[axis.name] = axis
    return tuple(found[name] for name in sorted(found))


def axis_named(name: str) -> Axis:
    """The axis called `name`. Raises KeyError."""
    return {axis.name: axis for axis in all_axes()}[name]


def spelled(axis: Axis) -> str:
    """How an axis is written."""
    return f"{axis.name}={axis.values}" if axis.values else axis.name


def parse(name: str, plain: RunConfig) -> RunConfig:
    """The configuration that `name` names, as a change of `plain` (the device's default configuration).

    Raises UsageError for a word that is neither a flag nor an axis, and for a value that an axis does not take.
    """
    config = plain
    settings: dict[str, str] = {}
    for word in (part.strip() for part in name.split("+")):
        key, has_value, value = word.partition("=")
        if word in _FLAGS:
            config = _with_flag(config, word)
        elif word != DEFAULT:
            axis = {axis.name: axis for axis in all_axes()}.get(key)
            if axis is None:
                raise UsageError(f"no configuration {name!r}: {word!r} is unknown", hint=f"choose from {choices()}")
            settings[key] = _value(axis, value if has_value else axis.bare, word, settings.get(key))
    kept = tuple(NamedValue(name=key, value=settings[key]) for key in sorted(settings))
    return named(replace(config, settings=kept))


def _with_flag(config: RunConfig, word: str) -> RunConfig:
    """`config` with the flag that `word` names; as it is where the device has no such choice."""
    match word:
        case "benchmark" if config.benchmark is not None:
            return replace(config, benchmark=True)
        case "deterministic" if config.deterministic is not None:
            return replace(config, deterministic=True)
        case "no-tf32" if config.allow_tf32 is not None:
            return replace(config, allow_tf32=False)
        case _ if word == OFF and config.enabled is not None:
            return replace(config, enabled=False)
    return config


def _value(axis: Axis, value: str, word: str, earlier: str | None) -> str:
    try:
        if not value:
            raise ValueError(f"it needs a value, as {spelled(axis)}")
        read = axis.read(value)
    except ValueError as error:
        raise UsageError(f"no configuration {word!r}: {error}", hint=f"write {spelled(axis)}: {axis.doc}") from error
    return f"{earlier},{read}" if earlier is not None else read  # a word that comes twice: both hold


def named(config: RunConfig) -> RunConfig:
    """`config` with the name that its flags and settings make."""
    return replace(config, name=name_of(config))


def name_of(config: RunConfig) -> str:
    """The configuration's name: what differs from the defaults, joined by ``+``; ``default`` where nothing does."""
    return "+".join(_words(config)) or DEFAULT


def _words(config: RunConfig) -> Iterable[str]:
    if config.enabled is False:
        yield OFF
    else:
        if config.benchmark:
            yield "benchmark"
        if config.deterministic:
            yield "deterministic"
        if config.allow_tf32 is False:
            yield "no-tf32"
    for item in config.settings:
        for value in item.value.split(","):
            yield item.name if value == ON else f"{item.name}={value}"


def choices() -> str:
    """The words that names are made of, for messages and help."""
    return ", ".join([DEFAULT, *_FLAGS, *(spelled(axis) for axis in all_axes())])

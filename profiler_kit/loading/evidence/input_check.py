"""Checks a batch against the signature of `forward`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from torch import Tensor

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading.command import next_command
from profiler_kit.loading.inputs import InputText, text_of
from profiler_kit.loading.vocabulary import Role, input_concept
from profiler_kit.meta.batch import Batch, Forward, tensors_in
from profiler_kit.records.target import TargetSpec


def input_texts(batch: Batch, forward: Forward) -> list[InputText]:
    """The ``-i`` texts of inputs like those of `batch`, one per tensor and array; keyword inputs have a name."""
    positional = [text_of(value) for argument in batch.args for value in _data(argument)]
    return positional + [text_of(v, name) for name, value in batch.kwargs.items() for v in _data(value)]


def named_texts(texts: Iterable[InputText], forward: Forward) -> tuple[InputText, ...]:
    """`texts` with the names of the parameters of `forward` instead of positions."""
    names = forward.positional
    return tuple(
        text if text.name is not None or i >= len(names) else replace(text, name=names[i])
        for i, text in enumerate(texts)
    )


def _data(value: object) -> list[Tensor | np.ndarray]:
    return [value] if isinstance(value, np.ndarray) else list(tensors_in(value))


def check_batch(spec: TargetSpec, forward: Forward, batch: Batch, where: str) -> None:
    """Raise UsageError for inputs that `forward` does not accept, TargetError for missing required inputs."""
    if len(batch.args) > len(forward.positional) and not forward.takes_more:
        plural = "s" if len(forward.positional) != 1 else ""
        raise UsageError(
            f"{forward} takes {len(forward.positional)} input{plural}, got {len(batch.args)}",
            where=where,
            hint=next_command(
                spec, inputs=[str(text) for text in input_texts(batch, forward)][: len(forward.positional)]
            ),
        )
    for name in batch.kwargs:
        if name not in forward.names and not forward.takes_any_keyword:
            raise UsageError(
                f"{forward} has no input {name!r}",
                where=where,
                hint=f"use one of {', '.join(forward.names)}"
                if forward.names
                else f"pass it without a name: {next_command(spec, inputs=_without_names(batch, forward))}",
            )
        if name in forward.positional[: len(batch.args)]:
            raise UsageError(
                f"{forward}: {name!r} is given twice, by position and by name",
                where=where,
                hint=f"name all inputs or none: {next_command(spec, inputs=_all_named(batch, forward))}",
            )
    provided = {*forward.positional[: len(batch.args)], *batch.kwargs}
    if any(name not in provided for name in forward.required):
        raise missing_inputs(spec, forward, batch, where)


def _all_named(batch: Batch, forward: Forward) -> list[str]:
    names = [*forward.positional[: len(batch.args)], *batch.kwargs]
    unique = dict(zip(names, input_texts(batch, forward), strict=False))
    return [str(text if text.name else replace(text, name=name)) for name, text in unique.items()]


def _without_names(batch: Batch, forward: Forward) -> list[str]:
    return [str(replace(text, name=None)) for text in input_texts(batch, forward)]


def missing_inputs(spec: TargetSpec, forward: Forward, batch: Batch, where: str | None) -> TargetError:
    """The error for a batch without all required inputs of `forward`; its hint gives each missing input a likely shape."""
    provided = {*forward.positional[: len(batch.args)], *batch.kwargs}
    missing = [name for name in forward.required if name not in provided]
    example = next(batch.tensors(), None)
    shape = tuple(example.shape) if example is not None else (1,)
    add = [word for name in missing for word in ("-i", str(_likely_input(name, shape)))]
    texts = [str(text) for text in input_texts(batch, forward)]
    return TargetError(
        f"{forward}: got {len(provided)} of {len(provided) + len(missing)} inputs",
        where=where or spec.spec,
        hint=f"add {' '.join(add)}: {next_command(spec, inputs=texts, add=tuple(add))}",
    )


def _likely_input(name: str, shape: tuple[int, ...]) -> InputText:
    concept = input_concept(name)
    dtypes = {Role.MASK: "bool", Role.TOKENS: "int64", Role.CLASS: "int64"}
    dtype = dtypes.get(concept.role) if concept is not None and concept.role is not None else None
    return InputText(shape=shape, name=name, dtype=dtype)

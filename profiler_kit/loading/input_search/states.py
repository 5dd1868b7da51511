"""Combinations of inputs that the search tries, and changes of one of them."""

from __future__ import annotations

from dataclasses import replace

from profiler_kit.loading.input_search.proposals import Value
from profiler_kit.loading.inputs import InputText

State = tuple[Value, ...]  # one value for each parameter of forward, () for an optional one that is not passed


def with_batch(state: State, batch: int) -> State:
    """`state` with another batch size instead of 1: the first dimension, or the second of a sequence."""

    def changed(text: InputText) -> InputText:
        if text.literal is not None or not text.shape:
            return text
        if text.shape[0] == 1:
            return replace(text, shape=(batch, *text.shape[1:]))
        if len(text.shape) == 3 and text.shape[1] == 1:
            return replace(text, shape=(text.shape[0], batch, text.shape[2]))
        return text

    return tuple(tuple(map(changed, value)) for value in state)


def texts_by_name(state: State) -> dict[str, InputText]:
    """The tensor inputs of `state` by name."""
    return {text.name: text for value in state for text in value if text.name is not None and text.literal is None}


def with_text(state: State, text: InputText) -> State:
    """`state` with the input of the same name replaced by `text`."""
    return tuple(tuple(text if item.name == text.name else item for item in value) for value in state)


def with_value(state: State, value: Value) -> State:
    """`state` with the value of the same parameter replaced by `value`."""
    parameter = value[0].parameter
    return tuple(value if item and item[0].parameter == parameter else item for item in state)


def with_size(text: InputText, dim: int, size: int) -> InputText:
    """`text` with another size in dimension `dim`; images stay square."""
    return (
        with_side(text, size) if len(text.shape) in (4, 5) and dim >= len(text.shape) - 2 else with_dim(text, dim, size)
    )


def with_dim(text: InputText, dim: int, size: int) -> InputText:
    """`text` with another size in dimension `dim` alone."""
    return replace(text, shape=(*text.shape[:dim], size, *text.shape[dim + 1 :]))


def with_side(text: InputText, size: int) -> InputText:
    """`text` with another height and width, or another length of a sequence with one spatial dimension."""
    kept_dims = 2 if len(text.shape) == 4 else 3 if len(text.shape) == 5 else len(text.shape) - 1
    return replace(text, shape=(*text.shape[:kept_dims], *(size,) * (len(text.shape) - kept_dims)))

"""Whether a batch fits what `forward` takes."""

from __future__ import annotations

from dataclasses import replace

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading.batch import Batch, Forward, tensors_in
from profiler_kit.loading.command import next_line
from profiler_kit.loading.inputs import InputText, text_of
from profiler_kit.records.target import TargetSpec


def input_texts(batch: Batch, forward: Forward) -> list[InputText]:
    """The ``-i`` texts that would give inputs like those of `batch`, keyword ones named; one per tensor."""
    positional = [text_of(tensor) for tensor in tensors_in(batch.args)]
    return positional + [text_of(t, name) for name, value in batch.kwargs.items() for t in tensors_in(value)]


def check_fit(spec: TargetSpec, forward: Forward, batch: Batch, where: str) -> None:
    """Raises UsageError for inputs that `forward` does not take, TargetError for those it needs and `batch` lacks."""
    if len(batch.args) > len(forward.positional) and not forward.takes_more:
        raise UsageError(
            f"{forward} takes {len(forward.positional)} inputs, {len(batch.args)} given",
            where=where,
            hint=next_line(spec, inputs=[str(text) for text in input_texts(batch, forward)][: len(forward.positional)]),
        )
    for name in batch.kwargs:
        if name not in forward.names and not forward.takes_any_keyword:
            raise UsageError(
                f"{forward} has no input {name!r}",
                where=where,
                hint=f"take one of {', '.join(forward.names)}"
                if forward.names
                else f"give it without a name: {next_line(spec)}",
            )
        if name in forward.positional[: len(batch.args)]:
            raise UsageError(
                f"{forward}: {name!r} is given twice, by its place and by its name",
                where=where,
                hint=f"name all inputs, or none: {next_line(spec, inputs=_all_named(batch, forward))}",
            )
    given = {*forward.positional[: len(batch.args)], *batch.kwargs}
    if any(name not in given for name in forward.required):
        raise missing_inputs(spec, forward, batch, where)


def _all_named(batch: Batch, forward: Forward) -> list[str]:
    names = [*forward.positional[: len(batch.args)], *batch.kwargs]
    unique = dict(zip(names, input_texts(batch, forward), strict=False))
    return [str(text if text.name else replace(text, name=name)) for name, text in unique.items()]


def missing_inputs(spec: TargetSpec, forward: Forward, batch: Batch, where: str | None) -> TargetError:
    """The error for a batch that lacks inputs which `forward` requires; its hint gives each of them a likely shape."""
    given = {*forward.positional[: len(batch.args)], *batch.kwargs}
    lacking = [name for name in forward.required if name not in given]
    like = next(batch.tensors(), None)
    shape = tuple(like.shape) if like is not None else (1,)
    add = [word for name in lacking for word in ("-i", str(_likely(name, shape)))]
    texts = [str(text) for text in input_texts(batch, forward)]
    return TargetError(
        f"{forward}: {len(given)} of {len(given) + len(lacking)} inputs given",
        where=where or spec.spec,
        hint=f"add {' '.join(add)}: {next_line(spec, inputs=texts, add=tuple(add))}",
    )


def _likely(name: str, shape: tuple[int, ...]) -> InputText:
    dtype = "bool" if "mask" in name else "int64" if name.endswith(("ids", "labels", "target", "targets")) else None
    return InputText(shape=shape, name=name, dtype=dtype)

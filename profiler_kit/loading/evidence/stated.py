"""Inputs that the caller, an option, the file or the configuration of a model zoo states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.loading.evidence.announcements import input_note
from profiler_kit.loading.evidence.batch_values import example_batch
from profiler_kit.loading.evidence.input_check import input_texts, named_texts
from profiler_kit.loading.evidence.record import Evidence
from profiler_kit.loading.evidence.subject import Subject
from profiler_kit.loading.inputs import FILE_INPUT, parse_inputs
from profiler_kit.loading.scripts.source import Source, open_file
from profiler_kit.loading.zoo import Recipe
from profiler_kit.meta.batch import NO_INPUTS, Batch
from profiler_kit.records.notes import Note
from profiler_kit.user_code.environment import seeded
from profiler_kit.user_code.locations import one_line_message, type_with_article, user_place


def from_caller(subject: Subject) -> Evidence | None:
    """The inputs of the Python function."""
    batch = subject.caller_batch
    return Evidence(value=batch, where="inputs", strength="stated", source="caller") if batch is not None else None


def from_options(subject: Subject) -> Evidence | None:
    """The inputs of ``-i``."""
    if not subject.spec.inputs:
        return None
    loader, recipe = subject.loader, subject.recipe
    notes = (input_note(f"-i replaces {loader.name}"),) if loader is not None else ()
    batch, input_notes = _of_options(subject) if recipe is None else _of_recipe(subject, recipe)
    return Evidence(value=batch, where="-i", strength="stated", source="option", notes=(*input_notes, *notes))


def from_loader(subject: Subject) -> Evidence | None:
    """The first batch of the file's data loader."""
    loader = subject.loader
    if loader is None:
        return None
    with seeded(subject.spec.seed):
        batch = loader.first()
    notes = (input_note(f"the first batch of {loader.name}"),)
    return Evidence(value=batch, where=loader.where, strength="stated", source="loader", notes=notes, loader=loader)


def from_recipe(subject: Subject) -> Evidence | None:
    """The inputs of a model zoo, with the sizes of its configuration."""
    recipe = subject.recipe
    if recipe is None:
        return None
    batch, notes = _of_recipe(subject, recipe)
    return Evidence(value=batch, where=recipe.where, strength="derived", source="config", notes=notes)


def from_example(subject: Subject) -> Evidence | None:
    """Inputs returned together with the model, `example_inputs` of the file, or `example_input_array` of the model."""
    source = subject.source
    in_file = source.names.get("example_inputs") if source is not None else None
    if subject.returned_inputs is not NO_INPUTS:
        value, name = subject.returned_inputs, f"the inputs that {subject.factory}() returned"
    elif in_file is not None:
        value, name = in_file, "example_inputs"
    else:
        value, name = getattr(subject.model, "example_input_array", None), "example_input_array"
        if value is None:
            return None
    batch = _of_value(subject, value, source, name)
    return Evidence(value=batch, where=name, strength="stated", source="example_inputs")


def _of_options(subject: Subject) -> tuple[Batch, tuple[Note, ...]]:
    texts = subject.spec.inputs
    match = next(filter(None, map(FILE_INPUT.match, texts)), None)
    if match is None:
        parsed = parse_inputs(texts)
        subject.check_fit(named_texts(parsed, subject.forward), "-i")
        return subject.create(parsed)
    if len(texts) > 1:
        raise UsageError(
            f"-i {match[0]} cannot be combined with other -i options", hint="return all inputs from the function"
        )
    path, name = match.group("file", "name")
    source = open_file(subject.spec, Path(path), name, companion=subject.source)
    if not hasattr(source.module, name):
        raise TargetError(
            f"no {name!r} in this file", where=path, hint=f"define {name}() that returns a tensor, a tuple or a dict"
        )
    return _of_value(subject, getattr(source.module, name), source, f"{path}:{name}"), ()


def _of_recipe(subject: Subject, recipe: Recipe) -> tuple[Batch, tuple[Note, ...]]:
    """The random inputs of `recipe`, with those of ``-i`` replaced."""
    if any(FILE_INPUT.match(text) for text in subject.spec.inputs):
        return _of_options(subject)
    texts, extras = recipe.inputs(subject.model, subject.forward, parse_inputs(subject.spec.inputs))
    batch, _ = subject.create(texts)
    if recipe.takes_list:
        batch = Batch(args=(list(batch.args),))
    note = input_note(f"random, {' '.join(map(str, texts))} (sizes from {recipe.source})")
    return Batch(args=batch.args, kwargs={**batch.kwargs, **extras}), (note,)


def _of_value(subject: Subject, value: Any, source: Source | None, name: str) -> Batch:
    if isinstance(value, Batch):
        return value
    where = source.at(None) if source is not None else None
    if callable(value) and not isinstance(value, Tensor):
        try:
            with subject.user_code(name, source):
                value = value()
        except KitError:
            raise
        except Exception as error:
            raise TargetError(
                f"{name}() raised {one_line_message(error)}",
                where=user_place(error) or where,
                hint=f"fix it, or add -i: {subject.command_with_inputs()}",
            ) from error
    batch = example_batch(value, subject.forward)
    if not input_texts(batch, subject.forward):
        raise TargetError(
            f"{name} is {type_with_article(value)} without tensors",
            where=where,
            hint="define it as a tensor, tuple or dict of tensors, or a function that returns one; or run "
            f"{subject.command_with_inputs()}",
        )
    return batch

"""The inputs of a target. The first available source is used:

the ``-i`` option; the file's data loader; inputs returned together with the model, `example_inputs` of the file, or
`example_input_array` of the model; the smoke test in the file's ``__main__`` block; a guess from the first layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.loading.batch import NO_INPUTS, Batch, Forward, batch_size, resized, tensors_in
from profiler_kit.loading.command import next_command
from profiler_kit.loading.inputs import DTYPES, FILE_INPUT, InputText, parse_inputs
from profiler_kit.loading.layers import describe_layer, first_embedding, guess_input
from profiler_kit.loading.loader import Loader
from profiler_kit.loading.scripts.isolation import isolated
from profiler_kit.loading.smoke_test import smoke_test
from profiler_kit.loading.source import Source, open_file
from profiler_kit.loading.user_environment import seeded, user_code
from profiler_kit.loading.user_locations import one_line_message, type_with_article, user_place
from profiler_kit.loading.zoo import Recipe
from profiler_kit.records.target import TargetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetInputs:
    """A target's batch on the host or on meta, its origin (see `TargetInfo.inputs_from`), and notes for the report."""

    batch: Batch
    origin: str
    notes: tuple[str, ...] = ()
    loader: Loader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFinder:
    """Finds the inputs of a target in all possible sources. `source` is None for a model passed from Python."""

    spec: TargetSpec
    model: nn.Module
    forward: Forward
    device: torch.device
    source: Source | None = None
    factory: str = ""
    returned_inputs: Any = NO_INPUTS
    loader: Loader | None = None
    caller_batch: Batch | None = None
    recipe: Recipe | None = None

    def find(self) -> TargetInputs:
        """Find the target's inputs. Raises TargetError or UsageError."""
        inputs = self._first()
        size = self._size(inputs.batch)
        if size is None:
            return inputs
        notes = inputs.notes
        if inputs.loader is not None:
            notes += (
                f"inputs: --batch {size} replaces the batch size of {inputs.loader.name}, whose other batches are not used",
            )
        return TargetInputs(batch=resized(inputs.batch, size), origin=inputs.origin, notes=notes)

    def _size(self, batch: Batch) -> int | None:
        """The requested batch size, as a number, a factor, or both; None if no change is requested."""
        size, factor = self.spec.batch, self.spec.batch_factor
        if factor is None:
            return size
        base_size = size if size is not None else batch_size(batch)
        if not base_size:
            raise UsageError(
                "the inputs have no batch dimension to scale",
                where=self.spec.spec,
                hint="use a configuration without batch=",
            )
        return max(1, math.floor(base_size * factor + 0.5))

    def _first(self) -> TargetInputs:
        if self.caller_batch is not None:
            return TargetInputs(batch=self.caller_batch, origin="caller")
        if self.spec.inputs:
            notes = (f"inputs: -i replaces {self.loader.name}",) if self.loader is not None else ()
            batch, input_notes = self._from_options() if self.recipe is None else self._from_recipe(self.recipe)
            return TargetInputs(batch=batch, origin="option", notes=(*input_notes, *notes))
        if self.loader is not None:
            with seeded(self.spec.seed):
                batch = self.loader.first()
            return TargetInputs(
                batch=batch,
                origin="loader",
                notes=(f"inputs: the first batch of {self.loader.name}",),
                loader=self.loader,
            )
        if self.recipe is not None:
            batch, input_notes = self._from_recipe(self.recipe)
            return TargetInputs(batch=batch, origin="config", notes=input_notes)
        return self._from_example() or self._from_smoke_test() or self._guess()

    def _from_options(self) -> tuple[Batch, tuple[str, ...]]:
        match = next(filter(None, map(FILE_INPUT.match, self.spec.inputs)), None)
        if match is None:
            return self._create(parse_inputs(self.spec.inputs))
        if len(self.spec.inputs) > 1:
            raise UsageError(
                f"-i {match[0]} cannot be combined with other -i options", hint="return all inputs from the function"
            )
        path, name = match.group("file", "name")
        source = open_file(self.spec, Path(path), name, companion=self.source)
        if not hasattr(source.module, name):
            raise TargetError(
                f"no {name!r} in this file",
                where=path,
                hint=f"define {name}() that returns a tensor, a tuple or a dict",
            )
        return self._value(getattr(source.module, name), source, f"{path}:{name}"), ()

    def _from_recipe(self, recipe: Recipe) -> tuple[Batch, tuple[str, ...]]:
        """The random inputs of `recipe`, with those of ``-i`` replaced."""
        if any(FILE_INPUT.match(text) for text in self.spec.inputs):
            return self._from_options()
        texts, extras = recipe.inputs(self.model, self.forward, parse_inputs(self.spec.inputs))
        batch, _ = self._create(texts)
        if recipe.takes_list:
            batch = Batch(args=(list(batch.args),))
        note = f"inputs: random, {' '.join(map(str, texts))} (sizes from {recipe.source})"
        return Batch(args=batch.args, kwargs={**batch.kwargs, **extras}), (note,)

    def _create(self, texts: tuple[InputText, ...]) -> tuple[Batch, tuple[str, ...]]:
        """The tensors of `texts`, with notes. The first integer input without a range gets the rows of the first embedding."""
        texts, notes = self._with_ranges(texts)
        device = self.device if self.device.type == "meta" else torch.device("cpu")
        # separate generators, so that integers are the same on meta, where no floats are drawn
        float_generator, integer_generator = (torch.Generator().manual_seed(self.spec.seed) for _ in range(2))
        dtype = DTYPES[self.spec.dtype] if self.spec.dtype is not None else torch.float32
        tensors = [
            (
                text.name,
                text.make(
                    generator=integer_generator if text.is_whole else float_generator, dtype=dtype, device=device
                ),
            )
            for text in texts
        ]
        args = tuple(tensor for name, tensor in tensors if name is None)
        return Batch(args=args, kwargs={name: tensor for name, tensor in tensors if name is not None}), notes

    def _with_ranges(self, texts: tuple[InputText, ...]) -> tuple[tuple[InputText, ...], tuple[str, ...]]:
        embedding = first_embedding(self.model)
        if embedding is None or any(text.is_integer and text.low is not None for text in texts):
            return texts, ()
        index = next((i for i, text in enumerate(texts) if text.is_integer), None)
        if index is None:
            return texts, ()
        path, rows = embedding
        note = f"inputs: {texts[index]} has integers in [0, {rows}), the rows of the first embedding{f' {path}' if path else ''}"
        return (*texts[:index], replace(texts[index], low=0, high=rows), *texts[index + 1 :]), (note,)

    def _from_example(self) -> TargetInputs | None:
        in_file = self.source.names.get("example_inputs") if self.source is not None else None
        if self.returned_inputs is not NO_INPUTS:
            value, name = self.returned_inputs, f"the inputs that {self.factory}() returned"
        elif in_file is not None:
            value, name = in_file, "example_inputs"
        else:
            value, name = getattr(self.model, "example_input_array", None), "example_input_array"
            if value is None:
                return None
        return TargetInputs(batch=self._value(value, self.source, name), origin="example_inputs")

    def _value(self, value: Any, source: Source | None, name: str) -> Batch:
        if isinstance(value, Batch):
            return value
        where = source.at(None) if source is not None else None
        if callable(value) and not isinstance(value, Tensor):
            try:
                session = source.session if source is not None and self.spec.sliced else None
                notes: list[str] = []
                with (
                    user_code(source.folders if source else (Path.cwd(),), name),
                    seeded(self.spec.seed),
                    isolated(session, notes.append),
                ):
                    value = value()
            except KitError:
                raise
            except Exception as error:
                raise TargetError(
                    f"{name}() raised {one_line_message(error)}",
                    where=user_place(error) or where,
                    hint=f"fix it, or add -i: {self._command_with_inputs()}",
                ) from error
        batch = Batch()
        if isinstance(value, Tensor):
            batch = Batch(args=(value,))
        elif isinstance(value, (tuple, list)):
            batch = Batch(args=tuple(value))
        elif isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            batch = Batch(kwargs=dict(value))
        if next(tensors_in((batch.args, batch.kwargs)), None) is None:
            raise TargetError(
                f"{name} is {type_with_article(value)} without tensors",
                where=where,
                hint="define it as a tensor, tuple or dict of tensors, or a function that returns one; or run "
                f"{self._command_with_inputs()}",
            )
        return batch

    def _from_smoke_test(self) -> TargetInputs | None:
        if self.source is None or self.source.tree is None:
            return None
        factories = tuple({self.factory, type(self.model).__name__})
        test = smoke_test(self.source.tree, factories)
        if test is None:
            return None
        batch, notes = self._create(test.inputs)
        text = " ".join(map(str, test.inputs))
        note = f"inputs: {text}, from the smoke test at {self.source.at(test.line)}"
        return TargetInputs(batch=batch, origin="smoke_test", notes=(note, *notes))

    def _guess(self) -> TargetInputs:
        guess = guess_input(self.model)
        input_count = len(self.forward.required) or 1
        where = self.source.at(None) if self.source is not None else None
        if guess is None or not self.spec.allow_guess or input_count > 1:
            layer = f"; its first layer is {describe_layer(guess[2])}" if guess is not None else ""
            raise TargetError(
                f"no input shape: {self.forward} needs {input_count} input{'s' if input_count > 1 else ''}{layer}",
                where=where,
                hint=f"give the shape with -i, for example {self._command_with_inputs()}",
            )
        text, path, layer_module = guess
        batch, _ = self._create((text,))
        note = (
            f"GUESSED inputs {text} from the first layer {path or 'of the model'} ({describe_layer(layer_module)}). "
            f"Every figure depends on this shape. To set it, run {next_command(self.spec, inputs=[str(text)])}"
        )
        return TargetInputs(batch=batch, origin="guess", notes=(note,))

    def _command_with_inputs(self) -> str:
        guess = guess_input(self.model)
        first = guess[0] if guess is not None else InputText(shape=(1, 3, 224, 224))
        more = [str(InputText(shape=first.shape, name=name)) for name in self.forward.required[1:]]
        return next_command(self.spec, inputs=[str(first), *more])

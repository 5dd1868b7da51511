"""Where a target's inputs come from; the first that has some wins.

The ``-i`` option; the file's loader; the inputs returned beside the model, `example_inputs` in the file,
`example_input_array` on the model; the file's smoke test; the first layer.
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
from profiler_kit.loading.command import next_line
from profiler_kit.loading.inputs import DTYPES, FILE_INPUT, InputText, parse_inputs
from profiler_kit.loading.layers import describe_layer, first_embedding, guess_input
from profiler_kit.loading.loader import Loader
from profiler_kit.loading.place import a_kind, first_line, user_place
from profiler_kit.loading.smoke import smoke_test
from profiler_kit.loading.source import Source, open_file
from profiler_kit.loading.surroundings import seeded, user_code
from profiler_kit.loading.zoo import Recipe
from profiler_kit.records.target import TargetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A target's batch, on the host or on meta, who gave it (see TargetInfo), and what is to be announced."""

    batch: Batch
    origin: str
    notes: tuple[str, ...] = ()
    loader: Loader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeder:
    """All that inputs can be found in. `source` is None for a model that was handed over in Python."""

    spec: TargetSpec
    model: nn.Module
    forward: Forward
    device: torch.device
    source: Source | None = None
    maker: str = ""
    beside: Any = NO_INPUTS
    loader: Loader | None = None
    given: Batch | None = None
    recipe: Recipe | None = None

    def feed(self) -> Feed:
        """The target's inputs. Raises TargetError or UsageError."""
        feed = self._first()
        size = self._size(feed.batch)
        if size is None:
            return feed
        notes = feed.notes
        if feed.loader is not None:
            notes += (f"the batches of {feed.loader.name} are not used: --batch {size} asks for another size",)
        return Feed(batch=resized(feed.batch, size), origin=feed.origin, notes=notes)

    def _size(self, batch: Batch) -> int | None:
        """The batch size that is asked for, by number, by a factor, or both; None where none is."""
        size, factor = self.spec.batch, self.spec.batch_factor
        if factor is None:
            return size
        own = size if size is not None else batch_size(batch)
        if not own:
            raise UsageError("no input has rows, so there is no batch to make larger or smaller", where=self.spec.spec)
        return max(1, math.floor(own * factor + 0.5))

    def _first(self) -> Feed:
        if self.given is not None:
            return Feed(batch=self.given, origin="caller")
        if self.spec.inputs:
            notes = (f"{self.loader.name} is not used: -i gives the inputs",) if self.loader is not None else ()
            batch, said = self._option() if self.recipe is None else self._cooked(self.recipe)
            return Feed(batch=batch, origin="option", notes=(*said, *notes))
        if self.loader is not None:
            with seeded(self.spec.seed):
                batch = self.loader.first()
            return Feed(
                batch=batch,
                origin="loader",
                notes=(f"inputs: the first batch of {self.loader.name}",),
                loader=self.loader,
            )
        if self.recipe is not None:
            batch, said = self._cooked(self.recipe)
            return Feed(batch=batch, origin="config", notes=said)
        return self._example() or self._smoke() or self._guess()

    def _option(self) -> tuple[Batch, tuple[str, ...]]:
        match = next(filter(None, map(FILE_INPUT.match, self.spec.inputs)), None)
        if match is None:
            return self._made(parse_inputs(self.spec.inputs))
        if len(self.spec.inputs) > 1:
            raise UsageError(
                f"-i {match[0]} gives all inputs, but there are other -i", hint="return them all from the function"
            )
        path, name = match.group("file", "name")
        source = open_file(self.spec, Path(path), name, beside=self.source)
        if not hasattr(source.module, name):
            raise TargetError(
                f"has no {name!r}", where=path, hint=f"define {name}(), returning a tensor, tuple or dict"
            )
        return self._value(getattr(source.module, name), source, f"{path}:{name}"), ()

    def _cooked(self, recipe: Recipe) -> tuple[Batch, tuple[str, ...]]:
        """The inputs that `recipe` makes up, with those of ``-i`` in their place."""
        if any(FILE_INPUT.match(text) for text in self.spec.inputs):
            return self._option()
        texts, extras = recipe.inputs(self.model, self.forward, parse_inputs(self.spec.inputs))
        batch, _ = self._made(texts)
        if recipe.listed:
            batch = Batch(args=(list(batch.args),))
        said = f"inputs made up from {recipe.source}: {' '.join(map(str, texts))}"
        return Batch(args=batch.args, kwargs={**batch.kwargs, **extras}), (said,)

    def _made(self, texts: tuple[InputText, ...]) -> tuple[Batch, tuple[str, ...]]:
        """The tensors of `texts`. The first integer input without a range is taken for an index into the first embedding."""
        texts, notes = self._with_ranges(texts)
        device = self.device if self.device.type == "meta" else torch.device("cpu")
        # integers have a generator of their own: the same are drawn on meta, where no floats are
        floats, whole = (torch.Generator().manual_seed(self.spec.seed) for _ in range(2))
        dtype = DTYPES[self.spec.dtype] if self.spec.dtype is not None else torch.float32
        made = [
            (text.name, text.make(generator=whole if text.is_whole else floats, dtype=dtype, device=device))
            for text in texts
        ]
        args = tuple(tensor for name, tensor in made if name is None)
        return Batch(args=args, kwargs={name: tensor for name, tensor in made if name is not None}), notes

    def _with_ranges(self, texts: tuple[InputText, ...]) -> tuple[tuple[InputText, ...], tuple[str, ...]]:
        embedding = first_embedding(self.model)
        if embedding is None or any(text.is_integer and text.low is not None for text in texts):
            return texts, ()
        index = next((i for i, text in enumerate(texts) if text.is_integer), None)
        if index is None:
            return texts, ()
        path, rows = embedding
        note = f"input {texts[index]}: integers in [0, {rows}), the rows of the first embedding{f' {path}' if path else ''}"
        return (*texts[:index], replace(texts[index], low=0, high=rows), *texts[index + 1 :]), (note,)

    def _example(self) -> Feed | None:
        in_file = vars(self.source.module).get("example_inputs") if self.source is not None else None
        if self.beside is not NO_INPUTS:
            value, name = self.beside, f"the inputs {self.maker}() returned"
        elif in_file is not None:
            value, name = in_file, "example_inputs"
        else:
            value, name = getattr(self.model, "example_input_array", None), "example_input_array"
            if value is None:
                return None
        return Feed(batch=self._value(value, self.source, name), origin="example_inputs")

    def _value(self, value: Any, source: Source | None, name: str) -> Batch:
        if isinstance(value, Batch):
            return value
        where = source.at(None) if source is not None else None
        if callable(value) and not isinstance(value, Tensor):
            try:
                with user_code(source.folders if source else (Path.cwd(),), name), seeded(self.spec.seed):
                    value = value()
            except KitError:
                raise
            except Exception as error:
                raise TargetError(
                    f"{name}() raised {first_line(error)}",
                    where=user_place(error) or where,
                    hint=f"mend it, or give -i: {self._try()}",
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
                f"{name} is {a_kind(value)} without tensors",
                where=where,
                hint=f"make it a tensor, a tuple, a dict, or a function that returns one; or {self._try()}",
            )
        return batch

    def _smoke(self) -> Feed | None:
        if self.source is None or self.source.tree is None:
            return None
        makers = tuple({self.maker, type(self.model).__name__})
        found = smoke_test(self.source.tree, makers)
        if found is None:
            return None
        batch, notes = self._made(found.inputs)
        text = " ".join(map(str, found.inputs))
        said = f"inputs {text}: read from the smoke test at {self.source.at(found.line)}"
        return Feed(batch=batch, origin="smoke_test", notes=(said, *notes))

    def _guess(self) -> Feed:
        guess = guess_input(self.model)
        takes = len(self.forward.required) or 1
        where = self.source.at(None) if self.source is not None else None
        if guess is None or not self.spec.allow_guess or takes > 1:
            layer = f"; first layer {describe_layer(guess[2])}" if guess is not None else ""
            raise TargetError(
                f"no input shape. {self.forward} takes {takes} {'tensor' if takes == 1 else 'tensors'}{layer}",
                where=where,
                hint=f"try {self._try()}",
            )
        text, path, layer_module = guess
        batch, _ = self._made((text,))
        said = (
            f"GUESSED inputs {text} from the first layer {path or 'of the model'} ({describe_layer(layer_module)}): "
            f"every figure depends on it. Give the real shape: {next_line(self.spec, inputs=[str(text)])}"
        )
        return Feed(batch=batch, origin="guess", notes=(said,))

    def _try(self) -> str:
        guess = guess_input(self.model)
        first = guess[0] if guess is not None else InputText(shape=(1, 3, 224, 224))
        more = [str(InputText(shape=first.shape, name=name)) for name in self.forward.required[1:]]
        return next_line(self.spec, inputs=[str(first), *more])

"""The inputs of a target. The first available source is used:

the ``-i`` option; the file's data loader; inputs returned together with the model, `example_inputs` of the file, or
`example_input_array` of the model; calls of the model in the user's files; a search for inputs that run.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.loading.batch_values import example_batch
from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.command import next_command
from profiler_kit.loading.import_errors import missing_module
from profiler_kit.loading.input_check import input_texts
from profiler_kit.loading.input_search.announcements import NO_GUESS_HINT, announcement
from profiler_kit.loading.input_search.evidence import DataSetInputs, Evidence
from profiler_kit.loading.input_search.facts import facts_of
from profiler_kit.loading.input_search.guesses import InputGuess, NoGuess
from profiler_kit.loading.input_search.outcomes import Failure
from profiler_kit.loading.input_search.proposals import data_inputs
from profiler_kit.loading.input_search.search import search_inputs
from profiler_kit.loading.inputs import DTYPES, FILE_INPUT, InputText, build_arguments, parse_inputs
from profiler_kit.loading.layers import first_embedding
from profiler_kit.loading.loader import Loader
from profiler_kit.loading.program.model_use import ModelUse
from profiler_kit.loading.scripts.isolation import isolated
from profiler_kit.loading.scripts.placeholders import UnavailableError, missing_package
from profiler_kit.loading.source import Source, open_file
from profiler_kit.loading.zoo import Recipe
from profiler_kit.meta.batch import NO_INPUTS, Batch, Forward, batch_size, resized
from profiler_kit.meta.copies import is_all_meta, meta_copy
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code.environment import seeded, user_code
from profiler_kit.user_code.locations import display_path, one_line_message, type_with_article, user_place


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetInputs:
    """A target's batch on the host or on meta, its origin (see `TargetInfo.inputs_from`), and notes for the report.

    `pinned` are searched inputs as texts of ``-i``, for later loads of the same target.
    """

    batch: Batch
    origin: str
    notes: tuple[str, ...] = ()
    loader: Loader | None = None
    pinned: tuple[str, ...] = ()


MAX_DATA_SETS: Final = 3  # documents whose data sets are tried


@dataclass(frozen=True, kw_only=True, eq=False)
class InputFinder:
    """Finds the inputs of a target in all possible sources. `source` is None for a model passed from Python.

    `candidate` is the chosen model, with the call and the arguments that built it.
    """

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
    candidate: Candidate | None = None

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
        return TargetInputs(batch=resized(inputs.batch, size), origin=inputs.origin, notes=notes, pinned=inputs.pinned)

    def _size(self, batch: Batch) -> int | None:
        """The requested batch size, as a number, a factor, or both; None if no change is requested."""
        size, factor = self.spec.batch, self.spec.batch_factor
        if size is None and self.spec.pinned is not None and not self.spec.inputs:
            size = self.spec.pinned.batch
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
        if self.spec.pinned is not None and self.spec.pinned.inputs:
            batch, _ = self._create(parse_inputs(self.spec.pinned.inputs))
            return TargetInputs(batch=batch, origin="search", pinned=self.spec.pinned.inputs)
        return self._from_example() or self._from_evidence() or self._from_data_set() or self._search()

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
        args, kwargs = build_arguments(
            (
                text,
                text.make(
                    generator=integer_generator if text.is_whole else float_generator, dtype=dtype, device=device
                ),
            )
            for text in texts
        )
        return Batch(args=args, kwargs=kwargs), notes

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
        batch = example_batch(value, self.forward)
        if not input_texts(batch, self.forward):
            raise TargetError(
                f"{name} is {type_with_article(value)} without tensors",
                where=where,
                hint="define it as a tensor, tuple or dict of tensors, or a function that returns one; or run "
                f"{self._command_with_inputs()}",
            )
        return batch

    def _from_evidence(self) -> TargetInputs | None:
        """Inputs that the user's files show; None without any."""
        evidence = self._evidence
        if evidence is None:
            return None
        with self._user_code():
            call = evidence.shown()
        if call is None:
            return None
        texts = " ".join(map(str, input_texts(call.batch, self.forward)))
        note = f"inputs: {texts}, as {call.where} passes them"
        return TargetInputs(batch=call.batch, origin="evidence", notes=(note,))

    @cached_property
    def _evidence(self) -> Evidence | None:
        if self.source is None or self.source.tree is None or not self.spec.sliced:
            return None
        try:
            model = self.model if is_all_meta(self.model) else meta_copy(self.model)
        except TargetError:
            return None  # a model that cannot be copied
        return Evidence(
            model=model, evaluator=self.source.evaluator, documents=self.source.documents, seed=self.spec.seed,
            use=self.use, site=self.candidate.site if self.candidate is not None else None,
        )  # fmt: skip

    @cached_property
    def use(self) -> ModelUse:
        """How the documents of the target use the model."""
        site = self.candidate.site if self.candidate is not None else None
        is_variable = self.source is not None and isinstance(getattr(self.source.module, self.factory, None), nn.Module)
        return ModelUse(
            builders=frozenset({self.factory.rpartition(".")[2], type(self.model).__name__}),
            variables=frozenset({self.factory} if is_variable else ()),
            site=(site.document, site.variable) if site is not None and site.variable is not None else None,
        )

    def _from_data_set(self) -> TargetInputs | None:
        """An image of a data set that the user's files load, if forward runs with it; None without one."""
        if self._evidence is None or not self.spec.allow_guess:
            return None
        with self._user_code():
            data_sets = list(islice(self._evidence.from_data_sets(self.forward.positional), MAX_DATA_SETS))
        for loop in data_sets:
            guess = self._guess(loop.texts)
            if not isinstance(guess, InputGuess) or not _is_same_example(loop.texts, guess.texts):
                continue
            texts = _in_batches(guess.texts, loop.size)
            batch, _ = self._create(texts)
            note = self._data_set_note(loop, texts)
            return TargetInputs(batch=batch, origin="data_set", notes=(note,), pinned=tuple(map(str, texts)))
        return None

    def _data_set_note(self, loop: DataSetInputs, texts: tuple[InputText, ...]) -> str:
        size = f" in batches of {loop.size}" if loop.size > 1 else ""
        return f"inputs: {' '.join(map(str, texts))}, from the training on {loop.use.name}{size} at {loop.use.where}"

    def from_data_sets(self) -> Iterator[TargetInputs]:
        """Batches of the data sets that the user's files load, which may not fit forward."""
        if self._evidence is None or not self.spec.allow_guess:
            return
        with self._user_code():
            data_sets = list(islice(self._evidence.from_data_sets(("input",)), MAX_DATA_SETS))
        for loop in data_sets:
            texts = _in_batches(_without_names(loop.texts), loop.size)
            yield TargetInputs(batch=self._resized(texts), origin="data_set", notes=(self._data_set_note(loop, texts),))

    def from_layers(self) -> Iterator[TargetInputs]:
        """One input that a layer of the model takes, the most usual first, which may not fit forward."""
        if not self.spec.allow_guess:
            return
        facts = facts_of(self.model, self.candidate.bound if self.candidate is not None else {})
        for text in _without_names(tuple(data_inputs("input", facts))):
            yield TargetInputs(batch=self._resized((text,)), origin="search", notes=(f"inputs: guessed {text}",))

    def _resized(self, texts: tuple[InputText, ...]) -> Batch:
        batch, _ = self._create(texts)
        size = self._size(batch)
        return batch if size is None else resized(batch, size)

    @contextlib.contextmanager
    def _user_code(self) -> Iterator[None]:
        """The surroundings of user code that is run to find inputs: no side effects, restored afterwards."""
        source = self.source
        folders = source.folders if source is not None else (Path.cwd(),)
        session = source.session if source is not None and self.spec.sliced else None
        with user_code(folders, "the search for inputs"), seeded(self.spec.seed), isolated(session, lambda note: None):
            yield

    def _search(self) -> TargetInputs:
        """Inputs that the search found to run. Raises TargetError if there are none, or if guesses are not allowed."""
        guess = self._guess()
        where = self.source.at(None) if self.source is not None else None
        count = len(self.forward.required) or 1
        message = f"no input shape: {self.forward} needs {count} input{'s' if count > 1 else ''}"
        if not isinstance(guess, InputGuess):
            if guess is not None and guess.failure is not None:
                where = self._place(guess.failure) or where
                if guess.is_unavoidable:
                    raise self._unavoidable(guess.failure, where)
                message += f", and {guess.trials} combinations of shapes failed. The closest one "
                message += f"({' '.join(map(str, guess.texts))}) raised {one_line_message(guess.failure.error)}"
            raise TargetError(message, where=where, hint=NO_GUESS_HINT)
        texts = tuple(map(str, guess.texts))
        if not self.spec.allow_guess:
            raise TargetError(message, where=where, hint=f"set it: {next_command(self.spec, inputs=texts)}")
        batch, _ = self._create(guess.texts)
        note = announcement(guess, self.forward, next_command(self.spec, inputs=texts))
        return TargetInputs(batch=batch, origin="search", notes=(note,), pinned=texts)

    def _unavoidable(self, failure: Failure, where: str | None) -> TargetError:
        """The error for a `failure` of forward that no input avoids."""
        package = missing_package(failure.error)
        if package is None:
            message = f"{self.forward} raised {one_line_message(failure.error)} with each input, whatever its shape"
            return TargetError(message, where=where, hint="fix this line: no input avoids it")
        cause = package.cause if isinstance(package, UnavailableError) else package
        where = package.where if isinstance(package, UnavailableError) else where
        name = getattr(cause, "name", None) or str(package)
        file = self.source.file if self.source is not None else None
        message = f"forward() needs the package {name}, which is not installed"
        return missing_module(self.spec, file, name, where or self.spec.spec, message)

    def _guess(self, start: tuple[InputText, ...] = ()) -> InputGuess | NoGuess | None:
        """The result of a search that begins with `start`; None for a model that cannot be copied to meta."""
        try:
            model = self.model if is_all_meta(self.model) else meta_copy(self.model)
            with self._user_code():
                arguments = self.candidate.bound if self.candidate is not None else {}
                return search_inputs(model, arguments, seed=self.spec.seed, start=start)
        except TargetError:
            return None

    def _place(self, failure: Failure) -> str | None:
        return f"{display_path(failure.line[0])}:{failure.line[1]}" if failure.line is not None else None

    def _command_with_inputs(self) -> str:
        """The command with inputs that the search found to run, or else with the likely ones of the first layer."""
        guess = self._guess()
        texts = guess.texts if guess is not None else ()
        return next_command(self.spec, inputs=[str(text) for text in texts or (InputText(shape=(1, 3, 224, 224)),)])


def _is_same_example(example: tuple[InputText, ...], texts: tuple[InputText, ...]) -> bool:
    """Whether `texts` have the shapes of `example`, the batch size aside: the data set fits the model."""
    return len(example) <= len(texts) and all(
        a.shape[1:] == b.shape[1:] and a.is_whole == b.is_whole for a, b in zip(example, texts, strict=False)
    )


def _without_names(texts: tuple[InputText, ...]) -> tuple[InputText, ...]:
    return tuple(replace(text, name=None) for text in texts)


def _in_batches(texts: tuple[InputText, ...], size: int) -> tuple[InputText, ...]:
    """`texts` of one example (or two, for batch normalization) in a batch of `size`."""
    common = next((text.shape[0] for text in texts if text.shape), None)
    return tuple(
        replace(text, shape=(size, *text.shape[1:])) if text.shape and text.shape[0] == common else text
        for text in texts
    )

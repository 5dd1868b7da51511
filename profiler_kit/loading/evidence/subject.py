"""What the providers of evidence know about a target, and how they create tensors and run its code."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.candidates.hyperparameters import program_options
from profiler_kit.loading.command import next_command
from profiler_kit.loading.data_path.values import Array
from profiler_kit.loading.evidence.announcements import input_note
from profiler_kit.loading.evidence.loader import Loader
from profiler_kit.loading.input_search.layers import first_embedding
from profiler_kit.loading.input_search.meta_run import MetaRunner
from profiler_kit.loading.input_search.outcomes import Failure, InputGuess, NoFitError, NoGuess
from profiler_kit.loading.input_search.search import marked_arguments, search_inputs
from profiler_kit.loading.inputs import DTYPES, InputText, build_arguments
from profiler_kit.loading.messages import reports
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.model_use import ModelUse
from profiler_kit.loading.scripts.isolation import isolated
from profiler_kit.loading.scripts.source import Source
from profiler_kit.loading.zoo import Recipe
from profiler_kit.meta.batch import NO_INPUTS, Batch, Forward, batch_size, resized
from profiler_kit.meta.copies import is_all_meta, meta_copy
from profiler_kit.records.notes import Note
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code.environment import seeded, user_code
from profiler_kit.user_code.locations import one_line_message


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A target whose inputs are unknown. `source` is None for a model passed from Python.

    `candidate` is the chosen model, with the call and the arguments that built it. `may_change`: some of these are assumed, and
    may be changed for inputs that something states.
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
    may_change: bool = False

    @property
    def name(self) -> str:
        """The class of the model."""
        return type(self.model).__name__

    def size(self, batch: Batch) -> int | None:
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

    def create(self, texts: tuple[InputText, ...]) -> tuple[Batch, tuple[Note, ...]]:
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

    def _with_ranges(self, texts: tuple[InputText, ...]) -> tuple[tuple[InputText, ...], tuple[Note, ...]]:
        embedding = first_embedding(self.model)
        if embedding is None or any(text.is_integer and text.low is not None for text in texts):
            return texts, ()
        index = next((i for i, text in enumerate(texts) if text.is_integer), None)
        if index is None:
            return texts, ()
        path, rows = embedding
        layer = f" {path}" if path else ""
        text = f"{texts[index]} has integers in [0, {rows}), the rows of the first embedding{layer}"
        return (*texts[:index], replace(texts[index], low=0, high=rows), *texts[index + 1 :]), (input_note(text),)

    def created_in_size(self, texts: tuple[InputText, ...]) -> Batch:
        """The tensors of `texts` in the requested batch size."""
        batch, _ = self.create(texts)
        size = self.size(batch)
        return batch if size is None else resized(batch, size)

    @cached_property
    def meta_model(self) -> nn.Module | None:
        """The model on meta; None if it cannot be copied."""
        try:
            return self.model if is_all_meta(self.model) else meta_copy(self.model)
        except TargetError:
            return None

    def runs(self, texts: tuple[InputText, ...]) -> bool:
        """Whether forward runs on meta tensors with inputs like `texts`."""
        return self._failure_with(texts, self.name) is None

    def check_fit(self, texts: tuple[InputText, ...], where: str) -> None:
        """Raise NoFitError if the arguments may change and forward fails with inputs like `texts`, whose names are set.

        Not because these have no values, or a single row.
        """
        if not self.may_change or self.meta_model is None:
            return
        failure = self._failure_with(texts, where)
        if failure is None or failure.needs_values or reports(failure.error, "single_row"):
            return
        message = f"{self.forward} raised {one_line_message(failure.error)}"
        hint = "pass other arguments with --kw NAME=VALUE"
        raise NoFitError(message, where=where, hint=hint, failure=failure, texts=texts, is_searched=False)

    def _failure_with(self, texts: tuple[InputText, ...], where: str) -> Failure | None:
        assert self.meta_model is not None
        args, kwargs = marked_arguments(texts)
        with self.user_code(where):
            runner = MetaRunner(meta_copy(self.meta_model), seed=self.spec.seed, needs_batch=False)
            return runner.run(args, kwargs).failure

    @property
    def documents(self) -> tuple[Document, ...]:
        """The documents that may show inputs; none if user code may have side effects, or without a model on meta."""
        reads = self.source is not None and self.source.tree is not None and self.spec.sliced
        return self.source.documents if reads and self.source is not None and self.meta_model is not None else ()

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options of the programs that build the model, with their defaults; those of the chosen one first."""
        site = self.candidate.site if self.candidate is not None else None
        file = self.source.file if self.source is not None else None
        if file is None or not self.documents:
            return {}
        return program_options(file, sorted(self.documents, key=lambda d: site is None or d is not site.document))

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

    @contextlib.contextmanager
    def user_code(self, name: str, source: Source | None = None) -> Iterator[None]:
        """The surroundings of user code that is run to find inputs: no side effects, restored afterwards."""
        source = source or self.source
        folders = source.folders if source is not None else (Path.cwd(),)
        session = source.session if source is not None and self.spec.sliced else None
        with user_code(folders, name), seeded(self.spec.seed), isolated(session, lambda note: None):
            yield

    def guess(self, known: Mapping[str, Array] | None = None) -> InputGuess | NoGuess | None:
        """The result of a search that begins with `known` sizes; None for a model that cannot be copied to meta."""
        arguments = self.candidate.bound if self.candidate is not None else {}
        try:
            model = self.model if is_all_meta(self.model) else meta_copy(self.model)
            with self.user_code("the search for inputs"):
                return search_inputs(model, arguments, options=self.options, seed=self.spec.seed, known=known)
        except TargetError:
            return None

    def command_with_inputs(self) -> str:
        """The command with inputs that the search found to run, or else with the likely ones of the first layer."""
        guess = self.guess()
        texts = guess.texts if guess is not None else ()
        return next_command(self.spec, inputs=[str(text) for text in texts or (InputText(shape=(1, 3, 224, 224)),)])


def without_names(texts: tuple[InputText, ...]) -> tuple[InputText, ...]:
    """`texts` as positional inputs."""
    return tuple(replace(text, name=None) for text in texts)

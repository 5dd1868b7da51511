"""Inputs that the user's files show: tensors in a call of the model, or the data set that a training loop loads."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from profiler_kit.loading.candidates.sites import CallSite
from profiler_kit.loading.input_search.data_sets import DataSetUse, data_set_use
from profiler_kit.loading.input_search.meta_run import MetaRunner
from profiler_kit.loading.inputs import InputText, text_of
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.imports import imported_files
from profiler_kit.loading.program.model_use import ModelCall, ModelUse
from profiler_kit.loading.program.names import assigned
from profiler_kit.loading.program.places import ancestors, place_of
from profiler_kit.loading.program.reading import parse_evidence
from profiler_kit.loading.program.repository import repository_root
from profiler_kit.loading.scripts.execution import EvaluationError, Evaluator
from profiler_kit.meta.batch import Batch, map_batch
from profiler_kit.meta.copies import meta_copy

MAX_CALLS: Final = 12  # calls that are evaluated in one document
MAX_ELEMENTS: Final = 1 << 28  # of an input; a larger one is not an example
MAX_DATA_MODULES: Final = 6  # files that a script imports and that may load its data
MAX_BATCH: Final = 4096
UNKNOWN: Final = object()
_PLAIN: Final = (int, float, bool, str, type(None), np.ndarray)


@dataclass(frozen=True, kw_only=True)
class ShownInputs:
    """Inputs that a call in the user's files passes to the model, and the place of the call."""

    batch: Batch
    where: str


@dataclass(frozen=True, kw_only=True)
class DataSetInputs:
    """Inputs of a training loop over a data set: named texts for one example, the size of its batches or 1, and the place."""

    texts: tuple[InputText, ...]
    use: DataSetUse
    size: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Reads inputs of `model` from documents, which use it as `use` says.

    `site` is the call that builds the model: calls of the model after it come first.
    """

    model: nn.Module
    evaluator: Evaluator
    documents: tuple[Document, ...]
    use: ModelUse
    seed: int
    site: CallSite | None = None

    def shown(self) -> ShownInputs | None:
        """The inputs of the first call of the model whose arguments have values and with which forward runs."""
        for document in sorted(self.documents, key=lambda document: not self._has_site(document)):
            for call in islice(sorted(self.use.calls(document), key=self._is_unrelated), MAX_CALLS):
                batch = self._batch_of(call, {})
                if batch is not None and self._runs(batch):
                    return ShownInputs(batch=batch, where=call.where)
        return None

    def _has_site(self, document: Document) -> bool:
        return self.site is not None and self.site.document is document

    def _is_unrelated(self, call: ModelCall) -> bool:
        """Whether `call` stands before the call that builds the model, or in another function."""
        if self.site is None or not self._has_site(call.document):
            return False
        scopes = place_of(call.document, call.call).scopes
        return (
            call.call.lineno < self.site.call.lineno or scopes[: len(self.site.place.scopes)] != self.site.place.scopes
        )

    def from_data_sets(self, names: tuple[str, ...]) -> Iterator[DataSetInputs]:
        """The inputs that loops over data sets pass to the model. `names` are the positional parameters of forward."""
        if not names:
            return
        for document in self.documents:
            uses = (data_set_use(d, partial(self._value, d, bindings={})) for d in (document, *_data_modules(document)))
            use = next(filter(None, uses), None)
            if use is None:
                continue
            size = use.batch if document.kind == "target" and use.batch is not None and use.batch <= MAX_BATCH else 1
            texts: tuple[InputText, ...] = (InputText(name=names[0], shape=(1, *use.shape)),)
            prepared = self._prepared(document, use, names)
            yield DataSetInputs(texts=prepared or texts, use=use, size=size)

    def _prepared(self, document: Document, use: DataSetUse, names: tuple[str, ...]) -> tuple[InputText, ...] | None:
        """The inputs after the statements of the loop before the call of the model, such as a reshape."""
        for call in islice(self.use.calls(document), MAX_CALLS):
            loop = next((node for node in ancestors(document.tree, call.call) if isinstance(node, ast.For)), None)
            data = _data_name(loop.target) if loop is not None else None
            if loop is None or data is None:
                continue
            bindings: dict[str, Any] = {data: torch.zeros((1, *use.shape))}
            for target, node in _assigned_before(loop, call.call):
                value = self._value(document, node, bindings) if isinstance(target, ast.Name) else UNKNOWN
                if isinstance(target, ast.Name) and value is not UNKNOWN:
                    bindings[target.id] = value
            batch = self._batch_of(call, bindings)
            if batch is None or batch.kwargs or len(batch.args) > len(names):
                continue
            if all(isinstance(value, Tensor) and value.shape[:1] == (1,) for value in batch.args):
                return tuple(text_of(value, name) for name, value in zip(names, batch.args, strict=False))
        return None

    def _batch_of(self, call: ModelCall, bindings: Mapping[str, Any]) -> Batch | None:
        """The values of the arguments; None if one of them is unknown or not an input, or without a tensor."""
        document = call.document
        if call.kind == "forward":
            nodes = call.call.args
            if not (nodes or call.call.keywords) or any(isinstance(node, ast.Starred) for node in nodes):
                return None
            args = tuple(self._value(document, node, bindings) for node in nodes)
            kwargs = {
                word.arg: self._value(document, word.value, bindings)
                for word in call.call.keywords
                if word.arg is not None
            }
            batch = Batch(args=args, kwargs=kwargs)
            if any(value is UNKNOWN for value in batch.values()):
                return None
        else:
            argument = call.argument
            value = self._value(document, argument, bindings) if argument is not None else None
            tool_batch = _tool_batch(value, call)
            if tool_batch is None:
                return None
            batch = tool_batch
        tensors = list(batch.tensors())
        has_data = bool(tensors) or any(isinstance(value, np.ndarray) for value in batch.values())
        if not has_data or any(tensor.numel() > MAX_ELEMENTS for tensor in tensors):
            return None
        return batch if all(map(_is_input, batch.values())) else None

    def _value(self, document: Document, node: ast.expr, bindings: Mapping[str, Any]) -> Any:
        """The value of an expression of `document`; `UNKNOWN` if it has none."""
        if isinstance(node, ast.Constant):
            return node.value
        try:
            return self.evaluator.value(place_of(document, node), node, bindings)
        except (EvaluationError, KeyError):
            return UNKNOWN  # other evidence follows

    def _runs(self, batch: Batch) -> bool:
        runner = MetaRunner(meta_copy(self.model), seed=self.seed, needs_batch=False)
        on_meta = map_batch(batch, lambda tensor: tensor.to("meta"), lambda tensor: tensor)
        failure = runner.run(on_meta.args, on_meta.kwargs).failure
        return failure is None or failure.needs_values or isinstance(failure.error, TimeoutError)


def _data_modules(document: Document) -> Iterator[Document]:
    """The modules of the same repository from which a script imports functions that load its data."""
    path = document.path
    if path is None or document.kind not in ("target", "importer"):
        return
    root = repository_root(path)
    called = {
        node.func.id
        for node in ast.walk(document.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    imports = (
        node
        for node in document.tree.body
        if isinstance(node, ast.ImportFrom)
        and any((alias.asname or alias.name) in called or alias.name == "*" for alias in node.names)
    )
    for file in islice(
        (file for node in imports for file in sorted(imported_files(node, path, root))), MAX_DATA_MODULES
    ):
        text = file.read_text(encoding="utf-8", errors="replace")
        tree = parse_evidence(text) if "DataLoader" in text else None
        if tree is not None:
            yield Document(tree=tree, text=text, path=file, kind="importer")


def _is_input(value: object) -> bool:
    if isinstance(value, (Tensor, *_PLAIN)):
        return True
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_input(item) for key, item in value.items())
    return isinstance(value, (tuple, list)) and all(map(_is_input, value))


def _tool_batch(value: Any, call: ModelCall) -> Batch | None:
    if call.kind == "inputs":
        items = value if isinstance(value, (tuple, list)) else (value,)
        return Batch(args=tuple(items)) if any(isinstance(item, Tensor) for item in items) else None
    if isinstance(value, Tensor):
        return Batch(args=(value,))
    shapes = [value] if _is_shape(value) else list(value) if isinstance(value, (tuple, list)) else []
    if not shapes or not all(map(_is_shape, shapes)):
        return None
    # torchinfo's input_size contains the batch; torchsummary's and ptflops' do not
    batch = () if call.kind == "sizes" and "torchinfo" in call.document.text else (1,)
    return Batch(args=tuple(torch.zeros((*batch, *shape)) for shape in shapes))


def _is_shape(value: object) -> bool:
    return isinstance(value, (tuple, list)) and bool(value) and all(type(size) is int and size > 0 for size in value)


def _data_name(target: ast.expr) -> str | None:
    """The name of the first item of a batch: ``images`` in ``for i, (images, labels) in enumerate(loader)``."""
    if isinstance(target, (ast.Tuple, ast.List)) and target.elts:
        inner = next((item for item in target.elts if isinstance(item, (ast.Tuple, ast.List))), None)
        return _data_name(inner) if inner is not None else _data_name(target.elts[0])
    return target.id if isinstance(target, ast.Name) else None


def _assigned_before(loop: ast.For, call: ast.Call) -> list[tuple[ast.expr, ast.expr]]:
    """The targets and values of the assignments of `loop` before `call`, in order."""
    pairs = (pair for node in ast.walk(loop) for pair in assigned(node))
    before = [pair for pair in pairs if pair[0].lineno <= call.lineno and call not in ast.walk(pair[1])]
    return sorted(before, key=lambda pair: pair[0].lineno)

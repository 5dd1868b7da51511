"""The batch size of a training program: that of its data loader, or of an option of the program."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from typing import Final

from profiler_kit.loading.evidence.model_calls import value_of
from profiler_kit.loading.evidence.subject import Subject
from profiler_kit.loading.inputs import InputText
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.imports import imported_files
from profiler_kit.loading.program.names import FunctionNode, all_nodes, argument, calls_in, dotted_names, last_name
from profiler_kit.loading.program.places import ancestors
from profiler_kit.loading.program.programs import in_program_order
from profiler_kit.loading.program.reading import parsed
from profiler_kit.loading.program.repository import repository_root
from profiler_kit.loading.vocabulary import is_concept, name_words

MAX_DATA_MODULES: Final = 6  # files that a script imports and that may load its data
MAX_LOADERS: Final = 8  # calls of loaders whose batch size is evaluated
MAX_BATCH: Final = 4096
_LOADER: Final = "DataLoader"
_TRAINED: Final = frozenset({"train", "training", "tr"})
_UNTRAINED: Final = frozenset({"val", "valid", "validation", "dev", "test", "testing", "eval", "evaluation", "predict"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """The batch size of a training program, and the line that states it."""

    size: int
    where: str


@lru_cache(maxsize=8)
def training_batch(subject: Subject) -> TrainingBatch | None:
    """The batch size that a program trains the model of `subject` with; None if none states it."""
    if not subject.spec.allow_guess:
        return None
    site = subject.candidate.site if subject.candidate is not None else None
    documents = [document for document in subject.documents if document.kind in ("target", "importer")]
    documents = in_program_order(documents, site.document if site is not None else None)
    with subject.user_code("the search for the batch size"):
        calls = chain.from_iterable(_loaders(document) for document in documents)
        for document, call, size in islice(calls, MAX_LOADERS):
            value = value_of(subject, document, size, {}, at=call)
            if type(value) is int and 0 < value <= MAX_BATCH:
                return TrainingBatch(size=value, where=document.at(call.lineno))
    return None


def in_training_batch(subject: Subject, texts: tuple[InputText, ...]) -> tuple[InputText, ...]:
    """`texts` of one example, or of two for batch normalization, in the batch of the training program; the same without one.

    Also where forward fails with it: then the first dimension is no batch.
    """
    batch = training_batch(subject)
    if batch is None or next((text.shape[0] for text in texts if text.shape), 0) not in (1, 2):
        return texts
    larger = in_size(texts, batch.size)
    return larger if larger == texts or subject.runs(larger) else texts


def in_size(texts: tuple[InputText, ...], size: int) -> tuple[InputText, ...]:
    """`texts` with `size` for the first dimension that they share."""
    common = next((text.shape[0] for text in texts if text.shape), None)
    return tuple(
        replace(text, shape=(size, *text.shape[1:])) if text.shape and text.shape[0] == common else text
        for text in texts
    )


def data_modules(document: Document) -> Iterator[Document]:
    """The modules of the same repository from which a script imports functions or classes that load its data."""
    path = document.path
    if path is None or document.kind not in ("target", "importer"):
        return
    root = repository_root(path)
    called = {last_name(call.func) for call in calls_in(document.tree)}
    called |= {
        name.partition(".")[0] for call in calls_in(document.tree) for name in dotted_names(call.func) if "." in name
    }
    imports = (
        node
        for node in all_nodes(document.tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and any((alias.asname or alias.name) in called or alias.name == "*" for alias in node.names)
    )
    files = dict.fromkeys(file for node in imports for file in sorted(imported_files(node, path, root)))
    for file in islice(files, MAX_DATA_MODULES):
        text = file.read_text(encoding="utf-8", errors="replace")
        tree = parsed(text) if _LOADER in text else None
        if tree is not None:
            yield Document(tree=tree, text=text, path=file, kind="importer")


def _loaders(document: Document) -> Iterator[tuple[Document, ast.Call, ast.expr]]:
    """The calls of data loaders in `document` and in the modules that load its data, with the batch sizes that they pass."""
    for owner in (document, *data_modules(document)):
        sizes = [(call, size) for call in calls_in(owner.tree) if (size := _size(call)) is not None]
        sizes.sort(key=lambda pair: last_name(pair[0].func) != _LOADER)
        yield from ((owner, call, size) for call, size in sizes if not is_of_other_data(owner.tree, call))


def _size(call: ast.Call) -> ast.expr | None:
    """The expression of the batch size that `call` passes to a loader, or to a function that makes one."""
    if last_name(call.func) == "add_argument":
        return None
    named = next((word.value for word in call.keywords if word.arg and is_concept(word.arg, "batch size")), None)
    is_loader = last_name(call.func) == _LOADER
    passed = (value for value in call.args if is_concept(last_name(value), "batch size"))  # sample(memory, batch_size)
    named = named or next(passed, None)
    return named or (argument(call, "batch_size", 1) if is_loader else None) or (_unpacked(call) if is_loader else None)


def _unpacked(call: ast.Call) -> ast.expr | None:
    """``options["batch_size"]`` for ``DataLoader(data, **options)``."""
    mapping = next((word.value for word in call.keywords if word.arg is None), None)
    if mapping is None:
        return None
    item = ast.Subscript(value=mapping, slice=ast.Constant(value="batch_size"), ctx=ast.Load())
    return ast.fix_missing_locations(ast.copy_location(item, mapping))


def is_of_other_data(tree: ast.Module, call: ast.Call) -> bool:
    """Whether the names around a loader or a call say that it is for validation or tests, and none that it is for training."""
    names = dotted_names(call)
    for node in ancestors(tree, call):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            names |= dotted_names(node, ast.Store)
        elif isinstance(node, FunctionNode):
            names.add(node.name)
    words = {word for name in names for word in name_words(name)}
    return not _UNTRAINED.isdisjoint(words) and _TRAINED.isdisjoint(words)

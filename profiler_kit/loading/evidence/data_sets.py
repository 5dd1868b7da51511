"""Images of the data sets that the user's files load, with the transforms that change their size."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

import torch
from torch import Tensor

from profiler_kit.loading.evidence.announcements import input_note
from profiler_kit.loading.evidence.model_calls import MAX_CALLS, UNKNOWN, batch_of, value_of
from profiler_kit.loading.evidence.record import Evidence
from profiler_kit.loading.evidence.subject import Subject, without_names
from profiler_kit.loading.evidence.training_batch import data_modules, in_size, in_training_batch, training_batch
from profiler_kit.loading.input_search.outcomes import InputGuess
from profiler_kit.loading.inputs import InputText, text_of
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.names import all_nodes, argument, assigned, calls_in, last_name
from profiler_kit.loading.program.places import ancestors
from profiler_kit.records.notes import Note

MAX_DATA_SETS: Final = 3  # documents whose data sets are tried
# (channels, height, width) of the images of torchvision.datasets, from https://pytorch.org/vision/stable/datasets.html and
# the papers that it names. ImageFolder and ImageNet have images of any size, which the usual recipe crops to 224.
IMAGES: Final[dict[str, tuple[int, int, int]]] = {
    "MNIST": (1, 28, 28), "FashionMNIST": (1, 28, 28), "KMNIST": (1, 28, 28), "EMNIST": (1, 28, 28), "QMNIST": (1, 28, 28),
    "USPS": (1, 16, 16), "CIFAR10": (3, 32, 32), "CIFAR100": (3, 32, 32), "SVHN": (3, 32, 32), "STL10": (3, 96, 96),
    "Omniglot": (1, 105, 105), "PCAM": (3, 96, 96), "EuroSAT": (3, 64, 64), "GTSRB": (3, 32, 32), "CelebA": (3, 218, 178),
    "ImageNet": (3, 224, 224), "ImageFolder": (3, 224, 224), "Places365": (3, 256, 256), "Food101": (3, 224, 224),
    "Flowers102": (3, 224, 224), "OxfordIIITPet": (3, 224, 224), "LSUN": (3, 256, 256), "Caltech101": (3, 224, 224),
    "StanfordCars": (3, 224, 224), "FGVCAircraft": (3, 224, 224), "FakeData": (3, 224, 224),
}  # fmt: skip
_CROPS: Final = ("CenterCrop", "RandomCrop", "RandomResizedCrop", "FiveCrop", "TenCrop")
_RESIZES: Final = ("Resize", "Scale")


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSetUse:
    """A data set that a document loads: its name, the shape of one image, and the line."""

    name: str
    shape: tuple[int, int, int]
    document: Document
    line: int

    @property
    def where(self) -> str:
        """The line that creates the data set: ``train.py:41``."""
        return self.document.at(self.line)


@dataclass(frozen=True, kw_only=True)
class DataSetLoop:
    """A training loop over a data set: named texts for one example, and the use."""

    texts: tuple[InputText, ...]
    use: DataSetUse

    def note(self, texts: tuple[InputText, ...]) -> Note:
        """The note that announces the inputs `texts`."""
        batch = texts[0].shape[0]
        size = f" in batches of {batch}" if batch != self.texts[0].shape[0] else ""
        training = f"the training on {self.use.name}{size} at {self.use.where}"
        return input_note(f"{' '.join(map(str, texts))}, from {training}")


def from_data_set(subject: Subject) -> Evidence | None:
    """An image of a data set that the user's files load, if forward runs with it; None without one."""
    for loop in _loops(subject, subject.forward.positional):
        if len(loop.texts) >= len(subject.forward.required):
            subject.check_fit(loop.texts, loop.use.where)
        guess = subject.guess(loop.texts)
        if not isinstance(guess, InputGuess) or not _is_same_example(loop.texts, guess.texts):
            continue
        texts = in_training_batch(subject, guess.texts)
        batch, _ = subject.create(texts)
        return Evidence(
            value=batch, where=loop.use.where, strength="derived", source="data_set", notes=(loop.note(texts),),
            pinned=tuple(map(str, texts)),
        )  # fmt: skip
    return None


def data_set_batches(subject: Subject) -> Iterator[Evidence]:
    """Batches of the data sets that the user's files load, which may not fit forward."""
    batch = training_batch(subject)
    for loop in _loops(subject, ("input",)):
        texts = in_size(without_names(loop.texts), batch.size if batch is not None else 1)
        value, notes = subject.created_in_size(texts), (loop.note(texts),)
        yield Evidence(value=value, where=loop.use.where, strength="derived", source="data_set", notes=notes)


def _loops(subject: Subject, names: tuple[str, ...]) -> list[DataSetLoop]:
    """The first loops over data sets that the documents show. `names` are the positional parameters of forward."""
    if not names or not subject.spec.allow_guess:
        return []
    with subject.user_code("the search for inputs"):
        return list(islice(_all_loops(subject, names), MAX_DATA_SETS))


def _all_loops(subject: Subject, names: tuple[str, ...]) -> Iterator[DataSetLoop]:
    for document in subject.documents:
        uses = (
            data_set_use(d, partial(value_of, subject, d, bindings={})) for d in (document, *data_modules(document))
        )
        use = next(filter(None, uses), None)
        if use is None:
            continue
        texts: tuple[InputText, ...] = (InputText(name=names[0], shape=(1, *use.shape)),)
        yield DataSetLoop(texts=_prepared(subject, document, use, names) or texts, use=use)


def _prepared(
    subject: Subject, document: Document, use: DataSetUse, names: tuple[str, ...]
) -> tuple[InputText, ...] | None:
    """The inputs after the statements of the loop before the call of the model, such as a reshape."""
    for call in islice(subject.use.calls(document), MAX_CALLS):
        loop = next((node for node in ancestors(document.tree, call.call) if isinstance(node, ast.For)), None)
        data = _data_name(loop.target) if loop is not None else None
        if loop is None or data is None:
            continue
        bindings: dict[str, Any] = {data: torch.zeros((1, *use.shape))}
        for target, node in _assigned_before(loop, call.call):
            value = value_of(subject, document, node, bindings) if isinstance(target, ast.Name) else UNKNOWN
            if isinstance(target, ast.Name) and value is not UNKNOWN:
                bindings[target.id] = value
        batch = batch_of(subject, call, bindings)
        if batch is None or batch.kwargs or len(batch.args) > len(names):
            continue
        if all(isinstance(value, Tensor) and value.shape[:1] == (1,) for value in batch.args):
            return tuple(text_of(value, name) for name, value in zip(names, batch.args, strict=False))
    return None


def data_set_use(document: Document, evaluate: Callable[[ast.expr], Any]) -> DataSetUse | None:
    """The first data set that `document` creates; None without one. `evaluate` returns another object for an unknown value."""
    calls = calls_in(document.tree)
    use = next((call for call in calls if last_name(call.func) in IMAGES), None)
    if use is None:
        return None
    channels, height, width = IMAGES[last_name(use.func)]
    size = _transformed_size(calls, evaluate)
    if size is not None:
        height, width = size
    elif any(last_name(call.func) in (*_CROPS, *_RESIZES) for call in calls):
        return None  # a size that only the running script knows
    gray = next((call for call in calls if last_name(call.func) == "Grayscale"), None)
    if gray is not None:
        number = evaluate(argument(gray, "num_output_channels", 0) or ast.Constant(value=1))
        channels = number if number in (1, 3) else 1
    return DataSetUse(name=last_name(use.func), shape=(channels, height, width), document=document, line=use.lineno)


def _transformed_size(calls: list[ast.Call], evaluate: Callable[[ast.expr], Any]) -> tuple[int, int] | None:
    """(height, width) after the first transforms that are composed, in their order: training comes first.

    A resize to one number keeps the ratio of the sides.
    """
    size: tuple[int, int] | None = None
    smaller: int | None = None  # of sides whose ratio is unknown
    for call in calls:
        if last_name(call.func) == "Compose" and (size or smaller):
            break
        is_crop = last_name(call.func) in _CROPS
        value = argument(call, "size", 0) if is_crop or last_name(call.func) in _RESIZES else None
        made = evaluate(value) if value is not None else None
        if isinstance(made, (tuple, list)) and len(made) == 2 and all(type(side) is int for side in made):
            size = made[0], made[1]
        elif type(made) is not int or made <= 0:
            continue
        elif is_crop:
            size = made, made
        elif size is not None:
            size = size[0] * made // min(size), size[1] * made // min(size)
        else:
            smaller = made
    return size if size is not None or smaller is None else (smaller, smaller)


def _data_name(target: ast.expr) -> str | None:
    """The name of the first item of a batch: ``images`` in ``for i, (images, labels) in enumerate(loader)``."""
    if isinstance(target, (ast.Tuple, ast.List)) and target.elts:
        inner = next((item for item in target.elts if isinstance(item, (ast.Tuple, ast.List))), None)
        return _data_name(inner) if inner is not None else _data_name(target.elts[0])
    return target.id if isinstance(target, ast.Name) else None


def _assigned_before(loop: ast.For, call: ast.Call) -> list[tuple[ast.expr, ast.expr]]:
    """The targets and values of the assignments of `loop` before `call`, in order."""
    pairs = (pair for node in all_nodes(loop) for pair in assigned(node))
    before = [pair for pair in pairs if pair[0].lineno <= call.lineno and call not in all_nodes(pair[1])]
    return sorted(before, key=lambda pair: pair[0].lineno)


def _is_same_example(example: tuple[InputText, ...], texts: tuple[InputText, ...]) -> bool:
    """Whether `texts` have the shapes of `example`, the batch size aside: the data set fits the model."""
    return len(example) <= len(texts) and all(
        a.shape[1:] == b.shape[1:] and a.is_whole == b.is_whole for a, b in zip(example, texts, strict=False)
    )

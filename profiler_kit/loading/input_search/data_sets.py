"""Images of the data sets that the user's files name, with the transforms that change their size."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.names import argument, calls_in, last_name

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
    """A data set that a document loads: its name, the shape of one image, the batch size of its loader, and the line."""

    name: str
    shape: tuple[int, int, int]
    batch: int | None
    document: Document
    line: int

    @property
    def where(self) -> str:
        """The line that creates the data set: ``train.py:41``."""
        return self.document.at(self.line)


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
    return DataSetUse(
        name=last_name(use.func), shape=(channels, height, width), batch=_batch_size(calls, evaluate), document=document,
        line=use.lineno,
    )  # fmt: skip


def _transformed_size(calls: list[ast.Call], evaluate: Callable[[ast.expr], Any]) -> tuple[int, int] | None:
    """(height, width) after the transforms: a crop decides before a resize, which keeps the aspect ratio."""
    for names in (_CROPS, _RESIZES):
        for call in calls:
            value = argument(call, "size", 0) if last_name(call.func) in names else None
            size = evaluate(value) if value is not None else None
            if type(size) is int and size > 0:
                return size, size
            if isinstance(size, (tuple, list)) and len(size) == 2 and all(type(side) is int for side in size):
                return size[0], size[1]
    return None


def _batch_size(calls: list[ast.Call], evaluate: Callable[[ast.expr], Any]) -> int | None:
    for call in calls:
        if last_name(call.func) == "DataLoader":
            if argument(call, "batch_size") is None:  # DataLoader(dataset, **{"batch_size": 64})
                options = [evaluate(word.value) for word in call.keywords if word.arg is None]
                size = next((o["batch_size"] for o in options if isinstance(o, dict) and "batch_size" in o), None)
                if type(size) is int and size > 0:
                    return size
            value = argument(call, "batch_size", 1)
            size = evaluate(value) if value is not None else None
            if type(size) is int and size > 0:
                return size
    return None

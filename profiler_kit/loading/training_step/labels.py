"""Random labels of the shape and kind that a loss accepts, determined by trials on meta tensors."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from profiler_kit.errors import KitError
from profiler_kit.loading.training_step.losses import LabelKind, class_shape, is_class_last
from profiler_kit.meta.batch import tensors_in
from profiler_kit.user_code.boundary import user_boundary
from profiler_kit.user_code.locations import is_out_of_memory, one_line_message

MAX_TRIALS: Final = 64
_FEWEST_CLASSES: Final = 2

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The tensors that labels follow: the main tensor of the output, and the inputs."""

    main: Tensor
    inputs: tuple[Tensor, ...]

    @property
    def tokens(self) -> Tensor | None:
        """The first integer input with at least two dimensions; None without one."""
        return next((t for t in self.inputs if t.dim() > 1 and not (t.is_floating_point() or t.is_complex())), None)

    @property
    def is_class_last(self) -> bool:
        """Whether the classes are the last dimension of the main tensor."""
        shapes = tuple(tuple(t.shape) for t in self.inputs if not (t.is_floating_point() or t.is_complex()))
        return is_class_last(self.main, shapes, None)


# Shapes of labels, by name; None if the example has no tensor for the shape. Each is a usual convention of loss functions.
_SHAPES: Final[Mapping[str, Callable[[Example], Shape | None]]] = {
    "tokens": lambda e: tuple(e.tokens.shape) if e.tokens is not None else None,
    "classes": lambda e: class_shape(e.main, e.is_class_last) if e.main.dim() > 1 else None,
    "samples": lambda e: tuple(e.main.shape[:1]) or None,
    "input_samples": lambda e: tuple(e.inputs[0].shape[:1]) or None if e.inputs else None,
    "positions": lambda e: tuple(e.main.shape[:-1]) if e.main.dim() > 2 else None,
    "flat_positions": lambda e: (prod(e.main.shape[:-1]),) if e.main.dim() > 2 else None,
    "flat_tokens": lambda e: (e.tokens.numel(),) if e.tokens is not None else None,
    "column": lambda e: (e.main.shape[0], 1) if e.main.dim() else None,
    "output": lambda e: tuple(e.main.shape),
    "input": lambda e: tuple(e.inputs[0].shape) if e.inputs else None,
    "next_tokens": lambda e: (*e.tokens.shape[:-1], e.tokens.shape[-1] + 1) if e.tokens is not None else None,
}
_WHOLE_SHAPES: Final = (
    "tokens", "classes", "samples", "input_samples", "positions", "flat_positions", "flat_tokens", "column",
    "next_tokens",
)  # fmt: skip
_ONLY_FOR_CLASSES: Final = ("column", "next_tokens")  # arithmetic would broadcast them
_FLOAT_SHAPES: Final = ("output", "input", "column", "samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A random label: the name of its shape (see `labels_for_loss`), its kind, and the number of classes."""

    name: str
    shape: str
    kind: LabelKind
    classes: int | None = None

    def size(self, example: Example) -> Shape:
        """The shape for `example`."""
        return _SHAPES[self.shape](example) or ()

    def empty(self, example: Example) -> Tensor:
        """An empty tensor on meta of the shape for `example`."""
        return torch.empty(self.size(example), dtype=self._dtype(example), device="meta")

    def make(self, example: Example, generator: torch.Generator, device: torch.device) -> Tensor:
        """The label for `example` on `device`, with random values; on meta without values."""
        if device.type == "meta":
            return self.empty(example)
        shape = self.size(example)
        if self.kind == "classes":
            label = torch.randint(0, self.classes or _class_count(example), shape, generator=generator)
        elif self.kind == "binary":
            label = torch.rand(shape, generator=generator)
        else:
            label = torch.randn(shape, generator=generator)
        return label.to(device, self._dtype(example))

    def _dtype(self, example: Example) -> torch.dtype:
        return torch.int64 if self.kind == "classes" else _float_dtype(example.main)

    def text(self, example: Example) -> str:
        """The label as an ``-i`` text: ``targets=8,1024:int64[0:50304]``."""
        dims = ",".join(map(str, self.size(example))) or "()"
        kind = f":int64[0:{self.classes or _class_count(example)}]" if self.kind == "classes" else ""
        return f"{self.name}={dims}{kind or ('[0:1]' if self.kind == 'binary' else '')}"


def _float_dtype(main: Tensor) -> torch.dtype:
    return main.dtype if main.is_floating_point() else torch.float32


def _class_count(example: Example) -> int:
    main = example.main
    count = main.shape[-1 if example.is_class_last or main.dim() < 2 else 1] if main.dim() else 0
    return max(int(count), _FEWEST_CLASSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTrial:
    """The result of the search: labels that the loss accepts, or the first failure.

    `compared` are the names of other tensors that the loss uses as class numbers or probabilities.
    """

    labels: tuple[Label, ...] | None
    failure: str = ""
    compared: frozenset[str] = frozenset()


def labels_for_loss(
    names: Sequence[str],
    example: Example,
    loss: Callable[[Mapping[str, Tensor]], object],
    others: Mapping[str, Tensor] | None = None,
) -> LabelTrial:
    """The labels `names` with which ``loss(labels)`` returns a trainable scalar on meta tensors.

    The loss functions of torch that use a label determine its kind, and the first shape that runs is used. The number of
    trials is limited to `MAX_TRIALS`. `others` are tensors that the loss reads and that are no labels.
    """
    uses: dict[str, LabelUse] = {}
    attempted: set[tuple[Label, ...]] = set()
    failure = ""
    # every new use of a label changes its candidates, so the search starts again
    for _ in range(len(names) + 1):
        count = len(uses)
        is_first = True
        for labels in itertools.islice(_combinations(names, example, uses), MAX_TRIALS):
            if labels in attempted:
                continue
            attempted.add(labels)
            tensors = {label.name: label.empty(example) for label in labels}
            recorder = LabelUses({**(others or {}), **tensors})
            failure_here = _failure(loss, tensors, recorder)
            uses = recorder.uses | uses
            if failure_here is None and all(_is_consistent(label, uses.get(label.name)) for label in labels):
                compared = {
                    name for name, use in uses.items() if name not in names and use.kind in ("classes", "binary")
                }
                chosen = tuple(_with_classes(label, uses.get(label.name)) for label in labels)
                return LabelTrial(labels=chosen, compared=frozenset(compared))
            if is_first:  # the first candidates are the most usual ones
                failure, is_first = failure_here or "the labels are of another kind", False
            if len(attempted) >= MAX_TRIALS or len(uses) > count:
                break
        if len(uses) == count:
            break
    return LabelTrial(labels=None, failure=failure)


def _combinations(names: Sequence[str], example: Example, uses: Mapping[str, LabelUse]) -> Iterator[tuple[Label, ...]]:
    return itertools.product(*(list(_candidates(name, example, uses.get(name))) for name in names))


def _candidates(name: str, example: Example, use: LabelUse | None) -> Iterator[Label]:
    shapes: set[tuple[Shape, bool]] = set()
    for is_class, listed in ((True, _WHOLE_SHAPES), (False, _FLOAT_SHAPES)):
        if use is not None and (use.kind == "classes") != is_class:
            continue
        for key in listed:
            shape = _SHAPES[key](example)
            if is_class and use is None and key in _ONLY_FOR_CLASSES:
                continue
            if shape is None or (shape, is_class) in shapes:
                continue
            shapes.add((shape, is_class))
            kind: LabelKind = "classes" if is_class else use.kind if use is not None else "like"
            yield Label(name=name, shape=key, kind=kind, classes=use.classes if use is not None else None)


def _is_consistent(label: Label, use: LabelUse | None) -> bool:
    return use is None or (label.kind == "classes") == (use.kind == "classes")


def _with_classes(label: Label, use: LabelUse | None) -> Label:
    if use is None:
        return label
    return Label(name=label.name, shape=label.shape, kind=use.kind, classes=use.classes or label.classes)


def _failure(
    loss: Callable[[Mapping[str, Tensor]], object], labels: Mapping[str, Tensor], recorder: LabelUses
) -> str | None:
    """Why ``loss(labels)`` is not a trainable scalar; None if it is."""
    try:
        with user_boundary(), warnings.catch_warnings(), torch.enable_grad(), recorder:
            warnings.simplefilter("ignore")
            # mse_loss and l1_loss broadcast labels of a wrong shape, with a warning
            warnings.filterwarnings("error", message="Using a target size")
            value = loss(labels)
    except KitError as error:
        return error.message
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        return one_line_message(error)
    if not isinstance(value, Tensor):
        return f"the loss is of type {type(value).__name__}"
    if value.numel() != 1:
        return f"the loss has shape {tuple(value.shape)}"
    if not (value.is_floating_point() and value.requires_grad):
        return "the loss does not depend on any parameter"
    return None


# Functions of torch.nn.functional, with the kind of label that their second argument is. The modules of torch.nn call them.
_KINDS: Final[Mapping[Callable[..., Any], LabelKind]] = {
    F.cross_entropy: "classes",
    F.nll_loss: "classes",
    F.multi_margin_loss: "classes",
    F.binary_cross_entropy: "binary",
    F.binary_cross_entropy_with_logits: "binary",
    F.multilabel_soft_margin_loss: "binary",
    F.mse_loss: "like",
    F.l1_loss: "like",
    F.smooth_l1_loss: "like",
    F.huber_loss: "like",
    F.kl_div: "binary",
    F.soft_margin_loss: "like",
    F.gaussian_nll_loss: "like",
    F.poisson_nll_loss: "binary",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelUse:
    """How a loss function uses a label. `classes` is the number of classes; None if the function has none."""

    kind: LabelKind
    classes: int | None = None


class LabelUses(TorchFunctionMode):
    """A mode that follows `labels`, by name, through their conversions and records the first use of each in a loss function."""

    def __init__(self, labels: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.uses: dict[str, LabelUse] = {}
        self._names = {id(tensor): name for name, tensor in labels.items()}
        self._alive: list[Tensor] = list(labels.values())  # so that no other tensor gets the same id

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._record(func, args, kwargs)
        result = func(*args, **kwargs)
        origin = next((self._names[id(t)] for t in tensors_in((args, kwargs)) if id(t) in self._names), None)
        if origin is not None:
            for tensor in tensors_in(result):
                if not tensor.requires_grad:
                    self._names.setdefault(id(tensor), origin)
                    self._alive.append(tensor)
        return result

    def _record(self, func: Any, args: Any, kwargs: Any) -> None:
        if func is F.one_hot:
            count = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
            self._add(args[0] if args else kwargs.get("tensor"), "classes", count if count > 0 else None)
        elif func in _KINDS:
            prediction = args[0] if args else kwargs.get("input")
            label = args[1] if len(args) > 1 else kwargs.get("target")
            classes = None
            if _KINDS[func] == "classes" and isinstance(prediction, Tensor) and prediction.dim():
                classes = prediction.shape[1 if prediction.dim() > 1 else 0]
            self._add(label, _KINDS[func], classes)

    def _add(self, label: object, kind: LabelKind, classes: int | None) -> None:
        name = self._names.get(id(label))
        if name is not None:
            self.uses.setdefault(name, LabelUse(kind=kind, classes=classes))

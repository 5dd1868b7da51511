"""Random labels of the shape and kind that a loss accepts, determined by trials on meta tensors."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from profiler_kit.errors import KitError
from profiler_kit.loading.input_search.facts import Facts
from profiler_kit.loading.input_search.meta_run import failure_of
from profiler_kit.loading.input_search.outcomes import (
    Failure,
    LayerInputError,
    Outcome,
    ignores_input,
    mark,
    origins,
    plain_failure,
)
from profiler_kit.loading.input_search.proposals import Value
from profiler_kit.loading.input_search.recorder import Recorder
from profiler_kit.loading.input_search.repairs import repairs
from profiler_kit.loading.input_search.states import State, texts_by_name, with_value
from profiler_kit.loading.inputs import DTYPES, InputText, text_of
from profiler_kit.loading.solve import Solved, Solver, combinations
from profiler_kit.loading.training_step.losses import LabelKind, class_shape, is_class_last
from profiler_kit.user_code.boundary import user_boundary
from profiler_kit.user_code.locations import is_out_of_memory, one_line_message

MAX_TRIALS: Final = 64
MAX_SECONDS: Final = 20.0  # of CPU time
MAX_REPAIRS: Final = 12  # of one failure
_FEWEST_CLASSES: Final = 2

Shape = tuple[int, ...]
Loss = Callable[[Mapping[str, Tensor]], object]


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
    def dtype_text(self) -> str | None:
        """The dtype of a label of floats: that of the main tensor; None for float32."""
        return text_of(self.main).dtype if self.main.is_floating_point() else None

    @property
    def is_class_last(self) -> bool:
        """Whether the classes are the last dimension of the main tensor."""
        shapes = tuple(tuple(t.shape) for t in self.inputs if not (t.is_floating_point() or t.is_complex()))
        return is_class_last(self.main, shapes, None)

    @property
    def classes(self) -> int:
        """The size of the dimension of the classes; 0 for a scalar."""
        dim = -1 if self.is_class_last or self.main.dim() < 2 else 1
        return int(self.main.shape[dim]) if self.main.dim() else 0


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
class LabelUse:
    """How a loss function uses a label. `classes` is the number of classes; None if the function has none."""

    kind: LabelKind
    classes: int | None = None

    def text(self, name: str, shape: Shape, example: Example) -> InputText:
        """A label of this kind, as an ``-i`` text: ``targets=8,1024:int64[0:50304]``."""
        if self.kind == "classes":
            high = self.classes or max(example.classes, _FEWEST_CLASSES)
            return InputText(name=name, shape=shape, dtype="int64", low=0, high=high)
        text = InputText(name=name, shape=shape, dtype=example.dtype_text)
        return replace(text, low=0, high=1) if self.kind == "binary" else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A random label: an input of the loss, and the rule by which its shape follows an example; without one, only its rows do."""

    text: InputText
    rule: str = ""

    @property
    def name(self) -> str:
        """The name of the label."""
        return self.text.name or ""

    def make(self, example: Example, generator: torch.Generator, device: torch.device) -> Tensor:
        """The label for `example` on `device`, with random values; on meta without values."""
        rows = (*example.main.shape[:1], *self.text.shape[1:]) if self.text.shape else ()
        dtype = self.text.dtype if self.text.is_integer else example.dtype_text
        text = replace(self.text, shape=_SHAPES[self.rule](example) or () if self.rule else rows, dtype=dtype)
        return empty(text) if device.type == "meta" else _filled(text, generator, device)

    def as_input(self, seed: int, device: torch.device) -> Tensor:
        """The label as an input of the model, with other values than inputs of its shape. On meta, small integers have values."""
        return _filled(self.text, torch.Generator().manual_seed((seed + 1) % 2**64), device)


def _filled(text: InputText, generator: torch.Generator, device: torch.device) -> Tensor:
    made = text.make(generator=generator, dtype=torch.float32, device=device)
    assert isinstance(made, Tensor)
    return made


def empty(text: InputText) -> Tensor:
    """A tensor on meta without values, in the form of `text`."""
    return torch.empty(text.shape, dtype=DTYPES[text.dtype or "float32"], device="meta")


def usual_label(name: str, kind: LabelKind, example: Example, rule: str = "") -> Label:
    """A label of `kind` in the shape of the usual `rule` for it."""
    rule = rule or ("classes" if kind == "classes" else "output")
    return Label(text=LabelUse(kind=kind).text(name, _SHAPES[rule](example) or (), example), rule=rule)


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


class LossRecorder(Recorder):
    """Records the first use of each label in a loss function, and refuses labels of another kind."""

    def __init__(self, uses: dict[str, LabelUse], labels: Mapping[str, InputText]) -> None:
        super().__init__(Outcome(), time.thread_time() + MAX_SECONDS, None)
        self._uses, self._labels = uses, labels

    def check(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Raise LayerInputError for a label whose kind is not that of its first use."""
        super().check(func, args, kwargs)
        label, use = _use(func, args, kwargs)
        for name in origins(label) if isinstance(label, Tensor) and not label.requires_grad else ():
            first = self._uses.setdefault(name, use)
            if name in self._labels and self._labels[name].is_integer != (first.kind == "classes"):
                raise LayerInputError(f"{name} has labels of another kind than {first.kind}")


def _use(func: Any, args: Any, kwargs: Mapping[str, Any]) -> tuple[object, LabelUse]:
    """(the label, how `func` uses it) of a loss function and of one_hot; (None, ...) of another function."""
    if func is F.one_hot:
        count = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
        return args[0] if args else kwargs.get("tensor"), LabelUse(kind="classes", classes=max(count, 0) or None)
    if func not in _KINDS:
        return None, LabelUse(kind="none")
    prediction = args[0] if args else kwargs.get("input")
    classes = None
    if _KINDS[func] == "classes" and isinstance(prediction, Tensor) and prediction.dim():
        classes = prediction.shape[1 if prediction.dim() > 1 else 0]
    return args[1] if len(args) > 1 else kwargs.get("target"), LabelUse(kind=_KINDS[func], classes=classes)


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
    loss: Loss,
    others: Mapping[str, Tensor] | None = None,
) -> LabelTrial:
    """The labels `names` with which ``loss(labels)`` returns a trainable scalar on meta tensors.

    The loss functions of torch that use a label determine its kind, and the first shape that runs is used. `others` are tensors
    that the loss reads and that are no labels.
    """
    search = _LabelSearch(names, example, loss, others or {})
    result = search.solve(combinations([search.values(name) for name in names]))
    if not isinstance(result, Solved):
        return LabelTrial(labels=None, failure=_reason(result.failure.error) if result is not None else "")
    compared = {name for name, use in search.uses.items() if name not in names and use.kind in ("classes", "binary")}
    return LabelTrial(labels=tuple(search.label(value[0]) for value in result.state), compared=frozenset(compared))


_NO_FACTS: Final = Facts(layers=())


class _LabelSearch(Solver[State, Outcome, Failure]):
    """The labels are the inputs of the loss. `uses`: how the loss functions of all trials use them, which decides their kind."""

    def __init__(self, names: Sequence[str], example: Example, loss: Loss, others: Mapping[str, Tensor]) -> None:
        super().__init__(max_trials=MAX_TRIALS, seconds=MAX_SECONDS)
        self._names, self._example, self._loss = names, example, loss
        for name, tensor in others.items():
            mark(tensor, name)
        self.uses: dict[str, LabelUse] = {}

    def attempt(self, state: State) -> Outcome:
        """The value of the loss for the labels `state`."""
        texts = texts_by_name(state)
        labels = {name: mark(empty(text), name) for name, text in texts.items()}
        recorder = LossRecorder(self.uses, texts)
        try:
            with user_boundary(), warnings.catch_warnings(), torch.enable_grad(), recorder:
                warnings.simplefilter("ignore")
                # mse_loss and l1_loss broadcast labels of a wrong shape, with a warning
                warnings.filterwarnings("error", message="Using a target size")
                return Outcome(output=self._loss(labels))
        except (Exception, SystemExit) as error:
            if is_out_of_memory(error):
                raise
            return Outcome(failure=failure_of(error, recorder))

    def problem(self, state: State, outcome: Outcome) -> Failure | None:
        """The failure, or why the loss is not a trainable scalar."""
        problem = _unfit(outcome.output) if outcome.failure is None else ""
        return plain_failure(ValueError(problem), (), (1 << 20, 0)) if problem else outcome.failure

    def changes(self, state: State, failure: Failure) -> Iterator[State]:
        """Usual labels in place of those that the failing operation received, then their repairs with the same rows."""
        received = origins(list(failure.arguments)).intersection(self._names) or self._names
        for name in filter(received.__contains__, self._names):
            for value in self.values(name):
                yield with_value(state, value)
        for changed in islice(repairs(state, failure, _NO_FACTS), MAX_REPAIRS):
            texts = texts_by_name(changed).values()
            if len(texts) == len(state) and {text.shape[:1] for text in texts} <= self._rows:
                yield changed

    def ignores_unknowns(self, failure: Failure) -> bool:
        """Whether the failing code looks at no label."""
        return ignores_input(failure)

    def values(self, name: str) -> list[Value]:
        """The usual labels, of the kind of the known use of `name`, the most usual first."""
        use = self.uses.get(name)
        usual = {True: LabelUse(kind="classes"), False: LabelUse(kind="like")}
        shapes = _rules(self._example, use)
        return [((use or usual[is_class]).text(name, shape, self._example),) for shape, is_class in shapes]

    def label(self, text: InputText) -> Label:
        """The label with the shape of `text`, and the kind of its use."""
        use = self.uses.get(text.name or "")
        rule = _rules(self._example, use).get((text.shape, text.is_integer), "")
        return Label(text=use.text(text.name or "", text.shape, self._example) if use is not None else text, rule=rule)

    @property
    def _rows(self) -> set[Shape]:
        return {shape[:1] for shape, _ in _rules(self._example, None)}


def _rules(example: Example, use: LabelUse | None) -> dict[tuple[Shape, bool], str]:
    """The rules by (shape for `example`, whether the label has class numbers), the most usual first; of `use`, if it is known."""
    whole = [rule for rule in _WHOLE_SHAPES if use is not None or rule not in _ONLY_FOR_CLASSES]
    rules: dict[tuple[Shape, bool], str] = {}
    for rule, is_class in [*((rule, True) for rule in whole), *((rule, False) for rule in _FLOAT_SHAPES)]:
        shape = _SHAPES[rule](example)
        if shape is not None and (use is None or (use.kind == "classes") == is_class):
            rules.setdefault((shape, is_class), rule)
    return rules


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, KitError) else one_line_message(error)


def _unfit(value: object) -> str:
    """Why `value` is not a trainable scalar; empty if it is."""
    if not isinstance(value, Tensor):
        return f"the loss is of type {type(value).__name__}"
    if value.numel() != 1:
        return f"the loss has shape {tuple(value.shape)}"
    if not (value.is_floating_point() and value.requires_grad):
        return "the loss does not depend on any parameter"
    return ""

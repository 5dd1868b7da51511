"""The training step of a Lightning module: ``training_step(batch, batch_idx)`` runs as the model's forward.

The batch has the structure in which the code reads it: ``x, y = batch``, ``batch["labels"]``, ``batch.image``.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading.program.parameter_reads import reads_of
from profiler_kit.loading.program.reading import source_tree
from profiler_kit.loading.training_step.labels import Example, empty, labels_for_loss, usual_label
from profiler_kit.loading.training_step.losses import main_output
from profiler_kit.loading.training_step.meta_trials import MetaTrials
from profiler_kit.loading.training_step.output_losses import loss_in_output
from profiler_kit.loading.vocabulary import is_label, says
from profiler_kit.meta.batch import Batch
from profiler_kit.records.notes import Note

if TYPE_CHECKING:
    from profiler_kit.loading.evidence.record import Evidence

METHOD: Final = "training_step"
MAX_CANDIDATES: Final = 8
MAX_DEPTH: Final = 3  # of methods that pass the batch on
_TENSOR_ATTRIBUTES: Final = frozenset(dir(Tensor))


class Ignored:
    """The trainer or the logger of a step: has any attribute, accepts any call, is 0 as a number and has no items."""

    def __getattr__(self, name: str) -> Ignored:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: object, **kwargs: object) -> Ignored:
        """The object itself: ``self.trainer.optimizers()[0].step()`` does nothing."""
        return self

    def __getitem__(self, key: object) -> Ignored:
        return self

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __enter__(self) -> Ignored:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __bool__(self) -> bool:
        return False

    def __index__(self) -> int:
        return 0

    __int__ = __len__ = __index__

    def __float__(self) -> float:
        return 0.0

    def __eq__(self, other: object) -> bool:
        return other == 0

    __hash__ = object.__hash__

    def __mod__(self, other: object) -> int:
        return 0

    def __lt__(self, other: Any) -> bool:
        return bool(other > 0)

    def __gt__(self, other: Any) -> bool:
        return bool(other < 0)


def _ignore(self: nn.Module, *args: object, **kwargs: object) -> None:
    """Record nothing."""


def _constant(value: object) -> property:
    return property(lambda self: value)


# What Lightning's trainer provides to a training step
_STAND_INS: Final[dict[str, Any]] = {
    **dict.fromkeys(("log", "log_dict", "print", "toggle_optimizer", "untoggle_optimizer"), _ignore),
    **dict.fromkeys(("trainer", "logger"), _constant(Ignored())),
    **dict.fromkeys(("global_rank", "local_rank", "global_step", "current_epoch"), _constant(0)),
    "loggers": _constant([]),
}


def has_training_step(model: nn.Module) -> bool:
    """Whether the user's class defines ``training_step`` with a batch as its first parameter."""
    method = inspect.getattr_static(type(model), METHOD, None)
    return inspect.isfunction(method) and not method.__module__.startswith(("pytorch_lightning", "lightning"))


def as_step(kind: type[nn.Module]) -> type[nn.Module]:
    """A subclass of `kind` whose forward is the training step. Inside the step, the model's own forward runs."""
    method: Any = inspect.getattr_static(kind, METHOD)
    count = len([p for p in inspect.signature(method).parameters.values() if p.default is p.empty])

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return forward(self, *args, **kwargs) if self._runs_step else nn.Module.__call__(self, *args, **kwargs)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._runs_step:
            return kind.forward(self, *args, **kwargs)
        self._runs_step = True
        try:
            return method(self, *args, *(0,) * (count - 2), **kwargs)  # batch_idx
        finally:
            del self._runs_step

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("self", "batch")]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(
        kind.__name__, (kind,), {**names, **_STAND_INS, "_runs_step": False, "__call__": call, "forward": forward}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """The structure of a batch: ``items`` are its nested items, keys or attributes; a tensor has none."""

    kind: str  # "tensor", "tuple", "dict", "object", or "inputs" for a dict of forward's arguments
    name: str = ""
    items: tuple[Structure, ...] = ()

    def leaves(self) -> list[Structure]:
        """The tensors, in order."""
        return [leaf for item in self.items for leaf in item.leaves()] if self.items else [self]

    def build(self, values: Iterator[Any]) -> Any:
        """The batch with `values` as its tensors."""
        if not self.items:
            return next(values)
        parts = [item.build(values) for item in self.items]
        if self.kind == "tuple":
            return tuple(parts)
        named = {item.name: part for item, part in zip(self.items, parts, strict=True)}
        return named if self.kind == "dict" else SimpleNamespace(**named)


def batch_structure(model: nn.Module) -> Structure:
    """The structure in which the training step reads its batch, also in methods to which it passes the batch."""
    return _read_structure(type(model), METHOD, 1, 0) or Structure(kind="tensor", name="batch")


def _read_structure(kind: type[nn.Module], method: str, position: int, depth: int) -> Structure | None:
    tree = next(iter(source_tree(getattr(kind, method, None)).body), None)
    if not isinstance(tree, ast.FunctionDef) or position >= len(tree.args.args):
        return None
    batch = tree.args.args[position].arg
    reads = reads_of(tree, batch)
    if reads.unpacked:
        return Structure(kind="tuple", items=tuple(map(_of_target, reads.unpacked)))
    if reads.is_keywords:
        return Structure(kind="inputs", name=batch)
    attributes = tuple(name for name in reads.attributes if name not in _TENSOR_ATTRIBUTES and name not in dir(dict))
    for names, container in ((reads.keys, "dict"), (attributes, "object")):
        if names:
            return Structure(kind=container, items=tuple(Structure(kind="tensor", name=name) for name in names))
    if reads.count:
        names = ("x", *(f"label{index}" for index in range(1, reads.count)))
        return Structure(kind="tuple", items=tuple(Structure(kind="tensor", name=name) for name in names))
    for function, index in reads.passed_to if depth < MAX_DEPTH else ():  # the method that gets the whole batch
        inner = function.removeprefix("self.")
        if inspect.isfunction(getattr(kind, inner, None)):
            structure = _read_structure(kind, inner, index + 1, depth + 1)
            if structure is not None:
                return structure
    return None


def _of_target(target: ast.expr) -> Structure:
    if isinstance(target, (ast.Tuple, ast.List)):
        return Structure(kind="tuple", items=tuple(map(_of_target, target.elts)))
    return Structure(kind="tensor", name=target.id if isinstance(target, ast.Name) else "item")


@dataclass(frozen=True, slots=True, kw_only=True)
class LightningStep:
    """A batch with which the training step returns a loss, and a note on it."""

    batch: Batch
    note: Note


def find_lightning_step(
    model: nn.Module, candidates: Iterable[Evidence], seed: int, device: torch.device
) -> Evidence | None:
    """The first of `candidates` with which the training step of `model` runs, with the batch of the step; None without one.

    `model` itself does not change.
    """
    structure = batch_structure(model)
    for inputs in islice(candidates, MAX_CANDIDATES):
        step = _with_inputs(model, structure, inputs.value, seed, device)
        if step is not None:
            return replace(inputs, value=step.batch, notes=(*inputs.notes, step.note))
    return None


def _with_inputs(
    model: nn.Module, structure: Structure, inputs: Batch, seed: int, device: torch.device
) -> LightningStep | None:
    if structure.kind == "inputs":
        names = list(inspect.signature(model.forward).parameters)
        values = {**dict(zip(names, inputs.args, strict=False)), **inputs.kwargs}
        items = tuple(
            Structure(kind="tensor", name=name) for name in [*values, *(["labels"] if "labels" in names else [])]
        )
        structure = Structure(kind="dict", items=items)
    leaves = structure.leaves()
    label_names, input_indices = _split(leaves, inputs)
    trials = MetaTrials(model, inputs, seed)
    meta_model = trials.model
    if meta_model is None or len(input_indices) > len(list(inputs.tensors())):
        return None
    meta_inputs = list(trials.batch.tensors())
    example = Example(main=_main(trials, meta_inputs), inputs=tuple(meta_inputs))
    meta_model.__class__ = as_step(type(meta_model))

    def filled(tensors: list[Tensor], labels: Mapping[str, Any]) -> Any:
        by_index = dict(zip(input_indices, tensors, strict=False))
        values = (by_index[i] if i in by_index else labels[label_names[i]] for i in range(len(leaves)))
        return structure.build(values)

    def loss(labels: Mapping[str, Tensor]) -> Any:
        result = trials.run(lambda: meta_model(filled(meta_inputs, labels)))
        own = loss_in_output(result)
        return own.value if own is not None else result

    unused = {
        name: usual_label(name, "classes", example, "input_samples") for name in label_names.values() if name[0] == "_"
    }
    unread = {name: empty(label.text) for name, label in unused.items()}
    used = tuple(name for name in label_names.values() if name not in unused)
    trial = labels_for_loss(used, example, lambda labels: loss({**unread, **labels}))
    if trial.labels is None:
        return None
    made = {label.name: label.as_input(seed, device) for label in (*trial.labels, *unused.values())}
    value = filled(list(inputs.tensors()), made)
    listed = " ".join(str(label.text) for label in trial.labels)
    text = f"{METHOD}(batch, batch_idx) of the model" + (f", with random labels {listed}" if listed else "")
    return LightningStep(batch=Batch(args=(value,)), note=Note(subject="step", text=text))


def _main(trials: MetaTrials, inputs: list[Tensor]) -> Tensor:
    """The main tensor of forward's output; the first input if forward does not run with these inputs."""
    try:
        return main_output(trials.output())
    except TargetError:
        return inputs[0]


def _is_label(name: str) -> bool:
    """Whether an item of a batch is one: also a mask, which is the label of each pixel, and an item that nothing reads."""
    return is_label(name) or says(name, "mask") or name == "_"


def _split(leaves: list[Structure], inputs: Batch) -> tuple[dict[int, str], list[int]]:
    """(names of labels by index, indices of inputs) of the tensors of a batch, of which `inputs` are the first."""
    count = len(list(inputs.tensors()))
    input_indices = [i for i, leaf in enumerate(leaves) if leaf.name in inputs.kwargs]
    for index, leaf in enumerate(leaves):
        if len(input_indices) < count and index not in input_indices and not _is_label(leaf.name):
            input_indices.append(index)
    input_indices = sorted(input_indices) or [0]
    names: dict[int, str] = {}
    for index, leaf in enumerate(leaves):
        if index not in input_indices:
            names[index] = leaf.name if leaf.name not in names.values() else f"{leaf.name}{index}"
    return names, input_indices

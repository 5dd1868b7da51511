"""Loss functions that the target's file defines: ``loss_fn``, and functions or modules with a usual name for a loss."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

from torch import nn

from profiler_kit.loading.program.definitions import definition_lines
from profiler_kit.loading.program.names import assigned, used_names
from profiler_kit.loading.program.places import place_of
from profiler_kit.loading.scripts.execution import EvaluationError
from profiler_kit.loading.scripts.source import Source
from profiler_kit.loading.training_step.script_loss import ScriptLoss, compile_loss
from profiler_kit.loading.training_step.step_code import OUTPUT
from profiler_kit.loading.vocabulary import is_label

LOSS_FN: Final = "loss_fn"
_NAMES: Final = (LOSS_FN, "criterion", "loss_function", "loss_func", "compute_loss")


def own_loss(source: Source) -> Any:
    """The ``loss_fn(output, *inputs)`` of the file; None without one, and for a function that is not called like this.

    A function that a class of the file calls is a part of the model. A function whose second parameter is a label is one of
    `file_losses`.
    """
    loss = source.names.get(LOSS_FN)
    if not isinstance(loss, FunctionType):
        return loss
    return None if _is_part_of_a_class(source) or _label_parameters(loss) else loss


def _is_part_of_a_class(source: Source) -> bool:
    classes = [node for node in source.tree.body if isinstance(node, ast.ClassDef)] if source.tree is not None else []
    return any(LOSS_FN in used_names(owner) for owner in classes)


def file_losses(source: Source) -> Iterator[ScriptLoss]:
    """The functions ``criterion(output, labels...)`` of the file, and its global loss modules."""
    names, lines = source.names, definition_lines(source.tree) if source.tree is not None else {}
    for name in _NAMES:
        function = names.get(name)
        if function is None and name in lines:
            function = _skipped_value(source, name)
        is_module = isinstance(function, nn.Module) and name != LOSS_FN
        labels = ("target",) if is_module else _label_parameters(function) if isinstance(function, FunctionType) else ()
        if labels and not (name == LOSS_FN and _is_part_of_a_class(source)):
            yield _function_loss(name, function, labels, source.at(lines.get(name)))


def _skipped_value(source: Source, name: str) -> Any:
    """The value of a global assignment that the import skipped, because the model does not need it; None without one."""
    assert source.tree is not None
    for target, value in (pair for node in source.tree.body for pair in assigned(node)):
        if isinstance(target, ast.Name) and target.id == name:
            with contextlib.suppress(EvaluationError):
                return source.evaluator.value(place_of(source.documents[0], value), value)
    return None


def _label_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The required parameters of a loss function after the output, if the first of them is a label."""
    parameters = list(inspect.signature(function).parameters.values())
    required = tuple(p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD)
    return required[1:] if len(required) > 1 and is_label(required[1]) else ()


def _function_loss(name: str, function: Any, labels: tuple[str, ...], where: str) -> ScriptLoss:
    text = f"{name}({', '.join((OUTPUT, *labels))})"
    statement = ast.parse(text).body[0]
    assert isinstance(statement, ast.Expr)
    return ScriptLoss(
        name=type(function).__name__ if isinstance(function, nn.Module) else name,
        text=text.replace(OUTPUT, "output"),
        where=where,
        code=compile_loss((), statement.value, statement, labels, where.rpartition(":")[0]),
        inputs=(),
        label_names=labels,
        constants={name: function},
    )

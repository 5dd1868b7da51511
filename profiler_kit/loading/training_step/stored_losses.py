"""Losses that forward stores in an attribute of the model, such as ``self.last_loss``, and does not return."""

from __future__ import annotations

import ast

from torch import Tensor, nn

from profiler_kit.loading.training_step.script_loss import ScriptLoss, compile_loss

_MODEL = "model"


def stored_scalars(model: nn.Module) -> dict[str, Tensor]:
    """The computed scalars with a gradient in the attributes of `model` and its modules, by expression: ``model.last_loss``."""
    scalars: dict[str, Tensor] = {}
    for path, module in model.named_modules():
        owner = f"{_MODEL}.get_submodule({path!r})" if path else _MODEL
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.dim() == 0 and value.grad_fn is not None and name.isidentifier():
                scalars[f"{owner}.{name}"] = value
    return scalars


def newly_stored(scalars: dict[str, Tensor], before: frozenset[str]) -> tuple[str, Tensor] | None:
    """(expression, value) of the loss among the `scalars` that forward stored; `before` are those that it stores in any case.

    It is the first one with ``loss`` in its name, else the first one.
    """
    new = {text: value for text, value in scalars.items() if text not in before}
    return min(new.items(), key=lambda item: "loss" not in item[0].rpartition(".")[2].lower(), default=None)


def stored_loss(text: str, model: nn.Module) -> ScriptLoss:
    """The loss that reads the expression `text` of `model` after forward."""
    name = text.rpartition(".")[2]
    expression = ast.parse(text, mode="eval").body
    place = ast.copy_location(ast.Expr(value=expression), expression)
    return ScriptLoss(
        name=name, text=text, where=f"{type(model).__name__}.forward", code=compile_loss((), expression, place, (), "<loss>"),
        inputs=(), label_names=(), constants={_MODEL: model}, model_names=(_MODEL,), labels=(),
    )  # fmt: skip

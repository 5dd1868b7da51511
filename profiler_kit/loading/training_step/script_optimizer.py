"""The optimizer as a training script or the model's ``configure_optimizers`` builds it."""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer

from profiler_kit.loading.program.names import all_nodes, calls_in, dotted_name, dotted_names, mutated_names
from profiler_kit.user_code.boundary import user_boundary
from profiler_kit.user_code.locations import one_line_message

CONFIGURE: Final = "configure_optimizers"
MAX_CANDIDATES: Final = 6
_LISTED_DEFAULTS: Final = ("lr", "momentum", "betas", "weight_decay")
# Optimizers that check for a device with fused kernels, which meta is not.
_WITH_FUSED: Final = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)


def optimizer_sites(tree: ast.Module, names: frozenset[str]) -> Iterator[ast.Assign]:
    """The assignments in `tree` that may build an optimizer for the parameters of a model in a variable of `names`."""
    stepped = {
        dotted_name(node.func.value)
        for node in calls_in(tree)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("step", "zero_grad")
    }
    for node in all_nodes(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        targets = {dotted_name(target) for target in node.targets}
        is_optimizer = any("optim" in (target or "").lower() for target in targets) or bool(targets & stepped)
        if is_optimizer and _depends_on(node.value, names, tree):
            yield node


def _depends_on(value: ast.Call, names: frozenset[str], tree: ast.Module) -> bool:
    """Whether `value` reads the model, directly or through one variable such as ``params``."""
    reads = dotted_names(value)
    if reads & names:
        return True
    return any(
        reads & (dotted_names(statement, ast.Store) | mutated_names(statement) - {"self"})
        and names & dotted_names(statement)
        for statement in all_nodes(tree)
        if isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr))
    )


def optimizer_in(value: object) -> Optimizer | None:
    """The first optimizer in what ``configure_optimizers`` returns: itself, or in a tuple, list or dict with schedulers."""
    if isinstance(value, Optimizer):
        vars(value).pop("step", None)  # a scheduler's wrapper, which fails after the scheduler is gone
        return value
    if isinstance(value, Mapping):
        return optimizer_in(value.get("optimizer"))
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return optimizer_in(value[0])
    return None


def own_configuration(model: nn.Module) -> Callable[[nn.Module], Any] | None:
    """A function that calls the model's own ``configure_optimizers()``; None if it has none or if it needs arguments."""
    method = getattr(model, CONFIGURE, None)
    if not callable(method) or _required_arguments(method):
        return None
    return lambda other: optimizer_in(getattr(other, CONFIGURE)())


def _required_arguments(function: Callable[..., Any]) -> list[str]:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variadic]


def optimizer_problem(build: Callable[[nn.Module], Any], model: nn.Module) -> tuple[Optimizer | None, str]:
    """(optimizer, reason): the optimizer that `build` creates for `model`, or None with the reason why it is not usable."""
    try:
        with user_boundary(), without_fused_kernels(model), contextlib.redirect_stdout(sys.stderr):
            optimizer = build(model)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything
        return None, one_line_message(error)
    if not isinstance(optimizer, Optimizer):
        return None, f"it is of type {type(optimizer).__name__}"
    if isinstance(optimizer, torch.optim.LBFGS):
        return None, "LBFGS evaluates the model several times in a step"
    parameters = {id(parameter) for parameter in model.parameters()}
    if not any(id(p) in parameters for group in optimizer.param_groups for p in group["params"]):
        return None, "it has no parameter of this model"
    return optimizer, ""


def optimizer_text(optimizer: Optimizer) -> str:
    """The optimizer with its main settings: ``SGD(lr=0.1, momentum=0.9)``."""
    defaults = optimizer.defaults
    listed = [f"{name}={defaults[name]!r}" for name in _LISTED_DEFAULTS if defaults.get(name)]
    return f"{type(optimizer).__name__}({', '.join(listed)})"


@contextlib.contextmanager
def without_fused_kernels(model: nn.Module) -> Iterator[None]:
    """Ignore ``fused=True`` of torch's optimizers inside the block if `model` is on meta, which has no fused kernels."""
    if not any(parameter.is_meta for parameter in model.parameters()):
        yield
        return
    originals = [(kind, kind.__init__) for kind in _WITH_FUSED]
    for kind, original in originals:
        kind.__init__ = _without_fused(original)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for kind, original in originals:
            kind.__init__ = original  # type: ignore[method-assign]


def _without_fused(original: Callable[..., None]) -> Callable[..., None]:
    def initialize(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **{**kwargs, "fused": None} if "fused" in kwargs else kwargs)

    initialize.__wrapped__ = original  # type: ignore[attr-defined]  # code that reads the signature sees the original
    return initialize

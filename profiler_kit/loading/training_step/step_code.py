"""Finds the statements that compute the loss of a training step, from the call of the model to ``loss.backward()``."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from profiler_kit.loading.program.names import (
    all_nodes,
    assigned,
    bound_names,
    calls_in,
    dotted_name,
    dotted_names,
    in_order,
    last_name,
    target_names,
    used_names,
)
from profiler_kit.loading.program.places import ancestors, method_around, scopes_around
from profiler_kit.loading.program.slices import DocumentFacts, Slicer, facts_of

OUTPUT: Final = "model_output"
# Methods that return the same elements, so the variable can stand for the input that the model gets.
_SAME_ELEMENTS: Final = (
    "to", "cuda", "cpu", "float", "double", "half", "long", "view", "reshape", "flatten", "squeeze", "unsqueeze",
    "contiguous", "requires_grad_", "detach", "clone", "type",
)  # fmt: skip
# Names of loss functions in torch.nn and in training scripts.
_LOSS_NAMES: Final = re.compile(r"loss|crit|entropy|objective", re.IGNORECASE)
_WITHOUT_GRADIENTS: Final = ("no_grad", "inference_mode")

_Node = TypeVar("_Node", bound=ast.AST)
# The value of an `if` test at a statement; None if it is unknown.
Decide = Callable[[ast.expr, ast.stmt], bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCode:
    """The code of one training step.

    - `statements`, `loss`: the statements after the call of the model, and the expression of the loss. The call is replaced by
      the name `OUTPUT`.
    - `statement`: the original statement with the loss, and `line` its line.
    - `inputs`: the variables that the model gets, with their position or keyword.
    - `free_names`: names that the statements read before they bind them, in order.
    - `before`: the statements of the step before the call of the model; `loop_names`: the names that its loops bind, in
      order.
    - `text`: the expression of the loss as written; `label`: a short name.
    - `attributes`: the free names that stand for attributes of ``self``, and these.
    """

    statements: tuple[ast.stmt, ...]
    loss: ast.expr
    statement: ast.stmt
    line: int
    inputs: tuple[tuple[str, int | str], ...]
    free_names: tuple[str, ...]
    before: tuple[ast.stmt, ...]
    loop_names: tuple[str, ...]
    text: str
    label: str
    attributes: Mapping[str, ast.Attribute]


def find_step_codes(tree: ast.Module, names: frozenset[str], decide: Decide) -> Iterator[StepCode]:
    """The training steps in `tree` whose loss depends on one call of the model, which is in a variable of `names`."""
    losses: list[tuple[ast.expr, ast.expr]] = [
        (loss, call) for call in calls_in(tree) if (loss := _backward_loss(call)) is not None
    ]
    losses += [(loss, loss) for loss in _returned_losses(tree)]
    wrapper = {"self"} if _is_wrapped(tree, names) else set()
    for loss, node in losses:
        code = _step_code(loss, node, tree, names | wrapper, decide)
        if code is not None:
            yield code


def _returned_losses(tree: ast.Module) -> Iterator[ast.expr]:
    """What ``training_step`` of a Lightning module returns: the loss, or that of a dict."""
    steps = (node for node in all_nodes(tree) if isinstance(node, ast.FunctionDef) and node.name == "training_step")
    for node in (inner for step in steps for inner in all_nodes(step)):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
            items = zip(node.value.keys, node.value.values, strict=True)
            yield from (value for key, value in items if getattr(key, "value", None) == "loss")
        elif isinstance(node, ast.Return) and node.value is not None:
            yield node.value


def _is_wrapped(tree: ast.Module, names: frozenset[str]) -> bool:
    """Whether ``forward`` of a class returns the output of the model, so that a call of ``self`` is one of the model."""
    functions = (node for node in all_nodes(tree) if isinstance(node, ast.FunctionDef) and node.name == "forward")
    returned = (node.value for function in functions for node in all_nodes(function) if isinstance(node, ast.Return))
    return any(isinstance(value, ast.Call) and dotted_name(value.func) in names for value in returned)


def find_called_losses(tree: ast.Module, names: frozenset[str], decide: Decide) -> Iterator[StepCode]:
    """Calls of a loss function, such as ``criterion(net(x), y)``, with the output of the model in a variable of `names`.

    They show the loss where the step is spread over functions, or where another library calls ``backward()``.
    """
    for node in calls_in(tree):
        function = node.func.func if isinstance(node.func, ast.Call) else node.func  # nn.MSELoss()(output, target)
        is_loss = node.args and dotted_name(function) is not None and _LOSS_NAMES.search(last_name(function))
        code = _step_code(node, node, tree, names, decide) if is_loss else None
        if code is not None:
            yield code


def _backward_loss(call: ast.Call) -> ast.expr | None:
    """The loss of ``loss.backward()``, ``scaler.scale(loss).backward()`` or ``accelerator.backward(loss)``."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("backward", "manual_backward"):
        return None
    owner = call.func.value
    if call.args and (call.func.attr == "manual_backward" or isinstance(owner, (ast.Name, ast.Attribute))):
        return call.args[0]
    if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr == "scale":
        return owner.args[0] if owner.args else None
    return owner


@dataclass(slots=True)
class _Path:
    """The statements that run before a statement in its scope, in order, and the names that loops bind."""

    before: list[ast.stmt] = field(default_factory=list)
    loop_names: list[str] = field(default_factory=list)


def _path(statement: ast.stmt, tree: ast.Module) -> _Path:
    path = _Path()
    current: ast.AST = statement
    for parent in ancestors(tree, statement):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and current in block:
                path.before[:0] = block[: block.index(current)]
        if isinstance(parent, (ast.For, ast.AsyncFor)):
            path.loop_names += in_order(target_names(parent.target), [parent.target])
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
        current = parent
    return path


def _step_code(
    loss: ast.expr, call: ast.expr, tree: ast.Module, names: frozenset[str], decide: Decide
) -> StepCode | None:
    statement = next(node for node in ancestors(tree, call) if isinstance(node, ast.stmt))
    path = _path(statement, tree)
    method = method_around(scopes_around(tree, statement))
    step = _Step(names, path.before, method[1].args.args[0].arg if method is not None else None)
    slicer = _StepSlicer(facts_of(tree), step, decide)
    value, before = step.rewritten(loss), step.block(path.before)
    needed = set(used_names(value) - slicer.facts.builtins)
    parts: list[ast.stmt] = []
    while before and OUTPUT not in needed:
        parts[:0] = slicer.slice([before.pop()], needed)
    calls = step.calls_in((*parts, value))
    if len(calls) != 1:
        return None
    text, line, label = _described(loss, path.before, statement, names)
    return StepCode(
        statements=tuple(map(ast.fix_missing_locations, parts)),
        loss=value,
        statement=statement,
        line=line,
        inputs=tuple(step.inputs(calls[0])),
        free_names=in_order(needed - {OUTPUT}, (*parts, value)),
        before=tuple(before),
        loop_names=tuple(path.loop_names),
        text=text,
        label=label,
        attributes=step.attributes,
    )


def _described(
    loss: ast.expr, before: list[ast.stmt], statement: ast.stmt, names: frozenset[str]
) -> tuple[str, int, str]:
    """(text, line, short name) of the loss: of its last assignment and the terms added later, if it is a variable."""
    name = dotted_name(loss)
    if name is None:
        return ast.unparse(loss), statement.lineno, _short_name(loss, "loss", names)
    added, added_names = "", ""
    for candidate in reversed(list(_nested(before))):
        if isinstance(candidate, ast.AugAssign) and dotted_name(candidate.target) == name:
            sign = "+" if isinstance(candidate.op, ast.Add) else "-"
            if isinstance(candidate.op, (ast.Add, ast.Sub)):
                added = f" {sign} {ast.unparse(candidate.value)}{added}"
                added_names = f" {sign} {_short_name(candidate.value, name, names)}{added_names}"
            continue
        for target, item in assigned(candidate):
            if dotted_name(target) == name:
                if isinstance(item, ast.BinOp) and dotted_name(item.left) == name:
                    continue  # loss = loss / accumulation_steps
                return ast.unparse(item) + added, candidate.lineno, _short_name(item, name, names) + added_names
            for index, element in enumerate(target.elts if isinstance(target, ast.Tuple) else ()):
                if dotted_name(element) == name:
                    is_output = isinstance(item, ast.Call) and dotted_name(item.func) in names
                    short = f"output[{index}]" if is_output else _short_name(item, name, names)
                    return ast.unparse(candidate) + added, candidate.lineno, short
    return name, statement.lineno, name.rpartition(".")[2]


def _nested(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """`statements` with those inside their ``with``, ``try`` and ``if`` blocks, in order."""
    for statement in _flat(statements):
        if isinstance(statement, ast.If):
            yield from _nested(statement.body)
            yield from _nested(statement.orelse)
        else:
            yield statement


def _short_name(value: ast.expr, variable: str, names: frozenset[str]) -> str:
    """``nll_loss`` for ``F.nll_loss(output, target)``, ``bce + kl`` for a sum of two losses; else the variable."""
    if isinstance(value, ast.Name) and value.id not in names:
        return value.id
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
        sign = "+" if isinstance(value.op, ast.Add) else "-"
        return f"{_short_name(value.left, variable, names)} {sign} {_short_name(value.right, variable, names)}"
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div)):
        sides = [side for side in (value.left, value.right) if isinstance(side, (ast.Name, ast.Call))]
        return _short_name(sides[-1 if isinstance(value.op, ast.Mult) else 0], variable, names) if sides else variable
    if isinstance(value, ast.Call):
        name = dotted_name(value.func)
        if name is not None and name not in names:
            return name.rpartition(".")[2]
        if isinstance(value.func, ast.Call):  # nn.MSELoss()(output, target)
            return _short_name(value.func, variable, names)
    return variable.rpartition(".")[2]


def _flat(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """`statements` with the bodies of ``with`` and ``try`` in their place, except for blocks without gradients."""
    for statement in statements:
        if (isinstance(statement, (ast.With, ast.AsyncWith)) and not _is_without_gradients(statement)) or isinstance(
            statement, ast.Try
        ):
            yield from _flat(statement.body)
        else:
            yield statement


def _is_without_gradients(statement: ast.With | ast.AsyncWith) -> bool:
    return any(word in ast.unparse(item.context_expr) for item in statement.items for word in _WITHOUT_GRADIENTS)


class _Step:
    """Rewrites a step: the call of the model becomes the name `OUTPUT`, and attributes that the step assigns become variables.

    So do those of the `instance` whose method it is: `attributes` has them by their new names.
    Nodes without either stay the same objects. `calls` has the call of each `OUTPUT`, `originals` that of changed statements.
    """

    def __init__(self, names: frozenset[str], statements: Iterable[ast.stmt], instance: str | None) -> None:
        self._names = names
        self._instance = instance
        self.attributes: dict[str, ast.Attribute] = {}
        self._assigned = {name for s in statements for name in dotted_names(s, ast.Store) if "." in name}
        self.calls: dict[ast.AST, ast.Call] = {}
        self.originals: dict[ast.AST, ast.stmt] = {}

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """The rewritten `statements`, with the bodies of ``with`` and ``try`` in their place."""
        return [self.rewritten(statement) for statement in _flat(statements)]

    def rewritten(self, node: _Node) -> _Node:
        """`node` after the changes."""
        name = self._variable(node)
        if name is not None:
            return ast.copy_location(name, node)  # type: ignore[return-value]
        changes: dict[str, Any] = {}
        for field_name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                changes[field_name] = self.rewritten(value)
            elif isinstance(value, list) and isinstance(node, ast.If):
                changes[field_name] = self.block(value)
            elif isinstance(value, list):
                changes[field_name] = [self.rewritten(item) if isinstance(item, ast.AST) else item for item in value]
        if all(_is_same(getattr(node, key), value) for key, value in changes.items()):
            return node
        # not a copy, which would keep the nodes below the old one (`all_nodes`)
        changed = ast.copy_location(type(node)(**dict(ast.iter_fields(node)) | changes), node)
        if isinstance(node, ast.stmt):
            self.originals[changed] = node
        return changed

    def _variable(self, node: ast.AST) -> ast.Name | None:
        if isinstance(node, ast.Attribute):
            dotted = dotted_name(node)
            is_own = isinstance(node.value, ast.Name) and node.value.id == self._instance
            if dotted is None or not (is_own or dotted in self._assigned):
                return None
            name = dotted.replace(".", "_")
            if dotted not in self._assigned:
                self.attributes[name] = node
            return ast.Name(id=name, ctx=node.ctx)
        if not isinstance(node, ast.Call):
            return None
        if (dotted_name(node.func) or "").removesuffix(".forward") not in self._names:
            return None
        output = ast.Name(id=OUTPUT, ctx=ast.Load())
        self.calls[output] = node
        return output

    def calls_in(self, nodes: Iterable[ast.AST]) -> list[ast.Call]:
        """The different calls of the model that `nodes` read the output of."""
        calls = (self.calls[inner] for node in nodes for inner in all_nodes(node) if inner in self.calls)
        return list({ast.dump(call): call for call in calls}.values())

    def inputs(self, call: ast.Call) -> Iterator[tuple[str, int | str]]:
        """The variables that `call` passes, with their position or keyword."""
        passed: dict[int | str, ast.expr] = dict(enumerate(call.args))
        passed |= {word.arg: word.value for word in call.keywords if word.arg is not None}
        for key, value in passed.items():
            while (
                isinstance(value, ast.Call)
                and isinstance(value.func, ast.Attribute)
                and value.func.attr in _SAME_ELEMENTS
            ):
                value = value.func.value
            name = dotted_name(self.rewritten(value))
            if name is not None:
                yield name, key


def _is_same(old: Any, new: Any) -> bool:
    return old is new or (isinstance(old, list) and len(old) == len(new) and all(map(operator.is_, old, new)))


class _StepSlicer(Slicer):
    """Slices a rewritten step, without the statements that train, and with one branch of an ``if`` whose test is known."""

    def __init__(self, facts: DocumentFacts, step: _Step, decide: Decide) -> None:
        super().__init__(facts, {})
        self._step, self._decide = step, decide

    def _part(self, statement: ast.stmt, needed: set[str]) -> ast.stmt | None:
        trains = isinstance(statement, ast.Expr) and self.facts.effect(statement) is not None
        return None if trains else super()._part(statement, needed)

    def _branches(self, statement: ast.If, needed: set[str]) -> ast.stmt | None:
        if not (bound_names(statement) | self._mutates(statement)) & needed:
            return None
        original = self._step.originals.get(statement, statement)
        is_true = self._decide(original.test, original)  # type: ignore[attr-defined]
        if is_true is None:
            return super()._branches(statement, needed)
        body = statement.body if is_true else statement.orelse
        taken = ast.If(test=ast.Constant(value=True), body=body, orelse=[])
        return super()._branches(ast.copy_location(taken, statement), needed)

"""Finds the statements that compute the loss of a training step, from the call of the model to ``loss.backward()``."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from profiler_kit.loading.program.names import assigned, calls_in, dotted_name, last_name, parameter_names
from profiler_kit.loading.program.places import ancestors

OUTPUT: Final = "model_output"
# Methods that return the same elements, so the variable can stand for the input that the model gets.
_SAME_ELEMENTS: Final = (
    "to", "cuda", "cpu", "float", "double", "half", "long", "view", "reshape", "flatten", "squeeze", "unsqueeze",
    "contiguous", "requires_grad_", "detach", "clone", "type",
)  # fmt: skip
# Names of loss functions in torch.nn and in training scripts.
_LOSS_NAMES: Final = re.compile(r"loss|crit|entropy|objective", re.IGNORECASE)
_WITHOUT_GRADIENTS: Final = ("no_grad", "inference_mode")
_CHANGING_METHODS: Final = ("append", "extend", "add", "update", "add_")

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
      order; `parameters`: those of its function.
    - `text`: the expression of the loss as written; `label`: a short name.
    """

    statements: tuple[ast.stmt, ...]
    loss: ast.expr
    statement: ast.stmt
    line: int
    inputs: tuple[tuple[str, int | str], ...]
    free_names: tuple[str, ...]
    before: tuple[ast.stmt, ...]
    loop_names: tuple[str, ...]
    parameters: tuple[str, ...]
    text: str
    label: str


def find_step_codes(tree: ast.Module, names: frozenset[str], decide: Decide) -> Iterator[StepCode]:
    """The training steps in `tree` whose loss depends on one call of the model, which is in a variable of `names`."""
    for node in calls_in(tree):
        loss = _backward_loss(node)
        code = _step_code(loss, node, tree, names, decide) if loss is not None else None
        if code is not None:
            yield code


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
    """The statements that run before a statement in its scope, in order, and the names that loops and parameters bind."""

    before: list[ast.stmt] = field(default_factory=list)
    loop_names: list[str] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)


def _path(statement: ast.stmt, tree: ast.Module) -> _Path:
    path = _Path()
    current: ast.AST = statement
    for parent in ancestors(tree, statement):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and current in block:
                path.before[:0] = block[: block.index(current)]
        if isinstance(parent, (ast.For, ast.AsyncFor)):
            path.loop_names += stored_names(parent.target)
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            path.parameters += parameter_names(parent.args)
            break
        current = parent
    return path


def _step_code(
    loss: ast.expr, call: ast.Call, tree: ast.Module, names: frozenset[str], decide: Decide
) -> StepCode | None:
    statement = next(node for node in ancestors(tree, call) if isinstance(node, ast.stmt))
    path = _path(statement, tree)
    slicer = _Slicer(names, decide)
    value = slicer.replaced(loss)
    slicer.needed |= set(read_names(value))
    slicer.run(_flat(path.before))
    if len(slicer.calls) != 1:
        return None
    text, line, label = _described(loss, path.before, statement, names)
    renamed = _Dotted(slicer.dotted)
    statements = tuple(ast.fix_missing_locations(renamed.visit(s)) for s in slicer.parts)
    value = renamed.visit(value)
    return StepCode(
        statements=statements,
        loss=value,
        statement=statement,
        line=line,
        inputs=tuple(slicer.inputs),
        free_names=tuple(
            name
            for name in dict.fromkeys(name for node in (*statements, value) for name in read_names(node))
            if name in slicer.needed and "." not in name and name != OUTPUT
        ),
        before=tuple(slicer.unused),
        loop_names=tuple(path.loop_names),
        parameters=tuple(path.parameters),
        text=text,
        label=label,
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


class _Slicer(ast.NodeTransformer):
    """Selects the statements that the names in `needed` depend on, backwards, up to the call of the model."""

    def __init__(self, names: frozenset[str], decide: Decide) -> None:
        self.needed: set[str] = set()
        self.parts: list[ast.stmt] = []
        self.unused: list[ast.stmt] = []
        self.calls: list[ast.Call] = []
        self.inputs: list[tuple[str, int | str]] = []
        self.dotted: set[str] = set()
        self._names = names
        self._decide = decide

    def replaced(self, node: ast.expr) -> ast.expr:
        """A copy of `node` with the call of the model replaced by `OUTPUT`."""
        result: ast.expr = self.visit(copy.deepcopy(node))
        return result

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "forward":
            function = function.value
        if dotted_name(function) not in self._names:
            return self.generic_visit(node)
        if not any(ast.dump(call) == ast.dump(node) for call in self.calls):
            self.calls.append(node)
            for position, value in enumerate(node.args):
                self._add_input(value, position)
            for keyword in node.keywords:
                if keyword.arg is not None:
                    self._add_input(keyword.value, keyword.arg)
        return ast.copy_location(ast.Name(id=OUTPUT, ctx=ast.Load()), node)

    def _add_input(self, value: ast.expr, key: int | str) -> None:
        while (
            isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SAME_ELEMENTS
        ):
            value = value.func.value
        name = dotted_name(value)
        if name is not None:
            self.inputs.append((name, key))

    def run(self, statements: Iterator[ast.stmt]) -> None:
        """Process the statements before the loss, in their order."""
        ordered = list(statements)
        while ordered and not self.calls:
            self.parts[:0] = self._reversed_slice([ordered.pop()])
        self.unused = ordered

    def _reversed_slice(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        parts: list[ast.stmt] = []
        for statement in reversed(list(_flat(statements))):
            parts[:0] = self._slice(statement)
        return parts

    def _slice(self, statement: ast.stmt) -> list[ast.stmt]:
        bound = set(bound_names(statement))
        if not bound & self.needed:
            return []
        if isinstance(statement, ast.If):
            return self._slice_if(statement)
        if isinstance(statement, (ast.With, ast.AsyncWith)):  # without gradients
            block = ast.With(
                items=copy.deepcopy(statement.items), body=self._reversed_slice(statement.body) or [ast.Pass()]
            )
            return [ast.copy_location(block, statement)]
        self.dotted |= {name for name in bound if "." in name}
        result: ast.stmt = self.visit(copy.deepcopy(statement))
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.FunctionDef)):
            self.needed -= set(stored_names(statement))
        self.needed |= set(read_names(result))
        return [result]

    def _slice_if(self, statement: ast.If) -> list[ast.stmt]:
        is_true = self._decide(statement.test, statement)
        if is_true is not None:
            return self._reversed_slice(statement.body if is_true else statement.orelse)
        after_if = set(self.needed)
        body = self._reversed_slice(statement.body)
        after_body, self.needed = self.needed, after_if
        orelse = self._reversed_slice(statement.orelse)
        test = self.replaced(statement.test)
        self.needed |= after_body | set(read_names(test))
        return [ast.copy_location(ast.If(test=test, body=body or [ast.Pass()], orelse=orelse), statement)]


class _Dotted(ast.NodeTransformer):
    """Replaces attributes that the step assigns, such as ``self.loss``, by variables."""

    def __init__(self, dotted: set[str]) -> None:
        self._dotted = dotted

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = dotted_name(node)
        if name in self._dotted:
            return ast.copy_location(ast.Name(id=name.replace(".", "_"), ctx=node.ctx), node)
        return self.generic_visit(node)


def stored_names(node: ast.AST) -> Iterator[str]:
    """The names and attributes that `node` assigns."""
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Name, ast.Attribute)) and isinstance(inner.ctx, ast.Store):
            name = dotted_name(inner)
            if name is not None:
                yield name
        elif isinstance(inner, (ast.FunctionDef, ast.ClassDef)):
            yield inner.name
        elif isinstance(inner, ast.alias):
            yield inner.asname or inner.name.split(".")[0]


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """The names that `statement` assigns or changes, for example with ``losses.append(loss)``."""
    yield from stored_names(statement)
    for node in ast.walk(statement):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            name = dotted_name(node.value)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING_METHODS
        ):
            name = dotted_name(node.func.value)
        else:
            continue
        if name is not None:
            yield name


def read_names(node: ast.AST) -> Iterator[str]:
    """The names that `node` reads, with the attributes of names such as ``self.loss``."""
    local = {name for inner in ast.walk(node) if isinstance(inner, ast.arguments) for name in parameter_names(inner)}
    local |= {
        name for inner in ast.walk(node) if isinstance(inner, ast.comprehension) for name in stored_names(inner.target)
    }
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id not in local:
            if isinstance(inner.ctx, ast.Load):
                yield inner.id
        elif isinstance(inner, ast.AugAssign):
            name = dotted_name(inner.target)
            if name is not None:
                yield name
        elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Load):
            name = dotted_name(inner)
            if name is not None and name.count(".") == 1:
                yield name

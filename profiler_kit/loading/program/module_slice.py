"""Which top-level statements of a file run when it is imported: those that its definitions and its models depend on."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from profiler_kit.loading.program.imports import origin_of
from profiler_kit.loading.program.model_variables import returns_model
from profiler_kit.loading.program.names import (
    DEFINITIONS,
    FunctionNode,
    all_nodes,
    base_name,
    bound_names,
    free_names,
    mutated_names,
    used_names,
    walk_scope,
)
from profiler_kit.loading.program.places import is_main_guard, leaves
from profiler_kit.loading.program.slices import DocumentFacts, Slicer, facts_of

# Names with a meaning for this tool. A file defines them for it.
CONVENTIONS: Final = frozenset({
    "model", "get_model", "build_model", "create_model", "make_model", "example_inputs", "train_loader", "get_loader",
    "make_loader", "loss_fn", "configure_optimizer", "__all__",
})  # fmt: skip
# Settings of libraries that definitions rely on without naming them: default types, custom ops, warnings, paths.
_SETTINGS: Final = (
    "sys.path", "sys.setrecursionlimit", "os.environ", "warnings.", "random.seed", "numpy.random.seed",
    "torch.manual_seed", "torch.cuda.manual_seed", "torch.set_", "torch.backends.", "torch.library.", "torch.fx.",
    "torch._dynamo.", "torch._inductor.", "torch.jit.", "torch.ops.", "torch.utils._pytree", "torch.serialization.", "print",
)  # fmt: skip
_PURE_NODES: Final = (
    ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.BinOp,
    ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr,
    ast.FormattedValue, ast.Lambda, ast.Starred, ast.ListComp, ast.SetComp,
    ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.keyword, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.expr_context, ast.arguments, ast.arg,
)  # fmt: skip
_PURE_CALLS: Final = {
    "int", "float", "str", "bool", "list", "tuple", "dict", "set", "frozenset", "range", "len", "min", "max", "sum", "abs",
    "round", "sorted", "reversed", "zip", "enumerate", "map", "filter", "collections.namedtuple", "typing.NamedTuple",
    "typing.TypeVar", "typing.NewType", "typing.Generic", "functools.partial", "torch.device", "torch.cuda.is_available",
    "torch.Size", "pathlib.Path", "os.path.join", "os.path.dirname", "os.path.abspath", "os.environ.get", "os.getenv",
    "logging.getLogger", "math.sqrt", "math.log", "math.ceil", "math.floor", "torch.library.Library", "enum.Enum",
    "collections.OrderedDict", "collections.defaultdict", "os.path.exists", "os.path.isdir", "os.path.isfile",
}  # fmt: skip
_DEVICE_MOVES: Final = {"cuda", "to"}
COMPOUND: Final = (ast.If, ast.Try, ast.With, ast.For, ast.While)
_MAX_RANGES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSlice:
    """The statements to run, their number, the number of all top-level statements, and the skipped (first, last, reason)."""

    statements: tuple[ast.stmt, ...]
    kept_count: int
    total: int
    skipped: tuple[tuple[int, int, str | None], ...]

    def note(self, name: str) -> str:
        """One line with the numbers and lines that ran and were skipped; empty if nothing was skipped."""
        if not self.skipped:
            return ""
        ranges = [f"{first}-{last}" if last > first else str(first) for first, last, _ in self.skipped]
        lines = ", ".join(ranges[:_MAX_RANGES]) + (
            f" and {len(ranges) - _MAX_RANGES} more" if len(ranges) > _MAX_RANGES else ""
        )
        reasons = list(dict.fromkeys(reason for *_, reason in self.skipped if reason))
        why = f" ({', '.join(reasons)})" if reasons else " (not needed by a model)"
        word = "lines" if len(ranges) > 1 or "-" in ranges[0] else "line"
        return f"ran {self.kept_count} of {self.total} top-level statements of {name}; skipped {word} {lines}{why}"


def slice_module(tree: ast.Module, roots: Iterable[str] = ()) -> ModuleSlice:
    """The statements of `tree` to run on import. `roots` are names that the caller asks for.

    A statement runs if it is an import, a definition, a constant or a setting of a library, or if a class, a function that
    builds models, a root or a name of `CONVENTIONS` depends on it.
    """
    facts, roots = facts_of(tree), frozenset(roots)
    available = _available(tree, facts)
    dropped: list[ast.stmt] = []
    for prints in (True, False):  # prints of a training script are noise if it does not train
        slicer = _ModuleSlicer(facts, available, prints=prints)
        needed = _needed_by_definitions(facts) | roots | _conventions(tree)
        statements = slicer.slice(tree.body, needed)
        dropped = [s for s in slicer.dropped.values() if not _is_inert(s) and not _is_print(s, facts)]
        if not dropped:
            break
    return ModuleSlice(
        statements=tuple(statements),
        kept_count=len(statements),
        total=len(tree.body),
        skipped=_ranges(tree.body, dropped, facts),
    )


class _ModuleSlicer(Slicer):
    """A slicer that also keeps definitions, constants and settings. `dropped` are the statements that do not run, by id."""

    def __init__(self, facts: DocumentFacts, available: frozenset[str], *, prints: bool) -> None:
        super().__init__(facts, {name: node for name, node in facts.functions.items() if name not in facts.effects})
        self.dropped: dict[int, ast.stmt] = {}
        self._available = available | facts.builtins
        self._prints = prints

    def _part(self, statement: ast.stmt, needed: set[str]) -> ast.stmt | None:
        if _is_inert(statement):
            return statement
        part = super()._part(statement, needed)
        if part is None or (
            not isinstance(statement, (*DEFINITIONS, *COMPOUND)) and self.facts.effect(statement) is not None
        ):
            self.dropped[id(statement)] = statement
        return part

    def _keeps(self, statement: ast.stmt) -> bool:
        if isinstance(statement, DEFINITIONS):
            return True
        if self.facts.effect(statement) is not None or not used_names(statement) <= self._available:
            return False
        if _is_print(statement, self.facts):
            return self._prints
        return _is_constant(statement, self.facts) or _is_setting(statement, self.facts, self._available)

    def _branches(self, statement: ast.If, needed: set[str]) -> ast.stmt | None:
        changed = bound_names(statement) | self._mutates(statement)
        if not changed & needed and not used_names(statement.test) <= self._available:
            self.dropped[id(statement)] = statement
            return None  # constants and settings for a case that is not known here
        return super()._branches(statement, needed)

    def _names_of(self, statement: ast.stmt) -> frozenset[str]:
        """The names that `statement` itself reads when it runs: not those of the functions that it defines."""
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return used_names(statement) - free_names(statement) | _decorators(statement)
        if isinstance(statement, ast.ClassDef):
            methods = [s for s in statement.body if isinstance(s, FunctionNode)]
            return used_names(statement) - frozenset().union(*map(free_names, methods)) | _at_definition(statement)
        return used_names(statement)


def _decorators(statement: FunctionNode | ast.ClassDef) -> frozenset[str]:
    return frozenset(name for node in statement.decorator_list for name in used_names(node))


def _at_definition(statement: ast.ClassDef) -> frozenset[str]:
    nodes: list[ast.AST] = [*statement.bases, *(word.value for word in statement.keywords)]
    nodes += [s for s in statement.body if not isinstance(s, (*DEFINITIONS, ast.Pass))]
    return _decorators(statement) | frozenset(name for node in nodes for name in used_names(node))


def _is_inert(statement: ast.stmt) -> bool:
    """Whether nothing happens on import: a text, ``pass``, or the block that only a script runs."""
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Pass) or is_main_guard(statement)


def _is_pure(node: ast.AST, facts: DocumentFacts) -> bool:
    """Whether evaluating `node` is cheap and changes nothing."""
    return all(
        origin_of(inner.func, facts.origins) in _PURE_CALLS
        if isinstance(inner, ast.Call)
        else isinstance(inner, _PURE_NODES)
        for inner in all_nodes(node)
    )


def _is_constant(statement: ast.stmt, facts: DocumentFacts) -> bool:
    if isinstance(statement, ast.Assign):
        return _is_pure(statement.value, facts) and all(
            isinstance(target, (ast.Name, ast.Tuple)) for target in statement.targets
        )
    if isinstance(statement, ast.AugAssign):
        return _is_pure(statement.value, facts) and isinstance(statement.target, ast.Name)
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None or _is_pure(statement.value, facts)
    if isinstance(statement, ast.For):
        return _is_pure(statement.iter, facts) and all(_is_constant(inner, facts) for inner in statement.body)
    return isinstance(statement, ast.Delete)


def _is_setting(statement: ast.stmt, facts: DocumentFacts, available: frozenset[str]) -> bool:
    """Whether `statement` sets an option of a library, registers a class or op, or adds to a constant."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        function = call.func
        while isinstance(function, ast.Call):  # torch.library.impl("lib::op", "Meta")(function)
            function = function.func
        origin = origin_of(function, facts.origins) or ""
        if origin.startswith(_SETTINGS) or "register" in ast.unparse(call.func):
            return True
        values = [*call.args, *(word.value for word in call.keywords)]
        owner = base_name(call.func) if isinstance(call.func, ast.Attribute) else None
        return owner in available - set(facts.origins) and all(_is_pure(value, facts) for value in values)
    if not isinstance(statement, (ast.Assign, ast.AugAssign)) or not _is_pure(statement.value, facts):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return all(
        isinstance(target, (ast.Attribute, ast.Subscript))
        and (
            (origin_of(_owner(target), facts.origins) or "").startswith(_SETTINGS)
            or base_name(target) not in facts.origins
        )
        for target in targets
    )


def _is_print(statement: ast.stmt, facts: DocumentFacts) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and origin_of(statement.value.func, facts.origins) == "print"
    )


def _owner(target: ast.Attribute | ast.Subscript) -> ast.expr:
    return target.value if isinstance(target, ast.Subscript) else target


def _available(tree: ast.Module, facts: DocumentFacts) -> frozenset[str]:
    """The names that imports, definitions and constants bind, and that nothing else binds."""
    available = set(facts.origins) | set(facts.functions) | set(facts.classes)
    others: set[str] = set()
    for statement in leaves(tree.body):
        if isinstance(statement, DEFINITIONS):
            continue
        is_available = _is_constant(statement, facts) and used_names(statement) <= available | facts.builtins
        (available if is_available else others).update(bound_names(statement))
    return frozenset(available - others)


def _needed_by_definitions(facts: DocumentFacts) -> set[str]:
    """The names that the bodies of classes and of functions that build models read. Classes of data sets do not count."""
    names: set[str] = set()
    for definition in facts.classes.values():
        is_data = any((origin_of(base, facts.origins) or "").endswith("Dataset") for base in definition.bases)
        names |= _at_definition(definition) if is_data else used_names(definition)
    builders = _builders(facts)
    return names | {name for builder in builders for name in free_names(facts.functions[builder])} | builders


def _builders(facts: DocumentFacts) -> set[str]:
    """The functions without effects that return a module, directly or from another such function."""
    builders: set[str] = set()
    while True:
        more = {
            name
            for name, function in facts.functions.items()
            if name not in builders and name not in facts.effects and _returns_module(function, facts, builders)
        }
        if not more:
            return builders
        builders |= more


def _returns_module(function: FunctionNode, facts: DocumentFacts, builders: set[str]) -> bool:
    def builds_model(callee: ast.expr) -> bool | None:
        origin = origin_of(callee, facts.origins)
        if origin is None:  # a method of what another call returns
            inner = callee.value if isinstance(callee, ast.Attribute) else None
            return builds_model(inner.func) if isinstance(inner, ast.Call) else None
        is_class = "." in origin and origin.rpartition(".")[2][:1].isupper()
        return True if origin in facts.classes or origin in builders or is_class else None

    return returns_model(function, builds_model)


def _conventions(tree: ast.Module) -> set[str]:
    """The names of `CONVENTIONS`, without a model that is built in a branch or moved to a device: it is built on demand."""
    names = set(CONVENTIONS)
    top = {name for statement in tree.body if isinstance(statement, ast.Assign) for name in bound_names(statement)}
    moves = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DEVICE_MOVES
        for statement in tree.body
        if "model" in bound_names(statement) | mutated_names(statement)
        for node in walk_scope(statement)
    )
    return names - {"model"} if moves or "model" not in top else names


def _ranges(
    body: list[ast.stmt], dropped: list[ast.stmt], facts: DocumentFacts
) -> tuple[tuple[int, int, str | None], ...]:
    """The lines of `dropped`, neighbors joined, each with the reason of its statements."""
    ranges: list[tuple[int, int, str | None]] = []
    for statement in sorted(dropped, key=lambda s: (s.lineno, -(s.end_lineno or s.lineno))):
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        reason = facts.effect(statement)
        if ranges and first <= ranges[-1][1]:
            continue  # inside the previous statement
        if ranges and not any(ranges[-1][1] < s.lineno < first for s in leaves(body)):
            ranges[-1] = (ranges[-1][0], last, ranges[-1][2] or reason)
        else:
            ranges.append((first, last, reason))
    return tuple(ranges)

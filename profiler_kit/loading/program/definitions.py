"""Facts from a file's syntax tree: lines of definitions, root classes, smoke test blocks, cuDNN flags."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

from profiler_kit.loading.program.slices import is_main_guard

FACTORIES = ("get_model", "build_model", "create_model", "make_model")
_MODULE_BASES = ("Module", "nn.Module", "torch.nn.Module")


def definition_lines(tree: ast.Module) -> dict[str, int]:
    """The line of the last top-level definition of each name, including those under a top-level ``if``, ``try`` or ``with``."""
    return {name: line for node in _top_level_statements(tree.body) for name, line in _bound_names(node)}


def _top_level_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody"):
            if isinstance(node, (ast.If, ast.Try, ast.With)):
                yield from _top_level_statements(getattr(node, field, []))
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from _top_level_statements(handler.body)


def _bound_names(node: ast.stmt) -> Iterator[tuple[str, int]]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name, node.lineno
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.split(".")[0], node.lineno
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for inner in ast.walk(target):
                if isinstance(inner, ast.Name):
                    yield inner.id, node.lineno


def definition_nodes(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """The name and node of every definition and assignment, including those under a top-level ``if``, ``try`` or ``with``."""
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value
        elif isinstance(node, (ast.If, ast.Try, ast.With)) and not is_main_guard(node):
            for field in ("body", "orelse", "finalbody"):
                yield from definition_nodes(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from definition_nodes(handler.body)


def used_classes(owner: str, definitions: Mapping[str, ast.AST], classes: Container[str]) -> frozenset[str]:
    """The classes that the body of `owner` uses, directly or through functions and constants of the file."""
    pending, visited, used = list(names_read(definitions.get(owner))), {owner}, set()
    while pending:
        name = pending.pop()
        if name in visited or name not in definitions:
            continue
        visited.add(name)
        if name in classes:
            used.add(name)
        else:
            pending += names_read(definitions[name])
    return frozenset(used)


def names_read(node: ast.AST | None) -> set[str]:
    """The names that `node` reads, and the strings that a lookup by name (``eval``, ``globals``, ``getattr``) may use."""
    if node is None:
        return set()
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    if names & {"eval", "globals", "getattr"}:
        names |= {c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
    return names


def root_classes(tree: ast.Module, module_classes: set[str]) -> tuple[str, ...]:
    """The `module_classes` that no other class uses or inherits from, in the order of the file."""
    definitions = dict(definition_nodes(tree.body))
    used = {name for owner in module_classes for name in used_classes(owner, definitions, module_classes)}
    return tuple(name for name in definitions if name in module_classes and name not in used)


def cudnn_off_lines(tree: ast.Module) -> tuple[int, ...]:
    """Lines that call ``cudnn.flags`` without ``enabled``, which turns cuDNN off, because the default is False."""
    modules: set[str] = {"cudnn"}
    functions: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "torch.backends":
            modules.update(alias.asname or alias.name for alias in node.names if alias.name == "cudnn")
        elif isinstance(node, ast.ImportFrom) and node.module == "torch.backends.cudnn":
            functions.update(alias.asname or alias.name for alias in node.names if alias.name == "flags")
        elif isinstance(node, ast.Import):
            modules.update(
                alias.asname for alias in node.names if alias.name == "torch.backends.cudnn" and alias.asname
            )
    return tuple(
        call.lineno
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and (_is_flags(call.func, modules) or (isinstance(call.func, ast.Name) and call.func.id in functions))
        and not call.args  # the first positional argument is enabled
        and not any(word.arg in ("enabled", None) for word in call.keywords)
    )


def _is_flags(function: ast.expr, modules: set[str]) -> bool:
    """Whether `function` is ``….cudnn.flags``, or ``flags`` of a name in `modules`."""
    if not isinstance(function, ast.Attribute) or function.attr != "flags":
        return False
    owner = function.value
    return (isinstance(owner, ast.Attribute) and owner.attr == "cudnn") or (
        isinstance(owner, ast.Name) and owner.id in modules
    )


def nearby_models(folder: Path, excluded: Path, limit: int = 40) -> list[str]:
    """Module classes and factories in the files of `folder` other than `excluded`, as ``net.py:Net``; reads `limit` files."""
    targets = []
    for file in sorted(folder.glob("*.py"))[:limit]:
        if file.resolve() == excluded.resolve():
            continue
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError):
            continue  # only for suggestions, so unreadable files are skipped
        classes = {
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base) in _MODULE_BASES for base in node.bases)
        }
        factories = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in FACTORIES]
        targets += [f"{file.name}:{name}" for name in (*factories, *root_classes(tree, classes))]
    return targets

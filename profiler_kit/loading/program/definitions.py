"""Facts from a file's syntax tree: lines of definitions, root classes, smoke test blocks, cuDNN flags."""

from __future__ import annotations

import ast
from collections.abc import Container, Mapping
from pathlib import Path

from profiler_kit.loading.program.imports import imported_origins, origin_of
from profiler_kit.loading.program.names import all_nodes, bound_names, calls_in, last_name, reached
from profiler_kit.loading.program.places import leaves, script_statements
from profiler_kit.loading.program.reading import parsed
from profiler_kit.loading.program.slices import REBINDS

FACTORIES = ("get_model", "build_model", "create_model", "make_model")


def definition_lines(tree: ast.Module) -> dict[str, int]:
    """The line of the last top-level definition of each name, including those under a top-level ``if``, ``try`` or ``with``."""
    return {name: node.lineno for name, node in definitions(script_statements(tree.body)).items()}


def definitions(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """The last statement that defines each name, also under a top-level ``if``, ``try`` or ``with`` other than the main guard."""
    statements = (statement for statement in leaves(body) if isinstance(statement, (*REBINDS, ast.AnnAssign)))
    return {name: statement for statement in statements for name in bound_names(statement)}


def used_classes(owner: str, nodes: Mapping[str, ast.AST], classes: Container[str]) -> frozenset[str]:
    """The classes that the body of `owner` uses, directly or through functions and constants of the file, which are `nodes`."""
    names = reached(names_read(nodes.get(owner)), lambda name: () if name in classes else names_read(nodes.get(name)))
    return frozenset(name for name in names - {owner} if name in classes and name in nodes)


def names_read(node: ast.AST | None) -> set[str]:
    """The names that `node` reads, and the strings that a lookup by name (``eval``, ``globals``, ``getattr``) may use."""
    if node is None:
        return set()
    names = {inner.id for inner in all_nodes(node) if isinstance(inner, ast.Name)}
    if names & {"eval", "globals", "getattr"}:
        names |= {c.value for c in all_nodes(node) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
    return names


def root_classes(tree: ast.Module) -> tuple[str, ...]:
    """The classes with the base ``Module`` that no other such class uses or inherits from, in the order of the file."""
    nodes = definitions(tree.body)
    classes = {
        name
        for name, node in nodes.items()
        if isinstance(node, ast.ClassDef) and any(last_name(base) == "Module" for base in node.bases)
    }
    used = {name for owner in classes for name in used_classes(owner, nodes, classes)}
    return tuple(name for name in nodes if name in classes - used)


def cudnn_off_lines(tree: ast.Module) -> tuple[int, ...]:
    """Lines that call ``cudnn.flags`` without ``enabled``, which turns cuDNN off, because the default is False."""
    origins = imported_origins(tree)
    return tuple(
        call.lineno
        for call in calls_in(tree)
        if f".{origin_of(call.func, origins)}".endswith(".cudnn.flags")
        and not call.args  # the first positional argument is enabled
        and not any(word.arg in ("enabled", None) for word in call.keywords)
    )


def nearby_models(folder: Path, excluded: Path, limit: int = 40) -> list[str]:
    """Module classes and factories in the files of `folder` other than `excluded`, as ``net.py:Net``; reads `limit` files."""
    targets = []
    for file in sorted(folder.glob("*.py"))[:limit]:
        if file.resolve() == excluded.resolve():
            continue
        tree = parsed(file)
        if tree is None:
            continue  # only for suggestions, so unreadable files are skipped
        factories = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in FACTORIES]
        targets += [f"{file.name}:{name}" for name in (*factories, *root_classes(tree))]
    return targets

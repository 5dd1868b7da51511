"""Objects of a script's own classes, such as a trainer: their attributes have the values that the methods assign."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.imports import imported_files
from profiler_kit.loading.program.names import FunctionNode, all_nodes, assigned, dotted_name, last_name
from profiler_kit.loading.program.places import Place, place_of
from profiler_kit.loading.program.reading import parsed
from profiler_kit.loading.program.repository import repository_root


class Instance:
    """Stands for ``self``. An attribute is evaluated when it is read, where a method assigns it, and once."""

    def __init__(self, evaluate: Callable[[str], Any], fixed: Mapping[str, Any]) -> None:
        vars(self).update(fixed)
        self.__evaluate = evaluate

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of protocols, such as that of copies
            raise AttributeError(name)
        value = self.__evaluate(name)
        vars(self)[name] = value
        return value


def attribute_values(
    document: Document, owner: ast.ClassDef, classes: Mapping[str, ast.ClassDef], name: str
) -> list[tuple[Place, ast.expr]]:
    """The values that the methods of `owner` and of its bases in the file assign to the attribute `name`.

    Those of ``__init__`` come first, then those of other methods, then those of the class itself. ``None`` comes last: it stands
    for a value that another method sets.
    """
    values = _attribute_values(document, owner, classes, name)
    return sorted(values, key=lambda found: isinstance(found[1], ast.Constant) and found[1].value is None)


def _attribute_values(
    document: Document, owner: ast.ClassDef, classes: Mapping[str, ast.ClassDef], name: str
) -> Iterator[tuple[Place, ast.expr]]:
    methods = [node for node in owner.body if isinstance(node, FunctionNode)]
    methods.sort(key=lambda method: method.name != "__init__")
    for method in methods:
        instance = method.args.args[0].arg if method.args.args else ""
        for node in all_nodes(method):
            for target, value in _single(assigned(node)):
                if _is_attribute(target, instance, name):
                    yield place_of(document, node), value
            for mapping in _update_of_attributes(node, instance):
                item = ast.Subscript(value=mapping, slice=ast.Constant(value=name), ctx=ast.Load())
                yield place_of(document, node), ast.fix_missing_locations(ast.copy_location(item, mapping))
    for node in owner.body:
        for target, value in assigned(node):
            if isinstance(target, ast.Name) and target.id == name:
                yield place_of(document, node), value
    for base in owner.bases:
        inherited = classes.get(base.id) if isinstance(base, ast.Name) else None
        if inherited is not None and inherited is not owner:
            yield from _attribute_values(document, inherited, classes, name)
        elif isinstance(base, ast.Name):
            for other, definition in class_definitions(document, base.id):
                yield from _attribute_values(other, definition, definitions_of(other), name)


def _update_of_attributes(node: ast.AST, instance: str) -> list[ast.expr]:
    """The mappings of ``self.__dict__.update(defaults, **options)``, the last one first; empty for another node."""
    if not isinstance(node, ast.Call) or last_name(node.func) != "update":
        return []
    owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    is_vars = isinstance(owner, ast.Call) and ast.unparse(owner) == f"vars({instance})"
    if not is_vars and dotted_name(owner) != f"{instance}.__dict__":
        return []
    return [*node.args, *(word.value for word in node.keywords if word.arg is None)][::-1]


def definitions_of(document: Document) -> dict[str, ast.ClassDef]:
    """The classes at the top level of a document."""
    return {node.name: node for node in document.tree.body if isinstance(node, ast.ClassDef)}


def class_definitions(document: Document, name: str) -> Iterator[tuple[Document, ast.ClassDef]]:
    """The class `name` that `document` imports from another file of the repository, with that file."""
    if document.path is None:
        return
    for node in all_nodes(document.tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            for path in sorted(imported_files(node, document.path, repository_root(document.path))):
                tree = parsed(path)
                definition = next((d for d in tree.body if getattr(d, "name", "") == name), None) if tree else None
                if tree is not None and isinstance(definition, ast.ClassDef):
                    yield Document(tree=tree, text="", path=path, kind="importer"), definition


def _single(pairs: Iterable[tuple[ast.expr, ast.expr]]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """`pairs` of targets and values; of ``self.a, self.b = f()``, each target with its item."""
    for target, value in pairs:
        if not isinstance(target, ast.Tuple):
            yield target, value
            continue
        for index, element in enumerate(target.elts):
            item = ast.Subscript(value=value, slice=ast.Constant(value=index), ctx=ast.Load())
            yield element, ast.fix_missing_locations(ast.copy_location(item, value))


def _is_attribute(target: ast.expr, instance: str, name: str) -> bool:
    is_attribute = isinstance(target, ast.Attribute) and target.attr == name
    return is_attribute and isinstance(target.value, ast.Name) and target.value.id == instance  # type: ignore[attr-defined]

"""Syntax trees of files, functions and classes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

_NOTHING: Final = ast.Module(body=[], type_ignores=[])


def parsed(source: str | Path) -> ast.Module | None:
    """The syntax tree of a text or a file; None if it is not Python or cannot be read."""
    try:
        return ast.parse(source if isinstance(source, str) else source.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def source_text(definition: Any) -> str:
    """The text of a function, a class or a module; empty without one."""
    try:
        return inspect.getsource(definition)
    except (OSError, TypeError, SyntaxError, ValueError):
        return ""


def source_tree(definition: Any) -> ast.Module:
    """The syntax tree of `source_text`, with line 1 for its first line; without statements if there is no text."""
    text = source_text(definition)
    if not text[:1].isspace():
        return parsed(text) or _NOTHING
    tree = parsed(f"if True:\n{text}")  # not dedented: lines of comments and strings may begin at any column
    block = tree.body[0] if tree is not None else None
    if tree is None or not isinstance(block, ast.If):
        return _NOTHING
    tree.body = block.body
    ast.increment_lineno(tree, -1)
    return tree


@lru_cache(maxsize=256)
def function_node(factory: Callable[..., Any]) -> ast.FunctionDef | None:
    """The definition of a function, or of the ``__init__`` of a class; None without source text."""
    function = vars(factory).get("__init__") if isinstance(factory, type) else inspect.unwrap(factory)
    node = next(iter(source_tree(function).body), None)
    return node if isinstance(node, ast.FunctionDef) else None

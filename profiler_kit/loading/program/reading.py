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


_MAX_REPAIRS: Final = 20


def parsed_leniently(text: str) -> ast.Module | None:
    """The syntax tree of `text` without the lines that this version of Python does not accept: ``x.cuda(async=True)``.

    None if that does not help: a statement of several lines, or no Python.
    """
    lines = text.splitlines()
    for _ in range(_MAX_REPAIRS):
        try:
            return ast.parse("\n".join(lines))
        except SyntaxError as error:
            index = (error.lineno or 0) - 1
            line = lines[index] if 0 <= index < len(lines) else ""
            indentation = line[: len(line) - len(line.lstrip())]
            if line.strip() in ("", "pass"):
                return None
            lines[index] = f"{indentation}pass"
        except (ValueError, RecursionError):
            return None
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

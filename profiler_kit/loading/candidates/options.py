"""Defaults of command-line options that a script of the repository declares, for a model that takes the parsed options."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from profiler_kit.loading.scripts.repository import local_sources, repository_root

_CONSTRUCTORS: Final = {"int": int, "float": float, "str": str, "bool": bool}
_CALCULATION: Final = (
    ast.Constant, ast.List, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.operator, ast.unaryop, ast.expr_context,
)  # fmt: skip


def declared_options(file: Path, factory: Callable[..., Any], parameter: str) -> dict[str, Any]:
    """The defaults of the file whose parser declares the most of the options that the model reads from `parameter`.

    The model is `factory` and the other classes of its module. Empty if no file of the repository of `file` declares at
    least half of these options.
    """
    try:
        tree = ast.parse(inspect.getsource(inspect.getmodule(factory)))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    read = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == parameter
    }
    best: dict[str, Any] = {}
    for _, text in local_sources(file, repository_root(file)) if read else ():
        if ".add_argument(" not in text:
            continue
        try:
            options = _defaults(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError):
            continue  # Python 2, or a template
        if len(read & options.keys()) > len(read & best.keys()):
            best = options
    return best if 2 * len(read & best.keys()) >= len(read) else {}


def _defaults(tree: ast.Module) -> dict[str, Any]:
    """The options that have a default without running the script, by the names of their attributes."""
    options: dict[str, Any] = {}
    for call in ast.walk(tree):
        if not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
        ):
            continue
        words = {word.arg: word.value for word in call.keywords}
        name = _name(call, words)
        if name is None:
            continue
        action = words.get("action")
        if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
            options[name] = action.value == "store_false"
        default = words.get("default")
        if default is not None and all(isinstance(inner, _CALCULATION) for inner in ast.walk(default)):
            try:
                code = compile(ast.Expression(body=default), "<default>", "eval")
                value = eval(code, {"__builtins__": _CONSTRUCTORS}, {})  # noqa: S307  # numbers and texts only
            except (ArithmeticError, NameError, TypeError, ValueError):
                continue  # depends on the script
            if value is not None:
                options[name] = value
    return options


def _name(call: ast.Call, words: dict[str | None, ast.expr]) -> str | None:
    """The attribute that an option sets: its `dest`, else its first long name; None if the text does not say it."""
    dest = words.get("dest")
    flags = [flag.value for flag in call.args if isinstance(flag, ast.Constant) and isinstance(flag.value, str)]
    if isinstance(dest, ast.Constant):
        return str(dest.value)
    name = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else None)
    return name.lstrip("-").replace("-", "_") if name is not None else None

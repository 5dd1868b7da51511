"""Values of ``--kw NAME=VALUE``: Python literals, expressions in the namespace of the target's file, otherwise text."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from profiler_kit.errors import KitError, UsageError
from profiler_kit.loading.program.names import all_nodes
from profiler_kit.user_code.locations import one_line_message


class Unquoted(str):
    """A value that is not a literal: an expression if it can be evaluated, otherwise text."""

    __slots__ = ()


def parse_arguments(texts: tuple[str, ...]) -> dict[str, Any]:
    """Parse ``--kw NAME=VALUE`` texts into keyword arguments: Python literals, otherwise `Unquoted`. Raises UsageError."""
    arguments: dict[str, Any] = {}
    for text in texts:
        name, equals, literal = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--kw {text}: not NAME=VALUE", hint="write it like --kw width=64")
        if name in arguments:
            raise UsageError(f"--kw {name}=... is given twice", hint="use each argument once")
        try:
            arguments[name] = ast.literal_eval(literal)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            if literal.lower() in ("true", "false", "none"):  # a string would count as true
                raise UsageError(
                    f"--kw {text}: {literal!r} is not a Python literal",
                    hint=f"write --kw {name}={literal.capitalize()}",
                ) from None
            arguments[name] = Unquoted(literal)
    return arguments


def evaluated(value: Any, name: str, names: Mapping[str, Any], parameter: inspect.Parameter | None) -> Any:
    """`value` of ``--kw name=value``: an `Unquoted` expression is evaluated among `names`.

    A text with unknown names stays text, unless it is a call. A name stays text for a parameter of strings.

    Raises:
        UsageError: the expression raised an exception, or the parameter is a number and the value is text.
    """
    if not isinstance(value, Unquoted):
        return value
    text = str(value)
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return _text(text, name, parameter)
    is_call = any(isinstance(node, ast.Call) for node in all_nodes(tree))
    if (
        not is_call
        and parameter is not None
        and (isinstance(parameter.default, str) or parameter.annotation in (str, "str"))
    ):
        return text
    try:
        return eval(compile(tree, f"--kw {name}", "eval"), dict(names))  # noqa: S307
    except KitError:
        raise
    except Exception as error:
        if not is_call:
            return _text(text, name, parameter)
        raise UsageError(
            f"--kw {name}={text}: {one_line_message(error)}",
            hint=f"the names of the target's file can be used in it; quote text: --kw \"{name}='...'\"",
        ) from error


def _text(text: str, name: str, parameter: inspect.Parameter | None) -> str:
    """`text`, if the parameter is not a number. Raises UsageError."""
    if parameter is not None:
        kind = type(parameter.default) if parameter.annotation is parameter.empty else parameter.annotation
        expected = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
        if expected in ("int", "float", "bool"):
            raise UsageError(
                f"--kw {name}={text}: expected a value of type {expected}",
                hint=f"write a Python literal, such as --kw {name}=1; quote text: --kw \"{name}='...'\"",
            )
    return text

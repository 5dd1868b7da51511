"""Which expression a call passes for a parameter."""

from __future__ import annotations

import ast


def passed_argument(
    call: ast.Call, parameters: ast.arguments, name: str, *, is_method: bool = False
) -> ast.expr | None:
    """The expression that `call` passes for the parameter `name`; None if the call does not show one.

    `is_method`: the first parameter is the object itself.
    """
    for word in call.keywords:
        if word.arg == name:
            return word.value
    positional = [parameter.arg for parameter in (*parameters.posonlyargs, *parameters.args)][1 if is_method else 0 :]
    if name not in positional:
        return None
    index = positional.index(name)
    if index >= len(call.args) or any(isinstance(argument, ast.Starred) for argument in call.args[: index + 1]):
        return None
    return call.args[index]

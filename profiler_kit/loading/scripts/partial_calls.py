"""Calls of functions that need more than their result does: a function of options also creates folders and checks the device.

If such a function fails, only what its result depends on runs, statement by statement. What fails there leaves a placeholder.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, TypeVar

from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.names import FunctionNode, all_nodes, used_names, walk_scope
from profiler_kit.loading.program.reading import parsed
from profiler_kit.loading.program.slices import Slicer, facts_of
from profiler_kit.user_code.locations import is_user_code

_MAX_FUNCTIONS: Final = 3  # of one statement
_NOT_CALLED_ONCE: Final = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What the result of a function depends on: `statements`, in `namespace`, and then the expression `result`."""

    document: Document
    namespace: dict[str, Any]
    statements: list[ast.stmt]
    result: ast.expr


def with_partial_calls(run: Callable[[], T], result_of: Callable[[Part], Any]) -> T:
    """The result of `run`. If a function of the user fails in it, its result is that of `result_of`, and `run` is repeated."""
    with contextlib.ExitStack() as stack:
        for _ in range(_MAX_FUNCTIONS):
            try:
                return run()
            except (Exception, SystemExit) as error:
                if not _replace_failed(error, result_of, stack):
                    raise
        return run()


def _replace_failed(error: BaseException, result_of: Callable[[Part], Any], stack: contextlib.ExitStack) -> bool:
    """Replace the outermost function that failed and has one result at its end; `stack` undoes that. Whether there is one."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        places = list(_places(frame))
        parts = _parts(frame.f_code) if places else None
        if parts is None:
            continue
        for space, function in places:
            stack.callback(space.__setitem__, function.__name__, function)
            space[function.__name__] = _partial(function, parts, result_of)
        return True
    return False


def _places(frame: FrameType) -> Iterator[tuple[dict[str, Any], FunctionType]]:
    """The namespaces, of its module and its caller, that hold the function of `frame`."""
    name = frame.f_code.co_name
    spaces = [frame.f_globals, *([frame.f_back.f_globals] if frame.f_back is not None else [])]
    for space in {id(space): space for space in spaces}.values():
        function = space.get(name)
        if isinstance(function, FunctionType) and function.__code__ is frame.f_code:
            yield space, function


@lru_cache(maxsize=64)
def _parts(code: CodeType) -> tuple[Document, list[ast.stmt], ast.expr] | None:
    """The statements that the result of a function of the user depends on, and the result; None without a result at the end."""
    path = Path(code.co_filename)
    tree = parsed(path) if path.suffix == ".py" and is_user_code(code.co_filename) and not code.co_freevars else None
    nodes = all_nodes(tree) if tree is not None else ()
    node = next((n for n in nodes if isinstance(n, FunctionNode) and _first_line(n) == code.co_firstlineno), None)
    if tree is None or node is None or not isinstance(node.body[-1], ast.Return) or node.body[-1].value is None:
        return None
    inner = [part for statement in node.body for part in walk_scope(statement)]
    if sum(isinstance(part, ast.Return) for part in inner) > 1 or any(isinstance(p, _NOT_CALLED_ONCE) for p in inner):
        return None
    result = node.body[-1].value
    statements = Slicer(facts_of(tree), {}).slice(node.body[:-1], set(used_names(result)))
    return Document(tree=tree, text="", path=path, kind="importer"), statements, result


def _first_line(node: FunctionNode) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _partial(
    function: FunctionType, parts: tuple[Document, list[ast.stmt], ast.expr], result_of: Callable[[Part], Any]
) -> Callable[..., Any]:
    document, statements, result = parts

    def partial(*args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        namespace = {**function.__globals__, **bound.arguments}
        return result_of(Part(document=document, namespace=namespace, statements=statements, result=result))

    return partial

"""Calls of functions that need more than their result does: a function of options also creates folders and checks the device.

If such a function fails, only what its result depends on runs, statement by statement. What fails there leaves a placeholder. Of
a constructor, all statements run: an object whose data are missing still states its sizes. What has no value is passed to the
user's functions as a placeholder, because they may use the other arguments only.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, TypeVar

from torch import nn

from profiler_kit.loading.candidates.signatures import resolve_dotted
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.names import FunctionNode, all_nodes, used_names, walk_scope
from profiler_kit.loading.program.reading import parsed
from profiler_kit.loading.program.slices import Slicer, facts_of
from profiler_kit.loading.scripts.placeholders import Placeholder, placeholder_error
from profiler_kit.user_code.locations import is_user_code
from profiler_kit.user_code.time_limit import TimeLimitError, time_limit

_MAX_FUNCTIONS: Final = 3  # of one statement
_SECONDS: Final = 5.0  # for all runs of it with a replaced function
_CLASS: Final = "__class__"  # the free variable that `super()` reads
_NOT_CALLED_ONCE: Final = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)

T = TypeVar("T")
S = TypeVar("S", bound=ast.stmt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What the result of a function depends on: `statements`, in `namespace`, and then the expression `result`."""

    document: Document
    namespace: dict[str, Any]
    statements: list[ast.stmt]
    result: ast.expr
    kept: frozenset[str] = frozenset()


def _copy(node: Any) -> Any:
    """A copy of a tree without what was kept with its nodes."""
    if isinstance(node, list):
        return list(map(_copy, node))
    if not isinstance(node, ast.AST):
        return node
    return ast.copy_location(type(node)(**{name: _copy(value) for name, value in ast.iter_fields(node)}), node)


class _MissingArguments(ast.NodeTransformer):
    """Puts names of `added` in place of arguments and items that use a placeholder of `namespace`."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace, self.added = namespace, dict[str, Placeholder]()

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Of a function or class of the user, which is no model."""
        if _is_users(resolve_dotted(node.func, self._namespace.get)):
            node.args = [self._available(argument) for argument in node.args]
            for word in node.keywords:
                word.value = self._available(word.value)
        return node

    def visit_List(self, node: ast.List) -> ast.List:
        """``sizes = [200, 600, len(items)]``."""
        node.elts = [self._available(item) for item in node.elts]
        return node

    def _available(self, node: ast.expr) -> ast.expr:
        label = ast.unparse(node)
        node = self.visit(node)
        values = (self._namespace.get(name) for name in sorted(used_names(node)))
        placeholder = next((value for value in values if isinstance(value, Placeholder)), None)
        if placeholder is None or isinstance(node, ast.Starred):
            return node
        name = f"_missing_{len(self.added)}"
        self.added[name] = Placeholder(label, placeholder_error(placeholder))
        return ast.copy_location(ast.Name(id=name, ctx=ast.Load()), node)


def with_missing_arguments(statement: S, namespace: Mapping[str, Any]) -> tuple[S, Mapping[str, Placeholder]]:
    """`statement` with names in place of what has no value in `namespace`, where it may do without; their placeholders."""
    if not any(isinstance(namespace.get(name), Placeholder) for name in used_names(statement)):
        return statement, {}
    transformer = _MissingArguments(namespace)
    changed = transformer.visit(_copy(statement))
    return ast.fix_missing_locations(changed), transformer.added


def _is_users(value: Any) -> bool:
    code = getattr(value, "__code__", None) if isinstance(value, FunctionType) else None
    if isinstance(value, type) and not issubclass(value, nn.Module):
        code = getattr(vars(value).get("__init__"), "__code__", None)
    return isinstance(code, CodeType) and is_user_code(code.co_filename)


def with_partial_calls(run: Callable[[], T], result_of: Callable[[Part], Any]) -> T:
    """The result of `run`. If a function of the user fails in it, its result is that of `result_of`, and `run` is repeated."""
    with contextlib.ExitStack() as stack:
        try:
            return run()
        except (Exception, SystemExit) as error:
            if not _replace_failed(error, result_of, stack):
                raise
            first = error
        limit = None
        try:
            with time_limit(_SECONDS) as limit:  # a loop over data that are missing may not end
                for _ in range(_MAX_FUNCTIONS - 1):
                    try:
                        return run()
                    except (Exception, SystemExit) as error:
                        if not _replace_failed(error, result_of, stack):
                            raise
                return run()
        except TimeLimitError as error:
            if limit is None or error.limit is not limit:
                raise
            raise first from first.__cause__


def _replace_failed(error: BaseException, result_of: Callable[[Part], Any], stack: contextlib.ExitStack) -> bool:
    """Replace the outermost function that failed and has one result at its end; `stack` undoes that. Whether there is one."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner = _constructed_by(frame)
        if owner is not None and (parts := _parts_of_constructor(frame.f_code)) is not None:
            constructor = vars(owner)["__init__"]
            stack.callback(setattr, owner, "__init__", constructor)
            owner.__init__ = _partial(constructor, parts, result_of, owner)  # type: ignore[misc]
            return True
        places = list(_places(frame))
        parts = _parts(frame.f_code) if places else None
        if parts is None:
            continue
        for space, function in places:
            stack.callback(space.__setitem__, function.__name__, function)
            space[function.__name__] = _partial(function, parts, result_of)
        return True
    return False


def _constructed_by(frame: FrameType) -> type | None:
    """The class whose constructor is running in `frame`; None for another function, and for a model."""
    code = frame.f_code
    if code.co_name != "__init__" or not code.co_varnames:
        return None
    kinds = type(frame.f_locals.get(code.co_varnames[0])).__mro__
    owner = next((k for k in kinds if getattr(vars(k).get("__init__"), "__code__", None) is code), None)
    return owner if owner is not None and not issubclass(owner, nn.Module) else None


def _places(frame: FrameType) -> Iterator[tuple[dict[str, Any], FunctionType]]:
    """The namespaces, of its module and its caller, that hold the function of `frame`."""
    name = frame.f_code.co_name
    spaces = [frame.f_globals, *([frame.f_back.f_globals] if frame.f_back is not None else [])]
    for space in {id(space): space for space in spaces}.values():
        function = space.get(name)
        if isinstance(function, FunctionType) and function.__code__ is frame.f_code:
            yield space, function


def _function_of(code: CodeType) -> tuple[ast.Module, FunctionNode] | None:
    """The function of the user with `code`, and the tree of its file; None for one whose body cannot run by statements."""
    path = Path(code.co_filename)
    tree = parsed(path) if path.suffix == ".py" and is_user_code(code.co_filename) else None
    nodes = all_nodes(tree) if tree is not None else ()
    node = next((n for n in nodes if isinstance(n, FunctionNode) and _first_line(n) == code.co_firstlineno), None)
    if tree is None or node is None:
        return None
    return None if any(isinstance(part, _NOT_CALLED_ONCE) for part in walk_scope(node)) else (tree, node)


@lru_cache(maxsize=64)
def _parts(code: CodeType) -> tuple[Document, list[ast.stmt], ast.expr] | None:
    """The statements that the result of a function of the user depends on, and the result; None without a result at the end."""
    found = _function_of(code) if not code.co_freevars else None
    if found is None or not isinstance(last := found[1].body[-1], ast.Return) or last.value is None:
        return None
    tree, node = found
    if sum(isinstance(part, ast.Return) for part in walk_scope(node)) > 1:
        return None
    statements = Slicer(facts_of(tree), {}).slice(node.body[:-1], set(used_names(last.value)))
    return Document(tree=tree, text="", path=Path(code.co_filename), kind="importer"), statements, last.value


@lru_cache(maxsize=64)
def _parts_of_constructor(code: CodeType) -> tuple[Document, list[ast.stmt], ast.expr] | None:
    """The statements of a constructor of the user, which has no result."""
    found = _function_of(code) if set(code.co_freevars) <= {_CLASS} else None
    if found is None or any(isinstance(part, ast.Return) for part in walk_scope(found[1])):
        return None
    tree, node = found
    statements = [_NamedSuper(code.co_varnames[0]).visit(_copy(statement)) for statement in node.body]
    nothing = ast.copy_location(ast.Constant(value=None), node.body[-1])
    document = Document(tree=tree, text="", path=Path(code.co_filename), kind="importer")
    return document, list(map(ast.fix_missing_locations, statements)), nothing


class _NamedSuper(ast.NodeTransformer):
    """Writes ``super()`` out, which only works in the function itself."""

    def __init__(self, instance: str) -> None:
        self._instance = instance

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """``super()`` becomes ``super(__class__, self)``."""
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            node.args = [ast.Name(id=name, ctx=ast.Load()) for name in (_CLASS, self._instance)]
        return self.generic_visit(node)


def _first_line(node: FunctionNode) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _partial(
    function: FunctionType,
    parts: tuple[Document, list[ast.stmt], ast.expr],
    result_of: Callable[[Part], Any],
    owner: type | None = None,
) -> Callable[..., Any]:
    """`function` as `parts`; of a constructor with its class `owner`."""
    document, statements, result = parts
    kept = frozenset(function.__code__.co_varnames[:1]) if owner is not None else frozenset()

    def partial(*args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        namespace = {**function.__globals__, **bound.arguments, **({_CLASS: owner} if owner is not None else {})}
        return result_of(Part(document=document, namespace=namespace, statements=statements, result=result, kept=kept))

    return partial

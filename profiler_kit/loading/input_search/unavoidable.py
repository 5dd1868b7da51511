"""Failures of forward that no input avoids: a missing package, an attribute that does not exist, a method that only raises."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Iterator

from profiler_kit.loading.input_search.outcomes import Failure, is_wrong_call
from profiler_kit.loading.program.names import used_names
from profiler_kit.loading.program.reading import source_tree
from profiler_kit.loading.scripts.placeholders import missing_package
from profiler_kit.meta.batch import tensors_in


def ignores_input(failure: Failure) -> bool:
    """Whether the failing code looks at no input, so that the same failure for different inputs is that of all inputs.

    So it is for a missing package or name, an attribute that a module lacks, a call with the wrong number of arguments, and a
    statement that reads no local value; a ``raise`` counts if no condition on local values stands before it.
    """
    error = failure.error
    if missing_package(error) is not None or isinstance(error, NameError) or is_wrong_call(error):
        return True
    if failure.function is not None:
        return False
    if isinstance(error, AttributeError) and error.obj is not None:
        return not any(True for _ in tensors_in([error.obj]))
    return _reads_no_local(error)


def _reads_no_local(error: BaseException) -> bool:
    """Whether neither the statement that raised `error` nor the conditions before a ``raise`` read a local value."""
    frames = [
        entry for entry in traceback.walk_tb(error.__traceback__) if not entry[0].f_code.co_filename.startswith("<")
    ]
    function = source_tree(frames[-1][0].f_code) if frames else None
    if function is None or not function.body:
        return False  # unknown code may read anything
    line = frames[-1][1] - frames[-1][0].f_code.co_firstlineno + 1
    statements = (node for node in ast.walk(function) if isinstance(node, ast.stmt) and not hasattr(node, "body"))
    statement = next((s for s in statements if s.lineno <= line <= (s.end_lineno or s.lineno)), None)
    if isinstance(statement, ast.Raise):
        return not any(
            used_names(test) - {"self", "cls"} for test in _conditions(function) if test.lineno < statement.lineno
        )
    names = {name for name in frames[-1][0].f_code.co_varnames if name not in ("self", "cls")}
    return statement is not None and not names & used_names(statement)


def _conditions(function: ast.AST) -> Iterator[ast.expr]:
    """What decides whether later statements run: the tests of ``if`` and ``while``, what ``for`` and ``match`` go through."""
    for node in ast.walk(function):
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            yield node.test
        elif isinstance(node, ast.For):
            yield node.iter
        elif isinstance(node, ast.Match):
            yield node.subject

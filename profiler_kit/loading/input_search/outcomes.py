"""What one forward pass gave, where its tensors come from, whether inputs could avoid a failure, and results of a search."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading.input_search.facts import Facts
from profiler_kit.loading.inputs import InputText
from profiler_kit.loading.messages import reports
from profiler_kit.loading.program.names import all_nodes, used_names
from profiler_kit.loading.program.reading import source_tree
from profiler_kit.loading.scripts.placeholders import missing_package
from profiler_kit.meta.batch import tensors_in
from profiler_kit.user_code.boundary import error_text


class LayerInputError(Exception):
    """A layer got a tensor that it accepts, but that its author would not pass to it: one without a batch, for example.

    `ranks` are the received and the needed number of dimensions, and `sizes` those of dimension 1; None for other failures.
    """

    def __init__(
        self, message: str, *, ranks: tuple[int, int] | None = None, sizes: tuple[int, int] | None = None
    ) -> None:
        super().__init__(message)
        self.ranks = ranks
        self.sizes = sizes


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a forward pass failed, and where.

    `module` is the innermost running module. `function` is the failing call of torch with its `arguments`; None if the
    exception comes from other code. `names` are the local variables of the user's line `source`.
    """

    error: Exception
    module: nn.Module | None
    module_arguments: tuple[Any, ...]
    function: Callable[..., Any] | None
    arguments: tuple[Any, ...]
    source: str
    names: Mapping[str, Any]
    line: tuple[str, int] | None
    progress: tuple[int, int]

    @property
    def position(self) -> tuple[object, ...]:
        """Identifies the failing operation, so that two failures can be compared."""
        return (id(self.module), getattr(self.function, "__name__", None), self.line, type(self.error).__name__)

    @property
    def signature(self) -> tuple[object, ...]:
        """The same for failures that differ in nothing, of different inputs."""
        return (self.position, error_text(self.error))

    @property
    def needs_values(self) -> bool:
        """Whether the code reads values, which meta tensors do not have: the shapes may be right."""
        return isinstance(self.error, (RuntimeError, TypeError)) and reports(
            self.error, "reads_values", "no_meta_kernel"
        )


def plain_failure(error: Exception, arguments: tuple[Any, ...], progress: tuple[int, int]) -> Failure:
    """A failure outside of the code that ran."""
    return Failure(
        error=error, module=None, module_arguments=(), function=None, arguments=arguments, source="", names={}, line=None,
        progress=progress,
    )  # fmt: skip


@dataclass(kw_only=True)
class Outcome:
    """The result of one forward pass: an output, or a failure.

    `rows` has the smallest number of rows of the embeddings that each input indexes. `consumers` has the name of the first
    function that received each input.
    """

    output: Any = None
    failure: Failure | None = None
    rows: dict[str, int] = field(default_factory=dict)
    consumers: dict[str, str] = field(default_factory=dict)


def is_wrong_call(error: BaseException) -> bool:
    """Whether a function was called with too many, too few or unknown arguments, whatever their values."""
    return isinstance(error, TypeError) and reports(error, "wrong_call")


def origins(value: object) -> frozenset[str]:
    """The names of the inputs from which the tensors of `value` were computed."""
    return frozenset().union(*(getattr(tensor, "_input_names", frozenset()) for tensor in tensors_in(value)))


def mark(tensor: Tensor, name: str) -> Tensor:
    """Mark `tensor` as the input `name`."""
    tensor._input_names = frozenset((name,))  # type: ignore[attr-defined]
    tensor._is_input = name  # type: ignore[attr-defined]
    return tensor


def input_name(tensor: object) -> str | None:
    """The name of the input that `tensor` is; None for a computed tensor."""
    return getattr(tensor, "_is_input", None)


@dataclass(frozen=True, kw_only=True)
class InputGuess:
    """Inputs that the search found to run, as ``-i`` texts, and the number of trials.

    `doubt` says why forward did not run to its end: it reads values, which tensors without data do not have, or takes long. The
    shapes fit up to there. It is empty if forward ran.
    `output_shapes` are the shapes of the tensors that forward returned.
    """

    texts: tuple[InputText, ...]
    doubt: str
    trials: int
    facts: Facts
    output_shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class NoGuess:
    """The failure that remained when the search ended, and the inputs with which forward got furthest.

    `is_unavoidable`: it is the same for all inputs that got so far, and its code looks at none. `repeats`: the number of
    inputs that got so far, if it is the same for all.
    """

    texts: tuple[InputText, ...]
    failure: Failure | None
    trials: int
    is_unavoidable: bool = False
    repeats: int = 0


class NoFitError(TargetError):
    """Forward does not run with `texts`: the searched inputs that got furthest, or those that something states."""

    def __init__(
        self,
        message: str,
        *,
        where: str | None,
        hint: str,
        failure: Failure,
        texts: tuple[InputText, ...],
        is_searched: bool = True,
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.failure, self.texts, self.is_searched = failure, texts, is_searched


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
    statements = (node for node in all_nodes(function) if isinstance(node, ast.stmt) and not hasattr(node, "body"))
    statement = next((s for s in statements if s.lineno <= line <= (s.end_lineno or s.lineno)), None)
    if isinstance(statement, ast.Raise):
        return not any(
            used_names(test) - {"self", "cls"} for test in _conditions(function) if test.lineno < statement.lineno
        )
    names = {name for name in frames[-1][0].f_code.co_varnames if name not in ("self", "cls")}
    return statement is not None and not names & used_names(statement)


def _conditions(function: ast.AST) -> Iterator[ast.expr]:
    """What decides whether later statements run: the tests of ``if`` and ``while``, what ``for`` and ``match`` go through."""
    for node in all_nodes(function):
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            yield node.test
        elif isinstance(node, ast.For):
            yield node.iter
        elif isinstance(node, ast.Match):
            yield node.subject

"""Runs statements one by one. A statement that fails leaves placeholders for its names, and the next statement runs."""

from __future__ import annotations
import __future__ as future_features

import ast
import importlib
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from profiler_kit.loading.program.names import (
    BUILTINS,
    DEFINITIONS,
    STAR,
    bound_names,
    defined_names,
    mutated_names,
    used_names,
)
from profiler_kit.loading.program.repository import repository_root
from profiler_kit.loading.program.slices import facts_of
from profiler_kit.loading.scripts.partial_calls import Part, with_missing_arguments, with_partial_calls
from profiler_kit.loading.scripts.placeholders import Placeholder, UnavailableError, placeholder_error
from profiler_kit.loading.scripts.side_effects import SideEffectError
from profiler_kit.user_code.boundary import error_text, user_boundary
from profiler_kit.user_code.locations import is_user_code

# Errors of user code that say: this part is not available here. Any other error in a definition is a bug of the file.
_TOLERATED: Final = (ImportError, UnavailableError, SideEffectError)
_MIN_CASES: Final = 2  # of a chain: a plain `if` is optional
_requested: list[frozenset[str]] = []  # names that the running import statements ask for, the innermost last


def requested_names() -> frozenset[str]:
    """The names that the innermost running ``from x import ...`` statement asks for."""
    return _requested[-1] if _requested else frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Failure:
    """A statement that did not run: the names it would have bound, the error, and its location."""

    names: tuple[str, ...]
    error: UnavailableError


@dataclass(slots=True, kw_only=True)
class Runner:
    """Runs statements of one file in `namespace`.

    - `at`: the location of a line, for messages.
    - `effect`: why a node must not run; None if it may.
    - `open_names`: names that only a star import can bind.
    - `propagates`: a statement that uses a placeholder does not run, so that no value contains one.
    - `is_strict`: an unexpected error in a definition, or in the import of a user's file, is raised, not recorded.
    - `note`: takes one line on each assumption.
    - `kept`: names that keep their value: the object that a constructor makes.
    """

    namespace: dict[str, Any]
    filename: str
    at: Callable[[int], str]
    effect: Callable[[ast.AST], str | None]
    flags: int = 0
    is_strict: bool = False
    propagates: bool = False
    open_names: frozenset[str] = frozenset()
    failures: list[Failure] = field(default_factory=list)
    note: Callable[[str], None] = lambda _: None
    kept: frozenset[str] = frozenset()

    def run(self, statements: Iterable[ast.stmt]) -> None:
        """Run `statements` in order. Raises the unexpected errors if `is_strict`."""
        for statement in statements:
            if isinstance(statement, ast.If):
                if not self._run_cases(statement):
                    self._run_first_case(statement)
            elif isinstance(statement, ast.Try) and _only_reports(statement):
                self.run([*statement.body, *statement.orelse, *statement.finalbody])
            else:
                self._run_statement(statement)

    def evaluate(self, expression: ast.expr) -> Any:
        """The value of `expression`. Raises UnavailableError if one of its names has none."""
        statement, added = with_missing_arguments(ast.Expr(value=expression), self.namespace)
        missing = (self.namespace.get(name) for name in sorted(used_names(statement) - added.keys()))
        placeholder = next((value for value in missing if isinstance(value, Placeholder)), None)
        if placeholder is not None:
            raise placeholder_error(placeholder)
        if added:
            self.namespace.update(added)
            expression = statement.value
        code = self._compile(ast.fix_missing_locations(ast.Expression(body=expression)), "eval")
        return with_partial_calls(lambda: eval(code, self.namespace), self._result)  # noqa: S307  # the user's own code

    def _result(self, part: Part) -> Any:
        """The result of a function of which only `part` runs. Of a tuple, each item that has no value is a placeholder."""
        tree = part.document.tree
        runner = Runner(
            namespace=part.namespace, filename=str(part.document.path), at=part.document.at, effect=facts_of(tree).effect,
            flags=future_flags(tree), propagates=True, note=self.note, kept=part.kept,
        )  # fmt: skip
        runner.run(part.statements)
        if isinstance(part.result, ast.Tuple):
            return tuple(map(runner._evaluated_or_missing, part.result.elts))
        return runner.evaluate(part.result)

    def _evaluated_or_missing(self, expression: ast.expr) -> Any:
        try:
            return self.evaluate(expression)
        except (Exception, SystemExit) as error:  # noqa: BLE001
            label = ast.unparse(expression)
            return Placeholder(label, self._reason(label, error, self.at(expression.lineno)))

    def _run_cases(self, statement: ast.If) -> bool:
        """Run the case of an if/elif chain that applies. Whether there is one."""
        try:
            test = eval(self._compile(ast.Expression(body=statement.test), "eval"), self.namespace)  # noqa: S307  # the user's own code
            is_taken = bool(test)
        except (Exception, SystemExit) as error:  # noqa: BLE001
            self._record(statement, error)
            return False
        if is_taken:
            self.run(statement.body)
            return True
        if len(statement.orelse) == 1 and isinstance(following := statement.orelse[0], ast.If):
            return self._run_cases(following)
        self.run(statement.orelse)
        return bool(statement.orelse)

    def _run_first_case(self, statement: ast.If) -> None:
        """Run the first case of an if/elif chain of which none applies, if it binds what every case binds.

        The options of a script are at their defaults, and a chain over a required option has no case for that.
        """
        missing = sorted(
            name
            for name in names_of_cases(statement)
            if name not in self.namespace or isinstance(self.namespace[name], Placeholder)
        )
        if missing:
            self.run(statement.body)
            values = ((name, self.namespace.get(name)) for name in missing)
            texts = (f"{n} = {v!r}" if isinstance(v, (bool, int, float, str)) else n for n, v in values)
            self.note(f"{', '.join(texts)}: the first case at {self._at(statement)}, since no case applies")

    def _run_statement(self, statement: ast.stmt) -> None:
        reason = None if isinstance(statement, DEFINITIONS) else self.effect(statement)
        if reason is not None:
            self._unavailable(
                statement, UnavailableError(_listed(statement), f"{reason}, which does not run", self._at(statement))
            )
            return
        if self.propagates and not isinstance(statement, DEFINITIONS):
            missing = next(
                (v for n in sorted(used_names(statement)) if isinstance(v := self.namespace.get(n), Placeholder)), None
            )
            if missing is not None:
                whole = statement
                statement, added = with_missing_arguments(statement, self.namespace)
                if any(
                    isinstance(self.namespace.get(name), Placeholder) for name in used_names(statement) - added.keys()
                ):
                    self._record(whole, placeholder_error(missing))
                    return
                self.namespace.update(added)
        try:
            code = self._compile(ast.Module(body=[statement], type_ignores=[]), "exec")
            with user_boundary(), _requesting(statement):
                # a loop until something is read may not end with objects that have no data
                if self.propagates and not isinstance(statement, (*DEFINITIONS, ast.While)):
                    with_partial_calls(lambda: exec(code, self.namespace), self._result)  # noqa: S102
                else:
                    exec(code, self.namespace)  # noqa: S102
        except ImportError as error:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                self._run_import(statement, error)
            else:
                self._record(statement, error)
        except (Exception, SystemExit) as error:
            if isinstance(statement, ast.Delete) and isinstance(error, LookupError):
                return  # an earlier run has deleted it from what the user's modules keep
            if (
                self.is_strict
                and isinstance(statement, DEFINITIONS)
                and not isinstance(error, (*_TOLERATED, SystemExit))
                and not _is_of_package(statement, error, Path(self.filename))
            ):
                raise
            self._record(statement, error)

    def _run_import(self, statement: ast.Import | ast.ImportFrom, error: ImportError) -> None:
        """Import each name of a failed import separately, so that one missing name does not hide the others."""
        if len(statement.names) > 1:
            for alias in statement.names:
                self._run_statement(_import_of(statement, alias))
            return
        alias = statement.names[0]
        if isinstance(statement, ast.Import) and not alias.asname and "." in alias.name:
            top = alias.name.split(".")[0]
            try:
                self.namespace[top] = importlib.import_module(top)
            except ImportError as missing:
                error = missing
            else:
                return  # the package exists; a use of its missing part raises AttributeError
        self._record(statement, error)

    def _record(self, statement: ast.stmt, error: BaseException) -> None:
        self._unavailable(statement, self._reason(_listed(statement), error, self._at(statement)))

    def _reason(self, label: str, error: BaseException, where: str) -> UnavailableError:
        """Why what `label` names has no value: `error`, or what that follows from."""
        if isinstance(error, UnavailableError):
            return UnavailableError(label, error.reason, error.where, error.cause if error.cause is not None else error)
        return UnavailableError(label, _text(error), where, error)

    def _assign_placeholder(self, statement: ast.stmt, error: UnavailableError) -> bool:
        """Let one field or item be missing, not its whole object: ``config.vocab_size = len(data)``. Whether that worked."""
        if not isinstance(statement, ast.Assign) or not all(isinstance(t, ast.Attribute) for t in statement.targets):
            return False
        label = _listed(statement)
        placeholder = Placeholder(label, error)
        try:
            with user_boundary():
                for target in statement.targets:
                    assert isinstance(target, ast.Attribute)
                    owner = eval(self._compile(ast.Expression(body=target.value), "eval"), self.namespace)  # noqa: S307
                    _set_field(owner, target.attr, placeholder)
        except (AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError, UnavailableError):
            return False  # the owner does not exist either, so the statement fails as a whole
        self.failures.append(Failure(names=(label,), error=error))
        return True

    def _unavailable(self, statement: ast.stmt, error: UnavailableError) -> None:
        if self.propagates and self._assign_placeholder(statement, error):
            return
        names = set(bound_names(statement)) | (mutated_names(statement) if self.propagates else set())
        if STAR in names:
            names = {name for name in self.open_names if name not in self.namespace}
        for name in sorted(names - {STAR} - self.kept):
            self.namespace[name] = Placeholder(name, error)
        self.failures.append(Failure(names=tuple(sorted(names)), error=error))

    def _at(self, statement: ast.stmt) -> str:
        return self.at(statement.lineno)

    def _compile(self, tree: ast.Module | ast.Expression, mode: str) -> Any:
        return compile(tree, self.filename, mode, flags=self.flags, dont_inherit=True)


def _set_field(owner: Any, name: str, value: Placeholder) -> None:
    """Set a field, also of a configuration that checks the types of its values."""
    try:
        setattr(owner, name, value)
    except (AssertionError, TypeError, ValueError):
        if not isinstance(owner, dict):
            raise
        dict.__setitem__(owner, name, value)


def names_of_cases(statement: ast.If) -> frozenset[str]:
    """The names that every case of an if/elif chain binds; empty for a plain ``if``."""
    cases: list[frozenset[str]] = []
    current: ast.stmt | None = statement
    while isinstance(current, ast.If):
        cases.append(_bound(current.body))
        orelse = current.orelse
        current = orelse[0] if len(orelse) == 1 else None
        if not isinstance(current, ast.If) and (last := _bound(orelse)):
            cases.append(last)  # an `else` that binds nothing reports an unknown case
    return frozenset.intersection(*cases) if len(cases) >= _MIN_CASES else frozenset()


def _bound(body: list[ast.stmt]) -> frozenset[str]:
    return frozenset(name for statement in body for name in bound_names(statement)) - {STAR}


def _is_of_package(statement: ast.stmt, error: BaseException, file: Path) -> bool:
    """Whether an installed package raised `error` when `statement` of `file` imported it.

    The binaries of a package may fit another version of torch, for example: then its import raises an OSError.
    """
    if not isinstance(statement, (ast.Import, ast.ImportFrom)):
        return False
    root = repository_root(file)
    places = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    places += [error.filename or ""] if isinstance(error, SyntaxError) else []
    return sum(is_user_code(place) and Path(place).is_relative_to(root) for place in places) == 1  # `statement` itself


def _only_reports(statement: ast.Try) -> bool:
    """Whether the handlers of imports have no replacement for a missing package: they print, or raise again."""
    return any(isinstance(inner, (ast.Import, ast.ImportFrom)) for inner in statement.body) and not any(
        bound_names(inner) for handler in statement.handlers for inner in handler.body
    )


def _import_of(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> ast.Import | ast.ImportFrom:
    if isinstance(statement, ast.Import):
        return ast.copy_location(ast.Import(names=[alias]), statement)
    return ast.copy_location(ast.ImportFrom(module=statement.module, names=[alias], level=statement.level), statement)


def _listed(statement: ast.stmt) -> str:
    return ", ".join(sorted(bound_names(statement))) or ast.unparse(statement).splitlines()[0]


def _text(error: BaseException) -> str:
    lines = error_text(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def _requesting(statement: ast.stmt) -> Iterator[None]:
    """Make the names of an import statement known to the module that it imports."""
    names = frozenset(alias.name for alias in statement.names) if isinstance(statement, ast.ImportFrom) else frozenset()
    _requested.append(names)
    try:
        yield
    finally:
        _requested.pop()


def future_flags(tree: ast.Module) -> int:
    """The compiler flags of the file's ``from __future__ import ...`` statements."""
    names = [
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for alias in node.names
    ]
    return sum({getattr(future_features, name).compiler_flag for name in names})


def open_names(tree: ast.Module) -> frozenset[str]:
    """Names that the file reads but does not bind: those that its star imports bind."""
    return frozenset(name for statement in tree.body for name in used_names(statement)) - defined_names(tree) - BUILTINS

"""Values of expressions at their place in the user's code, by running only the statements that they depend on."""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from profiler_kit.foreign import has_class
from profiler_kit.loading.program.callees import calls_of
from profiler_kit.loading.program.documents import Document, importers_of
from profiler_kit.loading.program.imports import computed_imports
from profiler_kit.loading.program.names import (
    BUILTINS,
    STAR,
    FunctionNode,
    all_nodes,
    argument,
    bound_names,
    calls_in,
    default_of,
    dotted_name,
    parameter_names,
    used_names,
)
from profiler_kit.loading.program.places import (
    Place,
    Scope,
    conditions,
    method_around,
    place_of,
    preceding,
    script_statements,
)
from profiler_kit.loading.program.reading import parsed_leniently
from profiler_kit.loading.program.repository import local_sources, repository_root
from profiler_kit.loading.program.slices import Slicer, facts_of
from profiler_kit.loading.scripts.importing import ImportSession
from profiler_kit.loading.scripts.instances import Instance, attribute_values
from profiler_kit.loading.scripts.isolation import isolated
from profiler_kit.loading.scripts.placeholders import Placeholder, UnavailableError, placeholder_error
from profiler_kit.loading.scripts.runner import Runner, future_flags, open_names
from profiler_kit.loading.scripts.settings import composed
from profiler_kit.user_code.boundary import user_boundary
from profiler_kit.user_code.environment import user_code
from profiler_kit.user_code.locations import one_line_message, user_place
from profiler_kit.user_code.time_limit import TimeLimitError, time_limit

EVALUATION_TIMEOUT_S: Final = 20.0
_MAX_DEPTH: Final = 6  # of parameters whose value is the parameter of a caller
_MAX_CALLS: Final = 3  # calls that are tried for the value of a parameter


class EvaluationError(Exception):
    """An expression has no value here. `reason` says why, `where` is the line."""

    def __init__(self, reason: str, where: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.reason, self.where = reason, where


@dataclass(slots=True, kw_only=True, eq=False)
class Evaluator:
    """Evaluates expressions of the documents of a target. `notes` are assumptions since they were cleared: required arguments.

    `is_isolated`: user code runs without side effects.
    """

    module: ModuleType
    session: ImportSession
    documents: Callable[[], tuple[Document, ...]]
    is_isolated: bool = True
    timeout_s: float = EVALUATION_TIMEOUT_S
    notes: list[str] = field(default_factory=list)
    _assigning: set[tuple[str, str]] = field(default_factory=set)  # (class, attribute) whose value is being evaluated

    def value(self, place: Place, expression: ast.expr, bindings: Mapping[str, Any] = {}) -> Any:
        """The value of `expression` at `place`. `bindings` are names with a fixed value.

        Runs the statements before `place` that the names of the expression depend on, in a copy of the namespace. A
        parameter of an enclosing function has the value that the first call of the function passes, or its default.

        Raises:
            EvaluationError: a name depends on training, a data set, an object that does not exist here, or raises.
        """
        with self._running(place):
            namespace = self._namespace(place, used_names(expression), bindings, 0)
            result = self._evaluate(place, expression, namespace)
        if not has_class(result):
            raise EvaluationError("the class of its value cannot be read", place.document.at(expression.lineno))
        if isinstance(result, Placeholder):
            error = placeholder_error(result)
            raise EvaluationError(error.reason, error.where) from error
        return result

    def reaches(self, place: Place, bindings: Mapping[str, Any] = {}) -> bool | None:
        """Whether the ``if`` statements around `place` lead to it; None if that depends on something without a value."""
        answer: bool | None = True
        for statement, expected in conditions(place.document.tree, place.statement):
            try:
                value = bool(self.value(replace(place, statement=statement), statement.test, bindings))
            except (EvaluationError, TypeError, ValueError):
                answer = None
                continue
            if value is not expected:
                return False
        return answer

    def values(self, place: Place, names: Iterable[str], bindings: Mapping[str, Any] = {}) -> dict[str, Any]:
        """The values of `names` at `place`. Raises EvaluationError if one of them has none."""
        requested = tuple(names)
        with self._running(place):
            namespace = self._namespace(place, frozenset(requested), bindings, 0)
        values: dict[str, Any] = {}
        for name in requested:
            value = namespace.get(name)
            if name not in namespace:
                raise EvaluationError(f"{name} is not defined", place.where)
            if isinstance(value, Placeholder):
                error = placeholder_error(value)
                raise EvaluationError(error.reason, error.where) from error
            values[name] = value
        return values

    @contextlib.contextmanager
    def _running(self, place: Place) -> Iterator[None]:
        """The surroundings of user code. Turns its exceptions into EvaluationError."""
        path = place.document.path
        folders = tuple(
            dict.fromkeys([*([path.parent] if path is not None else []), *self.session.folders, self.session.root])
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(user_code(folders, str(path or "script.py")))
            stack.enter_context(isolated(self.session, self._note, allow_effects=not self.is_isolated))
            # an option list that is printed at each evaluation, the usage of a program that lacks its arguments
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            if path is not None:
                stack.enter_context(_files_near(path.parent))
            limit = None  # until another limit, which may end first, lets this one begin
            try:
                with user_boundary(), time_limit(self.timeout_s) as limit:
                    yield
            except EvaluationError:
                raise
            except UnavailableError as error:
                raise EvaluationError(error.reason, error.where) from error
            except TimeLimitError as error:
                if error.limit is not limit:
                    raise
                raise EvaluationError(str(error), place.where) from error
            except (Exception, SystemExit) as error:
                raise EvaluationError(one_line_message(error), user_place(error) or place.where) from error

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _evaluate(self, place: Place, expression: ast.expr, namespace: dict[str, Any]) -> Any:
        return self._runner(place.document, namespace).evaluate(expression)

    def _namespace(
        self, place: Place, names: frozenset[str], bindings: Mapping[str, Any], depth: int
    ) -> dict[str, Any]:
        """The namespace of `place` with values for `names`."""
        document = place.document
        facts = facts_of(document.tree)
        is_target = document.kind == "target"
        if document.kind == "importer":
            modules = computed_imports(document.tree).items()
            of_target = (name for name, read in modules if read & vars(self.module).keys())
            bindings = {**dict.fromkeys(of_target, self.module), **bindings}
        base = (
            dict(vars(self.module))
            if document.kind in ("target", "docstring")
            else _script_namespace(document, self.session)
        )
        expanded = {**facts.functions, **(self._incomplete_classes(facts.classes) if is_target else facts.classes)}
        needed = set(names) - facts.builtins - bindings.keys()
        layers: list[tuple[Scope | None, list[str], list[ast.stmt]]] = []
        method = method_around(place.scopes)
        instance = frozenset({method[1].args.args[0].arg} if method is not None else ())
        needed -= instance
        for scope, statements in _layers(place):
            slicer = Slicer(facts, expanded, instance)
            unresolved = set(needed)
            parts = slicer.slice(statements, unresolved)
            if scope is None and unresolved - base.keys() and any(STAR in bound_names(s) for s in statements):
                unresolved = needed | {STAR}
                parts = slicer.slice(statements, unresolved)
            parameters = parameter_names(scope.args) if isinstance(scope, FunctionNode) else []
            layers.append((scope, [name for name in parameters if name in unresolved], parts))
            needed = unresolved - set(parameters) - bindings.keys() - instance
        for name in needed - base.keys() - {STAR}:
            if hasattr(self.module, name):
                base[name] = getattr(self.module, name)  # a README shows names of the file without their import
        namespace = base
        namespace.update(bindings)
        for scope, parameters, parts in reversed(layers):
            if isinstance(scope, FunctionNode):
                namespace = dict(namespace)
                if method is not None and scope is method[1]:
                    (name,) = instance
                    namespace[name] = self._instance(place.document, method[0], name, bindings, depth)
                for name in parameters:
                    namespace[name] = self._parameter(place, scope, name, bindings, depth)
            elif is_target:
                parts = [part for part in parts if not self._is_imported(part)]
            self._runner(document, namespace).run(parts)
            namespace.update(bindings)
            if scope is None and is_target:
                self._complete_module(facts.classes, namespace)
        return namespace

    def _runner(self, document: Document, namespace: dict[str, Any]) -> Runner:
        tree = document.tree
        return Runner(
            namespace=namespace, filename=_filename(document), at=document.at, effect=facts_of(tree).effect,
            flags=future_flags(tree), open_names=open_names(tree), propagates=True, note=self._note,
        )  # fmt: skip

    def _is_imported(self, statement: ast.stmt) -> bool:
        """Whether the import of the target ran `statement`, and running it again would create another object."""
        if not isinstance(statement, (ast.Import, ast.ImportFrom, ast.ClassDef)) and not getattr(
            statement, "decorator_list", ()
        ):
            return False
        names = vars(self.module)
        return all(
            name in names and not isinstance(names[name], Placeholder) for name in bound_names(statement) - {STAR}
        )

    def _incomplete_classes(self, classes: Mapping[str, ast.ClassDef]) -> dict[str, ast.ClassDef]:
        """The target's classes whose methods read globals that the import did not define: a script's main block does."""
        names = vars(self.module).keys() | BUILTINS
        return {name: node for name, node in classes.items() if used_names(node) - names}

    def _complete_module(self, classes: Mapping[str, ast.ClassDef], namespace: dict[str, Any]) -> None:
        names = vars(self.module)
        for node in self._incomplete_classes(classes).values():
            for name in used_names(node) - names.keys() - BUILTINS:
                if name in namespace:
                    names[name] = namespace[name]

    def _instance(
        self, document: Document, owner: ast.ClassDef, name: str, bindings: Mapping[str, Any], depth: int
    ) -> Instance:
        """The object `name` in the methods of `owner`. `bindings` may fix attributes: ``self.model``."""
        classes = facts_of(document.tree).classes

        def evaluate(attribute: str) -> Any:
            failure: EvaluationError | None = None
            assigned_now = (owner.name, attribute)
            is_inner = assigned_now in self._assigning
            for place, value in attribute_values(document, owner, classes, attribute):
                # ``self.sizes = list(self.sizes)`` reads the value that the class has before
                if is_inner and not isinstance(place.scopes[-1], ast.ClassDef):
                    continue
                self._assigning.add(assigned_now)
                try:
                    result = self._attempt(place, value, bindings, depth)
                finally:
                    if not is_inner:
                        self._assigning.discard(assigned_now)
                if not isinstance(result, EvaluationError):
                    return result
                failure = failure or result
            raise failure or EvaluationError(
                f"no method of {owner.name} assigns {name}.{attribute}", document.at(owner.lineno)
            )

        prefix = f"{name}."
        fixed = {key.removeprefix(prefix): value for key, value in bindings.items() if key.startswith(prefix)}
        return Instance(evaluate, fixed)

    def _attempt(
        self, place: Place, expression: ast.expr, bindings: Mapping[str, Any], depth: int
    ) -> Any | EvaluationError:
        """The value of `expression` at another `place`, one call or method further away; the reason if it has none."""
        try:
            if depth >= _MAX_DEPTH:
                raise EvaluationError("it depends on too many calls", place.where)
            namespace = self._namespace(place, used_names(expression), bindings, depth + 1)
            value = self._evaluate(place, expression, namespace)
            if isinstance(value, Placeholder):
                raise placeholder_error(value)
        except EvaluationError as error:
            return error
        except (Exception, SystemExit) as error:  # noqa: BLE001
            failure = EvaluationError(one_line_message(error), place.where)
            if isinstance(error, UnavailableError):
                failure = EvaluationError(error.reason, error.where)
            failure.__cause__ = error  # such as a missing package
            return failure
        return value

    def _parameter(
        self, place: Place, function: FunctionNode, name: str, bindings: Mapping[str, Any], depth: int
    ) -> Any:
        """The value of a parameter: the argument of a call, or its default. Raises EvaluationError."""
        where = place.document.at(function.lineno)
        if depth >= _MAX_DEPTH:
            raise EvaluationError(f"{name} of {function.name}() depends on too many calls", where)
        definition = place_of(place.document, function)
        owner = definition.scopes[-1] if definition.scopes and isinstance(definition.scopes[-1], ast.ClassDef) else None
        errors: list[EvaluationError] = []
        for call_place, passed in self._passed(place.document, function, owner, name, depth):
            value = self._attempt(call_place, passed, bindings, depth)
            if not isinstance(value, EvaluationError):
                return value
            errors.append(value)
        default = default_of(function.args, name) or _option_default(function, name)
        if default is not None:
            outside = Place(document=place.document, scopes=definition.scopes, statement=function)
            namespace = self._namespace(outside, used_names(default), bindings, depth + 1)
            return self._evaluate(outside, default, namespace)
        configuration = _composed_configuration(place.document, function, name)
        if configuration is not None:
            return configuration
        if errors:
            raise errors[0]
        owner_text = f"{owner.name}.{function.name}" if owner is not None else function.name
        raise EvaluationError(f"{name} of {owner_text}() has no default, and no call passes it", where)

    def _passed_to_method(
        self, document: Document, function: FunctionNode, owner: ast.ClassDef, name: str
    ) -> Iterator[tuple[Place, ast.expr]]:
        """The arguments that the methods of `owner` pass for the parameter `name` of another one: ``self.step(batch, loss)``."""
        positional = [p.arg for p in (*function.args.posonlyargs, *function.args.args)][1:]
        position = positional.index(name) if name in positional else None
        for method in (node for node in owner.body if isinstance(node, FunctionNode) and node is not function):
            instance = method.args.args[0].arg if method.args.args else None
            for call in calls_in(method):
                passed = argument(call, name, position)
                if passed is not None and dotted_name(call.func) == f"{instance}.{function.name}":
                    yield place_of(document, call), passed

    def _passed(
        self, document: Document, function: FunctionNode, owner: ast.ClassDef | None, name: str, depth: int
    ) -> Iterator[tuple[Place, ast.expr]]:
        """The arguments that calls pass for the parameter `name`: in the function's document first.

        In files that do not import that document only for a parameter of the place itself (`depth` 0).
        """
        if owner is not None and function.name != "__init__":
            yield from self._passed_to_method(document, function, owner, name)
            return
        called = owner.name if owner is not None else function.name
        positional = [p.arg for p in (*function.args.posonlyargs, *function.args.args)][owner is not None :]
        position = positional.index(name) if name in positional else None
        others = self.documents()
        if document.kind == "importer" and document.path is not None:
            others = importers_of(document.path)
        module = document.path.stem if document.path is not None else None
        known = (document, *(other for other in others if other is not document))
        inside = set(all_nodes(function))

        def passing(documents: Iterable[Document]) -> Iterator[tuple[Place, ast.expr]]:
            for other in documents:
                for node, call in calls_of(called, other, module):
                    passed = argument(call, name, position) or _unpacked(call, name)
                    if node not in inside and passed is not None:
                        yield place_of(other, node), passed

        is_found = False
        for found in islice(passing(known), _MAX_CALLS):
            is_found = True
            yield found
        if not is_found and depth == 0 and document.path is not None:
            paths = {other.path for other in known}
            yield from islice(passing(d for d in _files_that_name(called, document.path) if d.path not in paths), 1)


@contextlib.contextmanager
def _files_near(folder: Path) -> Iterator[None]:
    """Files of a relative path that is not in the working directory are opened in `folder`: a script may be run from its own."""
    original = builtins.open

    def open_near(file: Any, *args: Any, **words: Any) -> Any:
        try:
            return original(file, *args, **words)
        except FileNotFoundError:
            if not isinstance(file, (str, os.PathLike)) or not (folder / os.fspath(file)).is_file():
                raise
            return original(folder / os.fspath(file), *args, **words)

    builtins.open = io.open = open_near  # the two are one function
    try:
        yield
    finally:
        builtins.open = io.open = original


@lru_cache(maxsize=64)
def _files_that_name(name: str, path: Path) -> tuple[Document, ...]:
    """Files of the repository of `path` that call `name`, which they may import in a way that the text does not show."""
    sources = local_sources(path, repository_root(path))
    # where a class of the same name is defined, the calls are its own
    texts = ((file, text) for file, text in sources if f"{name}(" in text and f"class {name}" not in text)
    trees = ((file, text, parsed_leniently(text)) for file, text in texts)
    documents = (
        Document(tree=tree, text=text, path=file, kind="importer") for file, text, tree in trees if tree is not None
    )
    return tuple(islice(documents, _MAX_CALLS))


def _layers(place: Place) -> Iterator[tuple[Scope | None, list[ast.stmt]]]:
    """(scope, statements that run before the place) from the innermost scope to the module (None)."""
    statement: ast.stmt = place.statement
    is_innermost = True
    for scope in reversed(place.scopes):
        if isinstance(scope, FunctionNode):
            yield scope, preceding(scope.body, statement)
            is_innermost = False
        elif is_innermost and statement in scope.body:
            yield scope, preceding(scope.body, statement)
        statement = scope
    body = place.document.tree.body
    yield None, preceding(body, place.statement) if is_innermost and not place.scopes else script_statements(body)


def _unpacked(call: ast.Call, name: str) -> ast.expr | None:
    """``options[NAME]`` where the call passes ``**options``."""
    mapping = next((word.value for word in call.keywords if word.arg is None), None)
    if mapping is None:
        return None
    item = ast.Subscript(value=mapping, slice=ast.Constant(value=name), ctx=ast.Load())
    return ast.fix_missing_locations(ast.copy_location(item, mapping))


def _option_default(function: FunctionNode, name: str) -> ast.expr | None:
    """The default in a decorator such as ``@click.option("--width", default=64)``."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and any(
            isinstance(text, ast.Constant) and str(text.value).lstrip("-").replace("-", "_") == name
            for text in decorator.args
        ):
            return argument(decorator, "default")
    return None


def _composed_configuration(document: Document, function: FunctionNode, name: str) -> Any:
    """The configuration that a decorator such as ``@hydra.main(config_path="conf", config_name="train")`` passes."""
    first = next((parameter.arg for parameter in function.args.args), None)
    if document.path is None or name != first:
        return None
    for decorator in function.decorator_list:
        words = [
            argument(decorator, key) if isinstance(decorator, ast.Call) else None
            for key in ("config_path", "config_name")
        ]
        folder, file = (word.value if isinstance(word, ast.Constant) else None for word in words)
        if isinstance(file, str):
            try:
                return composed(document.path.parent / str(folder or ""), file)
            except (OSError, ValueError) as error:
                raise EvaluationError(str(error), document.at(function.lineno)) from error
    return None


def _filename(document: Document) -> str:
    return str(document.path) if document.path is not None and document.path.suffix == ".py" else "<example>"


def _script_namespace(document: Document, session: ImportSession) -> dict[str, Any]:
    """The namespace of a script. Relative imports work if the script is part of a package."""
    path = document.path
    doc = ast.get_docstring(document.tree, clean=False)
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path), "__package__": None, "__doc__": doc}
    if path is not None and path.suffix == ".py":
        parts: list[str] = []
        folder: Path = path.parent
        while (folder / "__init__.py").is_file() or folder in session.packages.values():
            parts.insert(0, folder.name)
            folder = folder.parent
        namespace["__package__"] = ".".join(parts) or None
    return namespace

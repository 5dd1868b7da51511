"""Calls in the documents of a target that build one of its models, and where they stand."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final, Literal

from profiler_kit.foreign import attribute_of
from profiler_kit.loading.candidates.classes import is_loss, is_module_class
from profiler_kit.loading.candidates.factories import Factories
from profiler_kit.loading.candidates.signatures import accepts, missing_arguments, resolve_dotted
from profiler_kit.loading.program.callees import computed_callees, listed_name
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.imports import TargetNames
from profiler_kit.loading.program.model_variables import (
    inner_models,
    is_conversion,
    own_classes,
    takes_model,
)
from profiler_kit.loading.program.names import all_nodes, assigned, calls_in, dotted_name, last_name
from profiler_kit.loading.program.places import Place, ancestors, is_main_guard, place_of
from profiler_kit.loading.scripts.execution import EvaluationError
from profiler_kit.loading.scripts.source import Source

# main: under `if __name__ == "__main__":`; script: at the top level of a file; test: in a function with a usual name of a test
# or a program; function: in another function; factory: in a function that returns the model; method: in a class; module: in a
# class of modules; example: in a docstring or a README; sibling: in a README, for a class of the same name in another file.
SiteRole = Literal["main", "test", "script", "function", "method", "factory", "module", "example", "sibling"]

_TEST_NAME: Final = re.compile(
    r"_*(test|main|demo|run|train|eval|evaluate|example|check|smoke|benchmark|fit|inference)(_|$|\d)", re.I
)
# names that scripts give to a model, and not to a layer or a loss
_NO_MODEL: Final = re.compile(
    r"config|args|load|path|optim|loss|criterion|tokenizer|dataset|params|state_dict|summary|get_default", re.I
)
_MODEL_VARIABLE: Final = re.compile(
    r"(.*_)?(model|net|network|generator|discriminator|classifier|netG|netD|G|D|vit|unet|resnet|gpt)(_\w)?$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSite:
    """A call that builds a model.

    `variable`: the name that the model is assigned to; None without one. `function`: the innermost function around the call.
    `is_part`: the model is an argument of the call that builds another model.
    """

    document: Document
    place: Place
    call: ast.Call
    variable: str | None
    role: SiteRole
    function: str | None = None
    is_part: bool = False

    @property
    def where(self) -> str:
        """The location, ``train.py:41``."""
        return self.document.at(self.call.lineno)

    @property
    def is_in_test(self) -> bool:
        """Whether another file calls it to test it."""
        return self.document.is_test


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteModel:
    """The class or function that a site calls. `value` is None if the text does not say it; `is_library`: of a package."""

    name: str
    value: Any
    site: CallSite
    is_library: bool = False


def find_sites(source: Source, documents: Sequence[Document], factories: Factories) -> list[SiteModel]:
    """The calls in `documents` that build a model of the target, or, in the target itself, any model."""
    names = source.names
    sites: list[SiteModel] = []
    for document in documents:
        if document.kind == "target":
            own = partial(_own_model, names=names, factories=factories)
            sites += _sites(document, _with_computed(source, document, own), factories, names)
        else:
            model_of = partial(_imported_model, lookup=_foreign_lookup(source, document), factories=factories)
            sites += _sites(document, _with_computed(source, document, model_of), factories, {})
    return [*sites, *_siblings(source, documents, factories, frozenset(site.name for site in sites))]


_MAX_COMPUTED: Final = 6  # callees of one document that are evaluated


def _with_computed(
    source: Source, document: Document, model_of: Callable[[ast.expr], _Model | None]
) -> Callable[[ast.expr], _Model | None]:
    """`model_of`, also for callees that are no names: ``MODELS[args.model](...)``, ``getattr(models, args.arch)()``."""
    computed = [call.func for call in computed_callees(document.tree) if document.kind in ("target", "importer")]
    module = source.module.__name__
    own = {id(value): name for name, value in source.names.items() if getattr(value, "__module__", "") == module}

    @cache
    def of_value(function: ast.expr) -> _Model | None:
        try:
            name = own.get(id(source.evaluator.value(place_of(document, function), function)))
        except EvaluationError:
            name = None
        name = name or listed_name(function, own.values(), document, module.rpartition(".")[2])
        value = source.names.get(name or "")
        is_builder = is_module_class(value) and not is_loss(value) if isinstance(value, type) else callable(value)
        return (name, value, False) if name is not None and is_builder else None

    def found(function: ast.expr) -> _Model | None:
        return model_of(function) or (of_value(function) if function in computed[:_MAX_COMPUTED] else None)

    return found


def _siblings(
    source: Source, documents: Sequence[Document], factories: Factories, excluded: frozenset[str]
) -> Iterator[SiteModel]:
    """Examples of READMEs for a class of another file that has the name of one in the target and all of its keywords fit."""
    module_name = source.module.__name__
    classes = {
        name: value
        for name, value in source.names.items()
        if is_module_class(value) and value.__module__ == module_name and name not in excluded and not is_loss(value)
    }

    def model_of(function: ast.expr) -> _Model | None:
        name = last_name(function)
        return (name, classes[name], False) if name in classes else None

    for document in documents if classes else ():
        if document.kind != "readme":
            continue
        for model in _sites(document, model_of, factories, {}):
            words = {word.arg: None for word in model.site.call.keywords if word.arg is not None}
            if words and accepts(model.value, words) and not missing_arguments(model.value, words):
                yield replace(model, site=replace(model.site, role="sibling"))


_Model = tuple[str, Any, bool]  # name, value, whether a package defines it


def _own_model(function: ast.expr, names: dict[str, Any], factories: Factories) -> _Model | None:
    """The model that `function` of the target's text builds."""
    name = dotted_name(function)
    value = resolve_dotted(function, names.get) if name is not None else None
    if name is None or value is None:
        return None
    if is_module_class(value):
        is_library = _is_library(value.__module__)
        if (
            is_loss(value)
            or (is_library and takes_model(value))
            or (is_library and value.__module__.startswith("torch.nn.modules.loss"))
        ):
            return None
        return name, value, is_library
    if not isinstance(value, type) and factories.is_factory(value):
        return name, _bound_value(name, names), _is_library(attribute_of(value, "__module__", str, ""))
    return None


def _imported_model(
    function: ast.expr, lookup: Callable[[str, int], tuple[str, Any] | None], factories: Factories
) -> _Model | None:
    """The model of the target that `function` builds in another document."""
    name = dotted_name(function)
    match = lookup(name, function.lineno) if name is not None else None
    if match is None:
        return None
    own_name, value = match
    if (is_module_class(value) and not is_loss(value)) or (not isinstance(value, type) and factories.is_factory(value)):
        return own_name, value, False
    return None


def _bound_value(name: str, names: dict[str, Any]) -> Any:
    """The value of a dotted name, with methods bound to their class."""
    first, *attributes = name.split(".")
    value = names.get(first)
    for attribute in attributes:
        value = attribute_of(value, attribute, object)
    return value


def _is_library(module_name: str) -> bool:
    return module_name.split(".")[0] in (
        "torch",
        "torchvision",
        "timm",
        "transformers",
        "torchaudio",
        "torch_geometric",
    )


def _foreign_lookup(source: Source, document: Document) -> Callable[[str, int], tuple[str, Any] | None]:
    """A function from a dotted name and its line in `document` to the name and value in the target; None for other names."""
    names = source.names
    own = {name for name, value in names.items() if attribute_of(value, "__module__", str) == source.module.__name__}
    if source.file is None:
        aliases: list[tuple[int, str, str | None]] = []
        imports_all = document.kind == "docstring"
    else:
        aliases, imports_all = TargetNames(source.file).aliases(document.tree, document.path or source.file)
        imports_any = any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in all_nodes(document.tree))
        imports_all |= document.kind == "docstring" or (document.kind == "readme" and not imports_any)
    local = {node.name for node in document.tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    branches = [node for node in all_nodes(document.tree) if isinstance(node, ast.If)]
    conditional = {inner.lineno for node in branches for inner in ast.walk(node) if isinstance(inner, ast.ImportFrom)}

    def lookup(name: str, line: int) -> tuple[str, Any] | None:
        for import_line, prefix, target_name in aliases:  # the last import before the call is the valid one
            if import_line <= line and (name == prefix or name.startswith(f"{prefix}.")):
                if target_name is None:
                    if import_line in conditional:
                        continue  # one of several files that the program chooses from
                    return None
                suffix = name[len(prefix) :].lstrip(".")
                own_name = ".".join(part for part in (target_name, suffix) if part)
                value = _bound_value(own_name, names) if own_name else None
                return (own_name, value) if value is not None else None
        if imports_all and name in own and name not in local:
            return name, names[name]
        return None

    return lookup


def _sites(
    document: Document, model_of: Callable[[ast.expr], _Model | None], factories: Factories, names: dict[str, Any]
) -> Iterator[SiteModel]:
    entries: list[tuple[_Model, ast.Call, Place, SiteRole, str | None]] = []
    classes = own_classes(document)
    lambdas = [node for node in all_nodes(document.tree) if isinstance(node, ast.Lambda)]
    in_lambdas = {call for node in lambdas for call in calls_in(node)}
    for call in calls_in(document.tree):
        if call in in_lambdas:
            continue
        place = place_of(document, call)
        model = model_of(call.func)
        role, function = _role(place, factories, names)
        if model is None and document.kind == "target" and role not in ("factory", "module"):
            model = _unknown_model(call, place.statement, model_of, names)
        if model is not None:
            entries.append((model, call, place, role, function))
    for (name, value, is_library), call, place, role, function in entries:
        statement = place.statement
        variable = _variable(statement, call, classes)
        is_layer = role in ("factory", "module") or not (variable or "").removeprefix("self.").isidentifier()
        if is_library and (is_layer or not _is_outermost(call, statement, names)):
            continue  # a layer of a model
        is_part = any(
            other is not call
            and any(
                inner is call or (variable is not None and isinstance(inner, ast.Name) and inner.id == variable)
                for argument in (*other.args, *(word.value for word in other.keywords))
                for inner in _passed_values(argument)
            )
            for _, other, other_place, *_ in entries
            if other_place.scopes == place.scopes
        )
        site = CallSite(
            document=document, place=place, call=call, variable=variable, role=role, function=function, is_part=is_part
        )
        yield SiteModel(name=name, value=value, site=site, is_library=is_library)


def _unknown_model(
    call: ast.Call, statement: ast.stmt, model_of: Callable[[ast.expr], _Model | None], names: dict[str, Any]
) -> _Model | None:
    """The model that a call builds whose callee has no value, judged by the variable; None if a known call builds it."""
    if any(isinstance(inner, ast.Call) and model_of(inner.func) is not None for inner in inner_models(call)):
        return None
    variable = _variable(statement, call) if _is_outermost(call, statement, names) else None
    name = variable.removeprefix("self.") if variable is not None else ""
    if not _MODEL_VARIABLE.match(name) or _NO_MODEL.search(name) or _is_conversion(call):
        return None
    return ast.unparse(call.func), None, False


def _is_outermost(call: ast.Call, statement: ast.stmt, names: dict[str, Any]) -> bool:
    """Whether only conversions and known wrappers are around `call` in the value that `statement` assigns."""
    for _, value in assigned(statement):
        for inner in inner_models(value):
            if inner is call:
                return not takes_model(resolve_dotted(call.func, names.get)) and not is_conversion(call)
            if not isinstance(inner, ast.Call):
                continue
            if not is_conversion(inner) and not takes_model(resolve_dotted(inner.func, names.get)):
                break
    return False


def _passed_values(argument: ast.expr) -> Iterator[ast.expr]:
    """The argument, what it wraps, and the items of a list, tuple or dict."""
    if isinstance(argument, (ast.List, ast.Tuple, ast.Set)):
        for item in argument.elts:
            yield from _passed_values(item)
    elif isinstance(argument, ast.Dict):
        for item in argument.values:
            yield from _passed_values(item)
    else:
        yield from inner_models(argument)


def _is_conversion(call: ast.Call) -> bool:
    """Whether the call returns something else than a new model for a variable of that name: a loaded file, a copy."""
    return _NO_MODEL.search(last_name(call.func)) is not None or last_name(call.func) in (
        "load", "deepcopy", "copy", "Variable", "tensor", "load_model", "getattr", "super", "next", "iter", "len", "list", "dict",
        "add_argument", "join", "format", "str", "int", "float", "get", "pop", "train", "fit", "symbolic_trace",
        "import_module",
    )  # fmt: skip


def _variable(statement: ast.stmt, call: ast.Call, classes: frozenset[str] = frozenset()) -> str | None:
    """The name that `statement` assigns the result of `call` to: ``net`` of ``net = Net().cuda()``, ``self.net``.

    Calls of `classes` around it build other models.
    """
    for name, value in assigned(statement):
        if any(inner is call for inner in inner_models(value, classes)):
            return dotted_name(name)
    return None


def _role(place: Place, factories: Factories, names: dict[str, Any]) -> tuple[SiteRole, str | None]:
    scopes, tree = place.scopes, place.document.tree
    functions = [scope for scope in scopes if not isinstance(scope, ast.ClassDef)]
    function = functions[-1].name if functions else None
    if place.document.kind in ("docstring", "readme"):
        return "example", function
    classes = [scope for scope in scopes if isinstance(scope, ast.ClassDef)]
    if any(is_module_definition(scope, names) for scope in classes):
        return "module", function
    if classes:
        return "method", function
    if not functions:
        return ("main" if any(map(is_main_guard, ancestors(tree, place.statement))) else "script"), None
    if isinstance(functions[0], ast.FunctionDef) and factories.node_returns_model(functions[0], names.get):
        return "factory", functions[0].name
    return ("test" if _TEST_NAME.match(functions[0].name) else "function"), functions[0].name


def is_module_definition(node: ast.ClassDef, names: dict[str, Any]) -> bool:
    """Whether a class is one of modules: by its value, or because it defines forward or inherits from a ``*Module``."""
    if node.name in names:
        return is_module_class(names[node.name])
    bases = [last_name(base) for base in node.bases]
    return any(base.endswith("Module") for base in bases) or any(
        isinstance(item, ast.FunctionDef) and item.name == "forward" for item in node.body
    )

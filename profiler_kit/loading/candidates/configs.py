"""Values for a parameter that takes a whole configuration: ``config``, ``cfg``, ``args``."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from profiler_kit.foreign import attribute_of, attributes_of
from profiler_kit.loading.candidates.classes import is_module_class
from profiler_kit.loading.candidates.hyperparameters import stated_fields, stated_options
from profiler_kit.loading.candidates.plausible import (
    UNKNOWN,
    optional_attributes,
    paths_read,
    plausible_value,
    read_attributes,
)
from profiler_kit.loading.candidates.signatures import parameters
from profiler_kit.loading.candidates.sourced import sourced
from profiler_kit.loading.candidates.unknown import Unknown, note_read
from profiler_kit.loading.program.names import FunctionNode, attribute_paths, attributes_read, parameter_names
from profiler_kit.loading.program.places import Place
from profiler_kit.loading.program.reading import source_tree
from profiler_kit.loading.scripts.placeholders import Placeholder, label_of
from profiler_kit.loading.vocabulary import is_concept
from profiler_kit.user_code.reachable import object_attributes

_CONFIG_CLASS: Final = re.compile(
    r"(Config|Configuration|Conf|Cfg|Args|Arguments|Options|Opts|H[Pp]arams|Hyper[Pp]arameters|Params|Settings)$"
)
_DEFAULT_METHOD: Final = re.compile(r"_*(get_)?(default_)?(config|hparams|params|args)(uration)?(_default)?")


_MIN_FIELDS: Final = 3  # a tensor or a module has fewer attributes in a constructor
# Sizes that a script takes from its data set, so a configuration cannot have them.
DATA_FIELD: Final = re.compile(r"vocab|token|class|label|block_size|seq|len|channel|input|output|feature|pad", re.I)


def takes_config(parameter: inspect.Parameter, factory: Callable[..., Any]) -> bool:
    """Whether the parameter of `factory` takes a configuration, by its name, its annotation, or several fields that it has."""
    if is_config_parameter(parameter):
        return True
    return parameter.annotation is parameter.empty and len(read_attributes(factory, parameter.name)) >= _MIN_FIELDS


def is_config_parameter(parameter: inspect.Parameter) -> bool:
    """Whether the parameter takes a configuration, by its name or by the name of its annotation."""
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else attribute_of(annotation, "__name__", str, "")
    return bool(is_concept(parameter.name, "configuration") or _CONFIG_CLASS.search(text))


def configuration_names(place: Place) -> tuple[str, ...]:
    """The parameters that take configurations, of the functions around `place` and of the constructors of the classes around it.

    By their name, or because the document reads several attributes of them.
    """
    inside = [node for scope in place.scopes if isinstance(scope, ast.ClassDef) for node in scope.body]
    constructors = [node for node in inside if isinstance(node, FunctionNode) and node.name == "__init__"]
    readers = [scope for scope in place.scopes if isinstance(scope, FunctionNode)] + constructors
    names = dict.fromkeys(
        name
        for reader in readers
        for name in parameter_names(reader.args)[reader in inside :]  # without `self`
        if name not in {p.arg for p in (reader.args.vararg, reader.args.kwarg) if p is not None}
    )
    tree = place.document.tree
    return tuple(n for n in names if is_concept(n, "configuration") or len(attributes_read(tree, n)) >= _MIN_FIELDS)


def is_config(value: object) -> bool:
    """Whether `value` is a plain object with fields, and not a module, a class, a function or a container."""
    return (
        attributes_of(value) is not None and not callable(value) and not isinstance(value, (ModuleType, AssumedConfig))
    )


def fields_of(config: object) -> Mapping[str, Any]:
    """The fields of a configuration, which may be a mapping; of an assumed one also those that nothing has read."""
    if isinstance(config, AssumedConfig):
        return {**config.presets, **vars(config)}
    return config if isinstance(config, Mapping) else object_attributes(config)


def config_class_of(annotation: Any, names: Mapping[str, Any]) -> type | None:
    """The dataclass that the annotation of a parameter names: its fields are the configuration. None for others."""
    value = names.get(annotation.strip("'\"")) if isinstance(annotation, str) else annotation
    return value if isinstance(value, type) and is_dataclass(value) and not is_module_class(value) else None


def assumed_config(
    parameter: inspect.Parameter, factory: Callable[..., Any], names: Mapping[str, Any], file: Path | None = None
) -> Any:
    """A configuration for `factory`.

    From the annotated class, the default of the class (``get_default_config()``), the ``*Config`` class among `names`, the
    hyperparameters that a file in the repository of `file` states, or an object whose attributes have usual values.
    """
    for config_class in _config_classes(parameter, factory, names):
        config = _instance(config_class)
        if config is not UNKNOWN:
            return config
    for name, method in inspect.getmembers(factory, callable) if isinstance(factory, type) else ():
        if _DEFAULT_METHOD.fullmatch(name) and not parameters(method):
            config = method()
            if config is not None:
                with_usual_values(config, DATA_FIELD)
                return config
    presets: dict[str, Any] = {
        name: None
        for name in optional_attributes(factory, parameter.name)
        if plausible_value(name, {}) in (UNKNOWN, False)
    }
    if file is not None:
        presets |= stated_options(file, source_tree(inspect.getmodule(factory)), parameter.name)
    presets = with_nested(presets, paths_read(factory, parameter.name))
    for config_class in _config_classes(parameter, factory, names):
        presets |= {name: value for name, value in stated_fields(config_class).items() if value != 0 or value is False}
    return AssumedConfig(presets)


def stated_config(file: Path, tree: ast.AST, parameter: str) -> AssumedConfig:
    """The configuration that code in `tree` reads from `parameter`: what the repository of `file` states, else usual values."""
    return AssumedConfig(with_nested(stated_options(file, tree, parameter), attribute_paths(tree, parameter)))


def with_nested(
    presets: Mapping[str, Any], paths: Iterable[tuple[str, ...]], path: tuple[str, ...] = ()
) -> dict[str, Any]:
    """`presets` with a configuration inside for each attribute of which `paths` read attributes, if it has no plain value."""
    inner: dict[str, list[tuple[str, ...]]] = {}
    for name, *rest in paths:
        if rest:
            inner.setdefault(name, []).append(tuple(rest))
    tables = {name: presets.get(name) or {} for name in inner}
    return {
        **presets,
        **{
            name: AssumedConfig(with_nested(table, inner[name], (*path, name)), path=(*path, name))
            for name, table in tables.items()
            if isinstance(table, dict)
        },
    }


def _config_classes(
    parameter: inspect.Parameter, factory: Callable[..., Any], names: Mapping[str, Any]
) -> Iterator[type]:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotation = names.get(annotation.strip("'\""))
    is_class = isinstance(annotation, type) and annotation is not UNKNOWN and not is_module_class(annotation)
    if is_class and annotation.__module__ not in ("builtins", "argparse"):
        yield annotation
    prefix = re.sub(r"(Model|Net|Network|LMHeadModel)$", "", attribute_of(factory, "__name__", str, "")).lower()
    classes = [
        value
        for name, value in names.items()
        if isinstance(value, type) and _CONFIG_CLASS.search(name) and not is_module_class(value)
    ]
    yield from sorted(classes, key=lambda value: not value.__name__.lower().startswith(prefix))


def _instance(config_class: type) -> Any:
    """An instance with the defaults of the class, and usual values for fields without one; UNKNOWN if that fails."""
    values: dict[str, Any] = {}
    for parameter in parameters(config_class):
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        value = plausible_value(parameter.name, values, annotation=parameter.annotation)
        if value is UNKNOWN:
            return UNKNOWN
        values[parameter.name] = value
    try:
        config = config_class(**values)
        with_usual_values(config, unset=(-1,))
        return config
    except (TypeError, ValueError, AttributeError, KeyError, AssertionError):
        return UNKNOWN  # the next kind of configuration is tried


def with_usual_values(
    config: Any, names: re.Pattern[str] | None = None, unset: tuple[Any, ...] = (None,)
) -> tuple[str, ...]:
    """Give fields of `config` with a value in `unset`, or that are not available, the usual value of their name.

    `names`: only fields that this pattern matches. Returns the names of the changed fields. Items of a list that are not
    available have the name in the text that should give them.
    """
    if isinstance(config, list):
        missing = {index: label_of(item) for index, item in enumerate(config) if isinstance(item, Placeholder)}
        for index, name in missing.items():
            value = plausible_value(name, {})
            config[index] = Unknown((name,)) if value is UNKNOWN else value
        return tuple(missing.values())
    fields = config if isinstance(config, dict) else vars(config) if is_config(config) else {}
    changed: list[str] = []
    for name, current in list(fields.items()):
        is_missing = isinstance(current, Placeholder)
        is_unset = is_missing or any(current is value or (type(current) is int and current == value) for value in unset)
        if not is_unset or not isinstance(name, str) or (names is not None and names.search(name) is None):
            continue
        value = plausible_value(name, fields)
        if value is UNKNOWN and is_missing:
            value = Unknown((name,))
        if value is not UNKNOWN:
            with contextlib.suppress(AttributeError):  # a frozen dataclass
                if isinstance(config, dict):
                    config[name] = value
                else:
                    setattr(config, name, value)
                changed.append(name)
    return tuple(changed)


class AssumedConfig:
    """A configuration whose attributes and items are those of `presets`, else the usual values of their names, else unknown.

    Keeps those that were read. `path`: the names that lead to it from the outermost one. `known`: values of fields by their
    path, with dots, which earlier trials showed. `names_sources`: numbers that are only usual know the name of their field, as
    `SourcedInt`.
    """

    __slots__ = ("__dict__", "known", "names_sources", "path", "presets")

    def __init__(self, presets: Mapping[str, Any], *, path: tuple[str, ...] = ()) -> None:
        self.presets, self.path, self.known, self.names_sources = presets, path, dict[str, Any](), False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in AssumedConfig.__slots__:
            raise AttributeError(name)
        vars(self)[name] = value = self._value(name)
        return value

    def _value(self, name: str) -> Any:
        path = (*self.path, name)
        if name in self.presets:
            value = self.presets[name]
            return AssumedConfig(value, path=path) if self.path and isinstance(value, dict) else value
        note_read(path)
        value = self.known.get(".".join(path), UNKNOWN)
        value = plausible_value(name, vars(self)) if value is UNKNOWN else value
        if value is UNKNOWN:
            return Unknown(path, "field", self.known)
        return sourced(value, name) if self.names_sources else value

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError as error:
            raise KeyError(name) from error

    def __contains__(self, name: str) -> bool:
        return hasattr(self, name)

    def assume(self, values: Mapping[str, Any]) -> None:
        """Use `values`, by their path, for fields without a preset, also in the configurations inside."""
        self.known |= values
        for inner in self.presets.values():
            if isinstance(inner, AssumedConfig):
                inner.assume(values)

    def get(self, name: str, default: Any = None) -> Any:
        """The default that the code passes; without one, the usual value."""
        return getattr(self, name) if default is None else default

    def __repr__(self) -> str:
        return f"config({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

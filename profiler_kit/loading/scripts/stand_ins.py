"""Stand-ins for packages that are not installed: of configurations, of command lines, and of environments to learn in.

What a program needs of them to state its values is small: trees of values, YAML files, options with defaults, decorators, shapes.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import importlib.machinery
import inspect
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from profiler_kit.loading.scripts import environments
from profiler_kit.loading.scripts.settings import (
    Settings,
    composed,
    nested,
    parsed_settings,
    plain,
    read_settings,
    resolved,
)


def _nothing(*_: Any, **__: Any) -> None:
    """For functions that only have an effect."""


def _decorator(*args: Any, **__: Any) -> Any:
    """A decorator with or without arguments that returns the function itself."""
    if len(args) == 1 and inspect.isfunction(args[0]):
        return args[0]
    return lambda function: function


class _OmegaConf:
    @staticmethod
    def create(values: Any = None, **__: Any) -> Any:
        if isinstance(values, str):
            return resolved(parsed_settings(values))
        if dataclasses.is_dataclass(values):
            values = dataclasses.asdict(values() if isinstance(values, type) else values)
        return nested(values) if values is not None else Settings()

    structured = create

    @staticmethod
    def load(path: Any) -> Settings:
        return read_settings(path)

    @staticmethod
    def merge(*trees: Any) -> Settings:
        result = Settings()
        for tree in trees:
            result.merge(_OmegaConf.create(tree))
        return resolved(result)

    unsafe_merge = merge

    @staticmethod
    def to_container(tree: Any, *_: Any, **__: Any) -> Any:
        return plain(tree)

    to_object = to_container

    @staticmethod
    def to_yaml(tree: Any, *_: Any, **__: Any) -> str:
        return repr(plain(tree))

    @staticmethod
    def from_cli(*_: Any) -> Settings:
        return Settings()

    from_dotlist = from_cli

    @staticmethod
    def select(tree: Any, path: str, **words: Any) -> Any:
        for name in path.split("."):
            tree = tree.get(name) if isinstance(tree, Mapping) else None
        return words.get("default") if tree is None else tree

    @staticmethod
    def update(tree: Settings, path: str, value: Any, **__: Any) -> None:
        tree.set_path(path, value)

    @staticmethod
    def is_config(value: Any) -> bool:
        return isinstance(value, Settings)

    is_dict = is_config

    @staticmethod
    def is_list(value: Any) -> bool:
        return isinstance(value, list)

    set_struct = set_readonly = resolve = save = register_new_resolver = register_resolver = staticmethod(_nothing)


class _Flags:
    """The flags of absl: attributes with their defaults."""

    def __call__(self, *_: Any, **__: Any) -> list[str]:
        return []

    def flag_values_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class _Flag:
    def __init__(self, value: Any) -> None:
        self.value = self.default = value


def _absl_flags() -> dict[str, Any]:
    flags = _Flags()

    def define(name: str, default: Any = None, *_: Any, **__: Any) -> _Flag:
        setattr(flags, name, default)
        return _Flag(default)

    def define_file(name: str, default: Any = None, *_: Any, **__: Any) -> _Flag:
        is_file = isinstance(default, str) and Path(default).is_file()
        return define(name, runpy.run_path(str(default))["get_config"]() if is_file else Settings())

    kinds = ("string", "integer", "float", "boolean", "bool", "list", "multi_integer", "multi_string", "multi_float", "enum",
             "spaceseplist", "config_dict")  # fmt: skip
    functions: dict[str, Any] = {f"DEFINE_{kind}": define for kind in kinds}
    effects = ("mark_flag_as_required", "mark_flags_as_required", "register_validator")
    return functions | {"FLAGS": flags, "DEFINE_config_file": define_file} | dict.fromkeys(effects, _nothing)


class _ConfigParser(argparse.ArgumentParser):
    """The parser of configargparse, without configuration files."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        own = inspect.signature(argparse.ArgumentParser).parameters
        super().__init__(
            *args, **{key: value for key, value in kwargs.items() if key in own and key != "formatter_class"}
        )

    def add_argument(self, *args: Any, **kwargs: Any) -> Any:
        for word in ("is_config_file", "is_config_file_arg", "is_write_out_config_file_arg", "env_var"):
            kwargs.pop(word, None)
        return super().add_argument(*args, **kwargs)

    add = add_arg = add_argument


class _Tap:
    """Options as the annotated attributes of a class."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def parse_args(self, *_: Any, **__: Any) -> _Tap:
        return self

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in dir(self) if not name.startswith("_")}

    add_argument = configure = process_args = _nothing


class _Typer:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    command = callback = staticmethod(_decorator)
    __call__ = add_typer = _nothing


def _default(default: Any = None, *_: Any, **__: Any) -> Any:
    return None if default is ... else default


def _called(function: Callable[..., Any], *_: Any, **__: Any) -> Any:
    """What a command line without words makes of a class or function with options."""
    return function()


class _ConfigStore:
    @staticmethod
    def instance() -> _ConfigStore:
        return _ConfigStore()

    store = staticmethod(_nothing)


def _object(path: str) -> Any:
    """The class or function at a dotted path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _instantiated(config: Any, *args: Any, **words: Any) -> Any:
    """The object that ``_target_`` of a configuration names, with the other values as its arguments."""
    if not isinstance(config, Mapping) or "_target_" not in config:
        return config
    inner = {key: _instantiated(value) for key, value in {**config, **words}.items() if not str(key).startswith("_")}
    function = _object(str(config["_target_"]))
    if config.get("_partial_"):
        return lambda *more, **kwargs: function(*args, *more, **{**inner, **kwargs})
    return function(*args, **inner)


@contextlib.contextmanager
def _initialized(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _compose(config_name: str, *_: Any, **__: Any) -> Settings:
    folder = next((f for f in (Path("conf"), Path("configs"), Path("config")) if f.is_dir()), Path())
    return composed(folder, config_name)


def _click() -> dict[str, Any]:
    decorators = ("command", "group", "option", "argument", "pass_context", "pass_obj", "version_option", "help_option")
    types = ("Choice", "Path", "File", "IntRange", "FloatRange", "Tuple")
    return dict.fromkeys(decorators, _decorator) | dict.fromkeys((*types, "echo", "secho"), _nothing)


def _contents() -> dict[str, dict[str, Any]]:
    """The names of each module."""
    trees = {
        "easydict": ("EasyDict",), "addict": ("Dict",), "munch": ("Munch", "DefaultMunch", "munchify"), "box": ("Box",),
        "attrdict": ("AttrDict", "AttrMap"), "dotmap": ("DotMap",), "yacs.config": ("CfgNode",),
        "ml_collections": ("ConfigDict", "FrozenConfigDict"), "ml_collections.config_dict": ("ConfigDict", "FrozenConfigDict"),
    }  # fmt: skip
    contents = {module: dict.fromkeys(names, Settings) for module, names in trees.items()}
    hydra_utils = {
        "instantiate": _instantiated, "call": _instantiated, "get_class": _object, "get_method": _object,
        "get_object": _object, "get_original_cwd": lambda: str(Path.cwd()),
        "to_absolute_path": lambda path: str(Path.cwd() / path),
    }  # fmt: skip
    parsers: dict[str, Any] = dict.fromkeys(("ArgParser", "ArgumentParser", "Parser"), _ConfigParser)
    flags = _absl_flags()
    parsers |= {name: value for name, value in vars(argparse).items() if name[0].isupper() and name not in parsers}
    return contents | {
        "yacs": {}, "omegaconf": {
            "OmegaConf": _OmegaConf, "DictConfig": Settings, "ListConfig": list, "MISSING": "???",
            "open_dict": contextlib.nullcontext, "read_write": contextlib.nullcontext,
        },
        "omegaconf.dictconfig": {"DictConfig": Settings}, "omegaconf.listconfig": {"ListConfig": list},
        "hydra": {"main": _decorator, "initialize": _initialized, "compose": _compose}, "hydra.utils": hydra_utils,
        "hydra.core": {}, "hydra.core.config_store": {"ConfigStore": _ConfigStore},
        "ml_collections.config_flags": flags, "absl": {}, "absl.flags": flags,
        "absl.app": {"run": _nothing}, "absl.logging": dict.fromkeys(("info", "warning", "error", "set_verbosity"), _nothing),
        "configargparse": parsers, "fire": {"Fire": _nothing}, "click": _click(), "tyro": {"cli": _called},
        "typer": {"Typer": _Typer, "Option": _default, "Argument": _default, "run": _nothing, "echo": _nothing},
        "tap": {"Tap": _Tap},
        **environments.module_contents("gym"), **environments.module_contents("gymnasium"),
    }  # fmt: skip


class StandInFinder:
    """Finds the stand-ins of packages that no other finder has found. `packages` are those that were used."""

    def __init__(self) -> None:
        self._contents = _contents()
        self._modules: dict[str, ModuleType] = {}

    @property
    def packages(self) -> list[str]:
        """The packages that stand-ins were used for."""
        return [name for name in self._modules if "." not in name]

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The stand-in of a package, or of a module of a package that is a stand-in itself."""
        is_ours = path is None or name.partition(".")[0] in self._modules
        if name not in self._contents or not is_ours:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """A new module, or that of an earlier import."""
        return self._modules.setdefault(spec.name, ModuleType(spec.name))

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its names, and its modules."""
        for name, value in self._contents[module.__name__].items():
            module.__dict__.setdefault(name, value)
        for name in self._contents:
            package, _, last = name.rpartition(".")
            if package == module.__name__:
                setattr(module, last, importlib.import_module(name))

    def hide(self) -> None:
        """Let imports by other code fail again."""
        for name, module in self._modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]

"""Hyperparameters that a file of the repository states, for a model that takes them as one object."""

from __future__ import annotations

import ast
import configparser
import json
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.names import all_nodes, attribute_paths, calls_in, last_name
from profiler_kit.loading.program.reading import function_node, parsed_leniently
from profiler_kit.loading.program.repository import local_sources, repository_root
from profiler_kit.loading.scripts.settings import yaml_values

_CONSTRUCTORS: Final = {"int": int, "float": float, "str": str, "bool": bool}
_MIN_VALUES: Final = 4  # a call or dict with fewer values rarely is a configuration
_MIN_NAMES: Final = 2
_MAX_FILES: Final = 40
_MAX_BYTES: Final = 100_000
_CALCULATION: Final = (
    ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.operator, ast.unaryop,
    ast.expr_context,
)  # fmt: skip


def stated_options(file: Path, tree: ast.AST, parameter: str) -> dict[str, Any]:
    """The hyperparameters of the place that states the most of those that code in `tree` reads from `parameter`.

    A place is the parser of a script, a call with keywords, a dict, or a JSON or YAML file. Empty if no place in the repository
    of `file` states at least half of the hyperparameters.
    """
    read = attribute_paths(tree, parameter)
    return options_of_fullest_place(file, read)


def stated_arguments(file: Path, factory: str, names: Sequence[str]) -> dict[str, Any]:
    """The values for the parameters `names` of the class or function `factory` that a place in the repository states.

    The place is a dict, a call or a table in a JSON or YAML file that names `factory`, as in ``type: ResNet`` or
    ``_target_: models.ResNet``, else the place with the most of the names, at least half of them and two.
    """
    places = chain.from_iterable(_stated(tree) for tree in _trees(file, {factory}, least=1))
    named = (options for options in chain(places, _file_objects(repository_root(file))) if _names(options, factory))
    read = {(name,) for name in names}
    options = _fullest(chain.from_iterable(map(_with_inner, named)), read)
    if not _found(options, read) and len(names) >= _MIN_NAMES:
        options = options_of_fullest_place(file, read)
    return {name: options[name] for name in names if name in options}


def program_options(file: Path, documents: Iterable[Document]) -> dict[str, Any]:
    """The options of the repository's programs with their defaults: those of `documents` first, then of the files near `file`."""
    options: dict[str, Any] = {}
    trees = (document.tree for document in documents if document.kind in ("target", "importer"))
    for tree in chain(trees, _trees(file, {"add_argument"}, least=1)):
        options = _parser_options(tree) | options
    return options


def options_of_fullest_place(file: Path, read: Set[tuple[str, ...]]) -> dict[str, Any]:
    """The values of the place that states the most of the paths `read`; empty if none states half of them."""
    words = {path[-1] for path in read}
    places = chain.from_iterable(_stated(tree) for tree in _trees(file, words, least=len(words) / 2))
    best = _fullest(chain(places, _file_objects(repository_root(file))), read) if read else {}
    return best if 2 * _found(best, read) >= len(read) else {}


def _trees(file: Path, words: Set[str], least: float) -> Iterator[ast.Module]:
    """The Python files of the repository whose text contains at least `least` of `words`: others are not parsed."""
    for _, text in local_sources(file, repository_root(file)):
        if sum(word.replace("_", "-") in text or word in text for word in words) >= max(least, 1):
            tree = parsed_leniently(text)
            if tree is not None:
                yield tree


def _names(options: dict[str, Any], factory: str) -> bool:
    """Whether a value of `options` is the name of `factory`, with or without the modules before it."""
    return any(isinstance(value, str) and value.rpartition(".")[2] == factory for value in options.values())


def _with_inner(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`options`, and the tables in it, such as ``params``."""
    yield options
    yield from (value for value in options.values() if isinstance(value, dict))


def _fullest(places: Iterable[dict[str, Any]], read: Set[tuple[str, ...]]) -> dict[str, Any]:
    """The first of `places` that states the most of what is read; empty without places."""
    return max(places, key=lambda options: _found(options, read), default={})


def _found(options: dict[str, Any], read: Set[tuple[str, ...]]) -> int:
    return sum(_has(options, path) for path in read)


def _has(options: object, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(options, dict) or name not in options:
            return False
        options = options[name]
    return True


def stated_fields(config_class: type) -> dict[str, Any]:
    """The fields that the constructor of a configuration sets to constants: ``self.width = 64``.

    Of a conditional value, the alternative that is constant.
    """
    node = function_node(config_class)
    fields: dict[str, ast.expr] = {}
    for inner in all_nodes(node) if node is not None else ():
        if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Attribute):
            value = inner.value
            choices = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
            constant = next((choice for choice in choices if _is_calculation(choice)), None)
            if constant is not None and ast.unparse(inner.targets[0].value) == "self":
                fields[inner.targets[0].attr] = constant
    return _values(fields)


def _file_objects(root: Path) -> Iterator[dict[str, Any]]:
    """The objects in small files of configurations in the folders of the repository, and the objects in these."""
    files = (
        path
        for depth in ("", "*/", "*/*/", "*/*/*/")
        for kind in _READERS
        for path in sorted(root.glob(f"{depth}*{kind}"))
    )
    for path in islice(files, _MAX_FILES):
        try:
            content = path.read_bytes() if path.stat().st_size <= _MAX_BYTES else b"{}"
            value = _READERS[path.suffix](content)
        except (OSError, ValueError, RecursionError, configparser.Error):
            continue  # not readable, or of another format
        pending, visited = [value], set[int]()
        for item in pending:
            if isinstance(item, dict) and id(item) not in visited:  # an alias of YAML may lead back to its own table
                visited.add(id(item))
                yield item
                pending += item.values()


def _section_values(content: bytes) -> dict[str, dict[str, Any]]:
    """The sections of an INI file, with the values that its texts are literals of: ``sizes=80,60`` is a tuple."""
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign] # names differ by case
    parser.read_string(content.decode())
    return {name: {key: _literal(text) for key, text in parser.items(name)} for name in parser.sections()}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.split(",") if "," in text else text


_READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    ".json": json.loads,
    ".yaml": yaml_values,
    ".yml": yaml_values,
    ".cfg": _section_values,
    ".ini": _section_values,
}


def _stated(tree: ast.Module) -> Iterator[dict[str, Any]]:
    """The option defaults of the file's parsers, and the keywords or keys of each call and dict of several values."""
    for node in all_nodes(tree):
        if isinstance(node, ast.Call):
            words = _words(node)
            if len(words) >= _MIN_VALUES and last_name(node.func) != "add_argument":
                yield _values(words)
        elif isinstance(node, ast.Dict) and len(node.keys) >= _MIN_VALUES:
            pairs = zip(node.keys, node.values, strict=True)
            yield _values({str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)})
    yield _parser_options(tree)


def _parser_options(tree: ast.Module) -> dict[str, Any]:
    """The options of the parsers in `tree`, with their defaults."""
    calls = (call for call in calls_in(tree) if last_name(call.func) == "add_argument")
    return {name: value for call in calls for name, value in _option(call).items()}


def _words(call: ast.Call) -> dict[str, ast.expr]:
    return {word.arg: word.value for word in call.keywords if word.arg is not None}


def _option(call: ast.Call) -> dict[str, Any]:
    """The attribute and the default of a command-line option; empty if it has none without running the script."""
    words = _words(call)
    name, action, default = _name(call, words), words.get("action"), words.get("default")
    if name is None:
        return {}
    if default is not None:
        return _values({name: default})
    is_switch = isinstance(action, ast.Constant) and action.value in ("store_true", "store_false")
    return {name: action.value == "store_false"} if is_switch and isinstance(action, ast.Constant) else {}


def _values(expressions: dict[str, ast.expr]) -> dict[str, Any]:
    """The values of `expressions` that are calculations with constants; without those that are None."""
    values: dict[str, Any] = {}
    for name, expression in expressions.items():
        if not _is_calculation(expression):
            continue
        try:
            code = compile(ast.Expression(body=expression), "<value>", "eval")
            values[name] = eval(code, {"__builtins__": _CONSTRUCTORS}, {})  # noqa: S307  # numbers and texts only
        except (ArithmeticError, LookupError, NameError, TypeError, ValueError):
            continue  # depends on the script
    return {name: value for name, value in values.items() if value is not None}


def _is_calculation(expression: ast.expr) -> bool:
    return all(isinstance(inner, _CALCULATION) for inner in all_nodes(expression))


def _name(call: ast.Call, words: dict[str, ast.expr]) -> str | None:
    """The attribute that an option sets: its `dest`, else its first long name; None if the text does not say it."""
    dest = words.get("dest")
    flags = [flag.value for flag in call.args if isinstance(flag, ast.Constant) and isinstance(flag.value, str)]
    if isinstance(dest, ast.Constant):
        return str(dest.value)
    name = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else None)
    return name.lstrip("-").replace("-", "_") if name is not None else None

"""Trees of values with attributes, and the files that they are read from: YAML with defaults lists and interpolations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

_REFERENCE: Final = re.compile(r"\$\{([\w.]+)\}")
_PACKAGE: Final = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)
_SUFFIXES: Final = (".yaml", ".yml")


class Settings(dict[Any, Any]):
    """A tree of values whose items are attributes too, and whose methods are those of the usual packages of configurations.

    It stands for CfgNode, DictConfig, EasyDict, ConfigDict, Munch and Box.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.update(*args, **kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, nested(value))

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set items."""
        values = args[0] if args and args[0] is not None else {}
        for key, value in dict(values, **kwargs).items():
            self[key] = value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The item `key`, which is set to `default` if it is missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def merge(self, other: Mapping[Any, Any]) -> Settings:
        """Set the items of `other`; where both have a tree, merge the trees. Returns itself."""
        for key, value in other.items():
            mine = self.get(key)
            if isinstance(mine, Settings) and isinstance(value, Mapping):
                mine.merge(value)
            else:
                self[key] = deepcopy(value)
        return self

    merge_from_other_cfg = merge_update = merge

    def merge_from_file(self, path: Any) -> None:
        """Merge the YAML file at `path`."""
        self.merge(read_settings(path))

    def merge_from_list(self, words: Iterable[Any]) -> None:
        """Set ``["a.b", value, ...]``."""
        items = list(words)
        for path, value in zip(items[::2], items[1::2], strict=False):
            self.set_path(str(path), value)

    def set_path(self, path: str, value: Any) -> None:
        """Set the item at the dotted `path`."""
        *parents, last = path.split(".")
        tree = self
        for parent in parents:
            tree = tree.setdefault(parent, Settings())
        tree[last] = value

    def clone(self) -> Settings:
        """A copy with copies of the trees inside."""
        return deepcopy(self)

    copy = copy_and_resolve_references = clone

    def freeze(self, *_: Any, **__: Any) -> None:
        """Nothing: a program that changes a frozen configuration fails elsewhere."""

    defrost = lock = unlock = set_new_allowed = register_deprecated_key = register_renamed_key = freeze

    def is_frozen(self) -> bool:
        """False."""
        return False

    @contextmanager
    def unlocked(self) -> Iterator[Settings]:
        """The tree itself."""
        yield self

    def to_dict(self) -> dict[Any, Any]:
        """The values in plain dicts and lists."""
        return plain(self)  # type: ignore[no-any-return]

    toDict = todict = to_dict  # noqa: N815  names of the packages

    def dump(self, *_: Any, **__: Any) -> str:
        """The values as text."""
        return repr(self.to_dict())


def nested(value: Any) -> Any:
    """`value` with trees for the dicts in it; a tree is itself."""
    if isinstance(value, Mapping) and not isinstance(value, Settings):
        return Settings(value)
    if type(value) in (list, tuple):
        return type(value)(nested(item) for item in value)
    return value


def plain(value: Any) -> Any:
    """`value` with dicts for the trees in it."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def read_settings(path: Any) -> Settings:
    """The tree of a YAML or JSON file, of all its documents. Raises OSError, ValueError."""
    text = path.read() if hasattr(path, "read") else Path(path).read_text(encoding="utf-8")
    return resolved(parsed_settings(text))


def parsed_settings(text: str) -> Settings:
    """The tree that `text` states in YAML, without its references resolved. Raises ValueError."""
    return Settings(yaml_values(text))


def yaml_values(text: str | bytes) -> dict[Any, Any]:
    """The values that `text` states in YAML; of several documents, all tables as one. Raises ValueError."""
    import yaml

    try:
        documents = list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    return {key: value for table in documents if isinstance(table, dict) for key, value in table.items()}


def composed(folder: Path, name: str) -> Settings:
    """The configuration `name` of `folder`, with the files that its ``defaults`` lists, as Hydra composes them.

    Overrides and settings of Hydra itself are left out. Raises OSError, ValueError.
    """
    return resolved(_composed(folder, name, Path(), set()))


def _composed(root: Path, name: str, group: Path, opened: set[Path]) -> Settings:
    """`name` in the folder `group` of `root`, with its defaults before it; each file is opened once on a path."""
    file = next((f for f in _files(root / group, name) if f.is_file()), None)
    if file is None:
        raise FileNotFoundError(f"no configuration {group / name} in {root}")
    if file in opened:
        return Settings()
    text = file.read_text(encoding="utf-8")
    own = parsed_settings(text)
    result = Settings()
    for path, part in _defaults(own.pop("defaults", None) or []):
        folder = Path(path.lstrip("/")) if path.startswith("/") else group / path
        try:
            inner = _composed(root, part, folder, opened | {file})
        except FileNotFoundError:
            continue  # optional, or of a package
        result.merge(inner if not path or folder == group else _below(_package(path), inner))
    result.merge(own)
    package = _PACKAGE.search(text)
    return _below(package[1].removeprefix("_global_").strip("."), result) if package is not None else result


def _files(folder: Path, name: str) -> Iterator[Path]:
    yield folder / name if name.endswith(_SUFFIXES) else folder / f"{name}.yaml"
    yield folder / f"{name}.yml"


def _defaults(items: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """(group, name) of each item of a defaults list: ``model: resnet`` or ``base``."""
    for item in items:
        if isinstance(item, str) and item != "_self_":
            path, _, part = item.rpartition("/")
            yield path, part
        elif isinstance(item, Mapping):
            for key, value in item.items():
                words = str(key).split()
                if isinstance(value, str) and "override" not in words and words:
                    yield words[-1], value


def _package(path: str) -> str:
    """Where the values of a group go: ``db`` for ``schema/db@db``, else the group itself."""
    group, at, package = path.strip("/").partition("@")
    return "" if at and package == "_global_" else (package if at else group.replace("/", "."))


def _below(package: str, values: Settings) -> Settings:
    result = Settings()
    if not package:
        return values
    result.set_path(package, values)
    return result


def resolved(tree: Settings) -> Settings:
    """`tree` with the values that its references ``${a.b}`` name; references to nothing stay text."""
    _resolve(tree, tree)
    return tree


def _resolve(value: Any, root: Settings) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        if isinstance(item, str) and "${" in item:
            value[key] = _substituted(item, root, 0)
        else:
            _resolve(item, root)


def _substituted(text: str, root: Settings, depth: int) -> Any:
    whole = _REFERENCE.fullmatch(text)
    found = _at(root, whole[1]) if whole is not None else None
    if found is not None:
        return _substituted(found, root, depth + 1) if isinstance(found, str) and depth < 8 else found
    return _REFERENCE.sub(lambda match: str(match[0] if (v := _at(root, match[1])) is None else v), text)


def _at(root: Settings, path: str) -> Any:
    value: Any = root
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value

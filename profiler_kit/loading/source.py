"""TARGET text to an imported module: the file is found, imported once, watched, and everything it touches put back."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.loading.command import next_line, plain_line
from profiler_kit.loading.importing import import_failure, watchdog
from profiler_kit.loading.place import is_users, shown
from profiler_kit.loading.surroundings import seeded, user_code
from profiler_kit.records.target import TargetSpec

# Modules that earlier loads brought in. A later load whose folder holds files of the same names drops them first, so that
# two folders may each have a `layers.py`, and a target that was edited is read anew.
_brought: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An imported target: its module, its file and syntax tree (None where it has none), the attribute asked for.

    `is_fresh` says that this load imported it, so that nobody else holds what its globals hold; `brought` are the modules
    that came with it, `flags` the torch flags that its import set and that were put back.
    """

    spec: TargetSpec
    module: ModuleType
    file: Path | None
    tree: ast.Module | None
    folders: tuple[Path, ...]
    attr: str | None
    is_fresh: bool
    brought: frozenset[str]
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file as a user would write it, or the module's dotted name."""
        is_file = self.file is not None and self.spec.spec.split(":")[0].endswith(".py")
        return self.at(None) if is_file else self.module.__name__

    def at(self, line: int | None) -> str:
        """``net.py:41``; the file alone when the line is not known."""
        place = shown(self.file) if self.file is not None else self.module.__name__
        return place if line is None else f"{place}:{line}"


def open_source(spec: TargetSpec) -> Source:
    """Imports the target that `spec` names. Raises TargetError or UsageError."""
    text = spec.spec
    if not text:
        raise UsageError("no target", hint=plain_line(spec, "my_model.py"))
    place, colon, attr = (
        (text, "", "") if Path(text).exists() else text.rpartition(":") if ":" in text else (text, "", "")
    )
    if colon and not all(part.isidentifier() for part in attr.split(".")):
        raise UsageError(
            f"{text}: {attr!r} is no name", hint=f"name a class, function or module: {plain_line(spec, f'{place}:Net')}"
        )
    if not place:
        raise UsageError(f"{text}: no file before the colon", hint=plain_line(spec, f"my_model.py:{attr}"))
    if place.endswith(".py") or Path(place).exists() or "/" in place:
        return open_file(spec, Path(place), attr or None)
    return _open_module(spec, place, attr or None)


def open_file(spec: TargetSpec, path: Path, attr: str | None, beside: Source | None = None) -> Source:
    """Imports the file at `path`, under its package's name when it lies in one; what came with `beside` is shared.

    Raises TargetError.
    """
    text = str(path)
    if path.is_dir():
        inside = sorted(path.glob("*.py"))
        example = inside[0] if inside else path / "my_model.py"
        raise TargetError("is a folder, not a Python file", where=text, hint=next_line(spec, target=str(example)))
    if not path.is_file():
        names = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, names, n=1)
        hint = f"give the path of a Python file: {plain_line(spec, 'my_model.py')}"
        if close:
            hint = next_line(spec, target=str(path.parent / close[0]))
        raise TargetError("no such file", where=text, hint=hint)
    if path.suffix != ".py":
        raise TargetError(
            "is not a Python file",
            where=text,
            hint=f"give the file that defines the model: {plain_line(spec, 'my_model.py')}",
        )
    file = path.resolve()
    tree = _parse(file)
    root, name = _package(file)
    in_package = root != file.parent or file.name == "__init__.py"
    folders = tuple(dict.fromkeys(folder.resolve() for folder in (root, file.parent, Path.cwd())))
    _drop_earlier(folders, beside.brought if beside is not None else frozenset())
    if in_package:
        _refuse_foreign(spec, name.split(".")[0], root)
        is_fresh = name not in sys.modules
    else:
        name, is_fresh = _free_name(name, file), True
    load = partial(importlib.import_module, name) if in_package else partial(_execute, name, file)
    module, brought, flags = _import(spec, load, file, text, folders)
    return Source(
        spec=spec, module=module, file=file, tree=tree, folders=folders, attr=attr,
        is_fresh=is_fresh, brought=brought, flags=flags,
    )  # fmt: skip


def _import(
    spec: TargetSpec, load: Callable[[], ModuleType], file: Path | None, argv0: str, folders: tuple[Path, ...]
) -> tuple[ModuleType, frozenset[str], tuple[str, ...]]:
    """What `load` imports, the modules that came with it, and the torch flags that it set. Raises TargetError."""
    before = set(sys.modules)
    with user_code(folders, argv0) as flags, seeded(spec.seed):
        try:
            with watchdog(spec, file):
                module = load()
        except KitError:
            raise
        except (Exception, SystemExit) as error:
            raise import_failure(spec, file, error) from error
        finally:
            brought = _remember(before, folders)
    return module, brought, tuple(flags)


def _open_module(spec: TargetSpec, name: str, attr: str | None) -> Source:
    if attr is None and Path(f"{name}.py").is_file():
        raise TargetError("no such file", where=name, hint=next_line(spec, target=f"{name}.py"))
    if attr is None or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(
            f"{spec.spec} is neither file.py, file.py:attr nor pkg.mod:attr", hint=next_line(spec, target=f"{name}:Net")
        )
    folders = (Path.cwd(),)
    _drop_earlier(folders, frozenset())
    is_fresh = name not in sys.modules
    module, brought, flags = _import(spec, partial(importlib.import_module, name), None, name, folders)
    origin = getattr(module, "__file__", None)
    file = Path(origin).resolve() if origin else None
    tree = _parse(file) if file is not None and file.suffix == ".py" else None
    return Source(
        spec=spec, module=module, file=file, tree=tree, folders=folders, attr=attr,
        is_fresh=is_fresh, brought=brought, flags=flags,
    )  # fmt: skip


def _parse(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as error:
        raise TargetError(
            f"syntax error: {error.msg}",
            where=shown(file) if error.lineno is None else f"{shown(file)}:{error.lineno}",
            hint=f"see it in full: {sys.executable} {shown(file)}",
        ) from error
    except (OSError, ValueError) as error:
        raise TargetError(f"cannot be read: {error}", where=shown(file), hint="give a Python file in UTF-8") from error


def _package(file: Path) -> tuple[Path, str]:
    """(folder to put on sys.path, dotted module name) of `file`, by walking up while there is an ``__init__.py``."""
    parts = [] if file.name == "__init__.py" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier() and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    if len(parts) > 1 and not file.stem.isidentifier():
        return file.parent, file.stem  # pkg/my-net.py: no module of the package can have that name
    return folder, ".".join(parts)


def _free_name(stem: str, file: Path) -> str:
    """`stem`, so that pickles of its classes can be read where the folder is on the path, unless the name is taken."""
    if stem.isidentifier() and stem not in sys.modules and stem not in sys.stdlib_module_names:
        return stem
    return f"target_{''.join(c if c.isalnum() else '_' for c in stem)}_{zlib.crc32(str(file).encode()):08x}"


def _execute(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"no loader for {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look it up while the body runs
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _refuse_foreign(spec: TargetSpec, top: str, root: Path) -> None:
    present = sys.modules.get(top)
    if present is None:
        return
    homes = [Path(p).resolve() for p in getattr(present, "__path__", [])]
    if root / top not in homes:
        raise TargetError(
            f"package {top!r} is already imported from {', '.join(map(str, homes)) or 'elsewhere'}",
            where=str(root / top),
            hint=f"in a process of its own: {next_line(spec)}",
        )


def _drop_earlier(folders: tuple[Path, ...], keep: frozenset[str]) -> None:
    for name in sorted(_brought - keep):
        top = name.split(".")[0]
        if any((folder / f"{top}.py").exists() or (folder / top).is_dir() for folder in folders):
            sys.modules.pop(name, None)
            _brought.discard(name)


def _remember(before: set[str], folders: tuple[Path, ...]) -> frozenset[str]:
    """The names of the modules that were imported since `before` and lie in `folders`; they are kept in `_brought`."""
    found = set()
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
        if any(
            place and is_users(place) and Path(place).resolve().is_relative_to(f) for place in places for f in folders
        ):
            found.add(name)
    _brought.update(found)
    return frozenset(found)

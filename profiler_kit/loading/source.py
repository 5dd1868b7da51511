"""Imports the module of a TARGET text, with a time limit, and restores the interpreter state that the import changes."""

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
from profiler_kit.loading.command import bare_command, next_command
from profiler_kit.loading.import_errors import import_failure, watchdog
from profiler_kit.loading.syntax import definition_lines
from profiler_kit.loading.user_environment import seeded, user_code
from profiler_kit.loading.user_locations import display_path, is_user_code
from profiler_kit.records.target import TargetSpec

# Modules imported by earlier loads. A later load from a folder with files of the same names removes them first, so that two
# folders may both contain a `layers.py`, and an edited target is imported again.
_imported_modules: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An imported target: its module, its file and syntax tree (None without them), and the requested attribute.

    `is_fresh`: this load imported it, so no other code shares its globals. `imported` are the modules imported with it;
    `flags` are the cuDNN flags that the import set, which were reset.
    """

    spec: TargetSpec
    module: ModuleType
    file: Path | None
    tree: ast.Module | None
    folders: tuple[Path, ...]
    attr: str | None
    is_fresh: bool
    imported: frozenset[str]
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file as a user would type it, or the module's dotted name."""
        is_file = self.file is not None and self.spec.spec.split(":")[0].endswith(".py")
        return self.at(None) if is_file else self.module.__name__

    def line_of(self, name: str) -> int | None:
        """The line where the file defines `name`; None without one."""
        return definition_lines(self.tree).get(name) if self.tree is not None else None

    def at(self, line: int | None) -> str:
        """The location ``net.py:41``; the file alone if `line` is None."""
        place = display_path(self.file) if self.file is not None else self.module.__name__
        return place if line is None else f"{place}:{line}"


def open_source(spec: TargetSpec) -> Source:
    """Import the target of `spec`. Raises TargetError or UsageError."""
    text = spec.spec
    if not text:
        raise UsageError("no target given", hint=bare_command(spec, "my_model.py"))
    location, colon, attr = (
        (text, "", "") if Path(text).exists() else text.rpartition(":") if ":" in text else (text, "", "")
    )
    if colon and not all(part.isidentifier() for part in attr.split(".")):
        raise UsageError(
            f"{text}: {attr!r} is not a name",
            hint=f"use the name of a class, function or model: {bare_command(spec, f'{location}:Net')}",
        )
    if not location:
        raise UsageError(f"{text}: no file before the colon", hint=bare_command(spec, f"my_model.py:{attr}"))
    if location.endswith(".py") or Path(location).exists() or "/" in location:
        return open_file(spec, Path(location), attr or None)
    return _open_module(spec, location, attr or None)


def open_file(spec: TargetSpec, path: Path, attr: str | None, companion: Source | None = None) -> Source:
    """Import the file at `path`, under its package's name if it is part of a package. Raises TargetError.

    Modules that were imported together with `companion` are shared.
    """
    text = str(path)
    if path.is_dir():
        files = sorted(path.glob("*.py"))
        example = files[0] if files else path / "my_model.py"
        raise TargetError("a folder, not a Python file", where=text, hint=next_command(spec, target=str(example)))
    if not path.is_file():
        names = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        matches = difflib.get_close_matches(path.name, names, n=1)
        hint = f"use the path of a Python file: {bare_command(spec, 'my_model.py')}"
        if matches:
            hint = next_command(spec, target=str(path.parent / matches[0]))
        raise TargetError("no such file", where=text, hint=hint)
    if path.suffix != ".py":
        raise TargetError(
            "not a Python file",
            where=text,
            hint=f"use the file that defines the model: {bare_command(spec, 'my_model.py')}",
        )
    file = path.resolve()
    tree = _parse(file)
    root, name = _package(file)
    in_package = root != file.parent or file.name == "__init__.py"
    folders = tuple(dict.fromkeys(folder.resolve() for folder in (root, file.parent, Path.cwd())))
    _drop_earlier_imports(folders, companion.imported if companion is not None else frozenset())
    if in_package:
        _reject_other_package(spec, name.split(".")[0], root)
        is_fresh = name not in sys.modules
    else:
        name, is_fresh = _free_name(name, file), True
    load = partial(importlib.import_module, name) if in_package else partial(_execute, name, file)
    module, imported, flags = _import(spec, load, file, text, folders)
    return Source(
        spec=spec, module=module, file=file, tree=tree, folders=folders, attr=attr,
        is_fresh=is_fresh, imported=imported, flags=flags,
    )  # fmt: skip


def _import(
    spec: TargetSpec, load: Callable[[], ModuleType], file: Path | None, argv0: str, folders: tuple[Path, ...]
) -> tuple[ModuleType, frozenset[str], tuple[str, ...]]:
    """Call `load`, and return its module, all newly imported modules, and the cuDNN flags that it set. Raises TargetError."""
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
            imported = _record_imports(before, folders)
    return module, imported, tuple(flags)


def _open_module(spec: TargetSpec, name: str, attr: str | None) -> Source:
    if attr is None and Path(f"{name}.py").is_file():
        raise TargetError("no such file", where=name, hint=next_command(spec, target=f"{name}.py"))
    if attr is None or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(
            f"{spec.spec} is not of the form file.py, file.py:NAME or package.module:NAME",
            hint=next_command(spec, target=f"{name}:Net"),
        )
    folders = (Path.cwd(),)
    _drop_earlier_imports(folders, frozenset())
    is_fresh = name not in sys.modules
    module, imported, flags = _import(spec, partial(importlib.import_module, name), None, name, folders)
    origin = getattr(module, "__file__", None)
    file = Path(origin).resolve() if origin else None
    tree = _parse(file) if file is not None and file.suffix == ".py" else None
    return Source(
        spec=spec, module=module, file=file, tree=tree, folders=folders, attr=attr,
        is_fresh=is_fresh, imported=imported, flags=flags,
    )  # fmt: skip


def _parse(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as error:
        raise TargetError(
            f"syntax error: {error.msg}",
            where=display_path(file) if error.lineno is None else f"{display_path(file)}:{error.lineno}",
            hint=f"for the full error, run {sys.executable} {display_path(file)}",
        ) from error
    except (OSError, ValueError) as error:
        raise TargetError(
            f"cannot read this file: {error}", where=display_path(file), hint="use a Python file in UTF-8"
        ) from error


def _package(file: Path) -> tuple[Path, str]:
    """(folder for sys.path, dotted module name) of `file`: its package is the chain of folders with an ``__init__.py``."""
    parts = [] if file.name == "__init__.py" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier() and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    if len(parts) > 1 and not file.stem.isidentifier():
        return file.parent, file.stem  # pkg/my-net.py cannot be a module of the package
    return folder, ".".join(parts)


def _free_name(stem: str, file: Path) -> str:
    """A module name: `stem`, so that pickles of its classes can be loaded, or a unique name if `stem` is already in use."""
    if stem.isidentifier() and stem not in sys.modules and stem not in sys.stdlib_module_names:
        return stem
    return f"target_{''.join(c if c.isalnum() else '_' for c in stem)}_{zlib.crc32(str(file).encode()):08x}"


def _execute(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"no loader for {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look it up during execution
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _reject_other_package(spec: TargetSpec, top: str, root: Path) -> None:
    module = sys.modules.get(top)
    if module is None:
        return
    folders = [Path(p).resolve() for p in getattr(module, "__path__", [])]
    if root / top not in folders:
        raise TargetError(
            f"package {top!r} is already imported from {', '.join(map(str, folders)) or 'another place'}",
            where=str(root / top),
            hint=f"use a separate process: {next_command(spec)}",
        )


def _drop_earlier_imports(folders: tuple[Path, ...], keep: frozenset[str]) -> None:
    for name in sorted(_imported_modules - keep):
        top = name.split(".")[0]
        if any((folder / f"{top}.py").exists() or (folder / top).is_dir() for folder in folders):
            sys.modules.pop(name, None)
            _imported_modules.discard(name)


def _record_imports(before: set[str], folders: tuple[Path, ...]) -> frozenset[str]:
    """Names of the modules in `folders` that were imported since `before`; also adds them to `_imported_modules`."""
    names = set()
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
        if any(
            place and is_user_code(place) and Path(place).resolve().is_relative_to(f)
            for place in places
            for f in folders
        ):
            names.add(name)
    _imported_modules.update(names)
    return frozenset(names)

"""Imports the module of a TARGET text, with a time limit, and restores the interpreter state that the import changes."""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from profiler_kit.command_lines import file_command, kit_command
from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.foreign import attribute_of, has_class, module_places
from profiler_kit.loading.command import next_command
from profiler_kit.loading.program.definitions import definition_lines, nearby_models
from profiler_kit.loading.program.documents import Document, find_documents
from profiler_kit.loading.program.names import all_nodes
from profiler_kit.loading.program.repository import MAX_LEVELS
from profiler_kit.loading.scripts.execution import Evaluator
from profiler_kit.loading.scripts.import_errors import import_failure, watchdog
from profiler_kit.loading.scripts.importing import ImportSession, execute_file
from profiler_kit.loading.scripts.isolation import isolated
from profiler_kit.loading.scripts.placeholders import Placeholder
from profiler_kit.loading.scripts.runner import Failure
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code.environment import seeded, user_code
from profiler_kit.user_code.interpreter_state import drop_earlier_imports, record_imports
from profiler_kit.user_code.locations import display_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An imported target: its module, its file and syntax tree (None without them), and the requested attribute.

    `is_fresh`: this load imported it, so no other code shares its globals. `imported` are the modules imported with it;
    `flags` are the cuDNN flags that the import set, which were reset. `notes` are replacements and assumptions of the import.
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
    session: ImportSession
    evaluator: Evaluator
    notes: tuple[str, ...] = ()

    @property
    def documents(self) -> tuple[Document, ...]:
        """The texts that may show how the model is built and used: this file first. Found on first use."""
        return self.evaluator.documents()

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The statements of this file that were to run but failed, in order."""
        run = self.session.runs.get(self.file) if self.file is not None else None
        return tuple(run.failures) if run is not None else ()

    @property
    def ran(self) -> str:
        """One line with the statements that ran and were skipped; empty if nothing was skipped."""
        run = self.session.runs.get(self.file) if self.file is not None else None
        return run.plan.note(self.at(None)) if run is not None else ""

    @property
    def names(self) -> dict[str, Any]:
        """The names of the module that have a value."""
        return {
            name: value
            for name, value in vars(self.module).items()
            if has_class(value) and not isinstance(value, Placeholder)
        }

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
        raise UsageError("no target given", hint="give the file that defines the model")
    location, colon, attr = (
        (text, "", "") if Path(text).exists() else text.rpartition(":") if ":" in text else (text, "", "")
    )
    if colon and not all(part.isidentifier() for part in attr.split(".")):
        raise UsageError(
            f"{text}: {attr!r} is not a name",
            hint="write the name of a class, a function or a model after the colon, or leave out the colon",
        )
    if not location:
        raise UsageError(f"{text}: no file before the colon", hint=f"write the file before it, as in net.py:{attr}")
    if location.endswith(".py") or Path(location).exists() or "/" in location:
        return open_file(spec, Path(location), attr or None)
    return _open_module(spec, location, attr or None)


def open_file(spec: TargetSpec, path: Path, attr: str | None, companion: Source | None = None) -> Source:
    """Import the file at `path`, under its package's name if it is part of a package. Raises TargetError.

    Modules that were imported together with `companion` are shared.
    """
    text = str(path)
    _require_file(spec, path)
    file = path.resolve()
    tree = _parse(file)
    keep = companion.imported if companion is not None else frozenset()
    drop_earlier_imports((*list(file.parents)[: MAX_LEVELS + 1], Path.cwd()), keep)
    root, name, packages = _package(file, tree if spec.sliced else None)
    in_package = root != file.parent or file.name == "__init__.py"
    folders = tuple(dict.fromkeys(folder.resolve() for folder in (root, file.parent, Path.cwd())))
    if in_package:
        _reject_other_package(spec, name.split(".")[0], root)
        is_fresh = name not in sys.modules
    else:
        name, is_fresh = _free_name(name, file), True
    load = partial(importlib.import_module, name) if in_package else partial(execute_file, name, file)
    roots = frozenset({attr.split(".")[0]} if attr else ())
    session = ImportSession(folders=folders, target=file, tree=tree, roots=roots, packages=packages)
    return _open(spec, load, text, session, attr, is_fresh)


def require_file(spec: TargetSpec) -> None:
    """Raise TargetError, before anything is imported, if the target is a path and no Python file."""
    text = spec.spec
    location = text if Path(text).exists() else text.rpartition(":")[0] or text
    if location.endswith(".py") or Path(location).exists():
        _require_file(spec, Path(location))


def _require_file(spec: TargetSpec, path: Path) -> None:
    text = str(path)
    if path.is_dir():
        models = nearby_models(path, path / "target.py")
        hint = next_command(spec, target=str(path / models[0])) if models else "give the file that defines the model"
        raise TargetError("a folder, not a Python file", where=text, hint=hint)
    if not path.is_file():
        raise TargetError("no such file", where=text, hint=_existing_files(spec, path))
    if path.suffix != ".py":
        is_trace = path.name.endswith((".json.gz", ".trace"))
        verb = "inspect" if is_trace else "show" if path.suffix == ".json" else ""
        hint = f"for a {'trace' if is_trace else 'report'}: {kit_command(verb, text)}; else " if verb else ""
        raise TargetError("not a Python file", where=text, hint=f"{hint}give the file that defines the model")


def _existing_files(spec: TargetSpec, path: Path) -> str:
    """A hint for a `path` that does not exist."""
    folder = path.parent
    if not folder.is_dir():
        folder = Path()
    names = [file.name for file in folder.glob("*.py")]
    matches = difflib.get_close_matches(path.name, names, n=1)
    if matches:
        return next_command(spec, target=str(folder / matches[0]))
    models = nearby_models(folder, path)
    if models:
        return f"use a file of this folder: {next_command(spec, target=str(folder / models[0]))}"
    return f"check the path: {display_path(folder.resolve())} has no Python file with a model"


def _open(
    spec: TargetSpec,
    load: Callable[[], ModuleType],
    argv0: str,
    session: ImportSession,
    attr: str | None,
    is_fresh: bool,
) -> Source:
    """Import a target by calling `load`. Raises TargetError."""
    before = set(sys.modules)
    notes: list[str] = []
    with user_code(session.folders, argv0) as flags, seeded(spec.seed):
        try:
            with watchdog(spec, session.target), isolated(session if spec.sliced else None, notes.append):
                module = load()
        except KitError:
            raise
        except (Exception, SystemExit) as error:
            raise import_failure(spec, session.target, error) from error
        finally:
            imported = record_imports(before, session.folders) | session.loaded
    file, tree = session.target, session.tree
    if file is None:
        origin = attribute_of(module, "__file__", str)
        file = Path(origin).resolve() if origin else None
        tree = _parse(file) if file is not None and file.suffix == ".py" else None
    session.module = module
    evaluator = Evaluator(
        module=module, session=session, documents=cache(partial(_documents, file, tree)), is_isolated=spec.sliced
    )
    return Source(
        spec=spec, module=module, file=file, tree=tree, folders=session.folders, attr=attr, is_fresh=is_fresh,
        imported=imported, flags=tuple(flags), session=session, evaluator=evaluator,
        notes=tuple(dict.fromkeys((*session.notes, *_stand_ins(session), *notes))),
    )  # fmt: skip


def _stand_ins(session: ImportSession) -> list[str]:
    names = session.stand_ins.packages
    return (
        [f"imports: stand-ins for {', '.join(names)}, not installed here, give what the program reads from them"]
        if names
        else []
    )


def _documents(file: Path | None, tree: ast.Module | None) -> tuple[Document, ...]:
    return find_documents(file, tree) if file is not None and tree is not None else ()


def _open_module(spec: TargetSpec, name: str, attr: str | None) -> Source:
    if attr is None and Path(f"{name}.py").is_file():
        raise TargetError("no such file", where=name, hint=next_command(spec, target=f"{name}.py"))
    if attr is None or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(
            f"{spec.spec} is not of the form file.py, file.py:NAME or package.module:NAME",
            hint=next_command(spec, target=f"{name}:Net"),
        )
    folders = (Path.cwd(),)
    drop_earlier_imports(folders, frozenset())
    roots = frozenset({attr.split(".")[0]})
    session = ImportSession(folders=folders, roots=roots)
    return _open(spec, partial(importlib.import_module, name), name, session, attr, name not in sys.modules)


def _parse(file: Path) -> ast.Module:
    try:
        text = file.read_bytes()
        if b"\0" in text:  # a ValueError before Python 3.11.4
            raise SyntaxError("source code string cannot contain null bytes")
        return ast.parse(text, filename=str(file))
    except SyntaxError as error:
        raise TargetError(
            f"syntax error: {error.msg}",
            where=display_path(file) if error.lineno is None else f"{display_path(file)}:{error.lineno}",
            hint=f"for the full error, run {file_command(Path(display_path(file)))}",
        ) from error
    except (OSError, ValueError) as error:
        raise TargetError(
            f"cannot read this file: {error}", where=display_path(file), hint="use a Python file in UTF-8"
        ) from error


def _package(file: Path, tree: ast.Module | None) -> tuple[Path, str, dict[str, Path]]:
    """(folder for sys.path, dotted module name, packages without ``__init__.py``) of `file`.

    Its package is the chain of folders with an ``__init__.py``, and with `tree` as many further folders as its relative
    imports need.
    """
    parts = [] if file.name == "__init__.py" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier() and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    if not file.stem.isidentifier():
        return file.parent, file.stem, {}  # pkg/my-net.py cannot be a module of the package
    levels = (
        max((n.level for n in all_nodes(tree) if isinstance(n, ast.ImportFrom)), default=0) if tree is not None else 0
    )
    depth = len(parts) - (file.name != "__init__.py")
    parents = [folder, *folder.parents][: max(levels - depth, 0)]
    if not all(parent.name.isidentifier() and _is_free(parent) for parent in parents):
        return folder, ".".join(parts), {}  # no folder can be the package that the imports need
    names = [parent.name for parent in reversed(parents)]
    packages = {".".join(names[: i + 1]): parent for i, parent in enumerate(reversed(parents))}
    return parents[-1].parent if parents else folder, ".".join([*names, *parts]), packages


def _is_free(folder: Path) -> bool:
    """Whether the name of `folder` is not that of a module from another place."""
    module = sys.modules.get(folder.name)
    return module is None or str(folder) in module_places(module)


def _free_name(stem: str, file: Path) -> str:
    """A module name: `stem`, so that pickles of its classes can be loaded, or a unique name if `stem` is already in use."""
    if stem.isidentifier() and stem not in sys.modules and stem not in sys.stdlib_module_names:
        return stem
    return f"target_{''.join(c if c.isalnum() else '_' for c in stem)}_{zlib.crc32(str(file).encode()):08x}"


def _reject_other_package(spec: TargetSpec, top: str, root: Path) -> None:
    module = sys.modules.get(top)
    if module is None:
        return
    folders = [Path(place).resolve() for place in module_places(module)]
    if root / top not in folders:
        raise TargetError(
            f"package {top!r} is already imported from {', '.join(map(str, folders)) or 'another place'}",
            where=str(root / top),
            hint="use a new Python process for each of the two packages",
        )

"""Imports user code by its slice: the files of the user's folders, at whatever depth they are imported."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.machinery
import importlib.util
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

from profiler_kit.loading.program.module_slice import ModuleSlice, slice_module
from profiler_kit.loading.program.names import bound_names, defined_names
from profiler_kit.loading.program.repository import MAX_LEVELS, repository_root
from profiler_kit.loading.program.slices import facts_of
from profiler_kit.loading.scripts.runner import Failure, Runner, future_flags, open_names, requested_names
from profiler_kit.loading.scripts.stand_ins import StandInFinder
from profiler_kit.user_code.locations import display_path, is_user_code


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModuleRun:
    """How a file was imported: its slice, and the statements that failed."""

    plan: ModuleSlice
    failures: list[Failure]


@dataclass(slots=True, kw_only=True, eq=False)
class ImportSession:
    """The imports of one target.

    - `folders`: where user code may be imported from; `target` is the target's file, with its syntax tree.
    - `roots`: names of the target that must exist.
    - `packages`: package names of the target's folders that have no ``__init__.py``, with the folders.
    - `module`: the target's module, once it exists; other names of the same file lead to it.
    - `runs`: how each file was imported. `loaded`: the names of its module and of all modules imported since.
    - `notes`: folders that were added to the search.
    - `path_entries`: what user code added to ``sys.path``, which the next block of `sliced_imports` needs too.
    - `stand_ins`: those of packages of configurations that are not installed.
    """

    folders: tuple[Path, ...]
    target: Path | None = None
    tree: ast.Module | None = None
    roots: frozenset[str] = frozenset()
    packages: dict[str, Path] = field(default_factory=dict)
    module: ModuleType | None = None
    runs: dict[Path, ModuleRun] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    path_entries: list[str] = field(default_factory=list)
    stand_ins: StandInFinder = field(default_factory=StandInFinder)

    @property
    def root(self) -> Path:
        """The root of the target's repository."""
        return repository_root(self.target) if self.target is not None else self.folders[0]

    def contains(self, origin: str | None) -> bool:
        """Whether `origin` is a Python file of the user's folders."""
        if origin is None or not origin.endswith(".py") or not is_user_code(origin):
            return False
        path = Path(origin).resolve()
        return any(path.is_relative_to(folder) for folder in (self.root, *self.folders))


_sessions: list[ImportSession] = []


@contextlib.contextmanager
def sliced_imports(session: ImportSession) -> Iterator[None]:
    """Import user code by its slice inside the block."""
    finder, parent_finder = _UserFinder(session), _ParentFinder(session)
    sys.meta_path.insert(0, finder)
    sys.meta_path += [parent_finder, session.stand_ins]
    _sessions.append(session)
    sys.path += [entry for entry in session.path_entries if entry not in sys.path]
    before = set(sys.path)
    try:
        yield
    finally:
        session.path_entries += [entry for entry in sys.path if entry not in before]
        _sessions.remove(session)
        sys.meta_path.remove(finder)
        sys.meta_path.remove(parent_finder)
        sys.meta_path.remove(session.stand_ins)
        session.stand_ins.hide()


class _Loader(importlib.machinery.SourceFileLoader):
    """Runs the slice of a file. Outside `sliced_imports`, for example in a reload, it runs the whole file."""

    def exec_module(self, module: ModuleType) -> None:
        if not _sessions:
            super().exec_module(module)
            return
        session, path = _sessions[-1], Path(self.path).resolve()
        is_target = path == session.target and session.tree is not None
        tree = (
            session.tree if is_target and session.tree is not None else ast.parse(self.get_data(self.path), self.path)
        )
        if is_target:
            session.module = module
        plan = slice_module(tree, session.roots if is_target else requested_names())
        runner = Runner(
            namespace=module.__dict__, filename=self.path, at=partial(_location, path), effect=facts_of(tree).effect,
            flags=future_flags(tree), open_names=open_names(tree), is_strict=is_target,
            note=session.notes.append,
        )  # fmt: skip
        session.runs[path] = ModuleRun(plan=plan, failures=runner.failures)
        session.loaded.add(module.__name__)
        runner.run(plan.statements)
        if plan.skipped:
            ran = {statement.lineno for statement in plan.statements}
            vars(module).setdefault("__getattr__", _Later(module, tree, runner, ran))


class _Later:
    """The ``__getattr__`` of a module: names that nothing needed at its import exist when code asks for them."""

    def __init__(self, module: ModuleType, tree: ast.Module, runner: Runner, ran: set[int]) -> None:
        self._module, self._tree, self._runner, self._ran = module, tree, runner, ran

    def __call__(self, name: str) -> Any:
        space = vars(self._module)
        if _sessions and name in defined_names(self._tree):
            for statement in slice_module(self._tree, frozenset({name})).statements:
                bound = bound_names(statement)  # running a class again would make another one
                if statement.lineno not in self._ran and (not bound or bound - space.keys()):
                    self._ran.add(statement.lineno)
                    self._runner.run([statement])
            if name in space:
                return space[name]
        raise AttributeError(f"module {self._module.__name__!r} has no attribute {name!r}", name=name, obj=self._module)


def _location(path: Path, line: int) -> str:
    return f"{display_path(path)}:{line}"


class _SharedLoader(importlib.machinery.SourceFileLoader):
    """Gives the target's module to code that imports its file by another name, so that its classes exist once."""

    def __init__(self, name: str, path: str, module: ModuleType) -> None:
        super().__init__(name, path)
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import machinery has replaced it
        if _sessions:
            _sessions[-1].loaded.add(self.name)


class _UserFinder:
    """Finds modules in the usual places, and gives those of the user's folders to `_Loader`."""

    def __init__(self, session: ImportSession) -> None:
        self._session = session

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        session = self._session
        if name in session.packages:
            package = importlib.machinery.ModuleSpec(name, None, is_package=True)
            package.submodule_search_locations = [str(session.packages[name])]
            session.loaded.add(name)
            return package
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        nearer = self._nearer(spec) if path is None and spec is not None else None
        spec = nearer or spec
        if spec is not None and session.contains(spec.origin):
            return with_slices(spec, session)
        return nearer

    def _nearer(self, spec: importlib.machinery.ModuleSpec) -> importlib.machinery.ModuleSpec | None:
        """The module of the same name that is nearer to the importing file than that of `spec`, in a folder above the file.

        A repository may contain other projects, which are run from their own folders. None if `spec` is no module of the user's
        folders, or the nearest one.
        """
        importer = _importer() or self._session.target
        locations = spec.submodule_search_locations
        module = Path(next(iter(locations), "") if locations else spec.origin or "").resolve()
        place = module.parent
        if importer is None or place not in importer.parents or not place.is_relative_to(self._session.root):
            return None
        if module in importer.parents:  # its own package, which may contain a module of the same name
            return None
        for folder in itertools.takewhile(lambda folder: folder != place, importer.parents):
            nearer = _module_in(spec.name, folder)
            if nearer is not None:
                sys.path.insert(0, str(folder))
                self._session.notes.append(
                    f"imports: {spec.name} is in {display_path(folder)}, nearer to {importer.name}"
                )
                return nearer
        return None


def _module_in(name: str, folder: Path) -> importlib.machinery.ModuleSpec | None:
    """The module `name` in `folder`, or a folder with Python files; None without one."""
    spec: importlib.machinery.ModuleSpec | None = importlib.machinery.PathFinder.find_spec(name, [str(folder)])
    if spec is None or spec.origin is not None:
        return spec
    spec.submodule_search_locations = [str(folder / name)]  # without the folders of this name elsewhere
    return spec if _has_sources(folder / name) else None


def with_slices(spec: importlib.machinery.ModuleSpec, session: ImportSession) -> importlib.machinery.ModuleSpec:
    """`spec` with a loader that runs the slice of its file."""
    assert spec.origin is not None
    path = Path(spec.origin).resolve()
    if session.module is not None and path == session.target and spec.name != session.module.__name__:
        spec.loader = _SharedLoader(spec.name, spec.origin, session.module)
        spec.submodule_search_locations = None
    else:
        spec.loader = _Loader(spec.name, spec.origin)
    return spec


class _ParentFinder:
    """Finds top-level modules that no folder of ``sys.path`` has, in the folders above the importing file.

    The scripts of many repositories are run from another folder than their own, so relative entries of ``sys.path``
    count from the folder of the importing file too.
    """

    def __init__(self, session: ImportSession) -> None:
        self._session = session

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        importer = _importer() or self._session.target
        if path is not None or "." in name or importer is None:
            return None
        if not self._session.contains(str(importer)) and importer != self._session.target:
            return None
        root = repository_root(importer)
        relative = [importer.parent / entry for entry in sys.path if entry and not Path(entry).is_absolute()]
        parents = list(importer.parents)[: MAX_LEVELS + 1]
        for folder in (*relative, *(folder for parent in parents for folder in (parent / "src", parent))):
            spec = _module_in(name, folder)
            if spec is not None:
                self._session.notes.append(f"imports: {name} is in {display_path(folder)}, which was added to sys.path")
                sys.path.append(str(folder))
                return with_slices(spec, self._session) if self._session.contains(spec.origin) else spec
            if folder == root:
                break
        return None


def _has_sources(folder: Path) -> bool:
    return any(folder.glob("*.py"))


_IMPORT_MACHINERY: Final = ("<frozen", importlib.__file__, __file__)


def _importer() -> Path | None:
    """The file whose import statement is running; None if it is not a file of a user."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_IMPORT_MACHINERY):
        frame = frame.f_back
    if frame is None or not is_user_code(frame.f_code.co_filename):
        return None
    return Path(frame.f_code.co_filename).resolve()


def execute_file(name: str, file: Path) -> ModuleType:
    """Import `file` as the module `name`, which is registered in ``sys.modules``."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"no loader for {file}")
    if _sessions:
        spec.loader = _Loader(name, str(file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look it up during execution
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module

"""Runs a Python program in this process as ``python SCRIPT`` and ``python -m MODULE`` do, with nothing that it could notice."""

from __future__ import annotations

import atexit
import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any, Final, NoReturn

from profiler_kit.errors import TargetError

PACKAGE_FOLDER: Final = f"{Path(__file__).resolve().parent.parent}{os.sep}"
_MAIN: Final = "__main__"
_kept_main: list[
    ModuleType
] = []  # Python clears a module that nothing refers to; threads and exit handlers use its names


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program: the path of a script, or the name of a module (``-m``), and the arguments behind it."""

    name: str
    is_module: bool
    arguments: tuple[str, ...]
    folder: Path = field(default_factory=Path.cwd)  # where it starts: it may change its own

    @property
    def path(self) -> Path | None:
        """The full path of the script; None for a module, a folder or an archive."""
        path = (self.folder / self.name).resolve()
        return path if not self.is_module and path.is_file() and path.suffix == ".py" else None

    def check(self) -> None:
        """Raise TargetError if there is no such script or module. Nothing of the program is imported."""
        if not self.is_module:
            if not Path(self.name).exists():
                hint = "check the path; options of the program come after it, those of run before it"
                raise TargetError("no such script", where=self.name, hint=hint)
            return
        sys.path.insert(0, str(Path.cwd()))
        try:
            found = importlib.util.find_spec(self.name.partition(".")[0]) is not None
        except (ImportError, ValueError):
            found = False
        finally:
            del sys.path[0]
        if not found:
            raise TargetError("no such module", where=self.name, hint="start in the folder that contains its package")

    def run(self, *, at_end: Callable[[], None]) -> None:
        """Run the program. Its uncaught exception is printed as Python does, `at_end` is called, and the exception goes on."""
        process, status = os.getpid(), 0
        try:
            code, main = self._prepared()
            main.__dict__["__builtins__"] = builtins  # exec would insert the dictionary of the module
            _kept_main.append(main)
            sys.modules[_MAIN] = main
            exec(code, main.__dict__)  # noqa: S102 the program that the user starts
            _join_threads()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            raise
        except BaseException as error:
            status = 1
            _remove_own_frames(error)
            sys.excepthook(type(error), error, error.__traceback__)
            sys.excepthook = _print_nothing  # Python sets the exit status, but has nothing more to print
            raise
        finally:
            if os.getpid() != process:
                _exit_fork(status)
            at_end()

    def _prepared(self) -> tuple[CodeType, ModuleType]:
        """The code of the program and its empty main module; ``sys.argv`` and ``sys.path`` are those of the program."""
        sys.argv[:] = [self.name, *self.arguments]
        if self.is_module:
            _set_first_path(str(Path.cwd()))
            return _module_main(self.name, sets_program_name=True)
        path = Path(self.name)
        if path.is_dir() or not isinstance(pkgutil.get_importer(self.name), importlib.machinery.FileFinder | None):
            _set_first_path(str(path))  # a folder or an archive with a __main__.py
            return _module_main(_MAIN, sets_program_name=False)
        _set_first_path(str(path.resolve().parent))
        file = str(Path.cwd() / path)
        main = ModuleType(_MAIN)
        main.__file__ = file
        main.__dict__["__cached__"] = None
        main.__loader__ = importlib.machinery.SourceFileLoader(_MAIN, file)
        with io.open_code(file) as source:
            return compile(source.read(), file, "exec", dont_inherit=True), main


def _set_first_path(entry: str) -> None:
    if not getattr(sys.flags, "safe_path", False):  # python -P
        sys.path[0] = entry


def _module_main(name: str, *, sets_program_name: bool) -> tuple[CodeType, ModuleType]:
    """The code and the main module of ``python -m name``. Raises ImportError, as that does."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.{_MAIN}"
        spec = importlib.util.find_spec(name)
    code = spec.loader.get_code(spec.name) if isinstance(spec and spec.loader, importlib.abc.InspectLoader) else None  # type: ignore[union-attr]
    if spec is None or code is None:
        raise ImportError(f"No module named {name}", name=name)
    main = ModuleType(_MAIN)
    main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
    main.__file__ = spec.origin
    main.__dict__["__cached__"] = spec.cached
    if sets_program_name and spec.origin is not None:
        sys.argv[0] = spec.origin
    return code, main


def _join_threads() -> None:
    """Wait for the program's threads, as Python does before its exit handlers: one of them may train."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()


def _exit_fork(status: int) -> NoReturn:
    """Exit from a process that the program forked, with its exit handlers.

    torch's libraries join the profiler's threads when a process exits. In a fork these do not exist, and it would wait forever.
    """
    _join_threads()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


def _remove_own_frames(error: BaseException | None) -> None:
    """Remove the frames of this package from the traceback of `error` and of the exceptions behind it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = _without_own_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _without_own_frames(place: TracebackType | None) -> TracebackType | None:
    if place is None:
        return None
    rest = _without_own_frames(place.tb_next)
    if place.tb_frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        return rest
    place.tb_next = rest
    return place


def _print_nothing(*_: Any) -> None:
    """An exception hook after the exception was printed."""


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls `action` once, when the program has imported the module `name`. It imports nothing before the program does."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name, self._action = name, action
        self._is_asking = self._has_acted = False

    def install(self) -> None:
        """Wait for the import, or call the action now if the module is already imported."""
        if self._name in sys.modules:
            self._action()
        else:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of the awaited module, with the action after its execution; None for other modules."""
        if fullname != self._name:
            return None
        if self._is_asking:
            return None
        self._is_asking = True  # the program may only ask whether there is such a module
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_asking = False
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def execute_then_act(module: ModuleType) -> None:
            del loader.exec_module
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            execute(module)
            if not self._has_acted:
                self._has_acted = True
                self._action()

        loader.exec_module = execute_then_act
        return spec

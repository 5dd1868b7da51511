"""Interpreter state for user code: paths, arguments, streams, cuDNN flags and random seeds, all restored afterwards.

Also operator definitions that let torchvision be imported with a torch for which its C++ library was not built.
"""

from __future__ import annotations

import contextlib
import importlib.util
import random
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, Final

import torch

from profiler_kit.records.configs import NamedValue
from profiler_kit.user_code.process_settings import SavedSettings

_MISSING: Final = ("nms", "qnms")
_libraries: list[torch.library.Library] = []  # a definition exists as long as its library


def define_missing_ops() -> None:
    """Define the torchvision operators without which its import fails, if its C++ library cannot be loaded.

    The published wheels are built for CUDA. With a CPU build of torch their library does not load, and the import fails when
    it registers ``nms``. The definitions have no kernel: all models can be built, and models that call these operators
    (detection) fail at the call. Does nothing if the library loads or torchvision is not installed.
    """
    if _libraries or _can_load():
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _MISSING:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _libraries.append(library)


def _can_load() -> bool:
    package = importlib.util.find_spec("torchvision")
    if package is None or package.origin is None:
        return True
    for file in sorted(Path(package.origin).parent.glob("_C*.so")):
        try:
            torch.ops.load_library(str(file))
        except OSError:
            continue
    return hasattr(torch.ops.torchvision, "nms")


_program_arguments: Final[ContextVar[tuple[str, ...]]] = ContextVar("program_arguments", default=())


@contextlib.contextmanager
def program_arguments(arguments: tuple[str, ...]) -> Iterator[None]:
    """Let user code see `arguments` of a command line inside the block."""
    before = _program_arguments.get()
    _program_arguments.set(arguments)
    try:
        yield
    finally:
        _program_arguments.set(before)  # no token: a time limit may end the block in another context


_FLAGS = ("cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic")


@contextlib.contextmanager
def user_code(folders: tuple[Path, ...], argv0: str) -> Iterator[list[str]]:
    """Run user code as if started from its own folder, and restore the interpreter state afterwards.

    Yields a list that, after the block, contains the cuDNN flags that the code set, such as ``cudnn.benchmark=True``. The
    flags are reset, because each measured configuration sets its own.

    The first folder is put at the start of ``sys.path``, the others at the end. ``sys.argv`` contains only the file,
    and the arguments of `program_arguments`. Output goes to stderr, because stdout is reserved for results. A changed working
    directory is restored.
    """
    changed: list[str] = []
    flags, settings = SavedSettings(*_FLAGS), SavedSettings("sys.path", "sys.argv", "working_directory")
    sys.path[:] = [str(folders[0]), *sys.path, *(str(f) for f in folders[1:] if str(f) not in sys.path)]
    sys.argv[:] = [argv0, *_program_arguments.get()]
    finder = _TorchvisionFinder()
    sys.meta_path.insert(0, finder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield changed
    finally:
        finder.remove()
        changed += [f"{name}={value}" for name, value in flags.restore().items()]
        settings.restore()


class _TorchvisionFinder(MetaPathFinder):
    """Finds no module. Defines missing operators of torchvision when it is imported, without which the import fails."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Return None: other finders find the module."""
        if name == "torchvision":
            self.remove()  # the definitions ask the other finders
            from profiler_kit.user_code.environment import define_missing_ops

            define_missing_ops()

    def remove(self) -> None:
        """Stop to watch imports."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def parse_flag(text: str) -> NamedValue:
    """Parse a flag text of `user_code`, such as ``cudnn.benchmark=True``."""
    name, _, value = text.removeprefix("cudnn.").partition("=")
    return NamedValue(name=name, value=value)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the random generators of torch, Python and (if imported) numpy inside the block, and restore them afterwards."""
    with random_states_kept():
        seed_all(seed)
        yield


def seed_all(seed: int) -> None:
    """Seed the random generators of torch, Python and (if imported) numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(seed % 2**32)


@contextlib.contextmanager
def random_states_kept() -> Iterator[None]:
    """Restore the random generators of torch, Python and (if imported) numpy after the block."""
    numpy_random: Any = sys.modules.get("numpy.random")
    python_state = random.getstate()
    numpy_state = numpy_random.get_state() if numpy_random is not None else None
    # torch.manual_seed seeds every GPU too. One that is not initialized has no state to keep.
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=list(gpus)):
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy_random is not None:
                numpy_random.set_state(numpy_state)

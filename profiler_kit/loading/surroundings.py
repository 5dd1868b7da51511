"""What surrounds the user's code while it runs: paths, arguments, streams, flags and random numbers, all put back after."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from profiler_kit.records.configs import NamedValue

_FLAGS = ("enabled", "benchmark", "deterministic")


@contextlib.contextmanager
def user_code(folders: tuple[Path, ...], argv0: str) -> Iterator[list[str]]:
    """Lets the user's code run as if from its own folder, then puts everything back.

    Yields a list that afterwards holds the cuDNN flags the code set, as ``cudnn.benchmark=True``: they too are put back,
    since each measured configuration sets its own.

    The first folder comes first on ``sys.path``, the others last; ``sys.argv`` holds the file alone; what it prints goes
    to stderr, so that stdout holds results only; a changed working directory is changed back.
    """
    changed: list[str] = []
    flags = {name: getattr(torch.backends.cudnn, name) for name in _FLAGS}
    path, argv, cwd = list(sys.path), list(sys.argv), Path.cwd()
    sys.path[:] = [str(folders[0]), *path, *(str(f) for f in folders[1:] if str(f) not in path)]
    sys.argv[:] = [argv0]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield changed
    finally:
        for name, value in flags.items():
            if getattr(torch.backends.cudnn, name) != value:
                changed.append(f"cudnn.{name}={getattr(torch.backends.cudnn, name)}")
                setattr(torch.backends.cudnn, name, value)
        sys.path[:], sys.argv[:] = path, argv
        if Path.cwd() != cwd:
            os.chdir(cwd)


def flag_of(said: str) -> NamedValue:
    """``cudnn.benchmark=True``, as `user_code` says it, by name and value."""
    name, _, value = said.removeprefix("cudnn.").partition("=")
    return NamedValue(name=name, value=value)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds torch's, Python's and (where it is imported) numpy's generators, and gives them their states back after."""
    numpy = sys.modules.get("numpy")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy is not None else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        if numpy is not None:
            numpy.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy is not None:
                numpy.random.set_state(numpy_state)

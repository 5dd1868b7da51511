"""Copies of a model file with a known truth, and load beside them, for `scripts.bench.noise`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from profiler_kit.loading import load
from profiler_kit.process import usable_cores
from profiler_kit.records.target import TargetSpec

Kind = Literal["cuda", "cpu"]
Spin = Literal["host", "device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A switch: the configuration that sets it, the expression that tests it and the statement that resets it.

    None of them is a cuDNN flag: a difference on the host is never attributed to one.
    """

    config: str
    is_on: str
    reset: str


IDENTICAL: Final[dict[Kind, Flag]] = {
    # more than any of these models needs, so there is nothing to reset
    "cuda": Flag(config="memory_limit=64GiB", is_on="False", reset="pass"),
    "cpu": Flag(
        config="deterministic_algorithms",
        is_on="torch.are_deterministic_algorithms_enabled()",
        reset="torch.use_deterministic_algorithms(False)",
    ),
}
SLOWER: Final[dict[Kind, Flag]] = {
    "cuda": Flag(
        config="matmul_tf32",
        is_on="torch.backends.cuda.matmul.allow_tf32",
        reset="torch.backends.cuda.matmul.allow_tf32 = False",
    ),
    "cpu": Flag(
        config="no_onednn",
        is_on="not torch.backends.mkldnn.enabled",
        reset="torch.backends.mkldnn.enabled = True",
    ),
}

# Code appended to the copy of the target. It does nothing on the meta device, so that the count does not change.
PLANTED_CODE: Final = '''

import functools as _functools
import time as _time

import torch


def _spin_on_host(ns):
    until = _time.perf_counter_ns() + ns
    while _time.perf_counter_ns() < until:
        pass


@_functools.cache
def _cycles(ns):
    """Return the number of device cycles for `ns` at the clock under load."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):  # the first run includes loading the kernel
        begin.record()
        torch.cuda._sleep(20_000_000)
        end.record()
        torch.cuda.synchronize()
    return round(20_000_000 * ns / (begin.elapsed_time(end) * 1e6))


class Planted({name}):
    _slow = {slow}

    @_functools.wraps({name}.forward)
    def forward(self, *args, **kwargs):
        if next(iter(self.parameters())).device.type == {kind!r}:
            if {identical.is_on}:
                {identical.reset}
            if {slower.is_on}:
                {slower.reset}
                Planted._slow = True
            if Planted._slow and {spin_ns}:
                {spin}
        return super().forward(*args, **kwargs)
'''
SPIN_CODE: Final = {"device": "torch.cuda._sleep(_cycles({spin_ns}))", "host": "_spin_on_host({spin_ns})"}


def plant(target: str, folder: Path, *, kind: Kind, spin_ns: int, spin: str, always: bool = False) -> str:
    """Write a copy of `target` to `folder` that spins for `spin_ns` in the slower configuration; return its TARGET text.

    `always`: it spins in every configuration.

    Raises: SystemExit if the target is not one file, or if its model is not a class of that file.
    """
    file, _, _ = target.partition(":")
    path = Path(file)
    name = type(load(TargetSpec(spec=target), device="meta").model).__name__
    text = path.read_text(encoding="utf-8")
    if f"class {name}" not in text:
        raise SystemExit(f"{target}: {path.name} does not define class {name} of its model; use a target that does")
    copy = folder / f"planted_{path.name}"
    spin_code = SPIN_CODE[spin].format(spin_ns=spin_ns)
    code = PLANTED_CODE.format(
        name=name,
        kind=kind,
        identical=IDENTICAL[kind],
        slower=SLOWER[kind],
        spin_ns=spin_ns,
        spin=spin_code,
        slow=always,
    )
    copy.write_text(text + code, encoding="utf-8")
    return f"{copy}:Planted"


@contextlib.contextmanager
def busy_cores(is_busy: bool) -> Iterator[None]:
    """Keep every core busy with a process that computes for two seconds and rests for one, if `is_busy`."""
    code = (
        "import itertools, time\n"
        "for _ in itertools.count():\n"
        "    end = time.monotonic() + 2\n"
        "    while time.monotonic() < end: pass\n"
        "    time.sleep(1)\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(usable_cores() if is_busy else 0)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()

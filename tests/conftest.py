"""Fixtures for all tests: sample reports, and a replacement for the processes of measurement."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import examples
import fork_server
import hint_replay
import pytest
from hypothesis import settings
from sample_reports import RECORDED, SAMPLES, count_only, failed, v0_cpu, v0_cuda

from profiler_kit.command_lines import PROGRAM
from profiler_kit.measurement import ceiling_store
from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.machine import MAX_SPREAD_PERCENT, Ceilings
from profiler_kit.records.report import Report

# Use the same examples in every run, so that a failure comes from a change and not from chance.
# HYPOTHESIS_PROFILE=explore (`make explore`) generates new examples, and more of them.
settings.register_profile("same", derandomize=True, deadline=None, max_examples=examples.count(40))
settings.register_profile("explore", deadline=None, max_examples=examples.count(40))
settings.load_profile(examples.PROFILE)


fork_server.install()
gc.disable()  # collecting the tests creates objects that all stay, and each garbage collection would visit them


def pytest_collection_finish() -> None:
    """Collect garbage again, less often: of the objects of a process that has imported torch, hardly any become garbage."""
    gc.enable()
    gc.set_threshold(10_000, 10, 10)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fork processes that need torch, but where a test is about their start or uses a GPU."""
    fork_server.install(not any(item.get_closest_marker(name) for name in ("fresh_process", "gpu")))


for _name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS"):
    os.environ.pop(_name, None)  # of a developer or of CI: tests expect the output of a pipe


_replayed_sites: set[str] = set()  # functions of the package that built a command which was replayed
MAX_REPLAYED: Final = 3  # commands of one function that are in no hint
PARTS: Final = ("not gpu and not jobs", "jobs and not gpu")  # -m of `make unit` and of `make test-jobs`


@pytest.fixture(autouse=True, scope="session")
def _program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The console script is on PATH, as where the package is installed, so that hints name it."""
    script = tmp_path_factory.mktemp("bin") / PROGRAM
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m profiler_kit "$@"\n')
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(script.parent), prepend=os.pathsep)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Replay the commands that the test produced, at its end and while its files exist: each must lead somewhere.

    Commands of one shape are replayed once per run. A test that plants bad hints has the marker ``bad_hints``.
    """
    if item.get_closest_marker("bad_hints") is not None:
        return (yield)
    with hint_replay.record() as recorder:
        result = yield
        recorder.is_active = False
        claims = _run_folder(item.config) / "replayed_hints"
        hints = {hint.shape: hint for hint in recorder.texts}
        new_hints = [hint for hint in hints.values() if _is_new(hint, claims)]
        _replayed_sites.update(site for hint in new_hints for site in hint.commands.values())
        problems = hint_replay.check(new_hints)
    if problems:
        pytest.fail("hints that lead nowhere:\n" + "\n".join(problems), pytrace=False)
    return result


def _is_new(hint: hint_replay.Hint, claims: Path) -> bool:
    """Whether no test of this run, in any of its processes, has replayed this shape of a hint, or enough of its function."""
    if not _claim(claims, hint.shape):
        return False
    return bool(hint.message) or any(_claim(claims, (hint.site, number)) for number in range(MAX_REPLAYED))


def _claim(folder: Path, name: object) -> bool:
    """Claim `name` for this process: True for the first one that asks."""
    try:
        (folder / hashlib.sha256(repr(name).encode()).hexdigest()).mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _run_folder(config: pytest.Config) -> Path:
    """The temporary folder that all processes of this run share."""
    base = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    return Path(base.parent if hasattr(config, "workerinput") else base)


@pytest.hookimpl(optionalhook=True)  # only pytest-xdist calls it
def pytest_testnodedown(node: Any, error: object) -> None:
    """In the main process of a parallel run: take the sites of a worker."""
    _replayed_sites.update(getattr(node, "workeroutput", {}).get("replayed_sites", ()))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a complete run if no test of it, or of the last run of the other part, replayed the commands of some function."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["replayed_sites"] = sorted(_replayed_sites)
        return
    options = config.option
    is_complete = config.args_source is not config.ArgsSource.ARGS and not (
        options.keyword or getattr(options, "lf", False)
    )
    has_ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if not is_complete or not has_ended or options.markexpr not in PARTS or not hasattr(config, "cache"):
        return
    config.cache.set(f"replayed_sites/{options.markexpr}", sorted(_replayed_sites))
    parts = [config.cache.get(f"replayed_sites/{part}", None) for part in PARTS]
    if None not in parts and (missing := sorted(hint_replay.builder_sites().difference(*parts))):
        print("\ncommands of these functions are in messages, and no test replays them:", *missing, sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True, scope="session")
def _cache(pytestconfig: pytest.Config) -> Iterator[None]:
    """Use one cache folder for all test processes, so that peaks are measured once and the user's cache stays untouched."""
    folder = _run_folder(pytestconfig) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        # matplotlib lists the machine's fonts once, which takes seconds
        patch.setenv("MPLCONFIGDIR", os.environ.get("MPLCONFIGDIR", str(Path.home() / ".cache" / "matplotlib")))
        patch.setenv("XDG_CACHE_HOME", str(folder))
        measure = ceiling_store._measure

        def measured_once(*args: Any) -> tuple[Ceilings | None, str]:
            ceilings, failure = measure(*args)
            in_suite = os.environ.get("XDG_CACHE_HOME") == str(folder)
            return (_steady(ceilings) if ceilings is not None and in_suite else ceilings), failure

        patch.setattr(ceiling_store, "_measure", measured_once)
        yield


def _steady(ceilings: Ceilings) -> Ceilings:
    """The peaks as on an idle machine: those measured beside another test process would not be cached."""
    rates = tuple(replace(rate, spread_percent=min(rate.spread_percent, MAX_SPREAD_PERCENT)) for rate in ceilings.rates)
    spread = min(ceilings.bandwidth_spread_percent or 0.0, MAX_SPREAD_PERCENT)
    return replace(ceilings, rates=rates, bandwidth_spread_percent=spread)


@pytest.fixture
def v0_report() -> Report:
    """V0 on an H100 under nine configurations, one of them failed, and the repeated default."""
    return v0_cuda()


@pytest.fixture
def v0_cpu_report() -> Report:
    """V0 on a CPU: one configuration, operator time."""
    return v0_cpu()


@pytest.fixture
def count_only_report() -> Report:
    """V0 with a static count only."""
    return count_only()


@pytest.fixture
def failed_report() -> Report:
    """V0 with a static count; every run failed."""
    return failed()


@pytest.fixture(params=sorted(SAMPLES | RECORDED))
def any_report(request: pytest.FixtureRequest) -> Report:
    """Each sample report with its verdict, one per test."""
    make: Callable[[], Report] = (SAMPLES | RECORDED)[request.param]
    return with_verdict(make())


@pytest.fixture
def measured_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Replace the measuring processes by a function that takes a target and a configuration and returns a `ConfigRun`."""

    class Process:
        def __init__(self, spec: Any, visit: Any, measure: Callable[..., Any]) -> None:
            self.visit = visit
            self._spec, self._measure = spec, measure

        def go(self) -> None:
            pass

        def wait_until_prepared(self) -> None:
            pass

        def take_turn(self) -> None:
            pass

        def result(self) -> Any:
            return self._measure(self._spec, self.visit.config, again=self.visit.again, trace=self.visit.trace)

        def parts_trace(self) -> None:
            return None

    def install(measure: Callable[..., Any]) -> None:
        @contextlib.contextmanager
        def spawn_run(spec: Any, visit: Any, **_: Any) -> Iterator[Process]:
            yield Process(spec, visit, measure)

        monkeypatch.setattr("profiler_kit.measurement.sweep.spawn_run", spawn_run)
        # as many processes in a round on every machine, whatever its cores and its free memory
        monkeypatch.setattr("profiler_kit.measurement.turns.servers_together", lambda: 1)
        monkeypatch.setattr("profiler_kit.process.processes_in_memory", lambda items, _: items)
        # or each repetition starts another server for forks, which nobody needs
        monkeypatch.setattr("profiler_kit.process.separate_forks", lambda work: None)

    return install

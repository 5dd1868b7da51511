"""Runs one after another: their order, their results, and that no process or file remains."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measure_models import net
from waiting import is_written, wait_for_end, wait_until

torch = pytest.importorskip("torch")

from profiler_kit.measurement import sweep  # noqa: E402
from profiler_kit.measurement.sweep import RunProcess, spawn_run  # noqa: E402
from profiler_kit.measurement.visits import Visit, reverse_pass  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.runs import ConfigRun  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402

STAMP = "open(os.environ['PK_STAMPS'], 'a').write(f'{word} {os.getpid()} {time.monotonic_ns()}\\n')"


def spec(folder: Path, on_cpu: str = "pass", after: str = "") -> TargetSpec:
    """A model file that is imported as it is: the statements in `after` have effects, which a slice leaves out."""
    inputs = "example_inputs = torch.linspace(-1, 1, 8).reshape(2, 4)\n"
    (folder / "net.py").write_text(net(on_cpu, after=inputs + after))
    return TargetSpec(spec=str(folder / "net.py"), sliced=False)


def visits(*names: str) -> list[Visit]:
    return [Visit(config=RunConfig(name=name), budget_s=0.05, steps=3, checks=False) for name in names]


def run(spec: TargetSpec, asked: Iterator[Visit] | list[Visit], early: bool) -> list[ConfigRun]:
    begun: list[str] = []
    done = list(
        sweep.measure_visits(
            spec,
            asked,
            device="cpu",
            on_start=lambda visit: begun.append(visit.config.name),
            on_progress=lambda visit, text: None,
            ahead=2 if early else 0,
        )
    )
    assert begun == [one.visit.config.name for one in done]
    return [one.run for one in done]


@pytest.mark.parametrize("early", [False, True])
def test_one_process_at_a_time_uses_the_device(early: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = tmp_path / "stamps"
    monkeypatch.setenv("PK_STAMPS", str(stamps))
    # the first process is slow: the others' imports take longer than its steps
    wait = "while self.calls < 2 and open(os.environ['PK_STAMPS']).read().count('import') < 3: time.sleep(0.05)"
    target = spec(
        tmp_path,
        on_cpu=STAMP.replace("{word}", "forward") + (f"\n            {wait}" if early else ""),
        after=STAMP.replace("{word}", "import") + "\n",
    )
    runs = run(target, visits("a", "b", "c"), early)
    assert [one.config.name for one in runs] == ["a", "b", "c"]
    assert all(one.failure is None and len(one.steps_ns) == 3 for one in runs)
    words = [line.split() for line in stamps.read_text().splitlines()]
    pids = list(dict.fromkeys(pid for word, pid, _ in words if word == "forward"))
    assert len(pids) == 3
    times = {pid: [int(at) for word, one, at in words if one == pid and word == "forward"] for pid in pids}
    imported = {one: int(at) for word, one, at in words if word == "import"}
    for before, after in itertools.pairwise(pids):
        assert max(times[before]) < min(times[after])
        if not early:
            assert imported[after] > max(times[before])
    if early:
        assert imported[pids[1]] < max(times[pids[0]])


def test_nothing_is_prepared_beside_a_step_that_waits_for_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = tmp_path / "stamps"
    monkeypatch.setenv("PK_STAMPS", str(stamps))
    target = spec(tmp_path, on_cpu=STAMP.replace("{word}", "forward"), after=STAMP.replace("{word}", "import") + "\n")
    measured = sweep.measure_visits(
        target,
        visits("a", "b", "c"),
        device="cpu",
        on_start=lambda _: None,
        on_progress=lambda visit, text: None,
        ahead=1,
        may_overlap=lambda: False,
    )
    assert [done.run.config.name for done in measured if done.run.failure is None] == ["a", "b", "c"]
    lines = sorted((line.split() for line in stamps.read_text().splitlines()), key=lambda line: int(line[2]))
    groups = [
        (word, [pid for _, pid, _ in group]) for word, group in itertools.groupby(lines, key=lambda line: line[0])
    ]
    # two are prepared together, then measure one after another; then the third
    assert [word for word, _ in groups] == ["import", "forward", "import", "forward"]
    assert [len(set(pids)) for _, pids in groups] == [2, 2, 1, 1]
    assert len(list(itertools.groupby(groups[1][1]))) == 2, "one process at a time uses the device"


def test_without_preparation_the_next_visit_is_requested_when_it_is_due(tmp_path: Path) -> None:
    ended: list[str] = []

    def asked() -> Iterator[Visit]:
        yield from visits("a")
        assert ended == ["a"]
        yield from visits("b")

    target = spec(tmp_path)
    with contextlib.closing(
        sweep.measure_visits(
            target, asked(), device="cpu", on_start=lambda _: None, on_progress=lambda visit, text: None, ahead=0
        )
    ) as done:
        for one in done:
            ended.append(one.run.config.name)
    assert ended == ["a", "b"]


def test_a_canceled_sweep_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = tmp_path / "stamps"
    monkeypatch.setenv("PK_STAMPS", str(stamps))
    target = spec(tmp_path, after=STAMP.replace("{word}", "import") + "\n")
    done = sweep.measure_visits(
        target,
        visits("a", "b", "c"),
        device="cpu",
        on_start=lambda _: None,
        on_progress=lambda visit, text: None,
        ahead=1,
    )
    next(done)
    done.close()
    for line in stamps.read_text().splitlines():
        with pytest.raises(ProcessLookupError):
            os.kill(int(line.split()[1]), 0)


def test_a_prepared_process_does_nothing_before_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = tmp_path / "stamps"
    monkeypatch.setenv("PK_STAMPS", str(stamps))
    target = spec(tmp_path, on_cpu=STAMP.replace("{word}", "forward"))
    with spawn_run(target, visits("a")[0], device="cpu"):
        pass  # never told: its block ends it
    assert not stamps.exists()


def test_the_second_process_times_steps_and_compares_bits(tmp_path: Path) -> None:
    first = Visit(config=RunConfig(name="a"), budget_s=8.0, trace=tmp_path / "a.json.gz", steps=3)
    (second,) = reverse_pass([first])
    assert second.again
    assert second.trace is None
    assert second.budget_s == pytest.approx(4.0)
    one, two = run(spec(tmp_path), [first, second], early=False)
    assert two.modules == ()
    assert two.max_relative_error is None
    repeat = two.as_repeat
    assert repeat.steps_ns == two.steps_ns
    assert repeat.output_digest == one.output_digest is not None
    assert repeat.gradient_digest == one.gradient_digest is not None
    assert repeat.loss_digest == one.loss_digest is not None


DIES_WAITING = """
import signal, threading
if torch.backends.cudnn.benchmark:  # which can be set on a CPU, and tells the configurations apart
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGABRT)).start()
"""


def test_a_process_that_dies_while_it_waits_is_a_failed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = tmp_path / "stamps"
    monkeypatch.setenv("PK_STAMPS", str(stamps))
    wait = "while self.calls < 2 and open(os.environ['PK_STAMPS']).read().count('import') < 3: time.sleep(0.05)"
    after = STAMP.replace("{word}", "import") + DIES_WAITING
    target = spec(tmp_path, on_cpu=f"{wait}\n            time.sleep(0.1)", after=after)
    first, second, third = visits("a", "b", "c")
    dies = replace(second, config=RunConfig(name="b", benchmark=True))
    one, two, three = run(target, [first, dies, third], early=True)
    assert [len(stands.steps_ns) for stands in (one, three)] == [3, 3]
    assert two.failure is not None
    assert (two.failure.kind, two.failure.message) == ("crash", "the process crashed (SIGABRT)")


@pytest.mark.parametrize("early", [False, True])
def test_a_process_that_cannot_be_started_is_a_failed_run(
    early: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the disk is full, or the user has as many processes as are allowed."""
    real = sweep.spawn_run

    def scarce(target: TargetSpec, visit: Visit, **rest: Any) -> contextlib.AbstractContextManager[RunProcess]:
        if visit.config.name == "b":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(target, visit, **rest)

    monkeypatch.setattr(sweep, "spawn_run", scarce)
    one, two, three = run(spec(tmp_path), visits("a", "b", "c"), early=early)
    assert [len(stands.steps_ns) for stands in (one, three)] == [3, 3]
    assert two.failure is not None
    assert "[Errno 28] No space left on device" in two.failure.message


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_children_end_when_their_parent_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that measures, though it hangs, and those that wait."""
    stamps = tmp_path / "stamps"
    monkeypatch.setenv("PK_STAMPS", str(stamps))
    stamp = STAMP.replace("{word}", "import") + "\n"
    target = spec(tmp_path, on_cpu=STAMP.replace("{word}", "forward") + "; time.sleep(300)", after=stamp)
    (tmp_path / "sweep_three.py").write_text(f"""
from profiler_kit.measurement import sweep
from profiler_kit.measurement.visits import Visit
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.target import TargetSpec
visits = [Visit(config=RunConfig(name=name), budget_s=1.0) for name in "abc"]
silent = lambda *_: None
target = TargetSpec(spec={target.spec!r}, sliced=False)
list(sweep.measure_visits(target, visits, device="cpu", on_start=silent, on_progress=silent, ahead=2))
""")
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "sweep_three.py")], env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    try:
        wait_until(lambda: parent.poll() is not None or (is_written(stamps) and "forward" in stamps.read_text()))
        wait_until(lambda: parent.poll() is not None or len(told(stamps)) == 3)
        assert parent.poll() is None
        pids = told(stamps)
    finally:
        parent.kill()
        parent.wait()
    for pid in pids:
        wait_for_end(pid)


def told(stamps: Path) -> set[int]:
    return {int(line.split()[1]) for line in stamps.read_text().splitlines() if line.count(" ") == 2}

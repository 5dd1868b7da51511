"""Workers as forks of one process: they equal processes that were started as usual, and end like them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import AMPLE_S, is_running, wait_for_end, wait_until

from profiler_kit import process
from profiler_kit.process import Outcome
from profiler_kit.process.forks import Forked, ForkServer
from profiler_kit.process.started import Command

pytestmark = [
    pytest.mark.jobs,
    pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux only"),
    pytest.mark.fresh_process,
]

DESCRIBE = """
import json, os, random, sys
main = sys.modules["__main__"]
print(json.dumps({
    "name": __name__, "spec": main.__spec__.name, "file": main.__file__, "arguments": sys.argv[1:], "path": sys.path,
    "environment": dict(os.environ), "folder": os.getcwd(), "leads_group": os.getpgid(0) == os.getpid(),
    "leads_session": os.getsid(0) == os.getpid(), "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "stdin": sys.stdin.read(), "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
}))
print("logged", file=sys.stderr)
"""
DIFFERENT = """
import os, random, sys
print(os.getpid(), os.getppid(), random.random())
"""


class Jobs:
    """Modules that processes run, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = process.child_environment(str(folder))
        self.names: list[str] = []

    def add(self, code: str) -> str:
        self.names.append(f"job_{len(self.names)}")
        (self.folder / f"{self.names[-1]}.py").write_text(
            f"if __name__ == '__main__':\n{textwrap.indent(code, '    ')}"
        )
        return self.names[-1]

    def run(self, name: str, *arguments: str, **options: Any) -> Outcome:
        return process.run([sys.executable, "-m", name, *arguments], env=self.env, **options)

    def forking(self, *imports: str, together: int = 1) -> contextlib.AbstractContextManager[None]:
        return process.forking(self.names, self.env, imports=imports, together=together)

    @contextlib.contextmanager
    def started(self, name: str, *arguments: str) -> Iterator[process.Child]:
        with process.start_child([sys.executable, "-m", name, *arguments], env=self.env) as child:
            yield child


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def is_fork(child: process.Child) -> bool:
    assert isinstance(child._started, (Command, Forked))
    return isinstance(child._started, Forked)


def open_descriptors(process: int | str) -> list[str]:
    """The descriptors of a process, with that of the listing itself."""
    return sorted(entry.name for entry in Path(f"/proc/{process}/fd").iterdir())


def test_a_fork_equals_a_process_that_is_started_as_usual(jobs: Jobs) -> None:
    name = jobs.add(DESCRIBE)
    usual = jobs.run(name, "a", "b c", stdin_text="text")
    with jobs.forking():
        with jobs.started(name) as child:
            assert is_fork(child)
            child.finish(AMPLE_S)
        forked = jobs.run(name, "a", "b c", stdin_text="text")
    assert json.loads(forked.stdout) == json.loads(usual.stdout)
    assert (forked.returncode, forked.log_tail) == (usual.returncode, usual.log_tail) == (0, "logged")


def test_forks_are_different_processes_with_different_random_numbers(jobs: Jobs) -> None:
    name = jobs.add(DIFFERENT)
    with jobs.forking("random"):
        lines = [jobs.run(name).stdout.split() for _ in range(3)]
    pids, parents, numbers = map(set, zip(*lines, strict=True))
    assert (len(pids), len(parents), len(numbers)) == (3, 1, 3)


def test_the_same_work_is_not_forked_from_one_process_twice(jobs: Jobs) -> None:
    name = jobs.add(DIFFERENT)
    parents = []
    with jobs.forking("random"):
        for work in ("a", "b", "b", "a", "a"):
            process.separate_forks(work)
            parents.append(jobs.run(name).stdout.split()[1])
    first, second, third, fourth, fifth = parents
    assert first == second != third == fourth != fifth
    assert fifth not in (first, third)
    assert all(not is_running(int(parent)) for parent in parents)
    process.separate_forks("a")  # without a block of `forking` there is nothing to separate


def test_servers_that_replace_others_start_early_and_together(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    name = jobs.add(DIFFERENT)
    started: list[ForkServer] = []

    def start(*arguments: Any) -> ForkServer:
        started.append(ForkServer(*arguments))
        return started[-1]

    monkeypatch.setattr("profiler_kit.process.forks.ForkServer", start)
    counts, parents = [], []
    with jobs.forking("random", together=3):
        for _ in range(6):
            process.separate_forks("a")
            counts.append(len(started))
            parents.append(jobs.run(name).stdout.split()[1])
            assert all(server._is_usable is not None for server in started), "none imports while a process measures"
    assert counts == [5, 5, 5, 5, 5, 8], "one more than three at the beginning, and three when none is ready"
    assert len(set(parents)) == 6
    assert all(not is_running(server._process.pid) for server in started), "unused ones end too"


def test_a_fork_outlives_the_replacement_of_its_parent(jobs: Jobs) -> None:
    waits, ends_at_once = jobs.add("print(input())"), jobs.add("print('done')")
    argv = [sys.executable, "-m", waits]
    with jobs.forking():
        process.separate_forks("a")
        with process.start_child(argv, env=jobs.env, accepts_line=True) as child:
            assert is_fork(child)
            process.separate_forks("a")
            assert jobs.run(ends_at_once).stdout == "done\n"
            child.send_line("still here")
            assert child.finish(AMPLE_S).stdout == "still here\n"


def test_numpy_numbers_differ_between_forks(jobs: Jobs) -> None:
    name = jobs.add("import numpy\nprint(numpy.random.rand())\n")
    with jobs.forking("numpy.random"):
        with jobs.started(name) as child:
            assert is_fork(child), "the threads of numpy's library end before a fork"
            child.finish(AMPLE_S)
        assert jobs.run(name).stdout != jobs.run(name).stdout


@pytest.mark.parametrize("forks", [True, False])
@pytest.mark.parametrize(
    ("code", "returncode"),
    [
        ("raise SystemExit(3)", 3),
        ("import os; os._exit(4)", 4),
        ("import os; os.abort()", -signal.SIGABRT),
        ("1 / 0", 1),
        ("import atexit; atexit.register(print, 'at exit')", 0),
    ],
)
def test_every_ending_is_reported(forks: bool, code: str, returncode: int, jobs: Jobs) -> None:
    name = jobs.add(code)
    with jobs.forking() if forks else contextlib.nullcontext():
        outcome = jobs.run(name)
    assert outcome.returncode == returncode
    assert ("ZeroDivisionError" in outcome.log_tail) == (code == "1 / 0")
    assert outcome.stdout == ("at exit\n" if "atexit" in code else "")


def test_a_line_reaches_a_fork_and_its_lines_arrive_as_they_are_printed(jobs: Jobs) -> None:
    name = jobs.add("print('ready', flush=True)\nprint(input().upper())")
    lines: list[str] = []
    argv = [sys.executable, "-m", name]
    with jobs.forking(), process.start_child(argv, env=jobs.env, accepts_line=True, on_line=lines.append) as child:
        assert is_fork(child)
        child.send_line("go")
        assert child.finish(AMPLE_S).ok
    assert lines == ["ready", "GO"]


def test_a_time_limit_ends_a_fork_and_its_children(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.started, "GRACE_S", AMPLE_S)
    name = jobs.add(
        "import os, subprocess, time\nprint(os.getpid(), subprocess.Popen(['sleep', '300']).pid, flush=True)\ntime.sleep(300)"
    )
    with jobs.forking():
        lines: list[str] = []
        with process.start_child([sys.executable, "-m", name], env=jobs.env, on_line=lines.append) as child:
            assert not child.exits_within(AMPLE_S, unless=lambda: bool(lines))
            outcome = child.finish(0.05)
        assert outcome.timed_out
        assert outcome.signal_name == "SIGTERM"
        for pid in map(int, outcome.stdout.split()):
            wait_for_end(pid)
        with jobs.started(name) as child:
            assert is_fork(child), "the server serves on"


def test_nothing_is_left_after_the_block(jobs: Jobs) -> None:
    name = jobs.add(DIFFERENT)
    before = open_descriptors("self")
    with jobs.forking():
        server = int(jobs.run(name).stdout.split()[1])
        assert is_running(server)
        children = Path(f"/proc/{server}/task/{server}/children")
        wait_until(lambda: not children.read_text())  # a finished fork is collected
        most = len(open_descriptors(server))  # perhaps with those of the fork
        for _ in range(most):
            jobs.run(name)
        wait_until(lambda: len(open_descriptors(server)) <= most)
    assert not Path(f"/proc/{server}").exists()
    assert open_descriptors("self") == before


def test_a_killed_parent_takes_the_server_and_its_forks_with_it(jobs: Jobs) -> None:
    name = jobs.add("import os, time\nprint(os.getpid(), os.getppid(), flush=True)\ntime.sleep(300)")
    program = f"""
        import os, sys
        from profiler_kit import process
        env = dict({jobs.env!r})
        with process.forking([{name!r}], env):
            process.run([sys.executable, "-m", {name!r}], env=env, on_line=lambda line: print(os.getpid(), line, flush=True))
    """
    pids: list[int] = []

    def kill(line: str) -> None:
        pids.extend(map(int, line.split()))
        os.kill(pids[0], signal.SIGKILL)

    process.run([sys.executable, "-c", textwrap.dedent(program)], env=jobs.env, on_line=kill)
    assert len(set(pids)) == 3
    for pid in pids:
        wait_for_end(pid)


def test_a_killed_server_ends_its_forks_and_later_processes_start_as_usual(jobs: Jobs) -> None:
    name = jobs.add("import os, time\nprint(os.getppid(), flush=True)\ntime.sleep(300)")
    after = jobs.add(DIFFERENT)
    argv = [sys.executable, "-m", name]
    with (
        jobs.forking(),
        process.start_child(argv, env=jobs.env, on_line=lambda line: os.kill(int(line), signal.SIGKILL)) as child,
    ):
        assert is_fork(child)
        assert child.finish(AMPLE_S).signal_name == "SIGKILL"
        with jobs.started(after) as later:
            assert not is_fork(later)
            assert later.finish(AMPLE_S).ok


@pytest.mark.parametrize(
    "code",
    [
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
        "raise ImportError",
        "import os\nos._exit(1)",
        "import os\nos.kill(os.getpid(), 9)",
    ],
    ids=["thread", "error", "exit", "crash"],
)
def test_where_a_fork_is_not_safe_processes_start_as_usual(code: str, jobs: Jobs) -> None:
    name = jobs.add(DIFFERENT)
    (jobs.folder / "needed.py").write_text(code)
    with jobs.forking("needed"), jobs.started(name) as child:
        assert not is_fork(child)
        assert child.finish(AMPLE_S).ok


def test_a_job_that_a_fork_would_change_starts_as_usual(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    name, other = jobs.add(DIFFERENT), jobs.add(DIFFERENT)
    jobs.names.remove(other)
    plain, env = [sys.executable, "-m", name], jobs.env
    with jobs.forking():
        cases: list[tuple[list[str], dict[str, Any]]] = [
            ([sys.executable, "-m", other], {"env": env}),
            (["env", *plain], {"env": env}),
            (plain, {"env": {**env, "OMP_NUM_THREADS": "7"}}),
            (plain, {"env": env, "cwd": jobs.folder}),
        ]
        for argv, options in cases:
            with process.start_child(argv, **options) as child:
                assert not is_fork(child), argv
                assert child.finish(AMPLE_S).ok
        monkeypatch.chdir(jobs.folder)
        with jobs.started(name) as child:
            assert not is_fork(child)


def test_other_systems_start_processes_as_usual(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    name = jobs.add(DIFFERENT)
    monkeypatch.setattr(sys, "platform", "darwin")
    with jobs.forking():
        monkeypatch.undo()
        with jobs.started(name) as child:
            assert not is_fork(child)


def test_an_inner_block_uses_the_outer_server(jobs: Jobs) -> None:
    name = jobs.add(DIFFERENT)
    with jobs.forking():
        outer = jobs.run(name).stdout.split()[1]
        with jobs.forking():
            assert jobs.run(name).stdout.split()[1] == outer
        assert jobs.run(name).stdout.split()[1] == outer


PEAK = "from profiler_kit.worker.environment import peak_rss_bytes\n{work}\nprint(peak_rss_bytes())"
MIB = 2**20


def test_the_peak_of_memory_is_that_of_the_process(jobs: Jobs) -> None:
    """Neither that of the server, nor of an earlier fork, nor of the process that starts it."""
    small = jobs.add(PEAK.format(work="pass"))
    large = jobs.add(PEAK.format(work=f"x = b'x' * {256 * MIB}; del x"))
    (jobs.folder / "needed.py").write_text(f"x = b'x' * {256 * MIB}\ndel x\n")
    here = b"x" * (1024 * MIB)  # of the process that starts the others
    with jobs.forking("needed", "profiler_kit.worker.environment"), jobs.started(small) as child:
        assert is_fork(child)
        first = int(child.finish(AMPLE_S).stdout)
        peak = int(jobs.run(large).stdout)
        again = int(jobs.run(small).stdout)
    usual = int(jobs.run(small).stdout)
    assert len(here) > usual  # which varies with the build of torch
    assert 2 * usual > first > usual / 2
    assert abs(again - first) < 16 * MIB
    assert peak - first == pytest.approx(256 * MIB, abs=32 * MIB)


INTERRUPTED_PROGRAM = """
import gc, os, random, signal, sys, time
from profiler_kit import process

name, rounds = sys.argv[1], int(sys.argv[2])
env = process.child_environment(os.environ["PYTHONPATH"])
random.seed(5)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
interrupts = 0
for number in range(rounds):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.3))
            with process.forking([name], env):
                for _ in range(20):
                    process.run([sys.executable, "-m", name], env=env)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupts += 1

def is_left(pid):
    try:
        command, stat = open(f"/proc/{pid}/cmdline").read(), open(f"/proc/{pid}/stat").read()
    except OSError:
        return False
    return name in command.split("\\0") and int(pid) != os.getpid() and stat.rpartition(")")[2].split()[0] != "Z"

while any(is_left(pid) for pid in os.listdir("/proc") if pid.isdigit()):  # a server that nothing ends never goes
    time.sleep(0.01)
gc.collect()  # an interrupt at a bad moment leaves cycles
print(interrupts, len(os.listdir("/proc/self/fd")))
"""


def test_interrupts_at_random_moments_leave_nothing(jobs: Jobs) -> None:
    name = jobs.add("import time\ntime.sleep(0.02)")
    named = jobs.folder / f"{jobs.folder.name.replace('-', '_')}_job.py"  # no other process has it in its command
    (jobs.folder / f"{name}.py").rename(named)
    rounds = 25
    outcome = process.run([sys.executable, "-c", INTERRUPTED_PROGRAM, named.stem, str(rounds)], env=jobs.env)
    assert outcome.ok, outcome.log_tail
    interrupts, descriptors = map(int, outcome.stdout.split())
    assert interrupts > rounds / 2
    assert descriptors < 12


def test_a_server_that_does_not_answer_is_not_used(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    name = jobs.add(DIFFERENT)
    (jobs.folder / "needed.py").write_text("import time\ntime.sleep(300)")
    monkeypatch.setattr(process.forks, "START_UP_S", 0.3)
    with jobs.forking("needed"), jobs.started(name) as child:
        assert not is_fork(child)
        assert child.finish(AMPLE_S).ok


def test_a_server_that_cannot_be_started_is_not_used(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no process")

    name = jobs.add(DIFFERENT)
    monkeypatch.setattr(ForkServer, "__init__", refuse)
    with jobs.forking(), jobs.started(name) as child:
        assert not is_fork(child)
        assert child.finish(AMPLE_S).ok

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest
from waiting import AMPLE_S, wait_for_end, written_number

from profiler_kit import process
from profiler_kit.errors import KitError
from profiler_kit.process import Outcome, run


def python(code: str, **options: object) -> Outcome:
    return run([sys.executable, "-c", textwrap.dedent(code)], **options)  # type: ignore[arg-type]


def ended_after_a_line(code: str) -> Outcome:
    """The outcome of a program whose time is over once it has printed a line."""
    lines: list[str] = []
    with process.start_child([sys.executable, "-c", textwrap.dedent(code)], on_line=lines.append) as child:
        assert not child.exits_within(AMPLE_S, unless=lambda: bool(lines)), "the program never got there"
        return child.finish(0.05)


def open_files() -> int:
    folder = Path("/proc/self/fd") if Path("/proc/self/fd").is_dir() else Path("/dev/fd")
    return len(list(folder.iterdir()))


def test_success_gives_stdout_and_the_end_of_stderr() -> None:
    outcome = python("import sys; print('grüße'); print('a note', file=sys.stderr)")
    assert outcome.ok
    assert (outcome.returncode, outcome.signal_name, outcome.timed_out) == (0, None, False)
    assert (outcome.stdout, outcome.log_tail) == ("grüße\n", "a note")
    assert outcome.duration_ns > 0


def test_a_nonzero_end_is_no_exception() -> None:
    outcome = python("import sys; sys.exit(7)")
    assert (outcome.returncode, outcome.signal_name, outcome.ok) == (7, None, False)


def test_a_crash_names_its_signal_and_keeps_the_log() -> None:
    outcome = python("import os, sys; print('before', file=sys.stderr, flush=True); os.abort()")
    assert outcome.returncode == -signal.SIGABRT
    assert outcome.signal_name == "SIGABRT"
    assert not outcome.timed_out
    assert "before" in outcome.log_tail


def test_working_folder_environment_and_stdin(tmp_path: Path) -> None:
    outcome = python(
        "import os, sys; print(os.getcwd(), os.environ['X'], sys.stdin.read(), sep='|')",
        cwd=tmp_path,
        env={"X": "1"},
        stdin_text="fed\nin",
    )
    assert outcome.stdout == f"{tmp_path.resolve()}|1|fed\nin\n"


def test_stdin_is_empty_unless_given() -> None:
    assert python("import sys; print(repr(sys.stdin.read()))").stdout == "''\n"


def test_a_child_that_never_reads_a_large_stdin_ends() -> None:
    assert python("print(1)", stdin_text="x" * 5_000_000).stdout == "1\n"


def test_a_hang_is_ended_with_its_whole_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.started, "GRACE_S", AMPLE_S)
    outcome = ended_after_a_line(
        """
        import subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        print(child.pid, flush=True)
        time.sleep(300)
        """,
    )
    assert outcome.timed_out
    assert not outcome.ok
    assert outcome.signal_name == "SIGTERM"
    wait_for_end(int(outcome.stdout))


def test_a_process_deaf_to_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.started, "GRACE_S", 0.2)
    outcome = ended_after_a_line(
        """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("deaf", flush=True)
        time.sleep(300)
        """,
    )
    assert outcome.timed_out
    assert outcome.signal_name == "SIGKILL"
    assert outcome.stdout == "deaf\n"


def test_sigterm_gives_time_to_clean_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.started, "GRACE_S", AMPLE_S)
    mark = tmp_path / "cleaned"
    outcome = ended_after_a_line(
        f"""
        import pathlib, signal, sys, time
        def clean(*_):
            pathlib.Path({str(mark)!r}).touch()
            sys.exit(5)
        signal.signal(signal.SIGTERM, clean)
        print("ready", flush=True)
        time.sleep(300)
        """,
    )
    assert outcome.timed_out
    assert outcome.returncode == 5
    assert not outcome.ok
    assert mark.exists()


def test_a_child_without_stdout_still_times_out() -> None:
    outcome = python("import os, time; os.close(1); time.sleep(300)", timeout_s=1.0)
    assert outcome.timed_out


def test_what_a_child_leaves_behind_is_killed() -> None:
    outcome = python(
        """
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "while True: print('noise', flush=True)"])
        print(child.pid, flush=True)
        """
    )
    assert outcome.returncode == 0
    wait_for_end(int(outcome.stdout.splitlines()[0]))


def test_huge_output_is_cut_and_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.child, "STDOUT_LIMIT_BYTES", 1_000_000)
    outcome = python(
        "import sys\nfor _ in range(3000): sys.stdout.write('x' * 999 + '\\n'); sys.stderr.write('e' * 999 + '\\n')"
    )
    assert outcome.ok
    assert outcome.stdout_cut
    assert len(outcome.stdout) == 1_000_000
    assert 0 < len(outcome.log_tail.splitlines()) <= process.TAIL_LINES


def test_output_up_to_the_limit_is_whole() -> None:
    outcome = python("print('y' * 3_000_000)")
    assert len(outcome.stdout) == 3_000_001
    assert not outcome.stdout_cut


def test_output_is_whole_though_it_is_read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.child, "DRAIN_S", 0.0)  # this process was stopped, and the time is over
    with process.start_child([sys.executable, "-c", "print('z' * 50_000)"]) as child:
        assert child._started.exit_code(AMPLE_S) == 0
        assert len(child.finish(AMPLE_S).stdout) == 50_001


def test_the_tail_is_the_end_of_the_log_file(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "worker.log"
    outcome = python("import sys\nfor i in range(100): print(i, file=sys.stderr)", log=log)
    assert log.read_text().splitlines() == [str(i) for i in range(100)]
    assert outcome.log_tail.splitlines() == [str(i) for i in range(100 - process.TAIL_LINES, 100)]


def test_lines_come_live_and_whole(tmp_path: Path) -> None:
    """The child waits for an answer to its first line, so a line kept back would time out."""
    seen: list[str] = []
    answered = tmp_path / "answered"

    def answer(line: str) -> None:
        seen.append(line)
        answered.touch()

    outcome = python(
        f"""
        import pathlib, time
        print("first", flush=True)
        while not pathlib.Path({str(answered)!r}).exists():
            time.sleep(0.01)
        print("zweite ü")
        print("last, no newline", end="")
        """,
        on_line=answer,
    )
    assert outcome.ok
    assert seen == ["first", "zweite ü", "last, no newline"]
    assert outcome.stdout == "\n".join(seen)


def test_an_interrupt_ends_the_group_and_is_raised_again() -> None:
    pids: list[int] = []

    def interrupt(line: str) -> None:
        pids.append(int(line))
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores SIGINT
    try:
        with pytest.raises(KeyboardInterrupt):
            python("import os, time; print(os.getpid(), flush=True); time.sleep(300)", on_line=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for_end(pids[0])


INTERRUPTED_PROGRAM = """
import os, random, signal, sys, time
from profiler_kit.process import run

rounds, repeat_s, sleep_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
random.seed(5)
signal.signal(signal.SIGINT, signal.default_int_handler)
is_impatient = False
signal.signal(signal.SIGALRM, lambda *_: is_impatient and signal.raise_signal(signal.SIGINT))

def interrupted_round():
    global is_impatient
    is_impatient = True
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.03), repeat_s)
        run(["/bin/sh", "-c", f"echo a; sleep {sleep_s}"], on_line=lambda line: None)
        is_impatient = False
        return 0
    except KeyboardInterrupt:
        is_impatient = False
        return 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)

def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [pid for pid in file.read().split() if open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"]

interrupts = sum(interrupted_round() for _ in range(rounds))
while repeat_s and children():
    time.sleep(0.01)
print(interrupts, len(children()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("rounds", "repeat_s"), [(100, 0.0), (40, 0.001)], ids=["once", "repeated"])
def test_interrupts_at_random_moments_never_hang(rounds: int, repeat_s: float) -> None:
    """Also with an impatient user whose further interrupts meet the cleanup."""
    paths = {"PYTHONPATH": str(Path(process.__file__).resolve().parent.parent.parent)}
    # With one each millisecond, an interrupt may meet the instruction before the kill, and a process then ends by itself.
    sleep_s = 0.02 if repeat_s else 300
    program = [sys.executable, "-c", INTERRUPTED_PROGRAM, str(rounds), str(repeat_s), str(sleep_s)]
    outcome = run(program, env=paths)
    assert outcome.ok, outcome.log_tail
    interrupts, children = map(int, outcome.stdout.split())
    assert interrupts > rounds / 4 if repeat_s else interrupts == rounds
    assert children == 0


def test_an_interrupt_during_the_start_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process exists, and no variable names it yet: the interrupt waits until one does."""
    pids: list[int] = []
    real_start = process.child._start

    def start(*args: object) -> object:
        popen = real_start(*args)  # type: ignore[arg-type]
        pids.append(popen.pid)
        signal.raise_signal(signal.SIGINT)
        return popen

    monkeypatch.setattr(process.child, "_start", start)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            python("import time; time.sleep(300)")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for_end(pids[0])


def test_a_lock_that_an_interrupt_left_in_popen_keeps_nothing_waiting() -> None:
    """An exception of a signal handler inside `Popen.poll` leaves its lock held."""
    with process.start_child([sys.executable, "-c", "raise SystemExit(3)"]) as child:
        child._started.popen._waitpid_lock.acquire()  # type: ignore[attr-defined]
        assert child.finish(AMPLE_S).returncode == 3
    with process.start_child([sys.executable, "-c", "import time; time.sleep(300)"]) as child:
        child._started.popen._waitpid_lock.acquire()  # type: ignore[attr-defined]


def test_without_a_descriptor_of_the_exit_it_is_noticed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels before 5.3, and containers that forbid the call."""

    def refuse(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    assert python("import os, sys, time; os.close(1); time.sleep(0.3); sys.exit(4)").returncode == 4


def test_no_file_stays_open(tmp_path: Path) -> None:
    before = open_files()
    python("print(1)", stdin_text="x", log=tmp_path / "log")
    python("import time; time.sleep(300)", timeout_s=0.1)
    with pytest.raises(KitError):
        run([tmp_path / "no_such_program"])
    assert open_files() == before


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(KitError) as caught:
        run([tmp_path / "no_such_program"])
    assert caught.value.where == str(tmp_path / "no_such_program")
    assert caught.value.hint
    with pytest.raises(KitError) as caught:
        run([sys.executable, "-c", ""], cwd=tmp_path / "no_such_folder")
    assert caught.value.where == str(tmp_path / "no_such_folder")


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KitError) as caught:
        run([sys.executable, "-c", ""], log=tmp_path / "file" / "log")
    assert str(tmp_path / "file") in str(caught.value.where)


def test_a_started_child_runs_beside_and_hears_one_line() -> None:
    code = "import sys; print('ready', flush=True); print('heard', sys.stdin.readline().strip(), sys.stdin.read())"
    lines: list[str] = []
    with process.start_child([sys.executable, "-c", code], accepts_line=True, on_line=lines.append) as child:
        child.send_line("go")
        outcome = child.finish(AMPLE_S)
    assert outcome.ok
    assert lines == ["ready", "heard go "]


def test_a_child_that_has_ended_does_not_mind_being_told() -> None:
    before = open_files()
    with process.start_child([sys.executable, "-c", "raise SystemExit(4)"], accepts_line=True) as child:
        assert child.exits_within(AMPLE_S)
        child.send_line("go")
        assert child.finish(AMPLE_S).returncode == 4
    assert open_files() == before


def test_a_child_left_alone_is_ended_with_its_block(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; print(os.getpid(), file=open({str(pid)!r}, 'w'), flush=True); time.sleep(300)"
    with process.start_child([sys.executable, "-c", code], accepts_line=True):
        written_number(pid)
    wait_for_end(written_number(pid))


def test_the_time_limit_counts_from_where_the_end_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with process.start_child([sys.executable, "-c", "import sys; sys.stdin.readline()"], accepts_line=True) as child:
        # longer than the limit below: waiting to be told is not the child's time
        now_ns = time.monotonic_ns
        monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns() + round(2 * AMPLE_S * 1e9))
        child.send_line("go")
        assert child.finish(AMPLE_S).ok


def test_a_child_hears_the_end_of_its_input_though_others_were_started_since() -> None:
    """A later child that held the pipe would keep an earlier one waiting for ever."""
    reads = [sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"]
    with (
        process.start_child(reads, accepts_line=True) as first,
        process.start_child([sys.executable, "-c", "import time; time.sleep(300)"], accepts_line=True),
    ):
        first.send_line("go")
        outcome = first.finish(AMPLE_S)
    assert outcome.ok
    assert outcome.stdout == "'go\\n'\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux does it")
def test_a_child_ends_with_a_parent_that_is_killed() -> None:
    inner = textwrap.dedent(
        """
        import os, time
        from profiler_kit.process import exit_with_parent
        exit_with_parent()
        print(os.getpid(), flush=True)
        time.sleep(300)
        """
    )
    outer = textwrap.dedent(
        f"""
        import os, subprocess, sys
        own = dict(stdout=subprocess.PIPE, start_new_session=True)
        child = subprocess.Popen([sys.executable, "-c", {inner!r}], **own)
        print(int(child.stdout.readline()), flush=True)
        os.kill(os.getpid(), 9)
        """
    )
    paths = {"PYTHONPATH": str(Path(process.__file__).resolve().parent.parent.parent)}
    outcome = run([sys.executable, "-c", outer], env=paths)
    assert outcome.signal_name == "SIGKILL", outcome.log_tail
    wait_for_end(int(outcome.stdout))

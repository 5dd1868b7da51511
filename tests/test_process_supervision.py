"""A supervised command hands over its result, or its ending is reported: status, stage, line, and no process left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import AMPLE_S, wait_for_end, wait_until, written_number

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes that are left behind are found on Linux only")

PROGRAM = """
import ctypes, json, os, signal, subprocess, sys, threading, time
from profiler_kit.process.ending import Ending
from profiler_kit.process.supervision import ended_after, note_stage, supervise


def command(act):
    note_stage("counting")
    exec(compile(act, "net.py", "exec"), dict(globals(), hang=hang))
    return b"result"


def hang(seconds):
    with ended_after(seconds):
        ctypes.PyDLL(None).sleep(100)


import profiler_kit.process.supervision as supervision
supervision.OVERDUE_S = 0.1
for act in json.loads(sys.argv[1]):
    ending = supervise(lambda: command(act))
    if isinstance(ending, Ending):
        print(json.dumps([ending.text, ending.stage, ending.file, ending.line]))
    else:
        print(json.dumps(ending.decode()))
    sys.stdout.flush()
"""


def endings(*acts: str) -> list[object]:
    """What `supervise` returns for a command that does each of `acts`, at line 2 of net.py."""
    words = [sys.executable, "-c", PROGRAM, json.dumps([f"\n{act}" for act in acts])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=AMPLE_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_result_needs_no_word_and_every_other_ending_has_its_status_and_line() -> None:
    found = endings(
        "pass",
        "os._exit(0)",
        "ctypes.CDLL(None).exit(0)",
        "ctypes.string_at(0)",
        "os.abort()",
        "signal.raise_signal(signal.SIGKILL)",
        "raise GeneratorExit",
        "os.execv('/bin/true', ['true'])",
        "os.closerange(0, 100)",
    )
    assert found[0] == "result"
    assert found[1] == ["ended with exit status 0", "counting", None, 0]
    in_c = ["counting", "net.py", 2] if sys.platform == "linux" else ["counting", None, 0]
    assert found[2] == ["ended with exit status 0", *in_c]
    assert found[3] == ["was ended by SIGSEGV", "counting", "net.py", 2]
    assert found[4] == ["was ended by SIGABRT", "counting", "net.py", 2]
    assert found[5] == ["was ended by SIGKILL", "counting", None, 0]
    assert found[6] == ["ended with exit status 1", "counting; GeneratorExit", None, 0]
    assert found[7] == ["ended with exit status 0", "counting", None, 0]
    assert found[8] == ["ended with exit status 1", "counting; OSError", None, 0]


def test_a_copy_of_the_process_hands_over_nothing_and_threads_do_not_delay() -> None:
    assert endings("os.fork()", "threading.Thread(target=time.sleep, args=(100,)).start()") == ["result", "result"]


def test_native_code_that_never_returns_is_ended_at_its_line() -> None:
    assert endings("hang(0.1)")[0][0] == "was still running after 0.1 s"  # type: ignore[index]


def test_an_exit_handler_that_ends_the_process_comes_too_late() -> None:
    assert endings("import atexit; atexit.register(os._exit, 7)") == ["result"]


@linux
def test_no_process_is_left(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    act = (
        f"file = open({str(file)!r}, 'a'); "
        "print(subprocess.Popen(['sleep', '100'], start_new_session=True).pid, file=file, flush=True); "
        "os.fork() or (os.setsid(), os.fork(), print(os.getpid(), file=file, flush=True), time.sleep(100))\n"
        f"while open({str(file)!r}).read().count('\\n') < 3: time.sleep(0.01)"
    )
    assert endings(act) == ["result"]
    pids = [int(line) for line in file.read_text().split()]
    assert len(pids) == 3
    for pid in pids:
        wait_for_end(pid)


@linux
def test_a_killed_parent_takes_the_command_with_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    act = f"\nprint(os.getpid(), file=open({str(file)!r}, 'w'), flush=True); time.sleep(100)"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, json.dumps([act])], stdin=subprocess.DEVNULL)
    try:
        pid = written_number(file)
    finally:
        process.kill()
        process.wait()
    wait_for_end(pid)


def test_the_third_signal_kills_a_command_that_ignores_the_others(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    act = (
        "\nsignal.signal(signal.SIGTERM, lambda *_: open('count', 'a').write('x'))\n"
        f"print(os.getpid(), file=open({str(file)!r}, 'w'), flush=True)\nwhile True: time.sleep(1)"
    )
    words = [sys.executable, "-c", PROGRAM, json.dumps([act])]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    written_number(file)
    count = tmp_path / "count"
    for number in (1, 2):
        process.send_signal(signal.SIGTERM)
        wait_until(lambda n=number: count.exists() and len(count.read_text()) == n)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=AMPLE_S)
    assert json.loads(out)[0] == "was ended by SIGKILL"


@pytest.mark.jobs
def test_only_a_signal_of_the_parent_interrupts_the_command() -> None:
    handled = "\nsignal.signal(signal.SIGTERM, interrupt)\n"
    program = PROGRAM.replace("for act in", f"{handled.strip()}\nfor act in").replace(
        "def command(act):", "def interrupt(*_):\n    raise KeyboardInterrupt\n\n\ndef command(act):"
    )
    acts = ["os.kill(os.getpid(), signal.SIGTERM)", "os.kill(os.getppid(), signal.SIGTERM); time.sleep(100)"]
    words = [sys.executable, "-c", program, json.dumps([f"\n{act}" for act in acts])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=AMPLE_S, stdin=subprocess.DEVNULL)
    first, second = [json.loads(line) for line in done.stdout.splitlines()]
    assert first == "result"
    assert second[:2] == ["ended with exit status 1", "counting; KeyboardInterrupt"]

"""However the user's code ends, a command ends with a verdict, or with status 3 and the place. Nothing is left running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_files import call, net
from simulated_clock import SimulatedClock
from waiting import AMPLE_S, wait_for_end, written_number

from profiler_kit.errors import BUDGET_BROKEN, OK, TARGET_FAILED

pytestmark = pytest.mark.jobs

HANG = "import os, time\nprint(os.getpid(), file=open({pid!r}, 'w'), flush=True)\ntime.sleep(300)\n"


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.Popen(
        [sys.executable, "-m", "profiler_kit", *words],
        cwd=folder,
        env={**environment, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of the command line in a process of its own."""
    process = started(folder, *words)
    out, err = process.communicate(timeout=AMPLE_S)
    return process.returncode, out, err


@pytest.mark.skipif(sys.platform != "linux", reason="the stack at exit needs on_exit of the C library")
def test_a_c_library_that_exits_is_a_failed_target_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(net("import ctypes; ctypes.CDLL(None).exit(0)"))
    code, out, err = ended(tmp_path, "count", "net.py", "-q")
    assert (code, out) == (TARGET_FAILED, "")
    assert err.startswith("error: net.py:8: ")
    assert "exit status 0" in err
    assert len(err.splitlines()) == 2


def test_a_crash_in_native_code_fails_the_check_and_leaves_no_checkout(tmp_path: Path) -> None:
    repository(tmp_path, net())
    (tmp_path / "net.py").write_text(net("import ctypes; ctypes.string_at(0)"))
    code, out, err = ended(tmp_path, "check", "net.py", "--base", "main", "--budget", "flops=+10%", "-q", "-f", "json")
    assert (code, json.loads(out)["status"]) == (TARGET_FAILED, "failed")
    assert err.startswith("error: net.py:8: ")
    assert "SIGSEGV" in err
    assert not list(tmp_path.glob("profiler_kit_base_*"))


def test_a_base_that_exits_is_a_failed_check(tmp_path: Path) -> None:
    repository(tmp_path, net("import ctypes; ctypes.CDLL(None).exit(0)"))
    (tmp_path / "net.py").write_text(net())
    code, out, err = ended(tmp_path, "check", "net.py", "--base", "main", "--budget", "flops=+10%", "-q", "-f", "json")
    assert code == TARGET_FAILED, err
    assert json.loads(out)["status"] == "failed"
    assert "exit status 0" in err
    assert "base" in err


def test_a_fork_in_forward_prints_one_report(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(net("import ctypes; ctypes.CDLL(None).fork(); return self.fc(x)"))
    code, out, err = ended(tmp_path, "count", "net.py", "-q", "-f", "json")
    assert code == OK, err
    assert json.loads(out)["static"]["params"] == 20
    assert err == ""


ACTS = (
    "os._exit(0)", "os.abort()", "os.execv('/bin/true', ['true'])", "os.kill(os.getpid(), 9)", "raise GeneratorExit",
    "raise type('Panic', (BaseException,), {})('at the disco')", "sys.exit(0)",
)  # fmt: skip
PLACES = ("import", "init", "loss", "backward", "property")


@pytest.mark.parametrize(
    ("act", "where"), [*((act, "forward") for act in ACTS), *((act, where) for act in ACTS[0::5] for where in PLACES)]
)
def test_code_that_would_end_the_process_is_an_error_at_its_line(
    act: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process: it goes on."""
    monkeypatch.chdir(tmp_path)
    call_it = f"import os, sys; {act}"
    inputs = "example_inputs = torch.zeros(2, 4)\n"
    text = {
        "import": net(after=f"{inputs}{call_it}\n"),
        "init": net().replace("super().__init__()", f"super().__init__(); {call_it}"),
        "forward": net(call_it),
        "loss": net(after=f"{inputs}def loss_fn(output):\n    {call_it}\n"),
        "backward": net(
            "y = self.fc(x); y.register_hook(hook); return y", f"{inputs}def hook(gradient):\n    {call_it}\n"
        ),
        "property": net(
            after=f"{inputs}def named_modules(self, *a, **k):\n    {call_it}\nNet.named_modules = named_modules\n"
        ),
    }[where]
    (tmp_path / "net.py").write_text(text)
    line = next(number for number, code in enumerate(text.splitlines(), start=1) if call_it in code)
    end = call(["count", "net.py", *(["--no-slice"] if where == "import" else [])], capfd)
    assert (end.code, end.out) == (TARGET_FAILED, "")
    assert f"net.py:{line}" in end.err
    assert "Traceback" not in end.err


def test_counting_has_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text(net())
    # a loop in which the time of a simulated clock passes, and its timer rings
    hang = "y = self.fc(x)\n        while x.is_meta: CLOCK.now_ns += 10**9; signal.raise_signal(signal.SIGALRM)\n        return y"
    (tmp_path / "net.py").write_text(f"{net(hang)}import signal, time\nCLOCK = time.sleep.__self__\n")
    SimulatedClock().install(monkeypatch)
    assert call(["count", "good.py", "-q", "-f", "json", "-o", "good.json"], capfd).code == OK
    for words in (
        ["count", "net.py"],
        ["check", "net.py", "--base", "good.json"],
        ["analyze", "net.py", "--out", "out"],
    ):
        end = call([*words, "--timeout", "60s"], capfd)
        assert end.code == TARGET_FAILED, words
        assert "net.py:9" in end.err, words
        assert "--timeout" in end.err, words


def test_user_code_takes_neither_the_streams_nor_the_folder_away(tmp_path: Path) -> None:
    act = "import os, sys; os.chdir('/'); sys.stdout.close(); sys.stderr.close(); os.close(1); print = None"
    (tmp_path / "net.py").write_text(
        net(f"{act}; return self.fc(x)") + "import atexit, os; atexit.register(os._exit, 0)\n"
    )
    code, out, err = ended(tmp_path, "count", "net.py", "--no-slice", "-f", "json", "-o", "report.csv")
    assert code == OK, err
    assert json.loads(out)["static"]["params"] == 20
    assert (tmp_path / "report.csv").exists()


FORWARD = "{}; return self.fc(x)"


@pytest.mark.parametrize(
    "act",
    [
        "import json; json.dumps = lambda *a, **k: '{}'",
        "import sys; sys.modules['json'] = None",
        "import os; os.environ = None",
        "import profiler_kit.units as units; units.__dict__.update(dict.fromkeys(vars(units)))",
        "import os; os.close(1); os.close(2); self.forward = self.fc",
    ],
)
def test_a_report_needs_nothing_that_user_code_can_replace(act: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(net(FORWARD.format(act)))
    code, out, err = ended(tmp_path, "count", "net.py", "-q", "-f", "json")
    assert code == OK, err
    assert json.loads(out)["static"]["params"] == 20


@pytest.mark.parametrize(
    ("act", "name"),
    [
        ("import os; del os.path.join", "posixpath.join"),
        ("import os; os.fspath = None", "os.fspath"),
        ("import builtins; builtins.len = None", "builtins.len"),
        ("import time; time.monotonic = None", "time.monotonic"),
        ("import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (3, r.getrlimit(r.RLIMIT_NOFILE)[1]))", "OSError"),
    ],
)
def test_an_error_after_user_code_has_replaced_a_function_names_it(act: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(net(FORWARD.format(act)))
    code, out, err = ended(tmp_path, "count", "net.py", "-q", "-f", "json")
    assert (code, out) == (TARGET_FAILED, "")
    assert err.startswith("error: net.py:")
    assert name in err.splitlines()[0]
    assert len(err.splitlines()) == 2


@pytest.mark.parametrize(
    "act",
    [
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import signal; signal.raise_signal(signal.SIGINT)",
    ],
)
def test_an_interrupt_by_user_code_is_an_error_at_its_line(act: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(net(act))
    code, out, err = ended(tmp_path, "count", "net.py", "-q")
    assert (code, out) == (TARGET_FAILED, "")
    assert err.startswith("error: net.py:8: ")


@pytest.mark.skipif(sys.platform != "linux", reason="a process ends with its parent on Linux only")
def test_a_killed_check_leaves_no_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    repository(tmp_path, HANG.format(pid=str(pid_file)) + net())
    (tmp_path / "net.py").write_text(net())
    process = started(tmp_path, "check", "net.py", "--base", "main", "--no-slice")
    try:
        pid = written_number(pid_file)
    finally:
        process.kill()
        process.communicate()
    wait_for_end(pid)


def test_the_verdict_of_a_check_survives_a_reader_that_leaves(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(net())
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "profiler_kit", "check", "net.py", "--base", "base.json", "--budget", "params=1"]
    (tmp_path / "base.json").write_text(ended(tmp_path, "count", "net.py", "-q", "-f", "json")[1])
    done = subprocess.run(command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, timeout=AMPLE_S)
    os.close(write)
    assert done.returncode == BUDGET_BROKEN, done.stderr


def repository(folder: Path, text: str) -> None:
    """A git repository in `folder` with net.py of this text on its branch main."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    (folder / "net.py").write_text(text)
    for words in (("init", "-q", "-b", "main"), ("add", "net.py"), ("commit", "-q", "-m", "x")):
        subprocess.run(["git", *identity, *words], cwd=folder, check=True, env=environment, capture_output=True)

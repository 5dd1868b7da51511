"""Side effects of user code: each kind is stopped, also in threads, and nothing stays changed afterwards."""

from __future__ import annotations

import builtins
import functools
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

from profiler_kit.errors import TargetError
from profiler_kit.loading import load
from profiler_kit.loading.scripts.side_effects import SideEffectError, is_guarded, no_side_effects
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code.boundary import user_boundary
from profiler_kit.user_code.time_limit import TimeLimitError, time_limit

URL = "https://example.org/weights.pth"
ACTS: dict[str, Callable[[Path], object]] = {
    "open": lambda folder: (folder / "x").open("w"),
    "append": lambda folder: open(folder / "x", "a"),  # noqa: PTH123, SIM115
    "os.open": lambda folder: os.open(folder / "x", os.O_CREAT | os.O_WRONLY),
    "mkdir": lambda folder: (folder / "x").mkdir(),
    "makedirs": lambda folder: os.makedirs(folder / "x" / "y"),  # noqa: PTH103
    "unlink": lambda folder: (folder / "present").unlink(),
    "rename": lambda folder: (folder / "present").rename(folder / "x"),
    "torch.save": lambda folder: torch.save(torch.ones(2), folder / "x"),
    "subprocess": lambda folder: subprocess.run(["touch", folder / "x"], check=False),
    "os.system": lambda folder: os.system(f"touch {folder / 'x'}"),
    "fork": lambda folder: os.fork(),
    "connect": lambda folder: socket.create_connection(("127.0.0.1", 9)),
    "getaddrinfo": lambda folder: socket.getaddrinfo("example.org", 80),
    "urlopen": lambda folder: urllib.request.urlopen("http://example.org"),
}


@pytest.mark.fresh_process  # of which the guard sees the caller
@pytest.mark.parametrize("act", ACTS)
def test_each_act_is_stopped(act: str, tmp_path: Path) -> None:
    (tmp_path / "present").write_text("x")
    with no_side_effects(print), pytest.raises(SideEffectError, match="loading a model does not allow") as raised:
        ACTS[act](tmp_path)
    assert f"{Path(__file__).name}:" in str(raised.value)  # the line of user code
    assert [path.name for path in tmp_path.iterdir()] == ["present"]
    assert not is_guarded()


def test_reading_and_devices_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "present").write_text("x")
    with no_side_effects(print):
        assert (tmp_path / "present").read_text() == "x"
        with open(os.devnull, "w") as null:  # noqa: PTH123
            null.write("x")


def test_new_threads_are_guarded_and_earlier_ones_are_not(tmp_path: Path) -> None:
    start, outcomes = threading.Event(), []

    def write(name: str) -> None:
        try:
            (tmp_path / name).write_text("x")
            outcomes.append((name, "written"))
        except SideEffectError:
            outcomes.append((name, "stopped"))

    def wait_and_write() -> None:
        start.wait(5)
        write("earlier")

    earlier = threading.Thread(target=wait_and_write)
    earlier.start()
    with no_side_effects(print):
        start.set()
        earlier.join()
        later = threading.Thread(target=write, args=("later",))
        later.start()
        later.join()
    assert outcomes == [("earlier", "written"), ("later", "stopped")]


def test_input_and_exit() -> None:
    stdin, bytecode, leave = sys.stdin, sys.dont_write_bytecode, os._exit
    with user_boundary(), no_side_effects(print):
        with pytest.raises(EOFError):
            builtins.input()
        with pytest.raises(SystemExit):
            os._exit(3)
        assert sys.dont_write_bytecode
    assert (sys.stdin, sys.dont_write_bytecode, os._exit) == (stdin, bytecode, leave)


def test_weights_are_not_downloaded() -> None:
    notes: list[str] = []
    fetch, load_state_dict = torch.hub.load_state_dict_from_url, nn.Module.load_state_dict
    before = (fetch.__code__, fetch.__defaults__, fetch.__kwdefaults__)
    with no_side_effects(notes.append):
        from torch.utils.model_zoo import load_url

        net = nn.Linear(2, 2)
        net.load_state_dict(load_url(URL))
        net.load_state_dict(functools.partial(fetch, url=URL)(map_location="cpu"))
        net.load_state_dict(torch.hub.load_state_dict_from_url(URL)["model"]["encoder"])
        net.load_state_dict({key: tensor for key, tensor in load_url(URL).items() if key in net.state_dict()})
        with pytest.raises(RuntimeError, match="size mismatch"):
            net.load_state_dict({"weight": torch.ones(3, 3), "bias": torch.ones(2)})
    assert set(notes) == {"weights: weights.pth not downloaded, random weights instead"}
    assert (fetch.__code__, fetch.__defaults__, fetch.__kwdefaults__) == before
    assert nn.Module.load_state_dict is load_state_dict


NET = (
    "import os, torch\nfrom torch import nn\n"
    "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.fc = nn.Linear(3, 2)\n        {act}\n"
    "    def forward(self, x):\n        return self.fc(x)\n"
)


@pytest.mark.parametrize(
    "act", ["open('log.txt', 'w')", "os.system('touch log.txt')", "os.mkdir('log.txt')", "os._exit(0)"]
)
def test_a_constructor_has_no_effects(act: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET.format(act=act))
    with pytest.raises(TargetError):
        load(TargetSpec(spec="net.py", inputs=("2,3",)))
    assert [path.name for path in tmp_path.iterdir()] == ["net.py"]


@pytest.mark.parametrize(
    "act",
    [
        "self.fc.load_state_dict(fetch())",
        "self.fc.load_state_dict(torch.load(fetch()))",
        "self.fc.load_state_dict({k: v for k, v in fetch()['net'].items() if k != 'x'})",
    ],
)
def test_a_refused_download_leaves_random_weights(act: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stop = "try:\n        os.makedirs('weights')\n    except OSError:\n        raise RuntimeError\n"
    fetch = f"def fetch():\n    {stop}    return torch.load('weights/x.pth')\n"
    (tmp_path / "net.py").write_text(NET.format(act=act) + fetch)
    load_weights = torch.load
    target = load(TargetSpec(spec="net.py", inputs=("2,3",)))
    assert "weights: fetch() not downloaded, random weights instead" in [*map(str, target.info.notes)]
    assert torch.load is load_weights
    assert [path.name for path in tmp_path.iterdir()] == ["net.py"]


def test_a_folder_that_no_weights_need_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET.format(act="fetch()") + "def fetch():\n    os.makedirs('weights')\n")
    with pytest.raises(TargetError, match="does not allow"):
        load(TargetSpec(spec="net.py", inputs=("2,3",)))


@pytest.mark.usefixtures("sleeping_passes_time")
def test_a_constructor_that_does_not_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("import time\n" + NET.format(act="while True: time.sleep(1)"))
    with pytest.raises(TargetError, match="build still running after 60 s at line 8"):
        load(TargetSpec(spec="net.py", inputs=("2,3",), import_timeout_s=60))


def test_skipped_lines_and_replaced_weights_are_in_the_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = NET.format(act=f"self.load_state_dict(torch.hub.load_state_dict_from_url({URL!r}))")
    (tmp_path / "net.py").write_text(text + "Net()(torch.ones(2, 3)).sum().backward()\n")
    notes = [*map(str, load(TargetSpec(spec="net.py", inputs=("2,3",))).info.notes)]
    assert "import: ran 3 of 4 top-level statements of net.py; skipped line 10 (training loop)" in notes
    assert "weights: weights.pth not downloaded, random weights instead" in notes


def test_time_limits_can_be_nested() -> None:
    with time_limit(30), pytest.raises(TimeLimitError, match=r"0\.1 s"), time_limit(0.1):
        time.sleep(5)
    with pytest.raises(TimeLimitError, match=r"0\.1 s"), time_limit(0.1), time_limit(30):
        time.sleep(5)


@pytest.mark.parametrize("change", [_push_mode, lambda _: _pop_mode()])
def test_function_modes_are_as_before_after_an_interrupt(change: Callable[[TorchFunctionMode], object]) -> None:
    """The interrupt may come while a mode is entered or left."""
    with TorchFunctionMode() as outer:
        with pytest.raises(TimeLimitError), time_limit(0.05):  # noqa: PT012
            change(TorchFunctionMode())
            time.sleep(5)
        assert _get_current_function_mode_stack() == [outer]


def test_a_limit_interrupts_again_code_that_catches_everything() -> None:
    caught = 0

    def stubborn() -> None:
        nonlocal caught
        while True:
            try:
                time.sleep(5)
            except BaseException:
                caught += 1
                if caught == 2:
                    raise

    with pytest.raises(TimeLimitError), time_limit(0.05):
        stubborn()

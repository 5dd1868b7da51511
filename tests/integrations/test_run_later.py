"""``run --later`` and ``trigger``: a running program records its next steps when it is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import AMPLE_S, wait_until

from profiler_kit.cli import main
from profiler_kit.errors import UsageError
from profiler_kit.integrations import attachment
from profiler_kit.integrations.attachment import REQUEST, attachable, folder_of, last_request, request

PROGRAM = """\
import sys, time, torch
from pathlib import Path
from torch import nn
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
model.train(TRAINS)
while not Path("end").exists():
    if TRAINS:
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    else:
        with torch.no_grad():
            model(torch.ones(4, 8))
    time.sleep(0.002)
print("done")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("profiler_kit.cli.commands.trigger.ANSWER_S", AMPLE_S)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started(folder: Path, *, trains: bool) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(PROGRAM.replace("TRAINS", str(trains)))
    words = ["run", "--later", "-q", "--out", "out", "--skip", "2", "--steps", "3", "--traced", "1", "train.py"]
    process = subprocess.Popen(
        [sys.executable, "-m", "profiler_kit", *words], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    wait_until(lambda: bool(attachable()))
    return process


@pytest.mark.jobs
@pytest.mark.parametrize("trains", [True, False])
def test_a_running_program_records_steps_when_it_is_asked(folder: Path, trains: bool) -> None:
    process = started(folder, trains=trains)
    try:
        assert main(["trigger", str(process.pid)]) == 0
        first = last_request(folder / "out")
        assert first is not None
        report = folder / "out" / first.name / "report.json"
        wait_until(report.exists)
        assert main(["trigger", "out"]) == 0
        second = last_request(folder / "out")
        assert second is not None
        assert second.name != first.name
        wait_until((folder / "out" / second.name / "report.json").exists)
    finally:
        (folder / "end").touch()
        output, _ = process.communicate(timeout=AMPLE_S)
    assert (process.returncode, output) == (0, "done\n")
    content = json.loads(report.read_text())
    assert content["target"]["mode"] == ("train" if trains else "infer")
    assert len(content["runs"][0]["steps_ns"]) == 3
    assert attachable() == []
    assert main(["trigger", str(process.pid)]) == 2


@pytest.mark.jobs
def test_all_ranks_record_steps_when_their_launcher_is_asked(folder: Path) -> None:
    job = """\
import torch
from pathlib import Path
from torch import nn
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
goes_on = torch.ones(1)
while goes_on:
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    goes_on = torch.tensor([float(not Path("end").exists())])
    torch.distributed.all_reduce(goes_on, torch.distributed.ReduceOp.MIN)
torch.distributed.destroy_process_group()
"""
    (folder / "train.py").write_text(job)
    words = ["run", "--later", "-q", "--out", "out", "--skip", "2", "--steps", "3", "--traced", "1", "train.py"]
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "profiler_kit"]
    process = subprocess.Popen([sys.executable, "-m", *launcher, *words], cwd=folder)
    try:
        wait_until(lambda: len(attachable()) == 2)
        assert main(["trigger", str(process.pid)]) == 0
        wanted = last_request(folder / "out")
        assert wanted is not None
        ranks = folder / "out" / wanted.name / "ranks.json"
        wait_until(ranks.exists)
    finally:
        (folder / "end").touch()
        process.communicate(timeout=AMPLE_S)
    assert process.returncode == 0
    assert [trace["rank"] for trace in json.loads(ranks.read_text())["traces"]] == [0, 1]


def test_all_ranks_begin_after_the_same_step() -> None:
    """Rank 1 reads the request two steps later than rank 0. In each step, a rank can be one ahead of the other."""
    distributed = pytest.importorskip("torch.distributed")
    from profiler_kit.recording.distributed import CommonStart

    store = distributed.HashStore()
    first = CommonStart("request", store, 0, 2)
    assert [first.is_due(step) for step in (5, 6)] == [False, False]
    second = CommonStart("request", store, 1, 2)
    assert not second.is_due(7)
    assert [first.is_due(step) for step in (7, 8)] == [False, True]
    assert second.is_due(8)


def test_requests_have_folders_of_their_own(tmp_path: Path) -> None:
    names = [request(tmp_path).name for _ in range(3)]
    assert len(set(names)) == 3
    assert all((tmp_path / name).is_dir() for name in names)
    wanted = last_request(tmp_path)
    assert wanted is not None
    assert wanted.name == names[-1]


@pytest.mark.parametrize(
    "content", ["", "{", "3", "{}", '{"name": "../x", "at_s": 1}', '{"name": "x", "at_s": "soon"}', '{"name": "x"}']
)
def test_what_is_no_request_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / REQUEST).write_text(content)
    assert last_request(tmp_path) is None


@pytest.fixture
def waiting(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that waits for requests and does nothing else, with a fork that outlives nothing."""
    code = "import os, sys, time; from pathlib import Path; from profiler_kit.integrations.attachment import register\n"
    code += (
        "register(Path('out'), 'train.py'); os.fork() or time.sleep(5); print('ready', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_a_process_is_found_by_its_number_and_that_of_its_launcher(
    folder: Path, waiting: subprocess.Popen[str]
) -> None:
    assert [(p.pid, p.parent) for p in attachable()] == [(waiting.pid, os.getpid())]
    assert folder_of(str(waiting.pid)) == folder_of(str(os.getpid())) == Path("out")
    with pytest.raises(UsageError):
        folder_of("1")
    waiting.kill()
    waiting.wait()
    assert attachable() == []
    assert list(folder.glob("profiler_kit_attach_*/*.json")) == []


def test_a_folder_is_a_target_too(folder: Path) -> None:
    (folder / "out").mkdir()
    assert folder_of("out") == Path("out")
    assert main(["trigger", "missing"]) == 2


def test_nobody_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "out").mkdir()
    monkeypatch.setattr("profiler_kit.cli.commands.trigger.ANSWER_S", 0.2)
    assert main(["trigger", "out"]) == 3


def test_the_folder_of_somebody_else_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / f"profiler_kit_attach_{os.getuid()}").symlink_to(folder)
    with pytest.raises(UsageError):
        attachment.attachable()

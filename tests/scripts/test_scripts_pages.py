"""Every command and every Python example on a page runs: README.md, CONTRIBUTING.md and docs/*.md.

The commands run in a folder with small files under the names that the pages use (`my_model.py`, `trace.json.gz`, ...).
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from profiler_kit.cli import main
from profiler_kit.integrations import attachment
from profiler_kit.measurement.tuning import MIN_TUNING_PROCESSES
from profiler_kit.measurement.visits import Visit
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetSpec
from profiler_kit.worker.run import run_job

pytestmark = pytest.mark.jobs

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "tests" / "fixtures" / "traces"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:python -m profiler_kit|profiler-kit) +(?P<arguments>[a-z-][^\n]*)")
SCRIPT = re.compile(r"python3? -m (?P<module>scripts[.\w]*\w)(?P<arguments>[^\n`|)]*)")
# Values on pages, and those of the test.
SMALLER = {"24GiB": "1GiB", "32,3,224,224": "2,3,8,8", "30s": "2s"}
# Keeps a measured command short: its options still apply, on one configuration where the page names none.
SHORT = {"--steps": "3", "--budget": "2s"}
# The same for a search: its smallest number of processes.
SHORT_SEARCH = ("--processes", str(MIN_TUNING_PROCESSES))
# Its runs start processes. Those of other commands happen in the process of the test, because starting takes long.
WITH_PROCESSES = "analyze my_model.py"
# What a report says about an option for NVIDIA devices on a machine without one. The command itself succeeds.
NOTES_WITHOUT_CUDA = {
    "--memory-limit": "- No runs with a memory limit of 1 GiB: only CUDA devices support a limit.",
}
# For commands that accept a broken budget.
BROKEN_BUDGET = "[tool.profiler-kit.budgets]\nparams = '1'\n"

MODEL = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layer1 = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.layer1(x).mean((2, 3)))


example_inputs = torch.randn(2, 3, 8, 8)
"""
LANGUAGE_MODEL = """\
from torch import nn


class Classifier(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50257, width), nn.Linear(width, 8)

    def forward(self, ids):
        return self.head(self.embedding(ids))


def build(width=32):
    return Classifier(width)
"""
TRAIN = """\
import torch

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""


def commands_of(page: Path) -> Iterator[str]:
    """The arguments of each profiler_kit command of `page`, in code blocks of a shell and in inline code, once each."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = [block["body"] for block in FENCE.finditer(text) if block["kind"] in ("", "bash", "sh")]
    spans = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    seen = dict.fromkeys(
        re.split(r" [|>] | # ", match["arguments"] + " ")[0].strip()
        for source in (*lines, *spans)
        if (match := COMMAND.match(source))
    )
    verb_alone = re.compile(r"(?!env$)[a-z]+$")  # `inspect` in a sentence names the command
    yield from (
        arguments for arguments in seen if not re.search(r"…|\.\.\.", arguments) and not verb_alone.match(arguments)
    )


# Each distinct command once, under the first page that has it. All model files are the same small model here.
COMMANDS = {
    re.sub(r"\bmodels/\w+\.py", "my_model.py", arguments): page.stem
    for page in reversed(PAGES)
    for arguments in commands_of(page)
}
CASES = [pytest.param(arguments, id=f"{page}: {arguments}") for arguments, page in COMMANDS.items()]
# an option that its page describes without a whole command
CASES.append(pytest.param("analyze my_model.py --memory-limit 1GiB", id="measuring: --memory-limit"))


def shown_files() -> dict[str, str]:
    """The files that targets.md shows, by name: blocks that begin with ``# name.py``."""
    text = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
    bodies = [block["body"] for block in FENCE.finditer(text) if block["kind"] == "py"]
    return {body.splitlines()[0].removeprefix("# "): body for body in bodies}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git checkout that holds the files that the pages name."""
    for name in ("my_model.py", "model.py", "models/net.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(MODEL)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "nets.py").write_text(LANGUAGE_MODEL)
    (tmp_path / "models.txt").write_text("my_model.py -i 2,3,8,8\n")
    (tmp_path / "inputs.py").write_text("import torch\n\n\ndef make():\n    return torch.randn(2, 3, 8, 8)\n")
    for file in (ROOT / "models").glob("*.py"):
        (tmp_path / "models" / file.name).write_text(MODEL)
    for name, text in shown_files().items():
        (tmp_path / name).write_text(text)
    measured = ROOT / "docs" / "measured"
    shutil.copytree(measured, tmp_path / "docs" / "measured")
    shutil.copytree(ROOT / "docs" / "schema", tmp_path / "docs" / "schema")
    (tmp_path / "budget").mkdir()
    for name, source in (
        ("before.json", "convnet_v0_h100.json"),
        ("after.json", "convnet_v1_h100.json"),
        ("report.json", "convnet_v0_h100.json"),
        ("old/report.json", "convnet_v0_h100.json"),
        ("profiler_kit_out/my_model/report.json", "convnet_v0_h100.json"),
        ("inspected.json", "convnet_v0_inspected_h100.json"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(measured / source, tmp_path / name)
    train = TRACES / "train.cuda.json.gz"
    (tmp_path / "trace.json").write_bytes(gzip.decompress(train.read_bytes()))
    (tmp_path / "DIR").mkdir()
    for name in (
        "trace.json.gz",
        "before.json.gz",
        "after.json.gz",
        "A.json.gz",
        "B.json.gz",
        "logs/resnet/trace.json.gz",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(train, tmp_path / name)
    shutil.copy(ROOT / "tests" / "fixtures" / "frozen" / "check.json", tmp_path)
    for file in sorted((TRACES / "ranks_cuda_small").iterdir()):
        shutil.copy(file, tmp_path)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    for arguments in (("init", "-q"), ("add", "my_model.py", "model.py", "models"), ("commit", "-q", "-m", "start")):
        subprocess.run([*git, *arguments], cwd=tmp_path, check=True)
    subprocess.run([*git, "update-ref", "refs/remotes/origin/main", "HEAD"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words_of(arguments: str, folder: Path) -> list[str]:
    """The words of a command, with patterns of file names expanded as a shell does."""
    words = []
    for written, tested in SMALLER.items():
        arguments = arguments.replace(written, tested)
    for word in shlex.split(re.sub(r"\bTARGET\b", "my_model.py", arguments), comments=True):
        files = sorted(file.name for file in folder.glob(word)) if "*" in word else []
        words += files or [word]
    return words


class RunHere:
    """Replaces `sweep.RunProcess`: the run happens in this process."""

    def __init__(self, spec: TargetSpec, visit: Visit, device: str) -> None:
        self.visit = visit
        self._job = RunJob(
            spec=spec, config=visit.config, device=device, budget_s=visit.budget_s, checks=visit.checks,
            steps=visit.steps if visit.turns is None else 5,
            again=visit.again, trace=str(visit.trace) if visit.trace is not None else None,
        )  # fmt: skip

    def wait_until_prepared(self) -> None:
        pass

    def go(self) -> None:
        pass

    def take_turn(self) -> None:
        pass

    def result(self) -> ConfigRun:
        return run_job(self._job, lambda _: None)

    def parts_trace(self) -> None:
        return None


@contextlib.contextmanager
def run_here(spec: TargetSpec, visit: Visit, *, device: str, **_: Any) -> Iterator[RunHere]:
    yield RunHere(spec, visit, device)


def _answered(make: Callable[..., None]) -> Callable[..., None]:
    def make_with_answer(path: Path, *args: Any, **kwargs: Any) -> None:
        make(path, *args, **kwargs)
        (path / attachment.STARTED).touch()

    return make_with_answer


@pytest.mark.parametrize("arguments", CASES)
def test_command_runs(
    arguments: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = words_of(arguments, folder)
    if words[0] == "sweep":  # the pattern stands for hundreds of models, and the cluster for another machine
        words = ["my_model.py" if word.startswith("timm:") else word for word in words] + ["--budget", "0.1s"]
        words += ["--devices", "cpu", "--engine", "local", "--count"]
    if "--accept" in words:
        (folder / "pyproject.toml").write_text(BROKEN_BUDGET)
    if arguments != WITH_PROCESSES:
        monkeypatch.setattr("profiler_kit.measurement.sweep.spawn_run", run_here)
        monkeypatch.setattr("profiler_kit.process.separate_forks", lambda work: None)
    for zoo in ("torchvision", "timm"):
        if any(word.startswith(f"{zoo}:") for word in words) and importlib.util.find_spec(zoo) is None:
            pytest.skip(f"{zoo} is not installed")
    if words[0] == "analyze" or (words[0] == "compare" and words[2].endswith(".py")):
        words += [word for option in SHORT.items() if option[0] not in words for word in option]
        if "--configs" not in words:
            words += ["--configs", "default"]
    if words[0] == "tune":
        words += SHORT_SEARCH
    if words[0] == "run":  # the program takes over its process
        (folder / "train.py").write_text(TRAIN)
        (folder / "pkg" / "train.py").write_text(TRAIN)
        command = [sys.executable, "-m", "profiler_kit", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=folder, env=environment, check=True)
        assert list(folder.glob("profiler_kit_out/*/report.html"))
        return
    if words[0] == "mcp":  # its client has left
        pytest.importorskip("mcp_types")
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
    if words[0] == "trigger":  # the number stands for a process, whose answer this is
        monkeypatch.setattr(attachment, "folder_of", lambda process: folder)
        monkeypatch.setattr(Path, "mkdir", _answered(Path.mkdir))
    status = main(words)
    written = capfd.readouterr()
    assert status == 0, written.err
    notes = [note for option, note in NOTES_WITHOUT_CUDA.items() if option in words]
    if not torch.cuda.is_available():
        assert [note for note in notes if note not in written.out] == []


def test_the_page_on_targets_shows_what_the_tool_announces(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
    (announced,) = [block["body"] for block in FENCE.finditer(text) if block["body"].startswith("- model:")]
    assert main(["count", "train.py", "-f", "markdown"]) == 0
    written = capfd.readouterr().out
    assert [line for line in announced.splitlines() if line.removeprefix("- ") not in written] == [], written


def test_the_tutorial_on_the_gate_shows_what_check_prints(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "tutorial_gate.md").read_text(encoding="utf-8")
    model, output = (
        next(block["body"] for block in FENCE.finditer(text) if block["kind"] == kind) for kind in ("py", "text")
    )
    lines = commands_of(ROOT / "docs" / "tutorial_gate.md")
    (arguments,) = (line for line in lines if "--base main" in line and "--accept" not in line)
    assert model == f"# my_model.py\n{MODEL}"
    (folder / "my_model.py").write_text(MODEL.replace("width=8", "width=12"))
    monkeypatch.setenv("COLUMNS", "100")
    assert main(shlex.split(arguments)) == 1
    assert capfd.readouterr().out.startswith(output)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_run(page: Path, folder: Path) -> None:
    blocks = [block["body"] for block in FENCE.finditer(page.read_text(encoding="utf-8")) if block["kind"] == "python"]
    if not blocks:
        return
    # Blocks of a page build on each other. The training loop of a page is the user's.
    code = "\n".join(["loader, train_step = [None] * 8, lambda batch: None", *blocks]).replace(
        "budget_s=30", "budget_s=1"
    )
    here = "from test_scripts_pages import run_here\nimport profiler_kit.measurement.sweep\n"
    (folder / "example.py").write_text(f"{here}profiler_kit.measurement.sweep.spawn_run = run_here\n{code}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)])}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{code}\n{done.stderr}"


SCRIPTS = sorted(
    {
        (match["module"], tuple(re.findall(r"(?<!\w)--[a-z][\w-]*", match["arguments"])))
        for page in PAGES
        for match in SCRIPT.finditer(page.read_text(encoding="utf-8"))
    }
)


@pytest.mark.parametrize(
    ("module", "options"), SCRIPTS, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_scripts_have_the_options_that_pages_name(
    module: str, options: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    monkeypatch.delitem(sys.modules, module, raising=False)  # runpy warns of a module that is there already
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    assert not ended.value.code
    printed = capsys.readouterr().out
    assert [option for option in options if option not in printed] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"(?:^|`|&& )make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []

"""Commands in hints that no other test makes the package build. They are replayed at the end of each test (`conftest`)."""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hint_replay import PACKAGE

from profiler_kit.cli import main
from profiler_kit.command_lines import import_command, install_command, kit_command
from profiler_kit.counting.conventions import fvcore
from profiler_kit.errors import KitError, TargetError
from profiler_kit.loading import load
from profiler_kit.loading.live import live_models
from profiler_kit.loading.zoo import recipe
from profiler_kit.measurement import ceiling_store, step_times
from profiler_kit.pipeline.packages import missing_package
from profiler_kit.records.target import TargetSpec

NET = """
import torch
from torch import nn

example_inputs = torch.zeros(2, 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        {statement}
        return self.fc(x)
"""
SPEC = TargetSpec(spec="net.py", command=("count", ""))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(statement: str = "pass", *, before: str = "") -> None:
    Path("net.py").write_text(before + NET.format(statement=statement))


@pytest.mark.parametrize(
    ("package", "module"),
    [("lightning", "lightning"), ("transformers", "transformers"), ("accelerate", "transformers")],
)
def test_callbacks_of_missing_packages(package: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("lightning", "pytorch_lightning", package)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, f"profiler_kit.integrations.{module}", raising=False)
    with pytest.raises(KitError) as raised:
        importlib.import_module(f"profiler_kit.integrations.{module}")
    assert "-m pip install" in (raised.value.hint or "")


@pytest.mark.parametrize("name", ["torch", "rich"])
def test_missing_packages(name: str) -> None:
    error = missing_package(ModuleNotFoundError(name, name=name))
    assert error is not None
    assert "-m pip install" in (error.hint or "")


def test_numpy_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(KitError):
        fvcore.numpy_flops("ij,jk->ik", [(2, 3), (3, 4)])


def test_cloudpickle_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    monkeypatch.delitem(sys.modules, "profiler_kit.loading.live.model_pickle", raising=False)
    live = live_models.live_model(torch.nn.Linear(2, 2), torch.zeros(1, 2))
    with pytest.raises(TargetError, match="cloudpickle"), live_models.written_model(live):
        pass


def test_tensorboard_and_ray_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    for name in ("tensorboard", "ray"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["show", "x.json", "--tensorboard", "tb"]) == 2
    assert main(["sweep", "net.py", "--count", "--engine", "ray", "-q"]) == 2


@pytest.mark.parametrize("zoo", ["torchvision", "timm", "transformers"])
def test_a_zoo_is_missing(zoo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, zoo, None)
    target = f"{'hf' if zoo == 'transformers' else zoo}:resnet50"
    with pytest.raises(TargetError, match=f"{zoo} is not installed"):
        load(TargetSpec(spec=target))


def test_a_name_that_no_zoo_has() -> None:
    error = recipe.unknown_model_error(SPEC, "timm", "resnt50", ["resnet50"])
    assert kit_command("count", "timm:resnet50") == error.hint


@pytest.mark.parametrize(
    ("statement", "device"),
    [
        ("if x.is_meta: raise RuntimeError('Expected inputs of BF16 type but got float')", None),
        ("if x.is_meta: raise RuntimeError('CUDA error: device-side assert triggered')", None),
        ("if x.is_meta: raise RuntimeError('fake impl: no kernel')", None),
        ("if x.is_meta: raise RuntimeError('x must be a CUDA tensor')", None),
        ("x = x.float()", "bfloat16"),
    ],
)
def test_messages_of_torch(statement: str, device: str | None) -> None:
    write(statement)
    words = ["--dtype", device] if device is not None else []
    assert main(["count", "net.py", "-q", *words]) in (0, 3)


def test_a_value_that_the_sliced_file_lacks() -> None:
    before = "import urllib.request\nsize = int(urllib.request.urlopen('http://[::1]:9/').read())\n"
    Path("net.py").write_text(before + NET.format(statement="pass").replace("nn.Linear(4, 4)", "nn.Linear(4, size)"))
    assert main(["count", "net.py", "-q"]) == 3


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("nets", "profiler-kit count nets/net.py"),
        ("report.json", "profiler-kit show report.json"),
        ("trace.json.gz", "profiler-kit inspect trace.json.gz"),
    ],
)
def test_targets_that_are_no_python_files(target: str, hint: str, capfd: pytest.CaptureFixture[str]) -> None:
    write()
    Path("nets").mkdir()
    Path("nets", "net.py").write_text(NET.format(statement="pass"))
    Path("report.json").write_text("{}")
    Path("trace.json.gz").touch()
    assert main(["count", target, "-q"]) == 3
    assert hint in capfd.readouterr().err


def test_revisions_that_the_repository_lacks(capfd: pytest.CaptureFixture[str]) -> None:
    write()
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for words in (
        ["init", "--quiet", "--initial-branch", "main", "."], ["add", "net.py"],
        [*identity, "commit", "--quiet", "-m", "a"], ["remote", "add", "upstream", "."],
    ):  # fmt: skip
        subprocess.run(["git", *words], check=True)
    assert main(["check", "net.py", "--base", "mainn", "-q"]) == 2
    shown = capfd.readouterr().err
    assert "did you mean main?" in shown
    assert "git fetch upstream" in shown
    assert main(["compare", "main:nte.py", "net.py", "--static", "-q"]) == 2


def test_unsteady_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    ceilings = SimpleNamespace(steady=False, largest_spread_percent=50)
    monkeypatch.setattr(ceiling_store, "_measure", lambda *arguments: (ceilings, ""))
    _, notes = ceiling_store.load_or_measure("cpu", ("a CPU", "torch"), fresh=True)
    assert kit_command("env") in notes[0]


def test_a_step_that_cannot_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    outcome = SimpleNamespace(ending="exited with status 1")
    monkeypatch.setattr(step_times, "worker_forks", lambda *specs: contextlib.nullcontext())
    monkeypatch.setattr(step_times, "run_worker", lambda *arguments, **options: (None, outcome))
    with pytest.raises(TargetError) as raised:
        step_times.compare_steps(SPEC, SPEC, device="cpu", allowed=0.1, on_progress=lambda text: None)
    assert kit_command("analyze", "net.py") in (raised.value.hint or "")


@pytest.mark.parametrize("text", ["models/x.py", "x.py", "", "a-b", "a b"])
def test_only_modules_are_imported(text: str) -> None:
    with pytest.raises(ValueError, match="not the name of a module"):
        import_command(text)


def test_words_are_quoted() -> None:
    assert kit_command("count", "my net.py", "-i", "x=1,[2]") == "profiler-kit count 'my net.py' -i 'x=1,[2]'"
    assert install_command("profiler-kit[tables]").endswith("-m pip install 'profiler-kit[tables]'")


def test_without_the_script_the_module_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert kit_command("env") == f"{sys.executable} -m profiler_kit env"


def test_no_hint_contains_a_command_that_is_written_by_hand() -> None:
    """`profiler_kit.command_lines` builds them. Words for the reader to fill in are no commands."""
    by_hand = re.compile(r"(?<![\w./-])(?:profiler-kit|python3?|pip3? install|git|cd|touch) +[\w.'/-]")
    found = [
        f"{file.relative_to(PACKAGE)}:{node.lineno}: {text.value}"
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for hint in _hints(node)
        for text in ast.walk(hint)
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and by_hand.search(text.value)
    ]
    assert found == []


def _hints(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        return [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
    is_named = isinstance(node, (ast.Assign, ast.AnnAssign)) and "hint" in ast.unparse(node).partition("=")[0].lower()
    return [node.value] if is_named and node.value is not None else []  # type: ignore[attr-defined]

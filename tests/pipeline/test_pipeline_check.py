"""`check` in repositories with real commits: what a reviewer of a pull request meets."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from profiler_kit.cli import main
from profiler_kit.errors import BUDGET_BROKEN, NOT_COMPARABLE, OK, TARGET_FAILED, USAGE

pytestmark = pytest.mark.jobs

NET = """
import torch
from torch import nn

example_inputs = torch.zeros(2, 3, 16, 16)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return x + self.norm(self.conv(x)).relu()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.stage1 = nn.Sequential(Block(8), Block(8))
        self.pool = nn.MaxPool2d(2)
        self.stage2 = nn.Sequential(Block(8))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.stage2(self.pool(self.stage1(self.stem(x))))
        return self.head(x.mean((2, 3)))


def configure_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)
"""
BUDGETS = """
[tool.profiler-kit.budgets]
flops = "+10%"
peak = "+10%"
params = "+10%"
checkpoint = 0
"""


@dataclass
class Checked:
    """The end of one command: exit code, output, and the JSON and Markdown files that it wrote."""

    code: int
    out: str
    err: str
    data: dict[str, Any] = field(default_factory=dict)
    markdown: str = ""

    @property
    def outcomes(self) -> dict[str, str]:
        return {row["metric"]: row["outcome"] for row in self.data["budgets"]}


class Repository:
    """A git repository with the network above on main, and a branch for the change."""

    def __init__(self, top: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.top = top
        self._capfd = capfd

    def git(self, *words: str) -> str:
        identity = (
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b.c",
            "-c",
            "commit.gpgsign=false",
            "-c",
            "protocol.file.allow=always",
        )
        command = ["git", "-C", str(self.top), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def write(self, name: str, text: str) -> None:
        (self.top / name).parent.mkdir(parents=True, exist_ok=True)
        (self.top / name).write_text(text)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", "change")

    def edit(self, *pairs: tuple[str, str], name: str = "net.py") -> None:
        text = (self.top / name).read_text()
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new)
        self.write(name, text)
        self.commit()

    def check(self, *words: str, files: bool = True) -> Checked:
        outputs = ("-o", str(self.top.parent / "out.json"), "-o", str(self.top.parent / "out.md")) if files else ()
        code = main(["check", *(words or ("net.py",)), "-q", *outputs])
        captured = self._capfd.readouterr()
        checked = Checked(code, captured.out, captured.err)
        if files and (self.top.parent / "out.json").exists():
            checked.data = json.loads((self.top.parent / "out.json").read_text())
            checked.markdown = (self.top.parent / "out.md").read_text()
        return checked


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("template") / "repo"
    top.mkdir()
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", str(top)], check=True)
    repository = Repository(top, None)  # type: ignore[arg-type]
    repository.write("net.py", NET)
    repository.write("pyproject.toml", BUDGETS)
    repository.commit()
    repository.git("checkout", "--quiet", "-b", "change")
    return top


@pytest.fixture
def repo(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Repository:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    subprocess.run(["cp", "-r", str(template), str(tmp_path / "repo")], check=True)
    monkeypatch.chdir(tmp_path / "repo")
    return Repository(tmp_path / "repo", capfd)


def test_unchanged(repo: Repository) -> None:
    repo.write("notes.md", "documentation")
    repo.commit()
    checked = repo.check()
    assert checked.code == OK
    assert checked.data["posts"] is False
    assert set(checked.outcomes.values()) == {"ok"}


def test_the_step_of_the_same_files_is_not_measured(repo: Repository) -> None:
    repo.write("notes.md", "documentation")
    repo.commit()
    checked = repo.check("net.py", "--time", "--budget", "step_time=+1%")
    assert (checked.code, checked.outcomes["step_time"]) == (OK, "ok")
    assert checked.data["time"] is None


def test_a_step_time_that_was_not_measured_has_the_reason(repo: Repository) -> None:
    repo.edit(("stride=2", "stride=1"))
    words = ("net.py", "--budget", "step_time=+1%")
    assert "add --time" in repo.check(*words).out
    base = str(repo.top.parent / "base.json")
    assert main(["count", "net.py", "-q", "-f", "json", "-o", base]) == OK
    assert "saved report; name a revision with --base" in repo.check(*words, "--time", "--base", base).out


def test_again_gives_the_same_bytes(repo: Repository) -> None:
    repo.edit(("stride=2", "stride=1"))
    first, second = repo.check(), repo.check()
    for side in (checked.data["comparison"][name] for checked in (first, second) for name in ("a", "b")):
        del side["created"]  # a day, which may end in between
    assert first == second


@pytest.mark.parametrize(
    ("edits", "broken", "words"),
    [
        pytest.param([("stride=2", "stride=1")], {"flops", "peak"}, "stem stride 2 -> 1", id="stem"),
        pytest.param(
            [("Block(8), Block(8))", "Block(8), Block(8), Block(8))")], {"flops", "params", "checkpoint"}, "Block", id="deeper"
        ),
        pytest.param(
            [("Sequential(Block(8))", "Identity()")], {"checkpoint"}, "stage2", id="deleted layer"
        ),
        pytest.param([("stage2", "body")], {"checkpoint"}, "stage2 -> body", id="renamed"),
        pytest.param([("SGD(model.parameters(), lr=0.1)", "AdamW(model.parameters())")], {"peak"}, "AdamW", id="optimizer"),
        pytest.param([("(Block(8), Block(8))", "(Block(8), nn.Conv2d(8, 8, 1))")], {"checkpoint"}, "stage1.1", id="replaced"),
    ],
)  # fmt: skip
def test_an_edit_is_named(repo: Repository, edits: list[tuple[str, str]], broken: set[str], words: str) -> None:
    repo.edit(*edits)
    checked = repo.check()
    assert {metric for metric, outcome in checked.outcomes.items() if outcome == "broken"} >= broken
    assert checked.code == BUDGET_BROKEN
    assert words in checked.markdown.replace("\\", "")
    assert checked.data["posts"] is True


def test_renamed_class_of_a_block(repo: Repository) -> None:
    repo.edit(("Block", "Residual"))
    checked = repo.check()
    assert checked.code == OK
    assert "Residual" in checked.markdown


def test_moved_block(repo: Repository) -> None:
    repo.edit(
        ("self.stage1 = nn.Sequential(Block(8), Block(8))", "self.stage1 = nn.Sequential(Block(8))"),
        ("self.stage2 = nn.Sequential(Block(8))", "self.stage2 = nn.Sequential(Block(8), Block(8))"),
    )
    checked = repo.check()
    assert checked.outcomes["params"] == "ok"
    assert checked.outcomes["checkpoint"] == "broken"


def test_dtype(repo: Repository) -> None:
    repo.edit(
        ("zeros(2, 3, 16, 16)", "zeros(2, 3, 16, 16, dtype=torch.float64)"),
        ("self.head = nn.Linear(8, 4)", "self.head = nn.Linear(8, 4)\n        self.double()"),
    )
    checked = repo.check()
    assert checked.outcomes["params"] == "ok"
    assert checked.outcomes["flops"] == "not_comparable"
    assert checked.code == NOT_COMPARABLE


def test_new_file(repo: Repository) -> None:
    repo.write("wide.py", NET.replace("8", "16"))
    repo.commit()
    checked = repo.check("wide.py")
    assert checked.code == OK
    assert checked.data["status"] == "new"
    assert "4 budgets relative to the base do not apply" in checked.markdown
    assert repo.check("wide.py", "--budget", "params=10").code == BUDGET_BROKEN
    assert repo.check("wide.py", "--new", "error").code == BUDGET_BROKEN


def test_renamed_file(repo: Repository) -> None:
    repo.git("mv", "net.py", "network.py")
    repo.commit()
    checked = repo.check("network.py")
    assert checked.code == OK
    assert checked.data["renamed_from"] == "net.py"
    assert set(checked.outcomes.values()) == {"ok"}


@pytest.mark.parametrize(("policy", "code"), [("allow", OK), ("warn", OK), ("error", BUDGET_BROKEN)])
def test_deleted_file(repo: Repository, policy: str, code: int) -> None:
    repo.git("rm", "--quiet", "net.py")
    repo.commit()
    checked = repo.check("net.py", "--deleted", policy)
    assert checked.code == code
    assert checked.data["status"] == "deleted"
    assert "net.py was deleted" in checked.markdown


def test_file_that_no_side_has(repo: Repository) -> None:
    checked = repo.check("nett.py")
    assert checked.code == TARGET_FAILED
    assert "neither this change nor the base has it" in checked.err


@pytest.mark.parametrize("side", ["base", "change"])
def test_syntax_error(repo: Repository, side: str) -> None:
    if side == "base":
        repo.git("checkout", "--quiet", "main")
        repo.edit(("class Net(nn.Module):", "class Net(nn.Module:"))
        repo.git("checkout", "--quiet", "-B", "change")
        repo.edit(("class Net(nn.Module:", "class Net(nn.Module):"))
    else:
        repo.edit(("class Net(nn.Module):", "class Net(nn.Module:"))
    checked = repo.check()
    assert checked.code == TARGET_FAILED
    assert (checked.data["status"], checked.data["failed_side"]) == ("failed", side)
    assert "could not be judged" in checked.markdown
    assert ("counting the base failed, not this change" in checked.err) == (side == "base")
    assert set(checked.outcomes.values()) == {"not_comparable"}


def test_the_command_for_inputs_of_the_base_is_one_of_check(repo: Repository) -> None:
    repo.edit(("example_inputs = torch.zeros(2, 3, 16, 16)", ""), ("nn.Conv2d(3, 8", "nn.Conv2d(4, 8"))
    words = ("net.py", "--budget", "params=+10%", "-i", "2,4,16,16")
    checked = repo.check(*words)
    assert (checked.code, checked.data["failed_side"]) == (TARGET_FAILED, "base")
    program, *printed = shlex.split(checked.data["hint"].partition(": ")[2])
    assert Path(program).name == "profiler-kit"
    assert printed == ["check", *words, "--base-input", "2,3,16,16"]
    assert repo.check(*printed[1:]).code == BUDGET_BROKEN


def test_argument_of_one_side(repo: Repository) -> None:
    repo.edit(
        (
            "def __init__(self) -> None:\n        super().__init__()\n        self.stem",
            "def __init__(self, width) -> None:\n        super().__init__()\n        self.stem",
        )
    )
    assert repo.check("net.py:Net", "--kw", "width=8").data["failed_side"] == "base"
    checked = repo.check("net.py:Net", "--kw", "width=8", "--base-kw", "")
    assert checked.code in (OK, USAGE, TARGET_FAILED)


def test_renamed_class_of_the_model(repo: Repository) -> None:
    repo.edit(("class Net(", "class Network("))
    failed = repo.check("net.py:Network")
    assert failed.data["failed_side"] == "base"
    checked = repo.check("net.py:Network", "--base-target", "net.py:Net")
    assert checked.code == OK
    assert checked.data["renamed_from"] == "net.py:Net"


def test_submodule(repo: Repository, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", str(library)], check=True)
    other = Repository(library, None)  # type: ignore[arg-type]
    other.write("__init__.py", "WIDTH = 8\n")
    other.commit()
    repo.git("submodule", "--quiet", "add", str(library), "library")
    repo.edit(("import torch\n", "import torch\nfrom library import WIDTH\n"), ("Linear(8, 4)", "Linear(WIDTH, 4)"))
    repo.git("checkout", "--quiet", "-b", "next")
    repo.edit(("Linear(WIDTH, 4)", "Linear(WIDTH, 6)"))
    checked = repo.check("net.py", "--base", "change")
    assert "head" in checked.markdown
    assert checked.code == BUDGET_BROKEN


def test_detached_head_and_dirty_tree(repo: Repository) -> None:
    repo.git("checkout", "--quiet", "--detach")
    repo.write("net.py", NET.replace("stride=2", "stride=1"))
    checked = repo.check("net.py", "--base", "main")
    assert checked.code == BUDGET_BROKEN
    assert "stem stride 2 -> 1" in checked.markdown
    assert repo.git("status", "--porcelain") == "M net.py"


def test_several_targets(repo: Repository) -> None:
    repo.write("wide.py", NET.replace("Block(8)", "Block(8)"))
    repo.write(
        "pyproject.toml",
        BUDGETS
        + '[tool.profiler-kit.targets.small]\ntarget = "net.py:Net"\ninputs = ["4,3,16,16"]\n'
        + '[tool.profiler-kit.targets.wide]\ntarget = "wide.py:Net"\nmode = "infer"\n',
    )
    repo.commit()
    repo.git("checkout", "--quiet", "-b", "next")
    repo.edit(("stride=2", "stride=1"), name="wide.py")
    code = main(["check", "-q", "-o", str(repo.top.parent / "all.json"), "--base", "change"])
    data = json.loads((repo.top.parent / "all.json").read_text())
    assert code == BUDGET_BROKEN == data["exit_code"]
    assert data["kind"] == "checks"
    assert {result["name"]: result["exit_code"] for result in data["results"]} == {"small": OK, "wide": BUDGET_BROKEN}
    assert data["results"][0]["comparison"]["b"]["samples"] == 4


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[tool.profiler_kit.budgets]\nflops = 1", "no program reads"),
        ("[tool.profiler-kits.budgets]\nflops = 1", "no program reads"),
        ("[tool.profiler-kit.budget]\nflops = 1", "nearest: budgets"),
        ("[tool.profiler-kit.budgets.nett]\nflops = 1", "nearest: net"),
        ("[tool.profiler-kit.budgets]\nflopss = 1", "nearest: flops"),
        ("[tool.profiler-kit.budgets]\nflops = '3GB5'", "not a limit"),
        ("[tool.profiler-kit.budgets]\nflops = { limit = 1, severity = 'eror' }", "nearest: error"),
        (
            "[tool.profiler-kit.budgets.other]\nflops = 1\n[tool.profiler-kit.targets.other]\ntarget='o.py'",
            "none for net",
        ),
        ("[tool.profiler-kit.targets.net]\ntargets = 'net.py'", "nearest: target"),
        ("[tool.profiler-kit.check]\nnew = 'maybe'", "unknown value 'maybe'"),
        ("[tool.profiler-kit.budgets]\n'peak@stem' = 1", "no value for single modules"),
    ],
)
def test_a_mistake_in_the_settings_never_passes(repo: Repository, table: str, words: str) -> None:
    repo.write("pyproject.toml", table)
    checked = repo.check(files=False)
    assert checked.code == USAGE
    assert words in checked.err


def test_unknown_base_fails_before_torch(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("counted")

    monkeypatch.setattr("profiler_kit.pipeline.check.count_spec", never)
    assert repo.check("net.py", "--base", "nosuch", files=False).code == USAGE


def test_budget_of_a_part(repo: Repository) -> None:
    repo.edit(("self.stage2 = nn.Sequential(Block(8))", "self.stage2 = nn.Sequential(Block(8), Block(8))"))
    checked = repo.check(
        "net.py", "--budget", "params@stage1=+0%", "--budget", "params@stage*=+10%", "--budget", "params=+100%"
    )
    rows = {row["module"]: row["outcome"] for row in checked.data["budgets"] if row["metric"] == "params"}
    assert rows == {"": "ok", "stage*": "broken", "stage1": "ok"}


def test_budget_of_a_device(repo: Repository) -> None:
    repo.edit(("stride=2", "stride=1"))
    limits = ("--budget", "device_peak=+1%", "--budget", "device_step=+1%")
    assert repo.check("net.py", *limits).outcomes["device_peak"] == "not_comparable"
    outcomes = repo.check("net.py", *limits, "--gpu", "A100").outcomes
    assert outcomes["device_peak"] in ("ok", "broken")
    assert outcomes["device_step"] == "broken"


def test_missing_module_in_the_repository_is_not_installed(repo: Repository) -> None:
    """`pip install library` would fetch somebody else's package of that name."""
    (repo.top / "library").mkdir()
    repo.edit(
        ("import torch\n", "import torch\nfrom library.parts import Part\n"),
        ("class Net(nn.Module)", "class Net(Part)"),
    )
    checked = repo.check()
    assert checked.code == TARGET_FAILED
    assert "pip install" not in checked.err

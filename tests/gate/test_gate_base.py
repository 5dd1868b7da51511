from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from gate_reports import node, report

from profiler_kit import process
from profiler_kit.errors import KitError, NotComparableError, ReportError, TargetError, UsageError
from profiler_kit.gate import git, worktree_child
from profiler_kit.gate.base import COUNT_TIMEOUT_S, Runner, count_command, require_file, saved_base, target_files
from profiler_kit.gate.git import find_base, repository_root, worktree
from profiler_kit.process import Outcome
from profiler_kit.records.report import Report
from profiler_kit.records.serde import dumps
from profiler_kit.records.target import Checkout

NET = """
import torch
from {package}width import WIDTH

example_inputs = torch.zeros(2, 4)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)
"""


def load_base(
    rev: str | None,
    target_argv: Sequence[str],
    *,
    repo: Path,
    runner: Runner = process.run,
    timeout_s: float = COUNT_TIMEOUT_S,
) -> Report:
    """The steps of a check on the side of the base, for one target."""
    saved = saved_base(rev, repo)
    if saved is not None:
        return saved
    top = repository_root(repo)
    revision = find_base(rev, repo)
    require_file(target_files(target_argv[0], repo, top), top, revision)
    with worktree(top, revision.commit) as folder:
        command = count_command(target_argv, repo=repo, top=top, folder=folder, revision=revision)
        outcome = runner(command.argv, cwd=command.cwd, env=command.env, timeout_s=timeout_s)
        return replace(command, timeout_s=timeout_s).report(outcome)


class Repo:
    """A git repository in a temporary folder."""

    def __init__(self, top: Path) -> None:
        self.top = top
        top.mkdir(exist_ok=True)
        self.git("init", "--quiet", "--initial-branch", "main")

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(self.top), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def write(self, name: str, text: str) -> None:
        (self.top / name).parent.mkdir(parents=True, exist_ok=True)
        (self.top / name).write_text(text)

    def commit(self, message: str = "x") -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def worktrees(self) -> int:
        return len(self.git("worktree", "list").splitlines())


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """A repository with two commits: the first, on main, says width 8; the second, on a branch, 16."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in git.HOOK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    made = Repo(tmp_path / "repo")
    made.write("models/net.py", NET.format(package=""))
    made.write("models/width.py", "WIDTH = 8")
    made.commit()
    made.git("checkout", "--quiet", "-b", "change")
    made.write("models/width.py", "WIDTH = 16")
    made.commit()
    return made


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, request: pytest.FixtureRequest) -> object:
    """Whatever a test did: no worktree in git's list, no folder in the temporary one."""
    yield
    if "repo" in request.fixturenames:
        assert Repo(tmp_path / "repo").worktrees() == 1
        assert list((tmp_path / "tmp").glob("profiler-kit*")) == []


class Fake:
    """Stands for the child: remembers the call and what it would have seen; answers with `outcome`."""

    def __init__(self, returncode: int = 0, log: str = "", **fields: object) -> None:
        self.argv: list[str] = []
        self.cwd = Path()
        self.env: dict[str, str] = {}
        self.width = ""
        self.fields = {"returncode": returncode, "log_tail": log, "signal_name": None, "timed_out": False, **fields}

    def __call__(self, argv: Sequence[str], *, cwd: Path, env: dict[str, str], timeout_s: float) -> Outcome:
        self.argv, self.cwd, self.env = list(argv), cwd, env
        self.width = next(cwd.rglob("width.py")).read_text() if list(cwd.rglob("width.py")) else ""
        stdout = dumps(report([node("fc", "Linear", macs=8)]))
        return Outcome(duration_ns=1, stdout=stdout, stdout_cut=False, **self.fields)  # type: ignore[arg-type]


def test_the_base_is_counted_in_a_worktree_and_says_so(repo: Repo) -> None:
    fake = Fake()
    found = load_base("main", ["models/net.py", "--batch", "4"], repo=repo.top, runner=fake)
    assert fake.width == "WIDTH = 8"
    assert fake.cwd != repo.top
    assert fake.argv[:2] == [sys.executable, worktree_child.__file__]
    assert fake.argv[2] == str(os.getpid())
    assert fake.argv[5:] == ["count", "models/net.py", "--batch", "4", "--timeout", "600s", "--quiet", "-f", "json"]
    commit = repo.git("rev-parse", "main")
    assert found.revision == f"commit {commit[:10]} (merge base of HEAD and main)"
    assert not fake.cwd.exists()


def test_relative_paths_mean_the_same_in_the_base(repo: Repo) -> None:
    fake = Fake()
    load_base("main", ["net.py:Net"], repo=repo.top / "models", runner=fake)
    assert fake.cwd.name == "models"
    assert fake.argv[6] == "net.py:Net"


def test_an_absolute_target_leads_into_the_worktree(repo: Repo) -> None:
    fake = Fake()
    load_base("main", [f"{repo.top}/models/net.py:Net"], repo=repo.top, runner=fake)
    assert fake.argv[6] == f"{fake.cwd}/models/net.py:Net"


def test_a_new_folder_to_run_in_is_no_obstacle(repo: Repo) -> None:
    (repo.top / "new").mkdir()
    fake = Fake()
    load_base("main", ["../models/net.py"], repo=repo.top / "new", runner=fake)
    assert fake.cwd.name == "new"


def test_the_merge_base_counts_not_the_tip(repo: Repo) -> None:
    branched = repo.git("rev-parse", "main")
    repo.git("checkout", "--quiet", "main")
    repo.write("models/width.py", "WIDTH = 99")
    repo.commit()
    repo.git("checkout", "--quiet", "change")
    assert find_base("main", repo.top).commit == branched


def test_the_usual_bases_are_tried_in_order(repo: Repo) -> None:
    assert "HEAD and main" in find_base(None, repo.top).description
    repo.git("update-ref", "refs/remotes/origin/main", "main")
    assert "HEAD and origin/main" in find_base(None, repo.top).description
    repo.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    assert "HEAD and origin/HEAD" in find_base(None, repo.top).description


@pytest.mark.parametrize("rev", ["HEAD", "change"])
def test_a_base_equal_to_head_is_described_as_head(repo: Repo, rev: str) -> None:
    found = find_base(rev, repo.top)
    head = repo.git("rev-parse", "HEAD")
    assert found.commit == head
    assert found.description == f"HEAD (the working tree is compared with the last commit, {head[:10]})"


def test_a_branch_behind_head_is_described_by_its_merge_base(repo: Repo) -> None:
    main = repo.git("rev-parse", "main")
    assert find_base("main", repo.top).description == f"commit {main[:10]} (merge base of HEAD and main)"


def test_the_index_and_the_working_tree_stay_as_they_are(repo: Repo) -> None:
    repo.write("models/width.py", "WIDTH = 32")
    repo.write("new.txt", "untracked")
    before = repo.git("status", "--porcelain")
    load_base("main", ["models/net.py"], repo=repo.top, runner=Fake())
    assert repo.git("status", "--porcelain") == before
    assert repo.git("branch", "--list").splitlines() == ["* change", "  main"]


def test_inside_a_git_hook_the_right_repository_is_used(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    fake = Fake()
    load_base("main", ["models/net.py"], repo=repo.top, runner=fake)
    assert fake.width == "WIDTH = 8"
    assert "GIT_DIR" not in fake.env
    monkeypatch.undo()


def test_checkout_hooks_do_not_run(repo: Repo, tmp_path: Path) -> None:
    hook = repo.top / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    load_base("main", ["models/net.py"], repo=repo.top, runner=Fake())
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_the_worktree_goes_whatever_happens(repo: Repo, error: type[BaseException]) -> None:
    def fail(*_: object, **__: object) -> Outcome:
        assert repo.worktrees() == 2
        raise error

    with pytest.raises(error):
        load_base("main", ["models/net.py"], repo=repo.top, runner=fail)


def test_the_worktree_goes_though_the_target_damaged_it(repo: Repo) -> None:
    with worktree(repo.top, "main") as folder:
        for file in folder.rglob("*"):
            if file.is_file() and file.name != ".git":
                file.unlink()
        (folder / "cache").write_text("left by the target")
        (folder / ".git").unlink()


def test_a_new_file_is_not_comparable(repo: Repo) -> None:
    repo.write("models/new.py", "x = 1")
    with pytest.raises(NotComparableError, match=r"models/new\.py does not exist at the base"):
        load_base("main", ["models/new.py:Net"], repo=repo.top, runner=Fake())


@pytest.mark.parametrize("place", ["pkg/new.py", "src/pkg/new.py", "pkg/new/__init__.py"])
def test_a_new_module_is_not_comparable(repo: Repo, place: str) -> None:
    repo.write(place, "x = 1")
    with pytest.raises(NotComparableError, match="does not exist at the base"):
        load_base("main", ["pkg.new:Net"], repo=repo.top, runner=Fake())


def test_a_target_outside_of_the_repository(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "net.py").touch()
    with pytest.raises(UsageError, match="outside of the repository"):
        load_base("main", [str(tmp_path / "net.py")], repo=repo.top, runner=Fake())
    with pytest.raises(UsageError, match="outside of the repository"):
        load_base("main", ["../net.py:Net"], repo=repo.top, runner=Fake())


@pytest.mark.parametrize("rev", ["no-such-branch", "deadbeef", "--help", "main:models"])
def test_an_unknown_revision_is_named(repo: Repo, rev: str) -> None:
    with pytest.raises(UsageError, match="unknown revision") as caught:
        load_base(rev, ["models/net.py"], repo=repo.top, runner=Fake())
    assert repr(rev) in str(caught.value)


def test_no_repository_no_commit_no_usual_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with pytest.raises(UsageError, match="not in a git repository"):
        load_base("main", ["net.py"], repo=tmp_path, runner=Fake())
    fresh = Repo(tmp_path / "fresh")
    with pytest.raises(UsageError, match="no base found"):
        load_base(None, ["net.py"], repo=fresh.top, runner=Fake())


def test_a_shallow_clone_is_told_to_fetch_more(repo: Repo, tmp_path: Path) -> None:
    repo.git("checkout", "--quiet", "main")
    repo.write("more", "x")
    repo.commit()
    clone = tmp_path / "clone"
    options = ("--quiet", "--depth", "1", "--no-single-branch")
    subprocess.run(["git", "clone", *options, f"file://{repo.top}", str(clone)], check=True)
    subprocess.run(["git", "-C", str(clone), "checkout", "--quiet", "change"], check=True)
    with pytest.raises(UsageError, match="shallow clone") as caught:
        load_base("origin/main", ["models/net.py"], repo=clone, runner=Fake())
    assert "fetch-depth: 0" in str(caught.value.hint)


def test_without_git(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        with pytest.raises(UsageError, match="git is not installed"):
            load_base("main", ["models/net.py"], repo=repo.top, runner=Fake())


def test_a_saved_report_is_a_base_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = report([node("fc", macs=8)])
    (tmp_path / "report.json").write_text(dumps(saved))
    monkeypatch.setenv("PATH", "/nowhere")
    for rev in ("report.json", str(tmp_path / "report.json"), "."):
        found = load_base(rev, ["net.py"], repo=tmp_path, runner=Fake())
        assert found.static == saved.static
        assert found.revision == f"saved report {rev}, created {saved.created}"
    with pytest.raises(ReportError):
        load_base("missing.json", ["net.py"], repo=tmp_path, runner=Fake())


@pytest.mark.parametrize(
    ("fake", "said", "hint"),
    [
        (
            Fake(3, "noise\nerror: net.py:3: build() returned None\nhint: return it"),
            "build() returned None",
            "return it",
        ),
        (Fake(-6, "x", signal_name="SIGABRT"), "ended by SIGABRT", "checkout"),
        (Fake(-15, "", timed_out=True, signal_name="SIGTERM"), "not finished after", "checkout"),
        (Fake(1, "Traceback\nValueError: boom"), "ValueError: boom", "checkout"),
    ],
)
def test_a_base_that_fails_is_called_the_base(repo: Repo, fake: Fake, said: str, hint: str) -> None:
    with pytest.raises(TargetError) as caught:
        load_base("main", ["models/net.py"], repo=repo.top, runner=fake)
    assert "the base" in caught.value.message
    assert said in caught.value.message
    assert hint in str(caught.value.hint)
    assert str(caught.value.where) == find_base("main", repo.top).description


def test_paths_into_the_checkout_lead_into_the_worktree(tmp_path: Path) -> None:
    top, there = tmp_path / "top", tmp_path / "base"
    (top / "src").mkdir(parents=True)
    checkout = Checkout(top=str(top), folder=str(there))
    assert checkout.redirected(str(top / "src")) == str(there / "src")
    assert checkout.redirected(str(top)) == str(there)
    assert checkout.redirected("/usr/lib") == "/usr/lib"


def width_of(rev: str, argv: list[str], repo: Path) -> int:
    """The parameters of the base's only layer over 5 (4 weights and a bias a unit): the WIDTH it was built with."""
    found = load_base(rev, argv, repo=repo, timeout_s=120)
    assert found.static is not None
    return found.static.params // 5


@pytest.mark.jobs
def test_end_to_end_the_base_s_own_files_are_counted(repo: Repo) -> None:
    """The imported module too is the base's, though PYTHONPATH leads into the present checkout."""
    assert width_of("main", ["models/net.py"], repo.top) == 8


@pytest.mark.jobs
def test_end_to_end_an_editable_source_folder_is_the_base_s(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.git("checkout", "--quiet", "main")
    for name, text in (("__init__", ""), ("net", NET.format(package="nets.")), ("width", "WIDTH = 7")):
        repo.write(f"src/nets/{name}.py", text)
    repo.commit()
    repo.git("checkout", "--quiet", "-b", "wider")
    repo.write("src/nets/width.py", "WIDTH = 21")
    repo.commit()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(repo.top / "src"), os.environ.get("PYTHONPATH", "")]))
    assert width_of("main", ["nets.net:Net"], repo.top) == 7


@pytest.mark.jobs
@pytest.mark.fresh_process  # sitecustomize is read when Python starts
def test_end_to_end_the_present_checkout_may_not_stand_in_for_the_base(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finder that leads into the checkout, as an editable install leaves it, where no path can be turned."""
    repo.git("checkout", "--quiet", "main")
    repo.write("lib/deep/widths.py", "WIDTH = 7")
    repo.write("models/net.py", NET.format(package="").replace("from width", "from widths"))
    finder = f"""
        import importlib.util, sys
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "widths":
                    return importlib.util.spec_from_file_location(name, {str(repo.top / "lib/deep/widths.py")!r})
        sys.meta_path.append(Finder())
    """
    site = repo.top.parent / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("\n".join(line[8:] for line in finder.splitlines()))
    repo.commit()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    with pytest.raises(TargetError, match="widths was imported from"):
        load_base("main", ["models/net.py"], repo=repo.top, timeout_s=120)


@pytest.mark.jobs
@pytest.mark.fresh_process
def test_end_to_end_a_copy_of_this_package_in_the_repository_is_not_run(repo: Repo) -> None:
    repo.git("checkout", "--quiet", "main")
    repo.write("profiler_kit/__init__.py", "raise SystemExit('the wrong program')")
    repo.write("profiler_kit/__main__.py", "raise SystemExit('the wrong program')")
    repo.commit()
    assert width_of("main", ["models/net.py"], repo.top) == 8


@pytest.mark.jobs
def test_end_to_end_a_base_that_does_not_load(repo: Repo) -> None:
    repo.git("checkout", "--quiet", "main")
    repo.write("models/net.py", "import torch\nclass Net(torch.nn.Module):\n    raise ValueError('broken then')\n")
    repo.commit()
    repo.git("checkout", "--quiet", "-b", "fixed")
    repo.write("models/net.py", NET.format(package=""))
    repo.commit()
    with pytest.raises(KitError) as caught:
        load_base("main", ["models/net.py"], repo=repo.top, timeout_s=120)
    assert caught.value.exit_code == 3
    assert "the base" in caught.value.message
    assert "broken then" in caught.value.message

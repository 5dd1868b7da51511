"""What the gate asks git: the base commit, a temporary checkout of it, and the files that differ. Changes nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler_kit import process
from profiler_kit.command_lines import git_command
from profiler_kit.errors import UsageError, did_you_mean
from profiler_kit.process import Outcome
from profiler_kit.temporary_files import FOLDER_NAME, temporary_folder

# The branches that a change usually starts from, in order of preference.
DEFAULT_BASES: Final = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
GIT_TIMEOUT_S: Final = 300.0
SHORT_HASH_CHARS: Final = 10
HOOK_VARIABLES: Final = frozenset(
    f"GIT_{name}"
    for name in ("DIR", "WORK_TREE", "INDEX_FILE", "PREFIX", "COMMON_DIR", "OBJECT_DIRECTORY", "NAMESPACE")
)
_SUBMODULE_MODE: Final = "160000"


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit, and a description of how it was chosen."""

    commit: str
    description: str


def find_base(rev: str | None, repo: Path) -> Revision:
    """The merge base of HEAD and `rev`, or of HEAD and the first of `DEFAULT_BASES` that exists. Raises UsageError."""
    repository_root(repo)
    base_names = (rev,) if rev is not None else DEFAULT_BASES
    base_name = next((name for name in base_names if commit_of(repo, name) is not None), None)
    if base_name is None:
        if rev is None:
            raise UsageError(
                f"no base found: none of {', '.join(DEFAULT_BASES)} exists",
                where=str(repo),
                hint="name a revision or a saved report with --base",
            )
        raise unknown_revision(repo, base_names[0], str(repo))
    head = commit_of(repo, "HEAD")
    if head is None:
        raise UsageError(
            "the repository has no commit yet",
            where=str(repo),
            hint="commit first, or give a saved report: --base report.json",
        )
    merge_base = _git(repo, "merge-base", base_name, "HEAD")
    if not merge_base.ok:
        shallow = _git(repo, "rev-parse", "--is-shallow-repository").stdout.strip() == "true"
        raise UsageError(
            f"HEAD and {base_name} have no common commit" + (" in this shallow clone" if shallow else ""),
            where=str(repo),
            hint=f"{git_command('fetch', '--unshallow')} (GitHub Actions: actions/checkout with fetch-depth: 0)"
            if shallow
            else "name another revision with --base",
        )
    commit = merge_base.stdout.split()[0]
    short_hash = commit[:SHORT_HASH_CHARS]
    if commit == head:
        return Revision(commit, f"HEAD (the working tree is compared with the last commit, {short_hash})")
    return Revision(commit, f"commit {short_hash} (merge base of HEAD and {base_name})")


def unknown_revision(repo: Path, rev: str, where: str) -> UsageError:
    """The error for a revision that the repository does not have, with the nearest name."""
    names = _git(repo, "for-each-ref", "--format=%(refname:short)").stdout.split()
    remotes = _git(repo, "remote").stdout.split()
    fetch = f"fetch it: {git_command('fetch', remotes[0])}, or " if remotes else ""
    return UsageError(
        f"unknown revision {rev!r}{did_you_mean(rev, names)}",
        where=where,
        hint=f"{fetch}name a branch, a tag or a commit of this repository",
    )


def merge_base(folder: Path, first: str, second: str) -> str:
    """The merge base of two revisions. Raises UsageError."""
    outcome = _git(folder, "merge-base", first, second)
    if not outcome.ok:
        raise UsageError(
            f"{first} and {second} have no common commit", where=str(folder), hint="name two revisions with A..B"
        )
    return outcome.stdout.split()[0]


@contextlib.contextmanager
def worktree(top: Path, commit: str) -> Iterator[Path]:
    """Check out `commit` in a temporary folder, which is removed however the block exits."""
    with temporary_folder("base") as temporary_dir:
        folder = temporary_dir.resolve() / "base"
        _forget_removed_worktrees(top)
        try:
            # no hooks: a post-checkout hook is meant for a developer's checkout
            checkout = _git(
                top, "-c", "core.hooksPath=/dev/null", "worktree", "add", "--detach", "--quiet", str(folder), commit
            )
            if not checkout.ok:
                raise UsageError(
                    f"git could not check out {commit[:SHORT_HASH_CHARS]}: {_last_line(checkout.log_tail)}",
                    where=str(top),
                    hint="check the free disk space, and that a worktree can be added here",
                )
            _add_submodules(top, commit, folder)
            yield folder
        finally:
            _remove_worktree(top, folder)


def _remove_worktree(top: Path, folder: Path) -> None:
    # delete the folder first: git removes the entry of a missing worktree, but not of one that the target damaged;
    # force twice: an interrupted "add" leaves the entry locked
    shutil.rmtree(folder, ignore_errors=True)
    _git(top, "worktree", "remove", "--force", "--force", str(folder))


def _forget_removed_worktrees(top: Path) -> None:
    """Remove git's entries of worktrees whose process was killed and whose temporary folder is gone."""
    for line in _git(top, "worktree", "list", "--porcelain").stdout.splitlines():
        folder = Path(line.removeprefix("worktree "))
        if line.startswith("worktree ") and FOLDER_NAME.fullmatch(folder.parent.name) and not folder.parent.exists():
            _remove_worktree(top, folder)


def _git(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Outcome:
    program = shutil.which("git")
    if program is None:
        raise UsageError("git is not installed", hint="install git, or give a saved report: --base report.json")
    environment = {**plain_environment(), **(env or {})}
    return process.run([program, "-C", str(folder), *arguments], env=environment, timeout_s=GIT_TIMEOUT_S)


def plain_environment() -> dict[str, str]:
    """The environment without git's hook variables, which would direct git to the hook's repository and index."""
    return {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}


def repository_root(folder: Path) -> Path:
    """The root of the repository around `folder`. Raises UsageError outside of a repository, and without git."""
    outcome = _git(folder, "rev-parse", "--show-toplevel")
    if not outcome.ok:
        git_message = _last_line(outcome.log_tail).removeprefix("fatal: ")
        raise UsageError(
            "not in a git repository" if "not a git repository" in git_message else f"git: {git_message}",
            where=str(folder.resolve()),
            hint="run check inside the repository, or give a saved report: --base report.json",
        )
    return Path(outcome.stdout.rstrip("\n")).resolve()


def commit_of(repo: Path, name: str) -> str | None:
    """The commit that `name` stands for; None if there is none."""
    if name.startswith("-"):
        return None
    outcome = _git(repo, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return outcome.stdout.strip() if outcome.ok else None


def submodules(top: Path, commit: str = "HEAD") -> dict[str, str]:
    """The submodules of `commit`: path below the repository's root -> commit of the submodule."""
    entries = _git(top, "ls-tree", "-r", "-z", commit).stdout.split("\0")
    fields = (entry.partition("\t") for entry in entries if entry.startswith(_SUBMODULE_MODE))
    return {path: head.split()[2] for head, _, path in fields}


def _add_submodules(top: Path, commit: str, folder: Path) -> None:
    """Put the files of each submodule into the checkout `folder`, as far as the submodule's own repository has its commit.

    ``git worktree`` leaves submodules empty. Their commits are usually here already; nothing is fetched.
    """
    for path, sub_commit in submodules(top, commit).items():
        if not (top / path / ".git").exists():
            continue
        index = {"GIT_INDEX_FILE": str(folder.parent / "submodule.index")}
        if _git(top / path, "read-tree", sub_commit, env=index).ok:
            _git(top / path, "checkout-index", "--all", f"--prefix={folder / path}{os.sep}", env=index)
            Path(index["GIT_INDEX_FILE"]).unlink(missing_ok=True)


def files_at(top: Path, commit: str, path: Path) -> bool:
    """Whether the file `path`, relative to the root, exists at `commit`."""
    return _git(top, "cat-file", "-e", f"{commit}:{path.as_posix()}").ok


def changed_files(top: Path, commit: str) -> dict[str, str]:
    """The files of the working tree that differ from `commit`: path -> status letter of git, ``?`` for untracked ones.

    Of a renamed file (``R``), both the old and the new path are listed. Submodules with another commit or changes are listed.
    """
    outcome = _git(top, "diff", "--find-renames", "--name-status", "-z", commit, "--")
    words = iter(outcome.stdout.split("\0"))
    changed: dict[str, str] = {}
    for status in words:
        if not status:
            continue
        changed[next(words)] = status[0]
        if status[0] in "RC":
            changed[next(words)] = status[0]
    untracked = _git(top, "ls-files", "--others", "--exclude-standard", "-z").stdout.split("\0")
    return {**changed, **dict.fromkeys(filter(None, untracked), "?")}


def python_stems(folder: Path) -> frozenset[str]:
    """The names of the repository's Python files without suffix, tracked or not; of the files below `folder` without git."""
    outcome = _git(folder, "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--full-name", ":/*.py")
    names = outcome.stdout.split("\0") if outcome.ok else [str(file) for file in folder.rglob("*.py")]
    return frozenset(Path(name).stem for name in names if name)


def renames(top: Path, commit: str) -> dict[str, str]:
    """The files that were renamed since `commit`, in the index or the working tree: new path -> old path."""
    words = iter(
        _git(top, "diff", "--find-renames", "--name-status", "--diff-filter=R", "-z", commit, "--").stdout.split("\0")
    )
    pairs: dict[str, str] = {}
    for status in words:
        if status:
            old, new = next(words), next(words)
            pairs[new] = old
    return pairs


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")

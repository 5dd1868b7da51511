"""The base of a check: a git revision that a separate process counts in a worktree, or a saved report.

One job and one installation count both sides, so no stored baseline can become outdated.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profiler_kit import process
from profiler_kit.errors import NotComparableError, TargetError, UsageError
from profiler_kit.gate import worktree_child
from profiler_kit.process import Outcome
from profiler_kit.records.report import Report
from profiler_kit.records.serde import is_saved_report, loads_report, read_report
from profiler_kit.temporary_files import FOLDER_NAME, temporary_folder

# The branches that a change usually starts from, in order of preference.
DEFAULT_BASES: Final = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
COUNT_TIMEOUT_S: Final = 600.0
GIT_TIMEOUT_S: Final = 300.0
SHORT_HASH_CHARS: Final = 10
HOOK_VARIABLES: Final = frozenset(
    f"GIT_{name}"
    for name in ("DIR", "WORK_TREE", "INDEX_FILE", "PREFIX", "COMMON_DIR", "OBJECT_DIRECTORY", "NAMESPACE")
)

Runner = Callable[..., Outcome]


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit, and a description of how it was chosen."""

    commit: str
    description: str


@dataclass(frozen=True, slots=True)
class _Target:
    """A TARGET text for another checkout. `files`: its file, relative to the repository's root; empty if unknown."""

    text: str
    files: tuple[Path, ...]


def load_base(
    rev: str | None,
    target_argv: Sequence[str],
    *,
    repo: Path,
    runner: Runner = process.run,
    timeout_s: float = COUNT_TIMEOUT_S,
) -> Report:
    """Count the target in `target_argv` (TARGET, then its options) at the merge base of HEAD and `rev`.

    `rev` may be the path of a saved report, which is read instead. None means the first of `DEFAULT_BASES` that exists.
    `repo`: the folder the command runs in; relative paths keep their meaning in the base. The report's first note describes
    the base.

    Raises:
        UsageError: no git, no repository, an unknown revision, a target outside the repository.
        NotComparableError: the target's file does not exist at the base.
        TargetError: the base can't be loaded or counted.
    """
    if rev is not None and is_saved_report(repo / rev):
        report = read_report(repo / rev)
        return replace(report, notes=(f"saved report {rev}, created {report.created}", *report.notes))
    top = _repository_root(repo)
    target = _target(target_argv[0], repo, top)
    revision = find_base(rev, repo)
    with worktree(top, revision.commit) as folder:
        _require_target(target, top, folder, revision)
        working_dir = folder / _relative(repo, top)
        # the folder may be new in the change, while the target above it exists at the base
        working_dir.mkdir(parents=True, exist_ok=True)
        is_absolute = Path(target.text).is_absolute()
        text = target.text.replace(str(top), str(folder), 1) if is_absolute else target.text
        child = [sys.executable, worktree_child.__file__, str(top), str(folder)]
        count = ["count", text, *target_argv[1:], "--quiet", "-f", "json"]
        outcome = runner([*child, *count], cwd=working_dir, env=_environment(top, folder), timeout_s=timeout_s)
        if not outcome.ok:
            raise _base_error(outcome, revision, folder, timeout_s)
        report = loads_report(outcome.stdout, f"base {revision.commit[:SHORT_HASH_CHARS]}")
    return replace(report, notes=(revision.description, *report.notes))


def find_base(rev: str | None, repo: Path) -> Revision:
    """The merge base of HEAD and `rev`, or of HEAD and the first of `DEFAULT_BASES` that exists. Raises UsageError."""
    _repository_root(repo)
    names = (rev,) if rev is not None else DEFAULT_BASES
    base_name = next((name for name in names if _commit(repo, name) is not None), None)
    if base_name is None:
        if rev is None:
            raise UsageError(
                f"no base found: none of {', '.join(DEFAULT_BASES)} exists",
                where=str(repo),
                hint="name a revision or a saved report with --base",
            )
        raise UsageError(
            f"unknown revision {rev!r}",
            where=str(repo),
            hint="fetch it (git fetch origin main), or give a saved report: --base report.json",
        )
    head = _commit(repo, "HEAD")
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
            hint="run git fetch --unshallow (GitHub Actions: actions/checkout with fetch-depth: 0)"
            if shallow
            else "name another revision with --base",
        )
    commit = merge_base.stdout.split()[0]
    short_hash = commit[:SHORT_HASH_CHARS]
    if commit == head:
        return Revision(commit, f"HEAD (the working tree is compared with the last commit, {short_hash})")
    return Revision(commit, f"commit {short_hash} (merge base of HEAD and {base_name})")


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
                    hint="check the free disk space and that git worktree add works here",
                )
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


def _git(folder: Path, *arguments: str) -> Outcome:
    program = shutil.which("git")
    if program is None:
        raise UsageError("git is not installed", hint="install git, or give a saved report: --base report.json")
    return process.run([program, "-C", str(folder), *arguments], env=_plain_environment(), timeout_s=GIT_TIMEOUT_S)


def _plain_environment() -> dict[str, str]:
    """The environment without git's hook variables, which would direct git to the hook's repository and index."""
    return {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}


def _repository_root(folder: Path) -> Path:
    outcome = _git(folder, "rev-parse", "--show-toplevel")
    if not outcome.ok:
        git_message = _last_line(outcome.log_tail).removeprefix("fatal: ")
        raise UsageError(
            "not in a git repository" if "not a git repository" in git_message else f"git: {git_message}",
            where=str(folder.resolve()),
            hint="run check inside the repository, or give a saved report: --base report.json",
        )
    return Path(outcome.stdout.rstrip("\n")).resolve()


def _commit(repo: Path, name: str) -> str | None:
    if name.startswith("-"):
        return None
    outcome = _git(repo, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return outcome.stdout.strip() if outcome.ok else None


def _relative(repo: Path, top: Path) -> Path:
    folder = repo.resolve()
    return folder.relative_to(top) if folder.is_relative_to(top) else Path()


def _target(target_text: str, repo: Path, top: Path) -> _Target:
    """TARGET for another checkout. Raises UsageError if its file is outside of the repository."""
    name, _, attribute = target_text.partition(":")
    if not name.endswith(".py"):
        stem = Path(*name.split("."))
        files = [
            (repo.resolve() / folder / module_path)
            for folder in ("", "src")
            for module_path in (stem.with_suffix(".py"), stem / "__init__.py")
        ]
        existing = [file.resolve() for file in files if file.is_file() and file.resolve().is_relative_to(top)]
        return _Target(target_text, tuple(file.relative_to(top) for file in existing[:1]))
    file = (repo / name).resolve()
    if not file.is_relative_to(top):
        raise UsageError(
            "the target is outside of the repository, so no revision contains it",
            where=str(file),
            hint=f"give a target below {top}, or a saved report: --base report.json",
        )
    absolute = f"{file}:{attribute}" if attribute else str(file)
    return _Target(absolute if Path(name).is_absolute() else target_text, (file.relative_to(top),))


def _require_target(target: _Target, top: Path, folder: Path, revision: Revision) -> None:
    missing = [file for file in target.files if not (folder / file).is_file()]
    if missing:
        raise NotComparableError(
            f"{missing[0]} does not exist at the base, {revision.description}",
            where=str(top),
            hint="name a revision that contains the file with --base, or give a saved report: --base report.json",
        )


def _environment(top: Path, folder: Path) -> dict[str, str]:
    """The child's environment: entries of PYTHONPATH inside this checkout point into the base's checkout instead."""
    env = _plain_environment()
    paths = env.get("PYTHONPATH")
    if paths:
        redirected = (worktree_child.path_in_worktree(path, top, folder) for path in paths.split(os.pathsep))
        env["PYTHONPATH"] = os.pathsep.join(redirected)
    return env


def _base_error(outcome: Outcome, revision: Revision, folder: Path, timeout_s: float) -> TargetError:
    """The error for a base that could not be counted, with the child's own message and hint."""
    lines = outcome.log_tail.splitlines()
    error_lines = [index for index, line in enumerate(lines) if line.startswith("error: ")]
    hint = "run the command in a checkout of that commit; if the model is new, name another revision with --base"
    if outcome.timed_out:
        message = f"not finished after {timeout_s:g} s"
    elif outcome.signal_name is not None:
        message = f"ended by {outcome.signal_name}"
    elif error_lines:
        last = error_lines[-1]
        message = lines[last].removeprefix("error: ")
        hint = next((line.removeprefix("hint: ") for line in lines[last:] if line.startswith("hint: ")), hint)
    else:
        message = _last_line(outcome.log_tail) or f"exit status {outcome.returncode}"
    return TargetError(
        f"counting the base failed, not this change: {message.replace(f'{folder}{os.sep}', '')}",
        where=revision.description,
        hint=hint.replace(f"{folder}{os.sep}", ""),
    )


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")

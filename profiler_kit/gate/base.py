"""The other side of a check: a git revision, counted in a worktree by a process of its own, or a saved report.

Both sides are counted in one job by one installation, so there is no stored baseline to go stale.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
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

# Where a change usually branched off, the most telling first.
USUAL_BASES: Final = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
COUNT_TIMEOUT_S: Final = 600.0
GIT_TIMEOUT_S: Final = 300.0
SHORT_HASH: Final = 10
HOOK_VARIABLES: Final = frozenset(
    f"GIT_{name}"
    for name in ("DIR", "WORK_TREE", "INDEX_FILE", "PREFIX", "COMMON_DIR", "OBJECT_DIRECTORY", "NAMESPACE")
)

Runner = Callable[..., Outcome]


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit, and in words how it was chosen."""

    commit: str
    told: str


@dataclass(frozen=True, slots=True)
class _Target:
    """A TARGET text as it reads in another checkout: `places` are the files it may be, relative to the top; () if unknown."""

    text: str
    places: tuple[Path, ...]


def base_report(
    rev: str | None,
    target_argv: Sequence[str],
    *,
    repo: Path,
    runner: Runner = process.run,
    timeout_s: float = COUNT_TIMEOUT_S,
) -> Report:
    """The static report of the target in `target_argv` (TARGET, then its options) as it was where the present branch left `rev`.

    `rev` may be a saved report, which is read instead. None takes the merge base with the first of `USUAL_BASES` that
    exists. `repo` is the folder the command runs in; relative paths mean the same in the base. The report's first note
    says which commit it is of.

    Raises:
        UsageError: no git, no repository, an unknown revision, a target outside the repository.
        NotComparableError: the target's file does not exist at the base.
        TargetError: the base can't be loaded or counted.
    """
    if rev is not None and is_saved_report(repo / rev):
        report = read_report(repo / rev)
        return replace(report, notes=(f"the saved report {rev}, made {report.created}", *report.notes))
    top = _top(repo)
    target = _target(target_argv[0], repo, top)
    revision = find_base(rev, repo)
    with worktree(top, revision.commit) as folder:
        _present(target, top, folder, revision)
        inside = folder / _relative(repo, top)
        # a folder that is new since then has no files there, but targets above it
        inside.mkdir(parents=True, exist_ok=True)
        absolute = Path(target.text).is_absolute()
        text = target.text.replace(str(top), str(folder), 1) if absolute else target.text
        child = [sys.executable, worktree_child.__file__, str(top), str(folder)]
        count = ["count", text, *target_argv[1:], "--quiet", "-f", "json"]
        outcome = runner([*child, *count], cwd=inside, env=_environment(top, folder), timeout_s=timeout_s)
        if not outcome.ok:
            raise _failed(outcome, revision, folder, timeout_s)
        report = loads_report(outcome.stdout, f"base {revision.commit[:SHORT_HASH]}")
    return replace(report, notes=(revision.told, *report.notes))


def find_base(rev: str | None, repo: Path) -> Revision:
    """The commit where HEAD left `rev`, or the first of `USUAL_BASES` that exists. Raises UsageError."""
    _top(repo)
    names = (rev,) if rev is not None else USUAL_BASES
    known = next((name for name in names if _commit(repo, name) is not None), None)
    if known is None:
        if rev is None:
            raise UsageError(f"no base found: there is no {', '.join(USUAL_BASES)}", hint="name one with --base REV")
        raise UsageError(
            f"unknown revision {rev!r}",
            where=str(repo),
            hint="fetch it first, as with: git fetch origin main; or give a report.json",
        )
    head = _commit(repo, "HEAD")
    if head is None:
        raise UsageError(
            "the repository has no commit yet", where=str(repo), hint="commit first, or give a report.json"
        )
    merged = _git(repo, "merge-base", known, "HEAD")
    if not merged.ok:
        shallow = _git(repo, "rev-parse", "--is-shallow-repository").stdout.strip() == "true"
        raise UsageError(
            f"HEAD and {known} have no common commit" + (" in this shallow clone" if shallow else ""),
            where=str(repo),
            hint="git fetch --unshallow (GitHub Actions: checkout with fetch-depth: 0)"
            if shallow
            else "name another --base",
        )
    commit = merged.stdout.split()[0]
    how = f"commit {commit[:SHORT_HASH]}, where HEAD left {known}"
    return Revision(commit, f"{how}, which is HEAD itself: only uncommitted changes differ" if commit == head else how)


@contextlib.contextmanager
def worktree(top: Path, commit: str) -> Iterator[Path]:
    """A folder that holds `commit`, gone again afterwards, however the block is left."""
    place = Path(tempfile.mkdtemp(prefix="profiler-kit-base-")).resolve()
    folder = place / "base"
    try:
        # no hooks: a post-checkout hook is written for a person's checkout
        made = _git(
            top, "-c", "core.hooksPath=/dev/null", "worktree", "add", "--detach", "--quiet", str(folder), commit
        )
        if not made.ok:
            raise UsageError(
                f"git could not check out {commit[:SHORT_HASH]}: {_last_line(made.log_tail)}",
                where=str(top),
                hint="see that the disk has room and that git worktree add works here",
            )
        yield folder
    finally:
        # the folder first: git removes the entry of one that is gone, but not of one that the target has damaged;
        # forced twice, for an interrupted "add" leaves the entry locked
        shutil.rmtree(place, ignore_errors=True)
        _git(top, "worktree", "remove", "--force", "--force", str(folder))


def _git(folder: Path, *words: str) -> Outcome:
    program = shutil.which("git")
    if program is None:
        raise UsageError("git is not installed", hint="install git, or give a saved report: --base report.json")
    return process.run([program, "-C", str(folder), *words], env=_plain_environment(), timeout_s=GIT_TIMEOUT_S)


def _plain_environment() -> dict[str, str]:
    """The environment without what git sets inside a hook, which points every git below at that repository and index."""
    return {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}


def _top(folder: Path) -> Path:
    found = _git(folder, "rev-parse", "--show-toplevel")
    if not found.ok:
        said = _last_line(found.log_tail).removeprefix("fatal: ")
        raise UsageError(
            "not in a git repository" if "not a git repository" in said else f"git: {said}",
            where=str(folder.resolve()),
            hint="run it inside the repository, or give a saved report: --base report.json",
        )
    return Path(found.stdout.rstrip("\n")).resolve()


def _commit(repo: Path, name: str) -> str | None:
    if name.startswith("-"):
        return None
    found = _git(repo, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return found.stdout.strip() if found.ok else None


def _relative(repo: Path, top: Path) -> Path:
    here = repo.resolve()
    return here.relative_to(top) if here.is_relative_to(top) else Path()


def _target(written: str, repo: Path, top: Path) -> _Target:
    """TARGET as it is found in another checkout. Raises UsageError where its file lies outside the repository."""
    name, _, attribute = written.partition(":")
    if not name.endswith(".py"):
        stem = Path(*name.split("."))
        files = [
            (repo.resolve() / folder / one)
            for folder in ("", "src")
            for one in (stem.with_suffix(".py"), stem / "__init__.py")
        ]
        here = [file.resolve() for file in files if file.is_file() and file.resolve().is_relative_to(top)]
        return _Target(written, tuple(file.relative_to(top) for file in here[:1]))
    file = (repo / name).resolve()
    if not file.is_relative_to(top):
        raise UsageError(
            "the target lies outside of the repository, so no revision holds it",
            where=str(file),
            hint=f"give a target below {top}, or a saved report: --base report.json",
        )
    absolute = f"{file}:{attribute}" if attribute else str(file)
    return _Target(absolute if Path(name).is_absolute() else written, (file.relative_to(top),))


def _present(target: _Target, top: Path, folder: Path, revision: Revision) -> None:
    missing = [place for place in target.places if not (folder / place).is_file()]
    if missing:
        raise NotComparableError(
            f"{missing[0]} does not exist at the base, {revision.told}: it is new, so there is nothing to compare it with",
            where=str(top),
            hint="name a base that has it with --base REV, or give a report of another model: --base report.json",
        )


def _environment(top: Path, folder: Path) -> dict[str, str]:
    """The child's environment: search paths into this checkout lead into the base's instead."""
    env = _plain_environment()
    paths = env.get("PYTHONPATH")
    if paths:
        env["PYTHONPATH"] = os.pathsep.join(worktree_child.moved(path, top, folder) for path in paths.split(os.pathsep))
    return env


def _failed(outcome: Outcome, revision: Revision, folder: Path, timeout_s: float) -> TargetError:
    """The error for a base that could not be counted; it says that the base is meant, and what was said there."""
    lines = outcome.log_tail.splitlines()
    told = [index for index, line in enumerate(lines) if line.startswith("error: ")]
    hint = "run it in a checkout of that commit; if the model is new since then, give another --base"
    if outcome.timed_out:
        said = f"not done after {timeout_s:g} s"
    elif outcome.signal_name is not None:
        said = f"ended by {outcome.signal_name}"
    elif told:
        said = lines[told[-1]].removeprefix("error: ")
        hint = next((line.removeprefix("hint: ") for line in lines[told[-1] :] if line.startswith("hint: ")), hint)
    else:
        said = _last_line(outcome.log_tail) or f"exit status {outcome.returncode}"
    return TargetError(
        f"the BASE failed, not this change: {said.replace(f'{folder}{os.sep}', '')}",
        where=revision.told,
        hint=hint.replace(f"{folder}{os.sep}", ""),
    )


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")

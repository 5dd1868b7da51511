"""The base of a check: a git revision that a separate process counts in a worktree, or a saved report.

One job and one installation count both sides, so no stored baseline can become outdated.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profiler_kit.command_lines import PROGRAM, kit_command
from profiler_kit.errors import NotComparableError, TargetError, UsageError
from profiler_kit.gate import worktree_child
from profiler_kit.gate.git import (
    SHORT_HASH_CHARS,
    Revision,
    files_at,
    plain_environment,
    submodules,
)
from profiler_kit.process import Outcome
from profiler_kit.records.notes import Note
from profiler_kit.records.report import Report
from profiler_kit.records.serde import is_saved_report, loads_report, read_report
from profiler_kit.records.target import Checkout

COUNT_TIMEOUT_S: Final = 600.0
_SIDE_OPTIONS: Final = {"--kw": "--base-kw", "--input": "--base-input", "-i": "--base-input"}

Runner = Callable[..., Outcome]


@dataclass(frozen=True, slots=True)
class TargetFiles:
    """A TARGET text, and its file relative to the repository's root; None if the text names no file of the repository."""

    text: str
    file: Path | None


@dataclass(frozen=True, slots=True)
class CountCommand:
    """A command that counts a target at a revision, and how to read its outcome. See `count_command`.

    `check` are the words of the check, which replace ``count TARGET`` in hints.
    """

    argv: tuple[str, ...]
    target: str
    cwd: Path
    env: dict[str, str]
    revision: Revision
    top: Path
    folder: Path
    check: tuple[str, ...]
    timeout_s: float = COUNT_TIMEOUT_S

    def report(self, outcome: Outcome) -> Report:
        """The report that the command printed; its first note describes the base. Raises TargetError."""
        if not outcome.ok:
            raise _base_error(outcome, self)
        report = loads_report(outcome.stdout, f"base {self.revision.commit[:SHORT_HASH_CHARS]}")
        return replace(report, notes=(Note(code="revision", text=self.revision.description), *report.notes))


def saved_base(rev: str | None, repo: Path) -> Report | None:
    """The saved report at the path `rev`; None if `rev` is not one. Raises ReportError if it cannot be read."""
    if rev is None or not is_saved_report(repo / rev):
        return None
    report = read_report(repo / rev)
    note = Note(code="revision", text=f"saved report {rev}, created {report.created}")
    return replace(report, notes=(note, *report.notes))


def count_command(
    target_argv: Sequence[str],
    *,
    repo: Path,
    top: Path,
    folder: Path,
    revision: Revision,
    check: Sequence[str] = (),
    timeout_s: float = COUNT_TIMEOUT_S,
) -> CountCommand:
    """The command that counts the target in `target_argv` in `folder`, a checkout of `revision`.

    `check`: the words of the command line of the check, for hints (default: its target without options).
    """
    working_dir = folder / _relative(repo, top)
    # the folder may be new in the change, while the target above it exists at the base
    working_dir.mkdir(parents=True, exist_ok=True)
    text = target_argv[0]
    text = text.replace(str(top), str(folder), 1) if Path(text).is_absolute() else text
    child = [sys.executable, worktree_child.__file__, str(os.getpid()), str(top), str(folder)]
    count = ["count", text, *target_argv[1:], "--timeout", f"{timeout_s:g}s", "--quiet", "-f", "json"]
    return CountCommand(
        argv=(*child, *count),
        target=text,
        cwd=working_dir,
        env=_environment(top, folder),
        revision=revision,
        top=top,
        folder=folder,
        check=tuple(check) or ("check", target_argv[0]),
        timeout_s=timeout_s,
    )


def target_files(target_text: str, repo: Path, top: Path) -> TargetFiles:
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
        return TargetFiles(target_text, existing[0].relative_to(top) if existing else None)
    file = (repo / name).resolve()
    if not file.is_relative_to(top):
        raise UsageError(
            "the target is outside of the repository, so no revision contains it",
            where=str(file),
            hint=f"give a target below {top}, or a saved report: --base report.json",
        )
    absolute = f"{file}:{attribute}" if attribute else str(file)
    return TargetFiles(absolute if Path(name).is_absolute() else target_text, file.relative_to(top))


def require_file(target: TargetFiles, top: Path, revision: Revision) -> None:
    """Raise NotComparableError if the base lacks the file of `target`."""
    if target.file is not None and not files_at(top, revision.commit, target.file):
        raise NotComparableError(
            f"{target.file} does not exist at the base, {revision.description}",
            where=str(top),
            hint="name a revision that contains the file with --base, or give a saved report: --base report.json",
        )


def _relative(repo: Path, top: Path) -> Path:
    folder = repo.resolve()
    return folder.relative_to(top) if folder.is_relative_to(top) else Path()


def _environment(top: Path, folder: Path) -> dict[str, str]:
    """The child's environment: entries of PYTHONPATH inside this checkout point into the base's checkout instead."""
    env = plain_environment()
    paths = env.get("PYTHONPATH")
    if paths:
        checkout = Checkout(top=str(top), folder=str(folder))
        env["PYTHONPATH"] = os.pathsep.join(map(checkout.redirected, paths.split(os.pathsep)))
    return env


def _base_error(outcome: Outcome, command: CountCommand) -> TargetError:
    """The error for a base that could not be counted, with the child's own message and hint, in terms of ``check``."""
    message, hint = outcome.error
    if not hint:
        hint = "run the command in a checkout of that commit; if the model is new, name another revision with --base"
    if outcome.timed_out:
        message = f"not finished after {command.timeout_s:g} s"
    missing = next(
        (path for path in submodules(command.top, command.revision.commit) if f"'{Path(path).name}'" in message), None
    )
    if missing is not None and "No module named" in message:
        hint = f"fetch the submodule {missing}, so that its commits are here"
    return TargetError(
        f"counting the base failed, not this change: {message.replace(f'{command.folder}{os.sep}', '')}",
        where=command.revision.description,
        hint=_for_base(hint, command).replace(f"{command.folder}{os.sep}", ""),
    )


def _for_base(hint: str, command: CountCommand) -> str:
    """`hint` for the check, with the options of the base alone: ``count net.py --kw width=8`` becomes ``--base-kw width=8``.

    A command that counts something else stays.
    """
    count = re.search(rf"(?:{PROGRAM}|\S+ -m profiler_kit) count (?P<words>[^;]+)", hint)
    if count is None:
        return " ".join(_SIDE_OPTIONS.get(word, word) for word in hint.split(" "))
    target, *options = shlex.split(count["words"])
    if target != command.target:
        return hint
    check = kit_command(*command.check, *(_SIDE_OPTIONS.get(word, word) for word in options))
    return f"{hint[: count.start()]}{check}{hint[count.end() :]}"

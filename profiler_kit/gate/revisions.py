"""Targets at git revisions: ``REV:FILE[:NAME]``, and ``REV..REV FILE`` for two of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler_kit.command_lines import git_command
from profiler_kit.errors import UsageError
from profiler_kit.gate.git import (
    SHORT_HASH_CHARS,
    commit_of,
    files_at,
    merge_base,
    repository_root,
    unknown_revision,
    worktree,
)
from profiler_kit.records.target import Checkout

RANGES: Final = ("...", "..")


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionTarget:
    """A TARGET text in the checkout of a revision. `text` leads into the checkout; `label` is what the user wrote."""

    text: str
    label: str
    checkout: Checkout


def is_range(text: str, folder: Path) -> bool:
    """Whether `text` is a range of revisions, such as ``main..HEAD``, and not a file."""
    return (
        any(mark in text for mark in RANGES) and not (folder / text).exists() and "/.." not in text and text[:2] != ".."
    )


def split_range(text: str, target: str, folder: Path) -> tuple[str, str]:
    """The two sides of ``REV..REV TARGET`` as ``REV:TARGET``. An empty right side is the working tree.

    As in git, ``A...B`` compares B with the merge base of A and B.

    Raises: UsageError for an unknown revision.
    """
    mark = next(mark for mark in RANGES if mark in text)
    left, _, right = text.partition(mark)
    left = left or "HEAD"
    if mark == "...":
        left = merge_base(folder, left, right or "HEAD")
    for rev in filter(None, (left, right)):
        if commit_of(folder, rev) is None:
            raise unknown_revision(folder, rev, text)
    return f"{left}:{target}", f"{right}:{target}" if right else target


def split_revision(text: str, folder: Path) -> tuple[str, str] | None:
    """The revision and the TARGET text of ``REV:FILE`` or ``REV:FILE:NAME``; None where `text` has no revision."""
    rev, colon, target = text.partition(":")
    if not colon or not rev or ".py" not in target or rev.endswith(".py") or (folder / text).exists():
        return None
    return rev, target


@contextlib.contextmanager
def revision_targets(texts: Sequence[str], folder: Path) -> Iterator[dict[str, RevisionTarget]]:
    """Check out the revisions in `texts` for the block: text -> target. Texts without a revision are left out.

    `folder`: the folder that relative paths start from; they keep their meaning in the checkout.

    Raises:
        UsageError: no repository, an unknown revision, or no such file in it.
    """
    parts = {text: pair for text in texts if (pair := split_revision(text, folder)) is not None}
    if not parts:
        yield {}
        return
    top = repository_root(folder)
    targets: dict[str, RevisionTarget] = {}
    with contextlib.ExitStack() as stack:
        checkouts: dict[str, Path] = {}
        for text, (rev, target) in parts.items():
            commit = commit_of(folder, rev)
            if commit is None:
                raise unknown_revision(folder, rev, text)
            name, colon, attribute = target.partition(":")
            file = (folder / name).resolve()
            if not file.is_relative_to(top) or not files_at(top, commit, file.relative_to(top)):
                raise UsageError(
                    f"{name} does not exist at {rev} ({commit[:SHORT_HASH_CHARS]})",
                    where=text,
                    hint=f"{git_command('ls-tree', '--name-only', '-r', rev)} lists the files",
                )
            if commit not in checkouts:
                checkouts[commit] = stack.enter_context(worktree(top, commit))
            there = checkouts[commit]
            targets[text] = RevisionTarget(
                text=f"{there / file.relative_to(top)}{colon}{attribute}",
                label=f"{rev}:{target}",
                checkout=Checkout(top=str(top), folder=str(there)),
            )
        yield targets

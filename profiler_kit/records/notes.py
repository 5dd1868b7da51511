"""Notes for the reader of a report, and choices that the loading of a target made. Code decides on their codes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Code = Literal[
    "", "guessed", "assumed", "compiled", "compiled_whole", "default_loss", "skipped", "revision",
]  # fmt: skip
# stated by the user or the file; derived from what the repository's text or a configuration does; assumed, as nothing shows it
Certainty = Literal["stated", "derived", "assumed"]
PARTS: Final = (
    "model",
    "mode",
    "inputs",
    "labels",
    "loss",
    "optimizer",
    "import",
)  # of a target, in the order of a step


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One remark for the reader of a report. ``str(note)`` is its line.

    - `subject`: the part of the target (one of `PARTS`), the configuration or the setting that it is about; empty for others.
    - `code`: for decisions; empty where nothing depends on the note. ``guessed``: inputs that no file shows.
      ``assumed``: a model, or arguments of it, that no file shows. ``compiled``, ``compiled_whole``: parts of the model, or
      all of it, are under ``torch.compile``. ``default_loss``: the target has no loss of its own. ``skipped``: a configuration
      that did not run. ``revision``: the code that the report describes.
    - `text`: for people, without the subject.
    """

    subject: str = ""
    code: Code = ""
    text: str

    def __str__(self) -> str:
        prefix = "Skipped " if self.code == "skipped" else ""
        return f"{prefix}{self.subject}: {self.text}" if self.subject else self.text

    @property
    def rank(self) -> int:
        """The place of the subject in a step; notes about no part of the target come last."""
        return PARTS.index(self.subject) if self.subject in PARTS else len(PARTS)


def plain_notes(lines: Iterable[str]) -> tuple[Note, ...]:
    """Return notes on which nothing depends, one for each of `lines`."""
    return tuple(Note(text=line) for line in lines)


def note_of_line(line: str) -> Note:
    """Return the note of one line of an older report, whose notes were lines without a code."""
    subject, _, text = line.partition(": ")
    code: Code = "guessed" if line.startswith(("GUESSED", "inputs: guessed")) else ""
    return Note(subject=subject, code=code, text=text) if subject in PARTS else Note(code=code, text=line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One decision of the loading of a target: its `subject`, the `value` chosen, and `where` the evidence is (empty: nowhere).

    `why`: the reason, for people. `others`: what could be chosen instead. `options`: the words of the command line that set
    this value; empty where none can.
    """

    subject: str
    value: str
    where: str = ""
    why: str = ""
    others: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How each part of a target is known; None where it has none."""

    model: Certainty = "stated"
    arguments: Certainty = "stated"
    inputs: Certainty = "stated"
    loss: Certainty | None = None
    optimizer: Certainty | None = None

    def is_assumed(self, subject: str) -> bool:
        """Whether nothing shows the part `subject` (the name of a field)."""
        return getattr(self, subject, None) == "assumed"

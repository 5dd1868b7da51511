"""Plain text for a terminal, in color if asked for. It fits the width; numbers are never cut."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from profiler_kit.records.document import Block, Document, FindingList, Paragraph, Section, Table
from profiler_kit.render import Renderer, RenderOptions
from profiler_kit.render._fit import GAP, Cells, fit, padded, shorten
from profiler_kit.render._text import first_sentence, lines, one_line
from profiler_kit.units import text

if TYPE_CHECKING:
    from profiler_kit.records.report import Finding

NARROWEST: Final = 60
# A summary gives these findings' first sentences, and of more than these the titles alone.
SUMMARY_FINDINGS: Final = 3
# Beyond so many, findings that ask for little or nothing are only counted.
SUMMARY_TITLES: Final = 8

LONGEST_EVIDENCE: Final = 72  # kernel names run to thousands of letters; JSON and Markdown have all of them
MOST_NAMED: Final = 4  # of the sections left out

BOLD, DIM, RED, YELLOW, CYAN = "1", "2", "31", "33", "36"
_SEVERITY_COLOR: Final = {"high": RED, "medium": YELLOW, "low": CYAN, "info": DIM}

Paint = Callable[[str, str], str]


def render(document: Document, options: RenderOptions) -> str:
    """The document in at most ``options.width`` columns; without ``options.detail`` what fits a screen."""
    page = _Page(max(options.width, NARROWEST), options.color, options.detail)
    return page.render(document)


class _Page:
    """One rendering: its width, and how text is painted."""

    def __init__(self, width: int, color: bool, detail: bool) -> None:
        self.width = width
        self.detail = detail
        self.no_room: dict[str, int] = {}
        self.shortened = False
        self.paint: Paint = _ansi if color else _plain

    def render(self, document: Document) -> str:
        out = self._wrap(document.title, color=BOLD)
        shown = [section for section in document.sections if self.detail or not section.detail]
        for i, section in enumerate(shown):
            out += self._section(section, first=i == 0)
        out += self._left_out([one_line(section.title) for section in document.sections if section not in shown])
        return "\n".join(line.rstrip() for line in out) + "\n"

    def _section(self, section: Section, first: bool) -> list[str]:
        blocks: list[list[str]] = []
        captioned = first
        shown = [b for b in section.blocks if self.detail or not (isinstance(b, Paragraph) and b.detail)]
        for block in _joined(shown, whole=self.detail):
            drawn = self._block(block, section)
            if isinstance(block, Table) and block.caption:
                if captioned:  # the section's heading has the first table's caption
                    drawn = [*self._wrap(f"{block.caption}:"), *drawn]
                captioned = True
            blocks.append(drawn)
        body = [line for block in blocks for line in block]
        if first:  # the title above it is heading enough
            return body
        caption = next((b.caption for b in section.blocks if isinstance(b, Table) and b.caption), "")
        heading = self._wrap(f"{section.title} ({caption})" if caption else section.title, color=BOLD)
        return ["", *heading, *body]

    def _left_out(self, sections: list[str]) -> list[str]:
        """What a summary did not say: findings in full, columns by table, and sections."""
        said = []
        left_out = [*(["findings in full"] if self.shortened else []), *sections]
        if left_out:
            named = left_out[:MOST_NAMED] if len(left_out) > MOST_NAMED + 1 else left_out
            more = f" and {len(left_out) - len(named)} more sections" if len(left_out) > len(named) else ""
            said.append(f"--detail also shows: {', '.join(named)}{more}.")
        if self.no_room:
            columns = ", ".join(f"{number} of {title}" for title, number in self.no_room.items())
            said.append(f"No room at this width for columns: {columns}.")
        return ["", *self._wrap(" ".join(said), color=DIM)] if said else []

    def _block(self, block: Block, section: Section) -> list[str]:
        if isinstance(block, Table):
            return self._table(block, section)
        if isinstance(block, FindingList):
            return self._findings(block.findings)
        return self._paragraph(block)

    def _paragraph(self, paragraph: Paragraph) -> list[str]:
        match paragraph.role:
            case "log":
                return [f"  | {piece}" for line in lines(paragraph.text) for piece in _chunks(line, self.width - 4)]
            case "warning":
                return self._wrap(paragraph.text, first="! ", rest="  ", color=YELLOW)
            case "note":
                return self._wrap(paragraph.text, first="- ", rest="  ")
            case "text":
                return self._wrap(paragraph.text)

    def _findings(self, findings: Sequence[Finding]) -> list[str]:
        out: list[str] = []
        folded = 0
        for i, finding in enumerate(findings):
            if self.detail:
                out += self._title(finding) + self._whole(finding)
                continue
            self.shortened = True
            if finding.severity in ("low", "info") and i >= SUMMARY_TITLES and not _is_tried(finding):
                folded += 1
                continue
            out += self._title(finding)
            # two findings may lead to one trial
            told = finding.trial in [earlier.trial for earlier in findings[:i]]
            if i < SUMMARY_FINDINGS and finding.severity in ("high", "medium"):
                out += self._brief(finding) + ([] if told else self._trial(finding))
            elif _is_tried(finding) and not told:
                out += self._trial(finding)
        if folded:
            out += self._wrap(f"and {folded} more of less weight", color=DIM)
        return out

    def _title(self, finding: Finding) -> list[str]:
        mark = f"[{finding.severity}] "
        out = self._wrap(finding.title, first=mark, rest=" " * len(mark))
        out[0] = self.paint(mark, _SEVERITY_COLOR[finding.severity]) + self.paint(out[0][len(mark) :], BOLD)
        return out

    def _brief(self, finding: Finding) -> list[str]:
        out = self._wrap(first_sentence(finding.explanation), first="  ", rest="  ")
        out += self._wrap(first_sentence(finding.advice), first="  -> ", rest="     ", color=CYAN)
        return out

    def _whole(self, finding: Finding) -> list[str]:
        out = self._wrap(finding.explanation, first="  ", rest="  ")
        out += self._wrap(finding.advice, first="  -> ", rest="     ", color=CYAN)
        out += self._trial(finding)
        numbers = []
        for e in finding.evidence:
            said = f"{e.name} {shorten(text(e.value, e.unit), LONGEST_EVIDENCE)}"
            numbers.append(f"{said} ({e.where})" if e.where else said)
        return out + self._wrap("; ".join(numbers), first="  ", rest="  ", color=DIM)

    def _trial(self, finding: Finding) -> list[str]:
        from profiler_kit.report.trial_words import trial_words

        trial = finding.trial
        if trial is None:
            return []
        words = f"tried {trial.config}: {trial_words(trial, whole=self.detail)}"
        return self._wrap(words, first="  ", rest="  ")

    def _table(self, table: Table, section: Section) -> list[str]:
        pieces, left_out = fit(table, self.width)
        out = [line for piece in pieces for line in self._drawn(piece, len(table.totals))]
        if left_out and self.detail:
            out += self._wrap(f"No room at this width: {', '.join(map(one_line, left_out))}.", color=DIM)
        elif left_out:
            self.no_room[one_line(section.title)] = len(left_out)
        return out

    def _drawn(self, cells: Cells, totals: int) -> list[str]:
        titles = [_wrapped(title, width) for title, width in zip(cells.titles, cells.widths, strict=True)]
        height = max(map(len, titles))
        heads = [[([""] * (height - len(title)) + title)[i] for title in titles] for i in range(height)]
        rows = [list(row) for row in zip(*cells.columns, strict=True)]
        rule = [["-" * width for width in cells.widths]] if self.detail else []
        # Not by tabulate, which counts characters: wide and combining ones would push a line over the width.
        drawn = [
            (" " * GAP).join(map(padded, line, cells.widths, cells.right)).rstrip() for line in (*heads, *rule, *rows)
        ]
        bold = {*range(height), *range(len(drawn) - totals, len(drawn))}
        return [self.paint(line, BOLD) if i in bold else line for i, line in enumerate(drawn)]

    def _wrap(self, written: str, *, first: str = "", rest: str = "", color: str | None = None) -> list[str]:
        wrapped = textwrap.wrap(
            one_line(written),
            self.width,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=True,  # only a kernel's name is longer than a line
            break_on_hyphens=False,
        )
        return [self.paint(line, color) if color else line for line in wrapped]


def _joined(blocks: Sequence[Block], *, whole: bool) -> list[Block]:
    """`blocks`, in a summary with notes that follow each other made one."""
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        follows = isinstance(last, Paragraph) and isinstance(block, Paragraph) and last.role == block.role == "note"
        if follows and isinstance(last, Paragraph) and isinstance(block, Paragraph) and not whole:
            joined[-1] = Paragraph(text=f"{last.text.rstrip('.')}; {block.text}", role="note")
        else:
            joined.append(block)
    return joined


def _wrapped(title: str, width: int) -> list[str]:
    """`title` broken at its spaces to `width`, so that it makes the column no wider than its cells need."""
    return textwrap.wrap(one_line(title), width, break_long_words=False, break_on_hyphens=False) or [""]


def _is_tried(finding: Finding) -> bool:
    return finding.trial is not None and finding.trial.tried


def _chunks(line: str, width: int) -> list[str]:
    return [line[i : i + width] for i in range(0, len(line), width)] or [""]


def _ansi(written: str, code: str) -> str:
    return f"\x1b[{code}m{written}\x1b[0m" if written else written


def _plain(written: str, code: str) -> str:
    return written


RENDERER = Renderer("terminal", (".txt",), "plain text that fits the screen", render)

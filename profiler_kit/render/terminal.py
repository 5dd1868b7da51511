"""Plain text for a terminal, with optional color. It fits the width; numbers are never cut."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from profiler_kit.records.document import Block, Chart, Document, FindingList, Paragraph, RemedyList, Section, Table
from profiler_kit.render import Renderer, RenderOptions
from profiler_kit.render._fit import GAP, Cells, fit, padded, shorten
from profiler_kit.render._text import first_sentence, lines, one_line
from profiler_kit.units import text

if TYPE_CHECKING:
    from profiler_kit.records.report import Finding
    from profiler_kit.records.verdict import Remedy

NARROWEST: Final = 60
SUMMARY_FINDINGS: Final = 3  # the first findings of a summary have explanation and advice, the others a title only
SUMMARY_REMEDIES: Final = 3
SUMMARY_TITLES: Final = 5  # further findings are only counted, except those of high severity
MAX_EVIDENCE: Final = 72  # characters; kernel names can have thousands, which JSON and Markdown show
MAX_SECTION_NAMES: Final = 4  # of hidden sections

BOLD, DIM, RED, YELLOW, CYAN = "1", "2", "31", "33", "36"
_SEVERITY_COLOR: Final = {"high": RED, "medium": YELLOW, "low": CYAN, "info": DIM}

Paint = Callable[[str, str], str]


def render(document: Document, options: RenderOptions) -> str:
    """The document in at most ``options.width`` columns; a summary that fits a screen unless ``options.detail``."""
    page = _Page(max(options.width, NARROWEST), options.color, options.detail)
    return page.render(document)


class _Page:
    """One rendering: its width, its level of detail, and its colors."""

    def __init__(self, width: int, color: bool, detail: bool) -> None:
        self.width = width
        self.detail = detail
        self.hidden_columns: dict[str, int] = {}
        self.shortened = False
        self.advised: set[int] = set()  # numbers of the findings whose advice is listed above
        self.paint: Paint = _ansi if color else _plain

    def render(self, document: Document) -> str:
        out = self._wrap(document.title, color=BOLD)
        sections = [section for section in document.sections if not section.is_drawn]
        visible = [section for section in sections if self.detail or not section.detail]
        for i, section in enumerate(visible):
            out += self._section(section, first=i == 0)
        out += self._footer([one_line(section.title) for section in sections if section not in visible])
        return "\n".join(line.rstrip() for line in out) + "\n"

    def _section(self, section: Section, first: bool) -> list[str]:
        blocks: list[list[str]] = []
        captioned = first
        for block in section.blocks:
            if isinstance(block, Paragraph) and block.detail and not self.detail:
                continue
            block_lines = self._block(block, section)
            if isinstance(block, Table) and block.caption:
                if captioned:  # the section's heading contains the first table's caption
                    block_lines = [*self._wrap(f"{block.caption}:"), *block_lines]
                captioned = True
            blocks.append(block_lines)
        body = [line for block in blocks for line in block]
        if first:  # the document's title is its heading
            return body
        caption = next((b.caption for b in section.blocks if isinstance(b, Table) and b.caption), "")
        heading = self._wrap(f"{section.title} ({caption})" if caption else section.title, color=BOLD)
        return ["", *heading, *body]

    def _footer(self, sections: list[str]) -> list[str]:
        """The parts that the summary omits: full findings, `sections`, and columns by table."""
        sentences = []
        parts = [*(["findings in full"] if self.shortened else []), *sections]
        if parts:
            names = parts[:MAX_SECTION_NAMES] if len(parts) > MAX_SECTION_NAMES + 1 else parts
            more = f" and {len(parts) - len(names)} more sections" if len(parts) > len(names) else ""
            sentences.append(f"--detail also shows: {', '.join(names)}{more}.")
        if self.hidden_columns:
            columns = ", ".join(f"{number} in {title}" for title, number in self.hidden_columns.items())
            sentences.append(f"Columns hidden at this width: {columns} (-f markdown shows all).")
        return ["", *self._wrap(" ".join(sentences), color=DIM)] if sentences else []

    def _block(self, block: Block, section: Section) -> list[str]:
        if isinstance(block, Table):
            return self._table(block, section)
        if isinstance(block, FindingList):
            return self._findings(block)
        if isinstance(block, Chart):
            return []
        if isinstance(block, RemedyList):
            return self._remedies(block.remedies)
        return self._paragraph(block)

    def _paragraph(self, paragraph: Paragraph) -> list[str]:
        match paragraph.role:
            case "log":
                return [f"  | {piece}" for line in lines(paragraph.text) for piece in _chunks(line, self.width - 4)]
            case "warning":
                return self._wrap(paragraph.text, first="! ", indent="  ", color=YELLOW)
            case "note":
                return self._wrap(paragraph.text, first="- ", indent="  ")
            case "text":
                return self._wrap(paragraph.text)

    def _findings(self, block: FindingList) -> list[str]:
        out: list[str] = []
        folded = 0
        findings = block.findings
        for i, finding in enumerate(findings):
            number = i + block.first
            if self.detail or block.full:
                out += self._title(finding, number) + self._full(finding)
                continue
            self.shortened = True
            if finding.severity != "high" and i >= SUMMARY_TITLES and not _is_tried(finding):
                folded += 1
                continue
            out += self._title(finding, number)
            # two findings may share a trial
            is_repeated = finding.trial in [earlier.trial for earlier in findings[:i]]
            is_advised = number in self.advised
            if i < SUMMARY_FINDINGS and finding.severity in ("high", "medium") and (i == 0 or not is_advised):
                out += self._brief(finding, with_advice=not is_advised)
                out += [] if is_repeated or is_advised else self._trial(finding)
            elif _is_tried(finding) and not is_repeated and not is_advised:
                out += self._trial(finding)
        if folded:
            out += self._wrap(f"{folded} more {'finding' if folded == 1 else 'findings'} (--detail)", color=DIM)
        return out

    def _remedies(self, remedies: Sequence[Remedy]) -> list[str]:
        """One numbered remedy each: the action with the line to paste, then gain, effects and status."""
        from profiler_kit.report.verdict import remedy_sentence

        out: list[str] = []
        visible = remedies if self.detail else remedies[:SUMMARY_REMEDIES]
        for number, remedy in enumerate(visible, start=1):
            mark = f"{number}. "
            indent = " " * len(mark)
            code = "" if remedy.code in remedy.action else f": {remedy.code}"
            out += self._wrap(f"{remedy.action}{code}", first=mark, indent=indent, color=BOLD)
            self.advised.update(remedy.findings)
            references = "".join(f" [{finding}]" for finding in remedy.findings)
            out += self._wrap(f"{remedy_sentence(remedy)}{references}", first=indent, indent=indent)
        if len(visible) < len(remedies):
            out += self._wrap(f"{len(remedies) - len(visible)} more (--detail)", color=DIM)
        return out

    def _title(self, finding: Finding, number: int) -> list[str]:
        mark = f"{number}. [{finding.severity}] "
        out = self._wrap(finding.title, first=mark, indent=" " * len(mark))
        out[0] = self.paint(mark, _SEVERITY_COLOR[finding.severity]) + self.paint(out[0][len(mark) :], BOLD)
        return out

    def _brief(self, finding: Finding, *, with_advice: bool) -> list[str]:
        explanation = f"{_share(finding)}{first_sentence(finding.explanation)}"
        out = self._wrap(explanation, first="  ", indent="  ")
        if with_advice:
            out += self._wrap(first_sentence(finding.advice), first="  -> ", indent="     ", color=CYAN)
        return out

    def _full(self, finding: Finding) -> list[str]:
        out = self._wrap(f"{_share(finding)}{finding.explanation}", first="  ", indent="  ")
        out += self._wrap(finding.advice, first="  -> ", indent="     ", color=CYAN)
        out += self._trial(finding)
        numbers = []
        for e in finding.evidence:
            number = f"{e.name} {shorten(text(e.value, e.unit), MAX_EVIDENCE)}"
            numbers.append(f"{number} ({e.where})" if e.where else number)
        return out + self._wrap("; ".join(numbers), first="  ", indent="  ", color=DIM)

    def _trial(self, finding: Finding) -> list[str]:
        from profiler_kit.report.trial_sentence import trial_sentence

        trial = finding.trial
        if trial is None:
            return []
        sentence = f"tried {trial.config}: {trial_sentence(trial, with_note=self.detail)}"
        return self._wrap(sentence, first="  ", indent="  ")

    def _table(self, table: Table, section: Section) -> list[str]:
        pieces, hidden = fit(table, self.width)
        out = [line for piece in pieces for line in self._table_lines(piece, len(table.totals))]
        if hidden and self.detail:
            out += self._wrap(f"Columns hidden at this width: {', '.join(map(one_line, hidden))}.", color=DIM)
        elif hidden:
            self.hidden_columns[one_line(section.title)] = len(hidden)
        return out

    def _table_lines(self, cells: Cells, totals: int) -> list[str]:
        titles = [_wrapped(title, width) for title, width in zip(cells.titles, cells.widths, strict=True)]
        height = max(map(len, titles))
        heads = [[([""] * (height - len(title)) + title)[i] for title in titles] for i in range(height)]
        rows = [list(row) for row in zip(*cells.columns, strict=True)]
        rule = [["-" * width for width in cells.widths]] if self.detail else []
        # tabulate counts characters, so wide and combining ones would push a line over the width.
        out = [
            (" " * GAP).join(map(padded, line, cells.widths, cells.right)).rstrip() for line in (*heads, *rule, *rows)
        ]
        bold = {*range(height), *range(len(out) - totals, len(out))}
        return [self.paint(line, BOLD) if i in bold else line for i, line in enumerate(out)]

    def _wrap(self, written: str, *, first: str = "", indent: str = "", color: str | None = None) -> list[str]:
        wrapped = textwrap.wrap(
            one_line(written),
            self.width,
            initial_indent=first,
            subsequent_indent=indent,
            break_long_words=True,  # only a kernel's name is longer than a line
            break_on_hyphens=False,
        )
        return [self.paint(line, color) if color else line for line in wrapped]


def _wrapped(title: str, width: int) -> list[str]:
    """`title` wrapped at its spaces to `width`, so that it does not widen the column."""
    return textwrap.wrap(one_line(title), width, break_long_words=False, break_on_hyphens=False) or [""]


def _share(finding: Finding) -> str:
    from profiler_kit.report.verdict import share_sentence

    sentence = share_sentence(finding)
    return f"{sentence} " if sentence else ""


def _is_tried(finding: Finding) -> bool:
    return finding.trial is not None and finding.trial.tried


def _chunks(line: str, width: int) -> list[str]:
    return [line[i : i + width] for i in range(0, len(line), width)] or [""]


def _ansi(written: str, code: str) -> str:
    return f"\x1b[{code}m{written}\x1b[0m" if written else written


def _plain(written: str, code: str) -> str:
    return written


RENDERER = Renderer("terminal", (".txt",), "plain text that fits the terminal", render)

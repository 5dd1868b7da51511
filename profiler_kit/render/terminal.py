"""Plain text for a terminal, with optional color and share bars. It fits the width; numbers are never cut.

rich measures, wraps and styles the text. Rows of tables are assembled here: ``rich.table`` takes five times as long for the
table of 3,000 modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from profiler_kit.records.document import (
    Block,
    Chart,
    Document,
    FindingList,
    Paragraph,
    RemedyList,
    Section,
    Table,
    Value,
)
from profiler_kit.render import Renderer, RenderOptions
from profiler_kit.render._fit import GAP, Cells, fit, guide_length, shorten
from profiler_kit.render._text import first_sentence, lines, one_line, without_commands
from profiler_kit.units import text

if TYPE_CHECKING:
    from rich.text import Text

    from profiler_kit.records.report import Finding
    from profiler_kit.records.verdict import RankedRemedy

NARROWEST: Final = 60
SUMMARY_FINDINGS: Final = 3  # the first findings of a summary have explanation and advice, the others a title only
SUMMARY_REMEDIES: Final = 3
SUMMARY_TITLES: Final = 5  # further findings are only counted, except those of high severity
MAX_EVIDENCE: Final = 72  # characters; kernel names can have thousands, which JSON and Markdown show
MAX_SECTION_NAMES: Final = 4  # of hidden sections
INDENT: Final = "  "  # of the texts of a finding
USUAL_BAR: Final = 6  # cells, for which less important columns are hidden
MAX_BAR: Final = 12
MIN_BAR: Final = 3  # narrower bars are left out
EIGHTHS: Final = "▏▎▍▌▋▊▉█"  # of a cell

# A number and its unit are on one line. Text contains no characters for private use, which `one_line` escapes.
NO_BREAK: Final = "\ue000"
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|[num]?s|[KMGT]i?B|[BKMGT])(?!\w))")

# Of the 16 colors whose shades the user's terminal chooses, so that they suit its background.
TITLE: Final = "bold"
HEADING: Final = "bold underline"
DIM: Final = "dim"
ADVICE: Final = "cyan"
WARNING: Final = "yellow"
BAR: Final = "blue"
SEVERITY_STYLES: Final = {"high": "bold red", "medium": "bold yellow", "low": "bold cyan", "info": DIM}


def render(document: Document, options: RenderOptions) -> str:
    """The document in at most ``options.width`` columns; a summary that fits a screen unless ``options.detail``."""
    return _Page(options).render(document)


class _Page:
    """One rendering: its width, its level of detail, and its colors."""

    def __init__(self, options: RenderOptions) -> None:
        from rich.console import Console

        self.width = max(options.width, NARROWEST)
        self.detail = options.detail
        self.bars = options.bars
        self.hidden_columns: dict[str, int] = {}
        self.shortened = False
        self.advised: set[int] = set()  # numbers of the findings whose advice is listed above
        # With these settings, the environment has no effect: the options decide.
        self.console = Console(
            file=StringIO(), width=self.width, height=1, force_terminal=options.color, force_jupyter=False,
            color_system="standard" if options.color else None, no_color=not options.color,
            markup=False, highlight=False, emoji=False, legacy_windows=False,
        )  # fmt: skip

    def render(self, document: Document) -> str:
        from rich.text import Text

        out = self._wrap(document.title, style=TITLE)
        sections = [section for section in document.sections if not section.is_drawn]
        visible = [section for section in sections if self.detail or not section.detail]
        for i, section in enumerate(visible):
            out += self._section(section, first=i == 0)
        out += self._footer([one_line(section.title) for section in sections if section not in visible])
        for line in out:
            line.rstrip()
            line.plain = without_commands(line.plain, "\\", "(")  # the same width
        with self.console.capture() as capture:
            self.console.print(Text("\n").join(out), soft_wrap=True)
        return capture.get()

    def _section(self, section: Section, first: bool) -> list[Text]:
        from rich.text import Text

        blocks: list[list[Text]] = []
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
        heading = Text.assemble((one_line(section.title), HEADING), f" ({one_line(caption)})" if caption else "")
        return [Text(), *self._wrap(heading), *body]

    def _footer(self, sections: list[str]) -> list[Text]:
        """The parts that the summary omits: full findings, `sections`, and columns by table."""
        from rich.text import Text

        sentences = []
        parts = [*(["findings in full"] if self.shortened else []), *sections]
        if parts:
            names = parts[:MAX_SECTION_NAMES] if len(parts) > MAX_SECTION_NAMES + 1 else parts
            more = f" and {len(parts) - len(names)} more sections" if len(parts) > len(names) else ""
            sentences.append(f"--detail also shows: {', '.join(names)}{more}.")
        if self.hidden_columns:
            columns = ", ".join(f"{number} in {title}" for title, number in self.hidden_columns.items())
            sentences.append(f"Columns hidden at this width: {columns} (-f markdown shows all).")
        return [Text(), *self._wrap(" ".join(sentences), style=DIM)] if sentences else []

    def _block(self, block: Block, section: Section) -> list[Text]:
        if isinstance(block, Table):
            return self._table(block, section)
        if isinstance(block, FindingList):
            return self._findings(block)
        if isinstance(block, Chart):
            return []
        if isinstance(block, RemedyList):
            return self._remedies(block.remedies)
        return self._paragraph(block)

    def _paragraph(self, paragraph: Paragraph) -> list[Text]:
        match paragraph.role:
            case "log":
                return self._log(paragraph.text)
            case "code" | "command":
                return self._code(paragraph.text)
            case "warning":
                return self._wrap(paragraph.text, mark="! ", style=WARNING)
            case "note":
                return self._wrap(paragraph.text, mark="- ")
            case "text":
                return self._wrap(paragraph.text)

    def _log(self, written: str) -> list[Text]:
        from rich.cells import chop_cells
        from rich.text import Text

        mark = "  | "
        pieces = [chop_cells(line, self.width - len(mark)) or [""] for line in lines(written)]
        return [Text(f"{mark}{piece}") for line in pieces for piece in line]

    def _code(self, written: str) -> list[Text]:
        """Lines to copy: neither marked nor wrapped."""
        from rich.text import Text

        return [Text(line) for line in lines(written)]

    def _findings(self, block: FindingList) -> list[Text]:
        from rich.text import Text

        out: list[Text] = []
        folded = 0
        findings = block.findings
        for number, finding in enumerate(findings, start=block.first):
            if self.detail or block.full:
                out += [Text()] if out else []
                out += self._title(finding, number) + self._full(finding)
                continue
            self.shortened = True
            i = number - block.first
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
            out += self._wrap(f"{folded} more {'finding' if folded == 1 else 'findings'} (--detail)", style=DIM)
        return out

    def _remedies(self, remedies: Sequence[RankedRemedy]) -> list[Text]:
        """One numbered remedy each: the action with the line to paste, then gain, effects and status."""
        from profiler_kit.report.verdict import remedy_sentence

        out: list[Text] = []
        visible = remedies if self.detail else remedies[:SUMMARY_REMEDIES]
        for number, remedy in enumerate(visible, start=1):
            code = "" if remedy.code in remedy.action else f": {remedy.code}"
            out += self._wrap(f"{remedy.action}{code}", mark=_mark(number), style=TITLE)
            self.advised.update(remedy.findings)
            references = "".join(f" [{finding}]" for finding in remedy.findings)
            out += self._wrap(f"{remedy_sentence(remedy)}{references}", mark=" " * len(_mark(number)))
        if len(visible) < len(remedies):
            out += self._wrap(f"{len(remedies) - len(visible)} more (--detail)", style=DIM)
        return out

    def _title(self, finding: Finding, number: int) -> list[Text]:
        from rich.text import Text

        severity = (f"[{finding.severity}]", SEVERITY_STYLES[finding.severity])
        return self._wrap(Text.assemble(severity, " ", (one_line(finding.title), TITLE)), mark=_mark(number))

    def _brief(self, finding: Finding, *, with_advice: bool) -> list[Text]:
        out = self._wrap(f"{_share(finding)}{first_sentence(finding.explanation)}", mark=INDENT)
        return out + self._advice(first_sentence(finding.advice)) if with_advice else out

    def _full(self, finding: Finding) -> list[Text]:
        out = self._wrap(f"{_share(finding)}{finding.explanation}", mark=INDENT)
        out += self._advice(finding.advice) + self._trial(finding)
        numbers = []
        for e in finding.evidence:
            evidence = f"{e.name} {shorten(text(e.value, e.unit), MAX_EVIDENCE)}"
            numbers.append(f"{evidence} ({e.where})" if e.where else evidence)
        return out + self._wrap("; ".join(numbers), mark=INDENT, style=DIM)

    def _advice(self, written: str) -> list[Text]:
        return self._wrap(written, mark=f"{INDENT}-> ", style=ADVICE)

    def _trial(self, finding: Finding) -> list[Text]:
        from profiler_kit.report.verdict import trial_sentence

        trial = finding.trial
        if trial is None:
            return []
        sentence = f"tried {trial.config}: {trial_sentence(trial, with_note=self.detail)}"
        return self._wrap(sentence, mark=INDENT)

    def _table(self, table: Table, section: Section) -> list[Text]:
        pieces, hidden = fit(table, self.width, bar=USUAL_BAR + 1 if self.bars else 0)
        out = [line for piece in pieces for line in self._table_lines(table, piece)]
        if hidden and self.detail:
            out += self._wrap(f"Columns hidden at this width: {', '.join(map(one_line, hidden))}.", style=DIM)
        elif hidden:
            self.hidden_columns[one_line(section.title)] = len(hidden)
        return out

    def _table_lines(self, table: Table, cells: Cells) -> Iterator[Text]:
        from rich.text import Text

        shares = [i for i, index in enumerate(cells.indices) if table.heads[index].share]
        bar_size = min(MAX_BAR, self.width - cells.span - 1) if self.bars and shares else 0
        if bar_size < MIN_BAR:
            shares = []

        def line(row: Sequence[str], style: str = "", bar: str = "") -> Text:
            parts = cells.padded(row)
            if not shares:
                return Text(GAP.join(parts), style)
            before, after = parts[: shares[-1] + 1], parts[shares[-1] + 1 :]
            return Text.assemble(
                GAP.join(before), " ", (f"{bar:{bar_size}}", BAR), GAP if after else "", GAP.join(after), style=style
            )

        # shorter titles are aligned at the bottom
        bottom_up = zip_longest(*(reversed(title) for title in cells.title_lines()), fillvalue="")
        for heads in reversed(list(bottom_up)):
            yield line(heads, TITLE)
        rule = ["-" * width for width in cells.widths]
        if self.detail:
            yield line(rule, DIM)
        rows = list(zip(*cells.columns, strict=True))
        for row, values in zip(rows, table.rows, strict=False):
            written = line(row, bar=_bar(values[cells.indices[shares[-1]]], bar_size) if shares else "")
            written.stylize(DIM, 0, guide_length(row[0]))
            yield written
        if self.detail and table.totals:
            yield line(rule, DIM)
        for total in rows[len(table.rows) :]:
            yield line(total, TITLE)

    def _wrap(self, written: str | Text, *, mark: str = "", style: str = "") -> list[Text]:
        """`written` in lines of the page's width; lines below the first are indented by the width of `mark`."""
        from rich.text import Text

        content = Text(one_line(written), style) if isinstance(written, str) else written
        content.plain = _UNIT.sub(NO_BREAK, content.plain)
        wrapped = content.wrap(self.console, self.width - len(mark)) if content else ()
        for line in wrapped:
            line.plain = line.plain.replace(NO_BREAK, " ")
        return [Text(mark if i == 0 else " " * len(mark)).append_text(line) for i, line in enumerate(wrapped)]


def _mark(number: int) -> str:
    return f"{number}. "


def _bar(share: Value, size: int) -> str:
    """A bar of up to `size` cells for `share` in percent."""
    if not isinstance(share, (int, float)):
        return ""
    full, part = divmod(round(max(0.0, min(share, 100.0)) / 100 * size * len(EIGHTHS)), len(EIGHTHS))
    return EIGHTHS[-1] * full + (EIGHTHS[part - 1] if part else "")


def _share(finding: Finding) -> str:
    from profiler_kit.report.verdict import share_sentence

    sentence = share_sentence(finding)
    return f"{sentence} " if sentence else ""


def _is_tried(finding: Finding) -> bool:
    return finding.trial is not None and finding.trial.tried


RENDERER = Renderer("terminal", (".txt",), "plain text that fits the terminal", render)

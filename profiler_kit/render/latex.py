r"""LaTeX: a document with booktabs and longtable, for papers and theses. All text is escaped, so a name cannot become a command.

Tables have the columns that fit a page. The tables can be copied into another document that loads the two packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from profiler_kit.records.document import Block, Chart, Document, FindingList, Paragraph, RemedyList, Table
from profiler_kit.records.paths import shown_path
from profiler_kit.render import Renderer, RenderOptions
from profiler_kit.render._fit import Cells, fit, shorten
from profiler_kit.render._text import lines, one_line, without_commands
from profiler_kit.units import text

if TYPE_CHECKING:
    from profiler_kit.records.report import Finding
    from profiler_kit.records.verdict import Remedy

PAGE_WIDTH: Final = 104  # characters of a table in \footnotesize on A4
MAX_EVIDENCE: Final = 72  # characters; kernel names can have thousands
LONGEST_WORD: Final = 40  # characters; a longer one is broken

PREAMBLE: Final = r"""\documentclass[a4paper]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{textcomp}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,longtable}
\setlength{\LTleft}{0pt}
\setlength{\LTright}{0pt plus 1fill}
\setlength{\tabcolsep}{3pt}
\setlength{\parindent}{0pt}
\setlength{\parskip}{0.5\baselineskip}
\setlength{\emergencystretch}{3em}
\sloppy"""

# [ and * after the end of a row are arguments of it.
_ESCAPES: Final = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",
    "*": "{*}",
    "×": r"\texttimes{}",  # noqa: RUF001
    "±": r"\textpm{}",
    "│": "~",  # the guide lines of a tree: indented names
    "├": "~",
    "└": "~",
}
_LIGATURE: Final = re.compile(r"([-',])(?=\1)")
_LAST_LETTER: Final = "\u017f"  # of those that every TeX with T1 fonts has


def render(document: Document, options: RenderOptions) -> str:
    """The whole document, details included, without charts."""
    parts = [PREAMBLE, r"\begin{document}", _heading("section", document.title)]
    for section in document.sections:
        if not section.is_drawn:
            parts += [_heading("subsection", section.title), *map(_block, section.blocks)]
    written = "\n\n".join([*(part for part in parts if part), r"\end{document}"])
    return without_commands(written, "{}:", "{[}") + "\n"


def escape(written: str) -> str:
    """`written` escaped, so that LaTeX shows it literally; characters that many fonts lack become their code (U+6A21)."""
    return _LIGATURE.sub(r"\1{}", " ".join(map(_escaped_word, one_line(written).split(" "))))


def _escaped_word(word: str) -> str:
    parts = [word[i : i + LONGEST_WORD] for i in range(0, len(word), LONGEST_WORD)]
    return r"\allowbreak{}".join("".join(map(_escaped, part)) for part in parts)


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    is_common = char.isascii() or (char <= _LAST_LETTER and char.isalpha())
    return char if is_common else f"U+{ord(char):04X}"


def _heading(level: str, title: str) -> str:
    return rf"\{level}*{{{escape(title)}}}"


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, FindingList):
        return _numbered([_finding(finding) for finding in block.findings], block.first)
    if isinstance(block, Chart):
        return ""
    if isinstance(block, RemedyList):
        return _numbered([_remedy(remedy) for remedy in block.remedies])
    return _paragraph(block)


def _paragraph(paragraph: Paragraph) -> str:
    match paragraph.role:
        case "log" | "code" | "command":
            rows = [_log_line(line) for line in lines(paragraph.text)]
            return _inside("quote", "\\footnotesize\\ttfamily\n" + "\\\\\n".join(rows))
        case "warning":
            return rf"\textbf{{Warning:}} {escape(paragraph.text)}"
        case "note":
            return _inside("itemize", rf"\item {escape(paragraph.text)}")
        case "text":
            return escape(paragraph.text)


def _log_line(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    return r"\mbox{}" + "~" * indent + escape(line)


def _inside(environment: str, content: str) -> str:
    return f"\\begin{{{environment}}}\n{content}\n\\end{{{environment}}}"


def _numbered(items: Sequence[str], first: int = 1) -> str:
    if not items:
        return ""
    counter = rf"\setcounter{{enumi}}{{{first - 1}}}"
    return _inside("enumerate", "\n".join([counter, *(f"\\item {item}" for item in items)]))


def _finding(finding: Finding) -> str:
    from profiler_kit.report.trial_sentence import trial_sentence
    from profiler_kit.report.verdict import share_sentence

    parts = [rf"\textbf{{{escape(finding.severity)}: {escape(finding.title)}}} (\texttt{{{escape(finding.rule)}}})"]
    explanation = " ".join(part for part in (share_sentence(finding), finding.explanation) if part)
    parts += [escape(explanation)] if explanation else []
    if finding.advice:
        parts.append(rf"\emph{{Advice:}} {escape(finding.advice)}")
    if finding.trial is not None:
        parts.append(
            rf"\emph{{Tried:}} \texttt{{{escape(finding.trial.config)}}}: {escape(trial_sentence(finding.trial))}"
        )
    if finding.paths:
        parts.append(rf"\emph{{Layers:}} {escape(', '.join(map(shown_path, finding.paths)))}")
    numbers = []
    for evidence in finding.evidence:
        number = f"{evidence.name} {shorten(text(evidence.value, evidence.unit), MAX_EVIDENCE)}"
        numbers.append(f"{number} ({evidence.where})" if evidence.where else number)
    if numbers:
        parts.append(rf"{{\footnotesize {escape('; '.join(numbers))}\par}}")
    return "\n\n".join(parts)


def _remedy(remedy: Remedy) -> str:
    from profiler_kit.report.verdict import remedy_sentence

    pasted = rf": \texttt{{{escape(remedy.code)}}}" if remedy.code else ""
    references = "".join(f" [{finding}]" for finding in remedy.findings)
    return rf"\textbf{{{escape(remedy.action)}}}{pasted}" + f"\n\n{escape(remedy_sentence(remedy) + references)}"


def _table(table: Table) -> str:
    if not table.heads:
        return ""
    pieces, hidden = fit(table, PAGE_WIDTH)
    parts = [rf"\emph{{{escape(table.caption)}}}\nopagebreak"] if table.caption else []
    parts += [f"{{\\footnotesize\n{_longtable(piece, len(table.totals))}\n}}" for piece in pieces]
    if hidden:
        parts.append(rf"{{\footnotesize Columns without space: {escape(', '.join(hidden))}.\par}}")
    return "\n\n".join(parts)


def _longtable(cells: Cells, totals: int) -> str:
    from tabulate import DataRow, Line, TableFormat, tabulate

    rows = [list(map(escape, row)) for row in zip(*cells.columns, strict=True)]
    for row in rows[len(rows) - totals :]:
        row[:] = [rf"\textbf{{{part}}}" for part in row]
    if totals:
        rows[-totals][0] = rf"\midrule {rows[-totals][0]}"
    letters = "".join("r" if right else "l" for right in cells.right)
    written = TableFormat(
        lineabove=Line(rf"\begin{{longtable}}{{@{{}}{letters}@{{}}}}" + "\n\\toprule", "", "", ""),
        linebelowheader=Line("\\midrule\n\\endhead", "", "", ""),
        linebetweenrows=None,
        linebelow=Line("\\bottomrule\n\\end{longtable}", "", "", ""),
        headerrow=DataRow("", " & ", r" \\"),
        datarow=DataRow("", " & ", r" \\"),
        padding=0,
        with_header_hide=None,
    )
    return tabulate(
        rows,
        headers=list(_heads(cells)),
        tablefmt=written,
        colalign=["right" if right else "left" for right in cells.right] if rows else None,
        disable_numparse=True,
    )


def _heads(cells: Cells) -> Iterator[str]:
    """The titles, each in as many lines as the width of its column needs."""
    for title, right in zip(cells.title_lines(), cells.right, strict=True):
        stacked = r" \\ ".join(map(escape, title))
        yield rf"\shortstack[{'r' if right else 'l'}]{{{stacked}}}" if len(title) > 1 else stacked


RENDERER = Renderer("latex", (".tex",), "LaTeX with booktabs and longtable", render)

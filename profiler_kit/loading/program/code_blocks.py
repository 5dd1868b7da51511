"""Python code in READMEs and docstrings: fenced blocks, ``>>>`` examples and indented examples."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.loading.program.reading import parsed

_FENCE: Final = re.compile(r"^\s*(```+|~~~+)\s*\{?\.?(\w*)")
_HEADING: Final = re.compile(r"^#{1,6}\s|^(=+|-+)\s*$")
_PYTHON: Final = ("", "python", "py", "python3", "pycon", "ipython", "jupyter")
_EXAMPLE: Final = re.compile(r"^\s*(examples?|usage|e\.g\.)\b.*:*\s*$", re.IGNORECASE)
_RST_CODE: Final = re.compile(r"^\s*\.\. code(-block)?::\s*python|::\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """Python text; `line_offset` lines precede its first line."""

    text: str
    line_offset: int


def markdown_blocks(text: str) -> Iterator[CodeBlock]:
    """The Python blocks of a README. Blocks under the same heading are one text, because they share their names."""
    section: list[str] = []
    start = 0
    for is_heading, offset, lines in _fences(text.splitlines()):
        if is_heading:
            if section:
                yield CodeBlock(text="\n".join(section), line_offset=start)
            section = []
            continue
        code = _without_prompts(lines)
        if parsed("\n".join(code)) is None:
            continue
        if not section:
            start = offset
        section += [""] * (offset - start - len(section)) + code
    if section:
        yield CodeBlock(text="\n".join(section), line_offset=start)


def _fences(lines: list[str]) -> Iterator[tuple[bool, int, list[str]]]:
    """(is a heading, lines before, code) of each heading and each Python block: fenced, or indented in reStructuredText."""
    index = 0
    while index < len(lines):
        fence = _FENCE.match(lines[index])
        if fence is not None:
            end = index + 1
            while end < len(lines) and not lines[end].strip().startswith(fence[1]):
                end += 1
            if fence[2].lower() in _PYTHON:
                yield False, index + 1, textwrap.dedent("\n".join(lines[index + 1 : end])).splitlines()
            index = end + 1
        elif _RST_CODE.search(lines[index]):
            start, end = _indented(lines, index + 1)
            if end > start:
                yield False, start, textwrap.dedent("\n".join(lines[start:end])).splitlines()
            index = max(end, index + 1)
        else:
            if _HEADING.match(lines[index]):
                yield True, index, []
            index += 1


def _indented(lines: list[str], start: int) -> tuple[int, int]:
    """The range of the indented lines at `start`, leading blank lines excluded."""
    while start < len(lines) and not lines[start].strip():
        start += 1
    end = start
    indent = len(lines[start]) - len(lines[start].lstrip()) if start < len(lines) else 0
    while (
        indent and end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) >= indent)
    ):
        end += 1
    return start, end


def _without_prompts(lines: list[str]) -> list[str]:
    """The code of an interactive session, its output as blank lines; other lines as they are."""
    if not any(line.lstrip().startswith(">>>") for line in lines):
        return lines
    return [line.lstrip()[4:] if line.lstrip().startswith((">>> ", "... ")) else "" for line in lines]


def docstring_blocks(text: str) -> Iterator[CodeBlock]:
    """The Python blocks of a docstring: ``>>>`` examples, fenced blocks, and indented lines after "Example" or "Usage"."""
    lines = text.splitlines()
    if any(line.lstrip().startswith(">>> ") for line in lines):
        first = next(i for i, line in enumerate(lines) if line.lstrip().startswith(">>> "))
        yield CodeBlock(text="\n".join(_without_prompts(lines[first:])), line_offset=first)
        return
    fenced = [(offset, code) for is_heading, offset, code in _fences(lines) if not is_heading]
    for offset, code in fenced:
        yield CodeBlock(text="\n".join(code), line_offset=offset)
    if fenced:
        return
    for index, line in enumerate(lines):
        if _EXAMPLE.match(line):
            start, end = _indented(lines, index + 1)
            example = textwrap.dedent("\n".join(lines[start:end]))
            if end > start and parsed(example) is not None:
                yield CodeBlock(text=example, line_offset=start)

"""Shared by the text formats: cells as text, and escaping of text from models and traces."""

from __future__ import annotations

import re
import unicodedata

from profiler_kit.records.document import Head, Table, Value
from profiler_kit.units import signed, text

# Control and format characters (escape codes, bidirectional overrides), lone surrogates, private use, line separators.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SPACES = frozenset("\t\n\r\v\f")
# Runners skip white space before a command. Azure Pipelines reads ##vso[ as GitHub reads ##[.
_COMMAND = re.compile(r"^([^\S\n]*)::", re.MULTILINE)
_OLD_COMMAND = re.compile(r"(##(?:vso)?)\[", re.IGNORECASE)
_MARKED_NUMBER = re.compile(r"~?\d[\d.,]*x?")  # such as ~1.02x


def one_line(written: str) -> str:
    """`written` as one line; control characters are shown as escapes such as ``\\x1b``."""
    if written.isprintable():
        return " ".join(written.split())
    return " ".join("".join(" " if char in _SPACES else _visible(char) for char in written).split())


def without_commands(written: str, escaped_colon: str, escaped_bracket: str = "[") -> str:
    """`written` without lines that a CI runner executes: ``::error ...`` at the start of a line, ``##[error]`` anywhere.

    Apply it to finished lines, because wrapping moves text to the start of a line. `escaped_colon` replaces the first colon,
    `escaped_bracket` the bracket.
    """
    if "::" in written:
        written = _COMMAND.sub(lambda match: f"{match[1]}{escaped_colon}:", written)
    return _OLD_COMMAND.sub(lambda match: f"{match[1]}{escaped_bracket}", written)


def lines(written: str) -> list[str]:
    """The lines of `written` with indentation, escaped as in `one_line`."""
    return ["".join(_visible(char) for char in line.expandtabs(4)).rstrip() for line in written.splitlines()]


# The end of a sentence: a stop, a space, and a word, which may begin with a small letter (loss.item()). The stops in "9.0 %",
# "x8.0" and "loss.item()" have no space after them. Stops of abbreviations are skipped.
_END = re.compile(r"(?<=[^\s.])[.!?](?=\s+[\w\"'(])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|cf|vs|etc|approx|no|fig|resp)|\.\.)\.\Z", re.IGNORECASE)


def first_sentence(written: str) -> str:
    """`written` up to the end of its first sentence."""
    plain = written.strip()
    ends = (match.end() for match in _END.finditer(plain))
    return next((plain[:end] for end in ends if not _ABBREVIATION.search(plain[:end])), plain)


def _visible(char: str) -> str:
    if unicodedata.category(char) not in _UNPRINTABLE:
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cell(value: Value, head: Head) -> str:
    """`value` as the text of a table cell, without the unit if the column's title contains it as a word."""
    if head.signed and isinstance(value, int):
        return signed(value, head.unit)
    written = one_line(text(value, head.unit))
    unit = {"percent": "%", "flops/s": "FLOP/s"}.get(head.unit)
    return written.removesuffix(unit).rstrip() if unit is not None and unit in head.title.split() else written


def is_right_aligned(table: Table, index: int) -> bool:
    """Whether column `index` holds numbers."""
    if table.heads[index].unit not in ("text", "bool"):
        return True
    values = [row[index] for row in (*table.rows, *table.totals) if row[index] is not None]
    return bool(values) and all(
        _MARKED_NUMBER.fullmatch(value)
        if isinstance(value, str)
        else isinstance(value, (int, float)) and not isinstance(value, bool)
        for value in values
    )

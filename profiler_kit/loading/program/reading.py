"""Parses files that show how a model is used, also those that only an older Python accepts."""

from __future__ import annotations

import ast
import re
from typing import Final

# ``tensor.cuda(async=True)``: the name of ``non_blocking`` before ``async`` became a keyword in Python 3.7
_ASYNC: Final = re.compile(r"\basync(?=\s*=[^=])")
_PRINT: Final = re.compile(r"^([ \t]*)print[ \t]+((?![=(.,\[])[^\n]*[^\s\\])[ \t]*$", re.MULTILINE)


def parse_evidence(text: str) -> ast.Module:
    """The syntax tree of `text`, for reading. Old spellings of keywords and prints are read as today's.

    Raises:
        SyntaxError, ValueError or RecursionError: the text is not Python.
    """
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.parse(_PRINT.sub(r"\1print(\2)", _ASYNC.sub("non_blocking", text)))

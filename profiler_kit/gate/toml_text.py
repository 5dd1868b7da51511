"""Changes of a TOML text that leave every other byte as it is. Each change is checked by parsing the new text."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from profiler_kit.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")


def parse_toml(text: str, file_name: str) -> dict[str, Any]:
    """The content of a TOML text. Raises UsageError."""
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not valid TOML: {error}", where=file_name, hint="correct the file") from error
    return content


def toml_key(name: str) -> str:
    """`name` as a key, in quotes where TOML needs them."""
    return name if _BARE_KEY.match(name) else toml_value(name)


def toml_value(value: object) -> str:
    """A text, number, flag, list or flat table as TOML. Raises TypeError for other types."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        escaped = "".join(_ESCAPES.get(char, char) for char in value)
        return f'"{_CONTROL.sub(_escape_controls, escaped)}"'
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    raise TypeError(f"TOML has no {type(value).__name__}")


def comment_text(text: str) -> str:
    """`text` as one line of a comment."""
    return " ".join(_CONTROL.sub(" ", text).split())


def with_block(text: str, block: str, added: Mapping[str, Any], file_name: str) -> str:
    """`text` with the lines of `block`, tables whose content is `added`, at its end, in the line ends of the file.

    Raises:
        UsageError: the file defines these tables in a form that cannot be extended at its end.
    """
    line_end = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text else line_end if text.endswith("\n") else line_end * 2
    new_text = f"{text}{gap}{block.replace(chr(10), line_end)}"
    expected = _merged(parse_toml(text, file_name), added)
    if _content(new_text) != expected:
        raise UsageError("cannot add tables at the end of the file", where=file_name, hint=f"add these lines:\n{block}")
    return new_text


def with_value(text: str, path: Sequence[str], value: object, comment: str, file_name: str) -> str:
    """`text` with another `value` for the existing key at `path`, and `comment` behind it.

    Raises:
        UsageError: no single line assigns the key.
    """
    expected = _replaced(parse_toml(text, file_name), path, value)
    lines = text.splitlines(keepends=True)
    for index, new_line in _assignments(lines, path[-1], value, comment):
        new_text = "".join([*lines[:index], new_line, *lines[index + 1 :]])
        if _content(new_text) == expected:
            return new_text
    raise _cannot_edit(path, value, file_name)


def with_key(text: str, path: Sequence[str], value: object, comment: str, file_name: str) -> str:
    """`text` with a new key at `path`, whose table has a header of its own, and `comment` behind it.

    Raises:
        UsageError: no line is the header of the table.
    """
    expected = _merged(parse_toml(text, file_name), _nested(path, value))
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(lines):
        if line.lstrip().startswith("["):
            line_end = "\r\n" if line.endswith("\r\n") else "\n"
            header = line if line.endswith("\n") else f"{line}{line_end}"
            new_line = f"{toml_key(path[-1])} = {toml_value(value)}  # {comment_text(comment)}{line_end}"
            new_text = "".join([*lines[:index], header, new_line, *lines[index + 1 :]])
            if _content(new_text) == expected:
                return new_text
    raise _cannot_edit(path, value, file_name)


def _cannot_edit(path: Sequence[str], value: object, file_name: str) -> UsageError:
    table = ".".join(map(toml_key, path[:-1]))
    return UsageError(
        f"cannot set {toml_key(path[-1])} of [{table}] without changing other lines",
        where=file_name,
        hint=f"write by hand: {toml_key(path[-1])} = {toml_value(value)}",
    )


def _assignments(lines: Sequence[str], key: str, value: object, comment: str) -> Iterator[tuple[int, str]]:
    """The lines that may assign `key`, with the new value: their index and text. A comment of the user's stays."""
    names = "|".join(map(re.escape, {key, f'"{key}"', f"'{key}'", toml_key(key)}))
    pattern = re.compile(rf"(\s*(?:[^=#\n]*\.\s*)?(?:{names})\s*=\s*)(.*?)(\r?\n?)\Z")
    for index, line in enumerate(lines):
        match = pattern.match(line)
        if match is not None:
            old_comment = _comment_of(match.group(2))
            new_comment = f"{comment_text(comment)}; {old_comment}" if old_comment else comment_text(comment)
            yield index, f"{match.group(1)}{toml_value(value)}  # {new_comment}{match.group(3)}"


def _comment_of(right_side: str) -> str:
    """The comment behind a value, unless this program wrote it."""
    for match in re.finditer("#", right_side):
        if _content(f"value = {right_side[: match.start()]}") is not None:
            comment = right_side[match.end() :].strip()
            return "" if comment.startswith(("today ", "accepted ")) else comment
    return ""


def _content(text: str) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    return content


def _nested(path: Sequence[str], value: object) -> dict[str, Any]:
    return {path[0]: value if len(path) == 1 else _nested(path[1:], value)}


def _merged(old: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """`old` with the tables and keys of `added`."""
    result = dict(old)
    for key, value in added.items():
        inner = result.get(key)
        result[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return result


def _replaced(old: Mapping[str, Any], path: Sequence[str], value: object) -> dict[str, Any]:
    """`old` with `value` at `path`, in place of the old value."""
    return {**old, path[0]: value if len(path) == 1 else _replaced(old[path[0]], path[1:], value)}


def _escape_controls(match: re.Match[str]) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in match.group())

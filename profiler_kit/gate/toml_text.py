"""Changes of a TOML text that leave comments, order and layout as they are. Each change is checked by parsing the new text."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler_kit.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from tomlkit.items import Item

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
_OWN_COMMENTS: Final = ("# today ", "# accepted ")  # of this program: the next one replaces them


def read_toml_text(file: Path, file_name: str) -> str:
    """The text of a TOML file with the line ends that it has; empty without such a file. Raises UsageError."""
    if not file.exists():
        return ""
    try:
        return file.read_bytes().decode("utf-8")  # `read_text` would change line ends
    except UnicodeDecodeError as error:
        raise UsageError(f"not valid TOML: {error}", where=file_name, hint="correct the file") from error
    except OSError as error:
        raise UsageError(
            f"cannot read the file: {error.strerror}", where=file_name, hint="check its permissions"
        ) from error


def parse_toml(text: str, file_name: str) -> dict[str, Any]:
    """The content of a TOML text. Raises UsageError."""
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not valid TOML: {error}", where=file_name, hint="correct the file") from error
    return content


def toml_key(name: str) -> str:
    """`name` as a key, in quotes where TOML needs them."""
    import tomlkit

    return tomlkit.key(name).as_string()


def toml_value(value: object) -> str:
    """A text, number, flag, list or flat table as TOML, on one line."""
    return _CONTROL.sub(_escape_controls, _item(value).as_string())


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
    if _content(new_text) != _merged(parse_toml(text, file_name), added):
        raise UsageError("cannot add tables at the end of the file", where=file_name, hint=f"add these lines:\n{block}")
    return new_text


def with_value(text: str, path: Sequence[str], value: object, comment: str, file_name: str) -> str:
    """`text` with `value` at `path`, in place of an old one or as a new key of its table, and `comment` behind it.

    A comment of the user's behind the old value stays. A table with a header of its own differs from `value` in one field.
    """
    import tomlkit

    expected = _merged(parse_toml(text, file_name), _nested(path, value))
    document = tomlkit.parse(text)
    table: Any = reduce(lambda outer, key: outer[key], path[:-1], document)
    old = table.get(path[-1])
    if isinstance(old, tomlkit.items.Table) and isinstance(value, Mapping):  # with a header of its own
        (field,) = (key for key in value if old.get(key) != value[key])
        return with_value(text, (*path, field), value[field], comment, file_name)
    item = _item(value)
    old_comment = old.trivia.comment if old is not None else ""
    kept = "" if old_comment.startswith(_OWN_COMMENTS) else old_comment.removeprefix("#").strip()
    item.comment(comment_text(f"{comment}; {kept}" if kept else comment)).trivia.comment_ws = "  "
    table[path[-1]] = item
    new_text = document.as_string()
    if _content(new_text) != expected:
        raise UsageError(
            f"cannot set {toml_key(path[-1])} of [{'.'.join(map(toml_key, path[:-1]))}]",
            where=file_name,
            hint=f"write by hand: {toml_key(path[-1])} = {toml_value(value)}",
        )
    return new_text


def _item(value: object) -> Item:
    import tomlkit

    if not isinstance(value, Mapping):
        return tomlkit.item(value)
    table = tomlkit.inline_table()
    table.update(value)
    return table


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


def _escape_controls(match: re.Match[str]) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in match.group())

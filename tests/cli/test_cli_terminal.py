"""Color, bars and width: what the stream supports, unless the environment says otherwise."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from profiler_kit.cli import main, streams
from profiler_kit.errors import TARGET_FAILED

REPORT = Path(__file__).resolve().parents[2] / "docs" / "measured" / "convnet_v0_h100.json"
VARIABLES = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TERM", "COLUMNS")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Stream(io.TextIOWrapper):
    """A stream in memory that may be a terminal."""

    def __init__(self, *, is_terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    def text(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode(self.encoding)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def page_text(monkeypatch: pytest.MonkeyPatch, stream: Stream, *options: str) -> str:
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["show", str(REPORT), *options]) == 0
    return stream.text()


@pytest.mark.parametrize(
    ("variables", "is_terminal", "is_colored"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),  # as no-color.org has it
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": "0"}, True, True),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, True),
        ({"TERM": "xterm-256color"}, False, False),
    ],
)
def test_color(variables: dict[str, str], is_terminal: bool, is_colored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    text = page_text(monkeypatch, Stream(is_terminal=is_terminal))
    assert ("\x1b[" in text) == is_colored
    assert ("█" in text) == is_colored


def test_a_terminal_without_color_shows_what_a_pipe_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = page_text(monkeypatch, Stream(is_terminal=False))
    monkeypatch.setenv("NO_COLOR", "1")
    assert page_text(monkeypatch, Stream(is_terminal=True)) == piped


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_bars_need_their_characters(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = page_text(monkeypatch, Stream(is_terminal=True, encoding=encoding), "--by", "tree")
    plain = ANSI.sub("", text)
    assert plain != text
    assert "| conv1" in plain
    assert "` conv4" in plain
    assert "\\u" not in plain


@pytest.mark.parametrize(("columns", "width"), [("72", 72), ("500", 160), ("", 100), ("wide", 100)])
def test_the_width(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = page_text(monkeypatch, Stream(is_terminal=False))
    assert 0.8 * width < max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("is_terminal", [False, True])
def test_an_error_has_colored_labels_on_a_terminal(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    assert main(["show", "no_such_report.json"]) == TARGET_FAILED
    text = stream.text()
    assert text.startswith("\x1b[1;31merror:\x1b[0m no_such" if is_terminal else "error: no_such")
    assert ("\n\x1b[1;36mhint:\x1b[0m " if is_terminal else "\nhint: ") in text


def test_only_labels_at_the_start_of_a_line_are_colored(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    streams.print_message("warning: an error: inside")
    assert ANSI.findall(stream.text()) == ["\x1b[1;33m", "\x1b[0m"]

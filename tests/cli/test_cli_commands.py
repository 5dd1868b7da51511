"""The commands: discovered, listed, parsed and run; their help lists the entries of the registries."""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from cli_files import call
from sample_reports import count_only

import profiler_kit.cli.commands
from profiler_kit.cli import choices
from profiler_kit.cli.commands import Command, commands
from profiler_kit.configurations.naming import CUDNN_FLAGS, all_axes
from profiler_kit.devices.registry import architecture_names, devices, devices_with_peaks, find_device
from profiler_kit.records.inspect_options import EVENT_SUFFIXES
from profiler_kit.records.serde import dumps
from profiler_kit.render import renderers

NEWCOMER = """
from profiler_kit.cli.commands import Command

def add_options(sub):
    sub.add_argument("words", nargs="+")
    sub.add_argument("--loud", action="store_true", help="in upper case")

def run(options):
    text = " ".join(options.words)
    print(text.upper() if options.loud else text)
    return 7

COMMAND = Command(
    name="echo", summary="say it again", examples=("echo hello --loud",), add_options=add_options, run=run
)
"""


@pytest.fixture(params=[command.name for command in commands()])
def command(request: pytest.FixtureRequest) -> Command:
    return next(command for command in commands() if command.name == request.param)


def drop_in(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beside the verbs, for this test."""
    (folder / f"{name}.py").write_text(text)
    monkeypatch.setattr(profiler_kit.cli.commands, "__path__", [*profiler_kit.cli.commands.__path__, str(folder)])
    monkeypatch.setattr(profiler_kit.cli.commands, name, None, raising=False)  # importing sets it: undone afterwards
    monkeypatch.setitem(sys.modules, f"profiler_kit.cli.commands.{name}", None)
    monkeypatch.delitem(sys.modules, f"profiler_kit.cli.commands.{name}")


def test_a_new_verb_is_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    drop_in(tmp_path, "echo", NEWCOMER, monkeypatch)
    ended = call(["echo", "a", "b", "--loud"], capfd)
    assert (ended.code, ended.out, ended.err) == (7, "A B\n", "")
    listed = call(["--help"], capfd)
    assert listed.code == 0
    assert "    echo " in listed.out
    assert "say it again" in listed.out
    assert "\n  profiler-kit echo hello --loud\n" in listed.out
    assert "in upper case" in call(["echo", "--help"], capfd).out
    wrong = call(["echo"], capfd)
    assert wrong.code == 2
    assert "required: words" in wrong.err
    assert "profiler-kit echo --help" in wrong.err


def test_a_file_without_a_verb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_in(tmp_path, "silent", "VERB = 1\n", monkeypatch)
    with pytest.raises(TypeError, match=r"silent\.py: expected COMMAND"):
        commands()


def test_a_verb_is_named_like_its_file_and_documented(command: Command) -> None:
    file = importlib.import_module(f"profiler_kit.cli.commands.{command.name}")
    assert file.COMMAND is command
    assert f"`{command.name}`" in (file.__doc__ or "").partition("\n")[0]
    assert command.summary
    assert command.examples
    assert all(example.split()[0] == command.name for example in command.examples)


def test_every_option_is_explained(command: Command) -> None:
    sub = argparse.ArgumentParser()
    command.add_options(sub)
    assert [action.dest for action in sub._actions if not action.help] == []
    sub.format_help()  # no stray % in a name of a registry


def test_the_help_lists_what_the_registries_hold(capfd: pytest.CaptureFixture[str]) -> None:
    def shown(verb: str) -> str:
        return " ".join(call([verb, "--help"], capfd).out.replace("-\n", "-").split()).replace("- ", "-")

    analyze, count, inspect = shown("analyze"), shown("count"), shown("inspect")
    assert [renderer.name for renderer in renderers() if renderer.name not in count] == []
    assert [suffix for renderer in renderers() for suffix in renderer.suffixes if suffix not in count] == []
    assert [axis.name for axis in all_axes() if axis.name not in analyze] == []
    assert [flag for flag in CUDNN_FLAGS if flag not in analyze] == []
    assert [device.short_names[0] for device in devices() if device.short_names[0] not in count] == []
    assert [name for name in architecture_names().split(", ") if name not in count] == []
    assert [suffix for suffix in EVENT_SUFFIXES if suffix not in inspect] == []
    assert [
        name
        for name in choices.cards().split(", ")
        if name not in count or not find_device(name, "--hardware", devices_with_peaks())
    ] == []


def test_the_conventions_in_the_help_are_those_there_are() -> None:
    conventions = pytest.importorskip("torch") and importlib.import_module("profiler_kit.counting.conventions")
    assert sorted(choices.conventions().split(", ")) == sorted(conventions.conventions())


@pytest.mark.parametrize("given", [True, False], ids=["the file of -o", "a temporary file"])
def test_open_shows_the_page(
    given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda uri: opened.append(uri) or given)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = tmp_path / "report.json"
    report.write_text(dumps(count_only()))
    page = tmp_path / "page.html"
    ended = call(["show", str(report), "--open", *(["-o", str(page)] if given else [])], capfd)
    assert ended.code == 0
    [uri] = opened
    shown = Path(unquote(urlsplit(uri).path))
    assert (shown == page) is given
    assert shown.read_text().startswith("<!doctype html>")
    assert ("opened" if given else "no browser was found: open") in ended.err

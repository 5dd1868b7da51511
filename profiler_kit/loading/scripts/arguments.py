"""Command lines of user code: argparse at its defaults, required arguments included."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from profiler_kit.foreign import attribute_of
from profiler_kit.loading.program.commands import configuration_file, documented_words
from profiler_kit.loading.scripts.placeholders import Placeholder, UnavailableError
from profiler_kit.loading.vocabulary import is_concept
from profiler_kit.user_code.locations import is_user_code

_FILE_WORDS: Final = re.compile(r"_?(file|path|name|yaml|yml|json)$")


@contextmanager
def default_arguments(note: Callable[[str], None]) -> Iterator[None]:
    """Parse an empty command line to defaults inside the block.

    With required arguments, or a configuration file, the words are those of the repository's own command for the program. Without
    one, a required argument gets its first choice, or the only configuration file of the repository. Without these it is not
    available, and neither is what depends on it.

    `note` receives a text for each parser with required arguments. A command line with words is parsed as usual.
    """
    parse = argparse.ArgumentParser.parse_known_args
    _accept_defaults_of_absl()

    def parse_defaults(
        self: argparse.ArgumentParser, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        words = sys.argv[1:] if args is None else args  # those of a run, or none
        if words:
            return parse(self, words, namespace)
        scripts = _scripts() if _needs_words(self) else ()
        script = next(filter(documented_words, scripts), None)
        if script is not None:
            with (
                contextlib.suppress(SystemExit),
                contextlib.redirect_stderr(io.StringIO()),
            ):  # of another version of the script
                result, remaining = parse(self, documented_words(script), namespace)
                note(f"arguments: {shlex.join(documented_words(script))}, as the repository runs {script.name}")
                return result, remaining
        with _optional(self) as assumed:
            result, remaining = parse(self, [], namespace)
            for name, value in assumed.items():
                if getattr(result, name, None) is None:
                    setattr(result, name, value)
        if assumed:
            note(f"arguments without a default: {', '.join(map(_assignment, assumed.items()))}")
        return result, remaining

    argparse.ArgumentParser.parse_known_args = parse_defaults  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign]


def _scripts() -> Iterator[Path]:
    """The program that runs, and the file of the user that calls the parser, which may be another program."""
    yield Path(sys.argv[0]).resolve()
    frame = inspect.currentframe()
    while frame is not None and not is_user_code(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is not None:
        yield Path(frame.f_code.co_filename).resolve()


def _needs_words(parser: argparse.ArgumentParser) -> bool:
    return any(
        (action.required or _is_configuration_file(action)) and action.default in (None, "") and not action.choices
        for action in parser._actions
    )


def _is_configuration_file(action: argparse.Action) -> bool:
    """Whether the option takes the path of a configuration, by its name: ``--config``, ``--cfg_file``, ``-opt``."""
    name = _FILE_WORDS.sub("", action.dest)
    return action.nargs is None and action.type in (None, str, Path) and is_concept(name, "configuration")


def _accept_defaults_of_absl() -> None:
    """Let code read flags of the package absl, which have their defaults, although ``app.run`` has not parsed them."""
    package: Any = sys.modules.get("absl.flags")
    kind = attribute_of(package, "FlagValues", type)
    if kind is not None and type(attribute_of(package, "FLAGS", object)) is kind:
        package.FLAGS.mark_as_parsed()


def _assignment(item: tuple[str, Any]) -> str:
    name, value = item
    return f"{name} (not available)" if isinstance(value, Placeholder) else f"{name}={value!r}"


@contextmanager
def _optional(parser: argparse.ArgumentParser) -> Iterator[dict[str, Any]]:
    """Make every argument of `parser` optional inside the block. Yields the values of those that were required."""
    assumed: dict[str, Any] = {}
    changed: list[tuple[Any, str, Any]] = []

    def change(owner: Any, name: str, value: object) -> None:
        changed.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    for action in parser._actions:
        if not action.required:
            continue
        change(action, "required", False)
        if isinstance(action, argparse._SubParsersAction):
            continue  # no subcommand
        if not action.option_strings and action.nargs in (None, "+"):
            change(action, "nargs", "?" if action.nargs is None else "*")
        if action.default is None:
            assumed[action.dest] = _value(action)
    for group in parser._mutually_exclusive_groups:
        if group.required:
            change(group, "required", False)
    try:
        yield assumed
    finally:
        for owner, name, value in reversed(changed):
            setattr(owner, name, value)


def _value(action: argparse.Action) -> Any:
    if not action.choices:
        file = configuration_file(Path(sys.argv[0]).resolve()) if _is_configuration_file(action) else None
        if file is not None:
            return file
        name = max(action.option_strings, key=len, default=action.dest)
        return Placeholder(name, UnavailableError(name, "it is required and has no default", "the command line"))
    value = next(iter(action.choices))
    if action.nargs in ("+", "*") or (isinstance(action.nargs, int) and action.nargs > 0):
        return [value] * (action.nargs if isinstance(action.nargs, int) else 1)
    return value

"""Tools, derived from the options of commands: the schema of a tool's arguments, and the words of its command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from profiler_kit.errors import UsageError, did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """A tool: the command `verb` with some of its options.

    - `summary`: what the tool does; empty where that is the summary of the command.
    - `arguments`: the names of these options and positional arguments in the parsed namespace.
    - `words`: options that every call has.
    - `read`: arguments that may be reports or traces. A call in which all of them are runs no code of a model.
    """

    name: str
    verb: str
    summary: str = ""
    arguments: tuple[str, ...]
    words: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


_TARGET: Final = ("input", "kw", "mode", "loss", "optimizer", "dtype", "amp", "channels_last", "batch")
TOOLS: Final = (
    ToolSettings(
        name="count",
        verb="count",
        arguments=("target", *_TARGET, "gpu", "fits", "what_if", "checkpoint", "parallel", "hardware"),
    ),
    ToolSettings(name="inspect", verb="inspect", arguments=("traces",)),
    # measuring takes minutes: analyze is a command for the user, and its reports can be compared
    ToolSettings(name="compare", verb="compare", arguments=("a", "b", *_TARGET), words=("--static",), read=("a", "b")),
    ToolSettings(
        name="check",
        verb="check",
        arguments=("targets", "base", "base_target", "base_input", "base_kw", "budget", "gpu", *_TARGET),
    ),
    ToolSettings(
        name="findings",
        verb="show",
        summary="list the findings of a saved report with their evidence, or show one of them",
        arguments=("report", "finding"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool with the parser of its command. `summary`, `trust`: what the command does, and whether it runs the user's code."""

    settings: ToolSettings
    parser: argparse.ArgumentParser
    summary: str
    trust: str
    runs_user_code: bool

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.settings.name

    @property
    def description(self) -> str:
        """What it does, and whether it runs the user's code."""
        summary = self.settings.summary or self.summary
        return f"{summary[:1].upper()}{summary[1:]}. {self.trust}"

    @property
    def actions(self) -> dict[str, argparse.Action]:
        """The argparse action of each argument, by name."""
        actions = {action.dest: action for action in self.parser._actions}
        return {name: actions[name] for name in self.settings.arguments}

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        actions = self.actions
        return {
            "type": "object",
            "properties": {name: _property(action) for name, action in actions.items()},
            "required": [name for name, action in actions.items() if _is_required(action)],
            "additionalProperties": False,
        }

    def texts(self, arguments: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
        """The values of each argument as words of a command line, without those that are not set. Raises UsageError."""
        actions = self.actions
        for name in arguments.keys() - actions:
            raise UsageError(
                f"no argument {name!r}{did_you_mean(name, actions)}",
                where=self.name,
                hint=f"use: {', '.join(actions)}",
            )
        texts = {name: words for name, value in arguments.items() if (words := _words(name, value))}
        for name, action in actions.items():
            if _is_required(action) and not any(texts.get(name, ())):
                raise UsageError(f"the argument {name!r} is missing", where=self.name, hint=f"give {name}")
            if len(texts.get(name, ())) > 1 and not _is_repeatable(action):
                raise UsageError(f"{name} has several values", where=self.name, hint="give one text")
        return texts

    def command(self, texts: Mapping[str, Sequence[str]]) -> tuple[list[str], list[str]]:
        """The options of the command line for `texts`, and its positional arguments in their order."""
        options: list[str] = []
        positional: list[str] = []
        for name, action in self.actions.items():
            if not action.option_strings:
                positional += texts.get(name, ())
            elif action.nargs == 0:
                options += [action.option_strings[-1]] * (texts.get(name) == ("true",))
            else:
                options += [f"{action.option_strings[-1]}={text}" for text in texts.get(name, ())]
        return [*self.settings.words, *options], positional


def _property(action: argparse.Action) -> dict[str, Any]:
    """The JSON Schema of one argument. A value is a text as on the command line, and repeatable ones are lists of texts."""
    described = {"description": (action.help or "") % vars(action)}
    if action.nargs == 0:
        return {"type": "boolean", **described}
    text: dict[str, Any] = {"type": "string"} | ({"enum": list(action.choices)} if action.choices else {})
    if _is_repeatable(action):
        return {"type": "array", "items": text, **described}
    return {**text, **described}


def _is_required(action: argparse.Action) -> bool:
    return action.required and action.nargs != "*"


def _is_repeatable(action: argparse.Action) -> bool:
    return action.nargs in ("+", "*") or isinstance(action.default, list)


def _words(name: str, value: object) -> tuple[str, ...]:
    """A value of a request as words: a text, a number, a flag, or a list of these. Raises UsageError."""
    if value is None:
        return ()
    if isinstance(value, bool):
        return (str(value).lower(),)
    if isinstance(value, (str, int, float)) and "\0" not in str(value):
        return (str(value),)
    if isinstance(value, list):
        return tuple(word for item in value for word in _words(name, item))
    raise UsageError(f"{name} is not a text or a list of texts", hint="write values as on the command line")

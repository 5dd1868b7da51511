"""Command lines for hints: the user's command with changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from profiler_kit.command_lines import kit_command
from profiler_kit.records.target import IN_PYTHON, TargetSpec

_INPUT_TEXT: Final = re.compile(
    r"(?:(?P<name>\w+)=)?(?P<dims>\(\)|\d+(?:,\d+)*)(?::(?P<dtype>\w+))?(?:\[(?P<low>\d+):(?P<high>\d+)\])?"
)
MEASURING = ("analyze", "compare", "tune")  # the verbs that run the model on a device of the user's choice


def next_command(
    spec: TargetSpec, *, target: str | None = None, inputs: Sequence[str] | None = None, add: Sequence[str] = ()
) -> str:
    """The command line of `spec`, with another `target` or other `inputs` if set, and with the arguments `add` appended.

    For a model passed from Python, the text is the call of the Python function instead.
    """
    if spec.spec == IN_PYTHON:
        return _call(spec, spec.inputs if inputs is None else inputs, add)
    target_text = target if target is not None else spec.spec
    arguments = [word or target_text for word in spec.command]
    if "--device" in add:  # only these verbs have one, and a static comparison runs on none
        measures = spec.command[0] in MEASURING
        arguments = [word for word in arguments if word != "--static"] if measures else [MEASURING[0], target_text]
    given = spec if inputs is None else replace(spec, inputs=tuple(inputs))
    arguments += given.option_words(without=add)
    return kit_command(*arguments, *add)


def _call(spec: TargetSpec, inputs: Sequence[str], add: Sequence[str]) -> str:
    """The Python call for a model passed from Python, with inputs like the ``-i`` texts `inputs` and the options `add`."""
    options = dict(zip(add[::2], add[1::2], strict=False))
    texts = [*inputs, *(word for flag, word in zip(add[::2], add[1::2], strict=False) if flag == "-i")]
    matches = [match for match in map(_INPUT_TEXT.fullmatch, texts) if match is not None]
    named = [f"{match['name']!r}: {_tensor(match)}" for match in matches if match["name"]]
    positional = [_tensor(match) for match in matches if not match["name"]]
    verb = MEASURING[0] if "--device" in options else spec.command[0]
    if verb in MEASURING and len(positional) > 1:
        positional = [f"({', '.join(positional)})"]
    arguments = ["model", *(positional or ([] if named else ["inputs"]))]
    if named:
        arguments.append(f"kwargs={{{', '.join(named)}}}")
    if spec.mode != "train" and "--mode" not in options:
        arguments.append(f"mode={spec.mode!r}")
    for flag, value in options.items():
        if flag.startswith("--"):
            arguments.append(f"{flag[2:].replace('-', '_')}={value if value.isdigit() else repr(value)}")
    return f"profiler_kit.{verb}({', '.join(arguments)})"


def _tensor(text: re.Match[str]) -> str:
    """The torch call that creates a tensor like an ``-i`` text."""
    shape = "()" if text["dims"] == "()" else f"({text['dims'].replace(',', ', ')}{',' * (',' not in text['dims'])})"
    if text["low"]:
        return f"torch.randint({text['low']}, {text['high']}, {shape})"
    dtype = text["dtype"]
    if dtype in (None, "float32"):
        return f"torch.randn({shape[1:-1].rstrip(',') or '()'})"
    return f"torch.{'rand' if 'float' in dtype else 'ones'}({shape}, dtype=torch.{dtype})"


def bare_command(spec: TargetSpec, target: str) -> str:
    """The command of `spec` for another target, without options."""
    return kit_command(*(word or target for word in spec.command))

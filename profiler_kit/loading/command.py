"""Command lines for hints: the user's command with changes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from profiler_kit.records.target import TargetSpec

PROGRAM = "profiler-kit"
MEASURING = ("analyze", "compare")  # the verbs that run the model on a device of the user's choice
IN_PYTHON = "<model>"  # the TARGET text of a model passed from Python


def next_command(
    spec: TargetSpec, *, target: str | None = None, inputs: Sequence[str] | None = None, add: Sequence[str] = ()
) -> str:
    """The command line of `spec`, with another `target` or other `inputs` if set, and with the arguments `add` appended.

    For a model passed from Python, the text lists the arguments to pass instead.
    """
    if spec.spec == IN_PYTHON:
        values = [*(spec.inputs if inputs is None else inputs), *(word for word in add if not word.startswith("-"))]
        return f"pass the model and its inputs{': ' if values else ''}{'; '.join(values)}"
    target_text = target if target is not None else spec.spec
    arguments = [word or target_text for word in spec.command]
    for text in spec.inputs if inputs is None else inputs:
        arguments += ["-i", text]
    for text in spec.kwargs:
        arguments += ["--kw", text]
    if spec.mode != "train" and "--mode" not in add:
        arguments += ["--mode", spec.mode]
    for flag, value in (
        ("--loss", spec.loss),
        ("--optimizer", spec.optimizer),
        ("--dtype", spec.dtype),
        ("--amp", spec.amp),
        ("--batch", spec.batch),
        ("--seed", spec.seed or None),
    ):
        if value is not None and flag not in add:
            arguments += [flag, str(value)]
    if spec.channels_last:
        arguments.append("--channels-last")
    if not spec.sliced:
        arguments.append("--no-slice")
    if "--device" in add and spec.command[0] not in MEASURING:
        arguments[0] = MEASURING[0]  # `count` has no --device
    return f"{PROGRAM} {shlex.join([*arguments, *add])}"


def bare_command(spec: TargetSpec, target: str) -> str:
    """The command of `spec` for another target, without options."""
    return f"{PROGRAM} {shlex.join([word or target for word in spec.command])}"

"""The command line that a user would type next, for hints."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from profiler_kit.records.target import TargetSpec

PROGRAM = "profiler-kit"
MEASURING = ("analyze", "compare")  # the verbs that run the model on a device of the user's choice
IN_PYTHON = "<model>"  # the TARGET text of a model that was handed over in Python


def next_line(
    spec: TargetSpec, *, target: str | None = None, inputs: Sequence[str] | None = None, add: Sequence[str] = ()
) -> str:
    """The command with which `spec` was asked for, with another `target` or other `inputs` in place, and `add` at its end.

    For a model that was handed over in Python it says what to pass instead.
    """
    if spec.spec == IN_PYTHON:
        given = [*(spec.inputs if inputs is None else inputs), *(word for word in add if not word.startswith("-"))]
        return f"pass the model and its inputs{': ' if given else ''}{'; '.join(given)}"
    named = target if target is not None else spec.spec
    words = [word or named for word in spec.command]
    for text in spec.inputs if inputs is None else inputs:
        words += ["-i", text]
    for text in spec.kwargs:
        words += ["--kw", text]
    if spec.mode != "train" and "--mode" not in add:
        words += ["--mode", spec.mode]
    for flag, value in (
        ("--loss", spec.loss),
        ("--optimizer", spec.optimizer),
        ("--dtype", spec.dtype),
        ("--amp", spec.amp),
        ("--batch", spec.batch),
        ("--seed", spec.seed or None),
    ):
        if value is not None and flag not in add:
            words += [flag, str(value)]
    if spec.channels_last:
        words.append("--channels-last")
    if "--device" in add and spec.command[0] not in MEASURING:
        words[0] = MEASURING[0]  # counting knows no device
    return f"{PROGRAM} {shlex.join([*words, *add])}"


def plain_line(spec: TargetSpec, target: str) -> str:
    """The command that `spec` came from, for another target and without options."""
    return f"{PROGRAM} {shlex.join([word or target for word in spec.command])}"

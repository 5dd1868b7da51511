"""Inputs and settings that a run of the same program showed: how they are written, and read again."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from profiler_kit.errors import UsageError
from profiler_kit.loading.evidence.record import Evidence
from profiler_kit.loading.evidence.subject import Subject
from profiler_kit.loading.inputs import InputText, parse_inputs, text_of
from profiler_kit.meta.batch import forward_of
from profiler_kit.records.notes import Note
from profiler_kit.records.seen import SeenRun, file_digest
from profiler_kit.records.target import TargetSpec


def from_run(subject: Subject) -> Evidence | None:
    """The inputs of a run of the program, if it trained a model of this class."""
    seen = subject.spec.seen
    if seen is None or not seen.inputs or subject.name not in {model.class_name for model in seen.models}:
        return None
    try:
        batch, notes = subject.create(parse_inputs(seen.inputs))
    except UsageError:  # texts of a report that another version or an editor wrote
        return None
    return Evidence(value=batch, where=seen.program, strength="stated", source="run", notes=notes)


def texts_of_call(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of ``-i`` for a call of `model`; empty if one of its arguments has no such text."""
    named = dict(zip(forward_of(model).positional, args, strict=False))
    if len(named) < len(args):
        return ()
    texts = [text for name, value in {**named, **kwargs}.items() for text in _texts_of(name, value)]
    return tuple(map(str, texts)) if None not in texts else ()


def _texts_of(name: str, value: Any) -> Iterator[InputText | None]:
    """The texts of one argument; None for a value that has none."""
    items: Mapping[Any, Any] = {}
    if isinstance(value, list):
        items = {f"{name}[{index}]": item for index, item in enumerate(value)}
    elif isinstance(value, dict):
        items = {f"{name}.{key}": item for key, item in value.items()}
    if isinstance(value, Tensor):
        yield text_of(value, name) if value.layout is torch.strided and value.numel() else None
    elif items and all(isinstance(item, Tensor) for item in items.values()):
        yield from (text_of(item, key) for key, item in items.items())
    else:
        yield _literal(name, value)


def _literal(name: str, value: Any) -> InputText | None:
    text = repr(value)
    try:
        is_literal = bool(ast.literal_eval(text) == value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        is_literal = False
    return InputText(shape=(), name=name, literal=text) if is_literal else None


def with_settings_of_run(spec: TargetSpec) -> TargetSpec:
    """`spec` with autocast as in its run, where no option says another one."""
    return spec if spec.seen is None or spec.amp is not None else replace(spec, amp=spec.seen.amp)


def run_notes(seen: SeenRun, model: nn.Module) -> tuple[Note, ...]:
    """What loading learned from the run `seen`, and whether the program or the `model` is another one now."""
    options = f" with {shlex.join(seen.arguments)}" if seen.arguments else ""
    texts = [
        f"model, inputs and settings as in its run{options}, where no option says otherwise; --from-run none ignores it"
    ]
    program = Path(seen.program)
    if program.is_file() and file_digest(program.read_bytes()) != seen.digest:
        texts.append("the file has changed since then")
    name, params = type(model).__name__, sum(p.numel() for p in model.parameters())
    runs_of_class = [m.params for m in seen.models if m.class_name == name]
    if not runs_of_class:
        texts.append(f"the run used {', '.join(m.class_name for m in seen.models)}, not {name}")
    elif params not in runs_of_class:
        texts.append(f"{name} had {runs_of_class[0]:,} parameters in the run, and has {params:,} here")
    return tuple(Note(subject="run", text=text) for text in texts)

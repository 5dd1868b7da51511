"""Forms of a model: a plain, compiled or scripted module, or an exported program; and conversion of dtype and layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from profiler_kit.errors import TargetError
from profiler_kit.foreign import attribute_of
from profiler_kit.loading.inputs import DTYPES
from profiler_kit.loading.model import CHANNELS_LAST
from profiler_kit.meta.batch import NO_INPUTS, Batch, Forward, forward_of
from profiler_kit.meta.compilation import Wrapper, compiled_parts, unwrap_compiled
from profiler_kit.records.notes import Code, Note
from profiler_kit.records.target import TargetSpec

COMPILED: Final = (
    "{parts} compiled. Counts describe the uncompiled model, and measured steps run compiled. "
    "The time of a compiled part is attributed to its outermost module"
)
SCRIPTED: Final = Note(
    subject="scripted modules", text="counted as one module each, because TorchScript hides their layers"
)
PARALLEL: Final = "counted and measured as the module inside, on one device"
EXPORTED: Final = Note(subject="exported program", text="counted as one module, in the mode of its export")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModel:
    """A model, the inputs that came with it (`NO_INPUTS` for none), and notes for the report.

    `compiles` compiles a module in the same way as this model was compiled; None if the model as a whole is not compiled.
    """

    model: Any
    inputs: Any = NO_INPUTS
    notes: tuple[Note, ...] = ()
    compiles: Wrapper | None = None


def is_model(value: object) -> bool:
    """Whether `value` is a module or an exported program."""
    return isinstance(value, (nn.Module, ExportedProgram))


def as_module(value: nn.Module | ExportedProgram) -> BuiltModel:
    """`value` as a plain module: the module inside a compiled or data-parallel one, or the module of an exported program."""
    if isinstance(value, ExportedProgram):
        inputs = value.example_inputs
        example_inputs = NO_INPUTS if inputs is None else Batch(args=tuple(inputs[0]), kwargs=dict(inputs[1]))
        return BuiltModel(model=value.module(), inputs=example_inputs, notes=(EXPORTED,))
    notes: tuple[Note, ...] = ()
    if isinstance(value, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        notes = (Note(subject=type(value).__name__, text=PARALLEL),)
        inner: nn.Module = value.module
        value = inner
    parts = compiled_parts(value)
    if parts:
        code: Code = "compiled_whole" if parts == ("",) else "compiled"
        notes += (Note(subject="torch.compile", code=code, text=COMPILED.format(parts=_listed(parts))),)
    model, compiles = unwrap_compiled(value)
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        notes += (SCRIPTED,)
    return BuiltModel(model=model, compiles=compiles, notes=notes)


LISTED_PARTS: Final = 3


def _listed(parts: tuple[str, ...]) -> str:
    if parts == ("",):
        return "the whole model is"
    listed = ", ".join(parts[:LISTED_PARTS])
    if len(parts) > LISTED_PARTS:
        listed += f" and {len(parts) - LISTED_PARTS} more"
    return f"{listed} {'is' if len(parts) == 1 else 'are'}"


def checked_forward(model: nn.Module, where: str) -> Forward:
    """The signature of the model's forward. Raises TargetError if the model does not define forward."""
    # torch.jit.script(nn.LSTM(...)) has a forward for each kind of input, and no attribute of this name
    forward = getattr(model, "forward", None)
    if forward is None or attribute_of(forward, "__name__", str) == "_forward_unimplemented":
        raise TargetError(
            f"{type(model).__name__} defines no forward",
            where=where,
            hint="define forward(self, x)",
        )
    return forward_of(model)


def converted(spec: TargetSpec, model: nn.Module) -> nn.Module:
    """Convert `model` in place to the dtype, memory format and mode of `spec`, and return it."""
    if spec.dtype is not None:
        model.to(DTYPES[spec.dtype])
    if spec.channels_last:
        for parameter in model.parameters():
            if not is_lazy(parameter) and parameter.dim() in CHANNELS_LAST:
                parameter.data = parameter.data.contiguous(memory_format=CHANNELS_LAST[parameter.dim()])
    try:
        return model.train(spec.mode == "train")
    except NotImplementedError:
        return model  # an exported program keeps the mode of its export

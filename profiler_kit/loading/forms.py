"""The forms a model comes in: a module, one that was compiled or scripted, an exported program; and the form it is wanted in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from profiler_kit.errors import TargetError
from profiler_kit.loading.batch import NO_INPUTS, Batch, Forward, forward_of
from profiler_kit.loading.command import next_line
from profiler_kit.loading.compiled import COMPILED_NOTE, Wrapper, compiled_parts, unwrapped
from profiler_kit.loading.inputs import DTYPES
from profiler_kit.loading.model import CHANNELS_LAST
from profiler_kit.records.target import TargetSpec

COMPILED: Final = (
    f"{COMPILED_NOTE}{{parts}} compiled. Counts are those of the model as written; what is measured runs compiled, "
    "and the time of a compiled part stands at its outermost module"
)
SCRIPTED: Final = "scripted modules are counted whole: what TorchScript runs cannot be told apart by layer"
EXPORTED: Final = "an exported program is counted as the graph it is: one module, in the mode it was exported in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A model, the inputs it came with or its maker gave beside it (`NO_INPUTS` for none), and what is to be announced.

    `compiles` makes of a module what torch.compile made of this one; None where the whole model is not to run compiled.
    """

    model: Any
    inputs: Any = NO_INPUTS
    notes: tuple[str, ...] = ()
    compiles: Wrapper | None = None


def is_model(value: object) -> bool:
    """Whether `value` is a model in any form."""
    return isinstance(value, (nn.Module, ExportedProgram))


def form_of(value: nn.Module | ExportedProgram) -> Built:
    """`value` as a module whose calls can be watched: a compiled model is no module of its own, so the one inside it is taken."""
    if isinstance(value, ExportedProgram):
        inputs = value.example_inputs
        given = NO_INPUTS if inputs is None else Batch(args=tuple(inputs[0]), kwargs=dict(inputs[1]))
        return Built(model=value.module(), inputs=given, notes=(EXPORTED,))
    parts = compiled_parts(value)
    notes: tuple[str, ...] = (COMPILED.format(parts=_listed(parts)),) if parts else ()
    model, compiles = unwrapped(value)
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        notes += (SCRIPTED,)
    return Built(model=model, compiles=compiles, notes=notes)


NAMED_PARTS: Final = 3


def _listed(parts: tuple[str, ...]) -> str:
    if parts == ("",):
        return "the whole model is"
    named = ", ".join(parts[:NAMED_PARTS])
    if len(parts) > NAMED_PARTS:
        named += f" and {len(parts) - NAMED_PARTS} more"
    return f"{named} {'is' if len(parts) == 1 else 'are'}"


def inputs_of(spec: TargetSpec, model: nn.Module, where: str) -> Forward:
    """What the model's forward takes. Raises TargetError where it defines none."""
    if getattr(model.forward, "__name__", "") == "_forward_unimplemented":
        raise TargetError(
            f"{type(model).__name__} defines no forward",
            where=where,
            hint=f"define forward(self, x), then run {next_line(spec)}",
        )
    return forward_of(model)


def formatted(spec: TargetSpec, model: nn.Module) -> nn.Module:
    """`model` in the dtype, memory format and mode of `spec`, changed in place."""
    if spec.dtype is not None:
        model.to(DTYPES[spec.dtype])
    if spec.channels_last:
        for parameter in model.parameters():
            if not is_lazy(parameter) and parameter.dim() in CHANNELS_LAST:
                parameter.data = parameter.data.contiguous(memory_format=CHANNELS_LAST[parameter.dim()])
    try:
        return model.train(spec.mode == "train")
    except NotImplementedError:
        return model  # an exported program has only the mode it was exported in

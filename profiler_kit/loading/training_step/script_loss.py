"""A loss that runs the statements of a training script: its variables are outputs, inputs, labels and constants."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any, Final

import torch
from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading.program.names import calls_in, last_name
from profiler_kit.loading.program.reading import source_tree
from profiler_kit.loading.training_step.labels import Example, Label, LabelTrial, labels_for_loss
from profiler_kit.loading.training_step.losses import LOSS_NAMES, main_output
from profiler_kit.loading.training_step.step_code import OUTPUT
from profiler_kit.meta.batch import Batch, map_tensors, tensors_in
from profiler_kit.meta.copies import meta_copy
from profiler_kit.meta.device_moves import moves_redirected
from profiler_kit.records.notes import Note

_META: Final = torch.device("meta")
_FUNCTION: Final = "training_step_loss"
_MAX_TEXT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptLoss:
    """The loss of a training script.

    - `name`, `text`, `where`: a short name, the expression as written, and its location.
    - `inputs`: the variables that are inputs of the model, with their position and name in forward.
    - `label_names`: the variables that are labels; `labels` are the random labels for them, None before `fitted`.
    - `constants`: the values of all other variables. `model_names` are variables that hold the model.
    - `is_in_test`: a test computes it, so that training may have another one.
    """

    name: str
    text: str
    where: str
    code: CodeType
    inputs: tuple[tuple[str, int | None, str | None], ...]
    label_names: tuple[str, ...]
    constants: Mapping[str, Any]
    model_names: tuple[str, ...] = ()
    labels: tuple[Label, ...] | None = None
    is_in_test: bool = False

    @property
    def note(self) -> Note:
        """The loss with its location, for the report."""
        text = " ".join(self.text.split())
        text = text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."
        return Note(subject="loss", text=f"{text}, as at {self.where}")

    @property
    def reads_inputs(self) -> bool:
        """Whether the loss depends on inputs of the model."""
        return bool(self.inputs)

    def moved(self, device: torch.device, model: nn.Module, change: Callable[[nn.Module], nn.Module]) -> ScriptLoss:
        """This loss for `model` on `device`, with the modules among its constants replaced by ``change(module)``."""
        constants = {name: _moved(value, device, change) for name, value in self.constants.items()}
        return replace(self, constants=constants | dict.fromkeys(self.model_names, model))

    def __call__(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> Any:
        """The value of the loss."""
        values = dict(zip(self.label_names, labels, strict=False))
        for name, position, parameter in self.inputs:
            if name not in values:
                values[name] = _input(batch, position, parameter)
        return self._run(output, values)

    def _run(self, output: object, values: Mapping[str, Any]) -> Any:
        function = FunctionType(self.code, {"__builtins__": builtins, **self.constants}, _FUNCTION)
        return function(output, *(values[name] for name in self._parameters()))

    def _parameters(self) -> tuple[str, ...]:
        return self.code.co_varnames[1 : self.code.co_argcount]

    def make_labels(self, output: object, batch: Batch, generator: torch.Generator) -> tuple[Any, ...]:
        """Random labels for `output`, on its device."""
        example = Example(main=main_output(output), inputs=tuple(batch.tensors()))
        return tuple(label.make(example, generator, example.main.device) for label in self.labels or ())

    def fitted(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> ScriptLoss | str:
        """This loss with the kinds and shapes of its labels, determined on meta tensors; the reason if it does not run.

        `labels` are those of the batch; without any, random labels are used. A loss whose labels are known has run before.
        """
        if self.labels is not None:
            return self
        with moves_redirected(_META, join=True):  # labels.cuda()
            return self._fitted(output, batch, labels)

    def _fitted(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> ScriptLoss | str:
        try:
            main = main_output(output)
        except TargetError as error:
            return error.message
        meta_output, meta_batch = map_tensors(output, _on_meta), _meta_batch(batch)
        model = next((self.constants[name] for name in self.model_names), None)
        on_meta = self.moved(_META, meta_copy(model) if model is not None else nn.Identity(), meta_copy)
        example = Example(main=_on_meta(main), inputs=tuple(meta_batch.tensors()))
        if labels:
            provided = tuple(map_tensors(label, _on_meta) for label in labels)
            if len(provided) < len(self.label_names):
                return f"it needs {len(self.label_names)} labels, and the batch has {len(provided)}"
            trial = labels_for_loss((), example, lambda _: on_meta(meta_output, meta_batch, provided), {})
            return self if trial.labels is not None else trial.failure
        inputs = {
            name: value
            for name, position, parameter in self.inputs
            if isinstance(value := _input(meta_batch, position, parameter), Tensor)
        }
        missing = tuple(name for name, *_ in self.inputs if name not in inputs and name not in self.label_names)
        first_failure = ""
        # An input that the loss compares with probabilities needs values in [0, 1], so it becomes a label. The same helps
        # if the script changes its shape before the call of the model.
        attempts = [missing, (*missing, *inputs)] if inputs else [missing]
        for extra in attempts:
            names = (*self.label_names, *extra)
            trial = _trial(on_meta, names, example, meta_output, inputs)
            if trial.labels is not None and not (trial.compared & inputs.keys() - set(extra)):
                return replace(
                    self,
                    label_names=names,
                    labels=trial.labels,
                    inputs=tuple(i for i in self.inputs if i[0] not in names),
                )
            first_failure = first_failure or trial.failure
        return first_failure


def _trial(
    loss: ScriptLoss, names: tuple[str, ...], example: Example, output: object, inputs: Mapping[str, Tensor]
) -> LabelTrial:
    unchanged = {name: value for name, value in inputs.items() if name not in names}
    return labels_for_loss(names, example, lambda labels: loss._run(output, {**unchanged, **labels}), unchanged)


def _input(batch: Batch, position: int | None, parameter: str | None) -> Any:
    if position is not None and position < len(batch.args):
        return batch.args[position]
    return batch.kwargs.get(parameter) if parameter is not None else None


def _meta_batch(batch: Batch) -> Batch:
    return Batch(args=map_tensors(batch.args, _on_meta), kwargs=map_tensors(batch.kwargs, _on_meta))


def _on_meta(tensor: Tensor) -> Tensor:
    """A tensor on meta like `tensor`; if it requires a gradient, it is not a leaf, because losses may change it in place."""
    with torch.enable_grad():
        empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        return empty.requires_grad_().clone() if tensor.requires_grad else empty


def _moved(value: Any, device: torch.device, change: Callable[[nn.Module], nn.Module]) -> Any:
    if isinstance(value, nn.Module):
        changed = change(value)
        tensors = (*changed.parameters(), *changed.buffers())
        # a move replaces parameters, which fails for fake ones and for those that an optimizer of the script refers to
        return changed if all(tensor.device == device for tensor in tensors) else changed.to(device)
    if isinstance(value, torch.device) or (
        isinstance(value, str) and value.partition(":")[0] in ("cpu", "cuda", "mps")
    ):
        return device if isinstance(value, torch.device) else str(device)
    if isinstance(value, (Tensor, tuple, list)) and next(tensors_in(value), None) is not None:
        return map_tensors(value, lambda tensor: tensor.detach().to(device))
    return value


def compile_loss(
    statements: tuple[ast.stmt, ...], loss: ast.expr, place: ast.stmt, parameters: tuple[str, ...], filename: str
) -> CodeType:
    """The code of a function ``(output, *parameters)`` that runs `statements` and returns `loss`.

    Errors in it have their line in `filename`, those of the last line that of `place`.
    """
    names = [OUTPUT, *parameters]
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(arg=name) for name in names], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    result = ast.copy_location(ast.Return(value=loss), place)
    function = ast.FunctionDef(
        name=_FUNCTION, args=arguments, body=[*statements, result], decorator_list=[], returns=None
    )
    if hasattr(function, "type_params"):
        function.type_params = []
    module = ast.Module(body=[ast.copy_location(function, place)], type_ignores=[])
    compiled = compile(ast.fix_missing_locations(module), filename, "exec")
    return next(constant for constant in compiled.co_consts if isinstance(constant, CodeType))


def loss_kinds(script: ScriptLoss) -> tuple[tuple[str, ...], bool]:
    """(the losses of torch that a training step computes, whether it calls them itself, and not in its own criterion)."""
    named = [LOSS_NAMES.get(name) for name in script.code.co_names]
    called: list[str | None] = []
    for value in script.constants.values():
        definition = type(value) if isinstance(value, nn.Module) else value
        own = LOSS_NAMES.get(getattr(definition, "__name__", ""))
        named += [own]
        if own is None and callable(definition):
            called += [LOSS_NAMES.get(last_name(call.func)) for call in calls_in(source_tree(definition))]
    return tuple(dict.fromkeys(kind for kind in (*named, *called) if kind is not None)), not any(called)


_MODEL = "model"


def stored_scalars(model: nn.Module) -> dict[str, Tensor]:
    """The computed scalars with a gradient in the attributes of `model` and its modules, by expression: ``model.last_loss``."""
    scalars: dict[str, Tensor] = {}
    for path, module in model.named_modules():
        owner = f"{_MODEL}.get_submodule({path!r})" if path else _MODEL
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.dim() == 0 and value.grad_fn is not None and name.isidentifier():
                scalars[f"{owner}.{name}"] = value
    return scalars


def newly_stored(scalars: dict[str, Tensor], before: frozenset[str]) -> tuple[str, Tensor] | None:
    """(expression, value) of the loss among the `scalars` that forward stored; `before` are those that it stores in any case.

    It is the first one with ``loss`` in its name, else the first one.
    """
    new = {text: value for text, value in scalars.items() if text not in before}
    return min(new.items(), key=lambda item: "loss" not in item[0].rpartition(".")[2].lower(), default=None)


def stored_loss(text: str, model: nn.Module) -> ScriptLoss:
    """The loss that reads the expression `text` of `model` after forward."""
    name = text.rpartition(".")[2]
    expression = ast.parse(text, mode="eval").body
    place = ast.copy_location(ast.Expr(value=expression), expression)
    return ScriptLoss(
        name=name, text=text, where=f"{type(model).__name__}.forward", code=compile_loss((), expression, place, (), "<loss>"),
        inputs=(), label_names=(), constants={_MODEL: model}, model_names=(_MODEL,), labels=(),
    )  # fmt: skip

"""Live models: a model that exists in this process is written to a file, from which worker processes load a copy.

The file lives as long as the measurement, in a folder that only this user can read. Nothing else is ever unpickled: reports and
traces are data. The model is not changed: it is only read.
"""

from __future__ import annotations

import errno
import inspect
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

from profiler_kit.command_lines import install_command
from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading.forms import as_module, is_model
from profiler_kit.meta.batch import NO_INPUTS, Batch, forward_of, tensors_in
from profiler_kit.meta.compilation import uncompiled_path
from profiler_kit.records.notes import Note
from profiler_kit.temporary_files import temporary_folder
from profiler_kit.user_code.locations import one_line_message, type_with_article

_MODEL_FILE: Final = "model.pt"
_PATH_FILE: Final = "search_path.json"
_FILE_HINT: Final = "or use the file that builds the model: profiler_kit.analyze('my_model.py')"
_SHARDED: Final = ("FullyShardedDataParallel", "FSDPModule", "DTensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveModel:
    """A model with its batch, its loss, and the function that configures its optimizer."""

    model: nn.Module
    batch: Batch
    loss_fn: Callable[..., Any] | None = None
    configure_optimizer: Callable[[nn.Module], Any] | None = None
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """The class and the settings of an optimizer. Called with a copy of its model, it returns an optimizer without state.

    `groups` are the parameter groups: names of parameters, and options.
    """

    kind: type[torch.optim.Optimizer]
    groups: tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...]
    defaults: Mapping[str, Any]

    def __call__(self, model: nn.Module) -> torch.optim.Optimizer:
        """An optimizer of the same class and settings for the parameters of `model`."""
        parameters = _parameters_by_name(model)
        groups = [{**options, "params": [parameters[name] for name in names]} for names, options in self.groups]
        accepted = inspect.signature(self.kind.__init__).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
        defaults = {name: value for name, value in self.defaults.items() if takes_any or name in accepted}
        if any(
            parameter.is_meta for parameter in parameters.values()
        ):  # fused kernels refuse it; they need no other memory
            groups = [{**group, "fused": None} if "fused" in group else group for group in groups]
            defaults = {**defaults, "fused": None} if "fused" in defaults else defaults
        build: Any = self.kind
        optimizer: torch.optim.Optimizer = build(groups, **defaults)
        return optimizer


def live_model(
    model: nn.Module | ExportedProgram,
    inputs: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    labels: tuple[Any, ...] | Tensor = (),
    loss_fn: Callable[..., Any] | None = None,
    optimizer: Any = None,
) -> LiveModel:
    """Collect a model and its step.

    `inputs` is a tensor, a tuple of positional inputs, or a dict of keyword inputs. `optimizer` is an optimizer of the model's
    parameters, or a function ``configure_optimizer(model)``.

    Raises:
        UsageError: an argument has the wrong type.
        TargetError: the model is sharded, or has no values.
    """
    if not is_model(model):
        raise UsageError(
            f"expected an nn.Module, got {type_with_article(model)}",
            hint="pass the model and its inputs: profiler_kit.analyze(model, inputs)",
        )
    form = as_module(model)
    module = form.model
    _reject_without_values(module)
    batch = _as_batch(module, inputs, kwargs, labels)
    if not (batch.args or batch.kwargs) and form.inputs is not NO_INPUTS:
        batch = form.inputs
    configure = optimizer
    if isinstance(optimizer, torch.optim.Optimizer):
        configure = optimizer_settings(optimizer, module)
    elif optimizer is not None and (isinstance(optimizer, type) or not callable(optimizer)):
        raise UsageError(
            f"optimizer is {type_with_article(optimizer)}",
            hint="pass an optimizer of the model's parameters, or a function configure_optimizer(model)",
        )
    return LiveModel(model=module, batch=batch, loss_fn=loss_fn, configure_optimizer=configure, notes=form.notes)


def optimizer_settings(optimizer: torch.optim.Optimizer, model: nn.Module) -> OptimizerSettings:
    """The class and settings of `optimizer`. Raises UsageError if it has parameters that `model` does not have."""
    names = {id(parameter): name for name, parameter in reversed(_parameters_by_name(model).items())}
    groups = []
    for group in optimizer.param_groups:
        missing = [tuple(parameter.shape) for parameter in group["params"] if id(parameter) not in names]
        if missing:
            raise UsageError(
                f"the optimizer has {len(missing)} parameter{'s' if len(missing) > 1 else ''} that the model does not have, "
                f"the first of shape {missing[0]}",
                hint="pass the optimizer of this model's parameters, or a function configure_optimizer(model)",
            )
        options = {name: value for name, value in group.items() if name not in ("params", "param_names")}
        groups.append((tuple(names[id(parameter)] for parameter in group["params"]), options))
    return OptimizerSettings(kind=type(optimizer), groups=tuple(groups), defaults=dict(optimizer.defaults))


@contextmanager
def written_model(live: LiveModel) -> Iterator[Path]:
    """The file of `live` for worker processes, which is deleted when the block is left.

    Tensors on a GPU are written from there one by one, so that the host never holds a second copy of the model.

    Raises:
        TargetError: something in it cannot be sent to another process, or the disk is full.
    """
    name = type(live.model).__name__
    with temporary_folder("model") as folder:
        _check_space(live.model, folder)
        (folder / _PATH_FILE).write_text(
            json.dumps([str(Path(entry).resolve()) for entry in sys.path]), encoding="utf-8"
        )
        _write(live, folder / _MODEL_FILE, name)
        yield folder / _MODEL_FILE


def _write(live: LiveModel, file: Path, name: str) -> None:
    try:
        from profiler_kit.loading.live.model_pickle import find_unpicklable, write_pickle
    except ModuleNotFoundError as error:
        raise TargetError(
            f"measuring a live model needs {error.name}",
            where=name,
            hint=install_command(error.name or ""),
        ) from error

    values = {
        "model": live.model,
        "inputs": (live.batch.args, dict(live.batch.kwargs)),
        "labels": live.batch.labels,
        "loss_fn": live.loss_fn,
        "optimizer": live.configure_optimizer,
        "notes": live.notes,
    }
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            write_pickle(values, stream)
    except OSError as error:
        raise (
            _no_space(name, file.parent)
            if error.errno == errno.ENOSPC
            else TargetError(
                f"cannot write {name} for the measuring processes: {error}", where=str(file.parent), hint=_FILE_HINT
            )
        ) from error
    except Exception as error:
        culprit = find_unpicklable(values)
        if culprit is None:
            path, reason = name, one_line_message(error)
            text = f"{name} cannot be sent to the measuring processes"
        else:
            path, value, reason = culprit
            text = f"{path} is {type_with_article(value)}, which cannot be sent to the measuring processes"
        raise TargetError(
            f"{text} ({reason})",
            where=name,
            hint=f"remove {path}, or create it when it is used; {_FILE_HINT}",
        ) from error


def read_model(file: Path, *, lazily: bool) -> LiveModel:
    """The model in a file of `written_model`, on the CPU. `lazily`: its weights are read only when they are used."""
    entries = json.loads((file.parent / _PATH_FILE).read_text(encoding="utf-8"))
    sys.path[:] = [*entries, *(entry for entry in sys.path if entry not in entries)]
    values = torch.load(file, map_location="cpu", weights_only=False, mmap=lazily)
    args, kwargs = values["inputs"]
    return LiveModel(
        model=values["model"],
        batch=Batch(args=args, kwargs=kwargs, labels=values["labels"]),
        loss_fn=values["loss_fn"],
        configure_optimizer=values["optimizer"],
        notes=values["notes"],
    )


def _as_batch(
    model: nn.Module, inputs: Any, kwargs: Mapping[str, Any] | None, labels: tuple[Any, ...] | Tensor
) -> Batch:
    """The batch of `inputs`. A dict holds keyword inputs if ``forward`` has parameters of these names."""
    keywords = dict(kwargs or {})
    args: tuple[Any, ...] = ()
    if isinstance(inputs, Mapping):
        forward = forward_of(model)
        if forward.takes_any_keyword or all(name in forward.names for name in inputs):
            keywords = {**inputs, **keywords}
        else:
            args = (inputs,)
    elif isinstance(inputs, (tuple, list)) and not isinstance(inputs, PackedSequence):
        args = tuple(inputs)
    elif inputs is not None:
        args = (inputs,)
    if isinstance(inputs, str) or (inputs is not None and next(tensors_in((args, keywords)), None) is None):
        raise UsageError(
            f"the inputs contain no tensor: {type_with_article(inputs)}",
            hint="pass a tensor, a tuple of tensors, or a dict of keyword inputs",
        )
    return Batch(args=args, kwargs=keywords, labels=(labels,) if isinstance(labels, Tensor) else tuple(labels))


def _reject_without_values(model: nn.Module) -> None:
    tensors = [*model.parameters(), *model.buffers()]
    classes = {base.__name__ for value in (*model.modules(), *tensors) for base in type(value).__mro__}
    sharded = next((name for name in _SHARDED if name in classes), None)
    if sharded is not None:
        raise TargetError(
            f"{type(model).__name__} is sharded over processes ({sharded}), and one process has only a part of it",
            where=type(model).__name__,
            hint="pass the model before it is sharded",
        )
    if any(tensor.is_meta for tensor in tensors if not is_lazy(tensor)):
        raise TargetError(
            f"{type(model).__name__} is on the meta device and has no values to measure with",
            where=type(model).__name__,
            hint="build it on the CPU, or count it: profiler_kit.count(model, inputs)",
        )


def _parameters_by_name(model: nn.Module) -> dict[str, nn.Parameter]:
    """All parameters by their name in the uncompiled model; shared ones have several names."""
    return {uncompiled_path(name): p for name, p in model.named_parameters(remove_duplicate=False)}


def _check_space(model: nn.Module, folder: Path) -> None:
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers()) if not is_lazy(tensor)}
    needed_bytes = sum(tensor.nbytes for tensor in tensors.values())
    if needed_bytes > shutil.disk_usage(folder).free:
        raise _no_space(type(model).__name__, folder)


def _no_space(name: str, folder: Path) -> TargetError:
    return TargetError(
        f"no space for the weights of {name}, which the measuring processes read from a file",
        where=str(folder.parent),
        hint="free disk space, or set TMPDIR to a folder on a larger disk",
    )

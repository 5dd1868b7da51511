"""From the words of a target, or a model in hand, to a Target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.records.target import Mode, TargetInfo, TargetSpec
from profiler_kit.target.batch import Batch, Forward, forward_of, map_batch
from profiler_kit.target.command import IN_PYTHON, next_line
from profiler_kit.target.construct import Built, check_arguments, construct
from profiler_kit.target.feed import Feed, Feeder
from profiler_kit.target.fit import check_fit
from profiler_kit.target.inputs import DTYPES, FILE_INPUT, parse_inputs
from profiler_kit.target.loader import find_loader
from profiler_kit.target.losses import check_loss
from profiler_kit.target.meta import is_all_meta, meta_copy, private_copy
from profiler_kit.target.model import CHANNELS_LAST, Target, Tuning
from profiler_kit.target.objective import AUTO, Objective
from profiler_kit.target.optimizers import DEFAULT, check_optimizer
from profiler_kit.target.place import a_kind, first_line, is_out_of_memory, user_place
from profiler_kit.target.resolve import Candidate, parse_arguments, resolve
from profiler_kit.target.source import Source, open_source
from profiler_kit.target.surroundings import seeded, user_code
from profiler_kit.target.syntax import binding_lines, builders

MODEL_DTYPES: Final = ("float32", "float64", "float16", "bfloat16")
AMP_DTYPES: Final = ("bfloat16", "float16")


def load(spec: TargetSpec, *, device: str = "meta") -> Target:
    """The target that `spec` names, built on `device`: ``meta`` (nothing is computed), ``cpu``, ``cuda`` or ``cuda:1``.

    On real devices weights and inputs depend on ``spec.seed`` alone, so every process gets the same. No forward pass is
    run, except once where lazy layers need it to get their shapes.

    Raises: UsageError for words that make no sense, TargetError for a target that cannot be found, built or fed.
    """
    where = _device(device)
    _check_words(spec)
    if not any(FILE_INPUT.match(text) for text in spec.inputs):
        parse_inputs(spec.inputs)
    arguments = parse_arguments(spec.kwargs)
    source = open_source(spec)
    with user_code(source.folders, source.name), seeded(spec.seed):
        candidate = resolve(source, arguments)
        built = _build(source, candidate, arguments, on_meta=where.type == "meta")
    lines = binding_lines(source.tree) if source.tree is not None else {}
    place = source.at(candidate.line)
    forward = _forward(spec, built.model, place)
    model = _formatted(spec, built.model)
    loader = find_loader(source, forward, lines)
    feed = Feeder(
        spec=spec,
        model=model,
        forward=forward,
        device=where,
        source=source,
        maker=candidate.name,
        beside=built.inputs,
        loader=loader,
    ).feed()
    check_fit(spec, forward, feed.batch, place)
    names = vars(source.module)
    objective = _objective(spec, feed.batch, names.get("loss_fn"), source.at(lines.get("loss_fn")))
    tuning = _tuning(spec, names.get("configure_optimizer"), source.at(lines.get("configure_optimizer")))
    notes = built.notes
    if source.flags:
        notes += (f"{source.name} sets {', '.join(source.flags)}: put back, each configuration sets its own",)
    return _assemble(spec, model, forward, feed, objective, tuning, where, place, notes=notes)


def from_model(
    model: nn.Module,
    args: tuple[Any, ...] | Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    labels: tuple[Any, ...] | Tensor = (),
    loss_fn: Callable[..., Any] | None = None,
    configure_optimizer: Callable[[nn.Module], Any] | None = None,
    loss: str | None = None,
    optimizer: str | None = None,
    mode: Mode = "train",
    dtype: str | None = None,
    amp: str | None = None,
    channels_last: bool = False,
    batch: int | None = None,
    seed: int = 0,
    allow_guess: bool = True,
    device: str = "meta",
) -> Target:
    """A target made of a copy of `model`, which itself is never changed; on ``meta`` the copy takes no memory.

    `args` and `kwargs` are what `forward` is called with, `labels` what ``loss_fn(output, *labels)`` compares with. The
    words mean what they mean on the command line. Raises UsageError or TargetError.
    """
    spec = TargetSpec(
        spec=IN_PYTHON, mode=mode, loss=loss, optimizer=optimizer, dtype=dtype, amp=amp,
        channels_last=channels_last, batch=batch, seed=seed, allow_guess=allow_guess,
    )  # fmt: skip
    where = _device(device)
    _check_words(spec)
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"got {a_kind(model)}, not an nn.Module",
            hint="pass the model itself: profiler_kit.count(model, inputs)",
        )
    model, notes = _eager(model)
    name = type(model).__name__
    forward = _forward(spec, model, name)
    copied = _formatted(spec, meta_copy(model) if where.type == "meta" else private_copy(model))
    given = Batch(
        args=(args,) if isinstance(args, Tensor) else tuple(args),
        kwargs=dict(kwargs or {}),
        labels=(labels,) if isinstance(labels, Tensor) else tuple(labels),
    )
    feeder = Feeder(
        spec=spec, model=copied, forward=forward, device=where, given=given if given.args or given.kwargs else None
    )
    feed = feeder.feed()
    check_fit(spec, forward, feed.batch, name)
    objective = _objective(spec, feed.batch, loss_fn, None)
    tuning = _tuning(spec, configure_optimizer, None)
    return _assemble(spec, copied, forward, feed, objective, tuning, where, name, notes=notes)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"unknown device {name!r}", hint="take meta, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TargetError("no CUDA device here", where=f"--device {name}", hint="take --device cpu")
    return device


def _check_words(spec: TargetSpec) -> None:
    for flag, value, choices in (
        ("--mode", spec.mode, ("train", "infer")),
        ("--dtype", spec.dtype, MODEL_DTYPES),
        ("--amp", spec.amp, AMP_DTYPES),
    ):
        if value is not None and value not in choices:
            raise UsageError(f"unknown {flag} {value!r}", hint=f"take one of {', '.join(choices)}")
    if spec.loss is not None:
        check_loss(spec.loss)
    if spec.optimizer is not None:
        check_optimizer(spec.optimizer)
    if spec.batch is not None and spec.batch < 1:
        raise UsageError(f"--batch {spec.batch}: not a positive number", hint="take --batch 8")


def _build(source: Source, candidate: Candidate, arguments: Mapping[str, Any], *, on_meta: bool) -> Built:
    spec, where = source.spec, source.at(candidate.line)
    if candidate.is_model:
        if arguments:
            raise UsageError(
                f"--kw {spec.kwargs[0]}: {candidate.name!r} is a model that is built already",
                where=where,
                hint="name the class or function that builds it: " + next_line(spec, target=f"{source.name}:Net"),
            )
        built = Built(model=candidate.value)
    else:
        ready = builders(source.tree, candidate.name) if source.tree is not None else ()
        instead = f"{source.name}:{ready[0]}" if ready else None
        check_arguments(spec, candidate.name, candidate.value, arguments, where, instead)
        built = construct(spec, candidate.name, candidate.value, arguments, where, on_meta=on_meta)
    model, notes = _eager(built.model)
    if on_meta:
        model = model if is_all_meta(model) and not candidate.is_model else meta_copy(model)
    elif not (source.is_fresh or isinstance(candidate.value, type)):
        model = private_copy(model)
    return Built(model=model, inputs=built.inputs, notes=built.notes + notes)


def _eager(model: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """The model that ``torch.compile`` wrapped, and a note; `model` itself when it is not compiled.

    A compiled model runs no module of its own, so nothing could be told apart in it.
    """
    inner = getattr(model, "_orig_mod", None)
    if not isinstance(inner, nn.Module):
        return model, ()
    return inner, ("torch.compile is left out: the figures are those of the model as written",)


def _forward(spec: TargetSpec, model: nn.Module, where: str) -> Forward:
    if getattr(model.forward, "__name__", "") == "_forward_unimplemented":
        raise TargetError(
            f"{type(model).__name__} defines no forward",
            where=where,
            hint=f"define forward(self, x), then run {next_line(spec)}",
        )
    return forward_of(model)


def _formatted(spec: TargetSpec, model: nn.Module) -> nn.Module:
    """`model` in the dtype, memory format and mode of `spec`, changed in place."""
    if spec.dtype is not None:
        model.to(DTYPES[spec.dtype])
    if spec.channels_last:
        for parameter in model.parameters():
            if not is_lazy(parameter) and parameter.dim() in CHANNELS_LAST:
                parameter.data = parameter.data.contiguous(memory_format=CHANNELS_LAST[parameter.dim()])
    return model.train(spec.mode == "train")


def _objective(spec: TargetSpec, batch: Batch, loss_fn: object, where: str | None) -> Objective | None:
    if spec.mode == "infer":
        return None
    tokens = tuple(tuple(t.shape) for t in batch.tensors() if not (t.is_floating_point() or t.is_complex()))
    if spec.loss is not None:
        return Objective(name=spec.loss, token_shapes=tokens)
    if loss_fn is None:
        return Objective(name=AUTO, token_shapes=tokens)
    if not callable(loss_fn):
        raise TargetError(
            f"loss_fn is {a_kind(loss_fn)}, not a function",
            where=where,
            hint="define loss_fn(output, *inputs)",
        )
    name = type(loss_fn).__name__ if isinstance(loss_fn, nn.Module) else getattr(loss_fn, "__name__", "loss_fn")
    return Objective(name=name, function=loss_fn, where=where, token_shapes=tokens)


def _tuning(spec: TargetSpec, configure: object, where: str | None) -> Tuning | None:
    if spec.mode == "infer":
        return None
    if spec.optimizer is not None or configure is None:
        return Tuning(name=spec.optimizer or DEFAULT)
    if not callable(configure):
        raise TargetError(
            f"configure_optimizer is {a_kind(configure)}, not a function",
            where=where,
            hint="define configure_optimizer(model), or take --optimizer adamw",
        )
    return Tuning(name="configure_optimizer", function=configure, where=where)


def _assemble(
    spec: TargetSpec,
    model: nn.Module,
    forward: Forward,
    feed: Feed,
    objective: Objective | None,
    tuning: Tuning | None,
    device: torch.device,
    where: str,
    *,
    notes: tuple[str, ...],
) -> Target:
    notes += feed.notes + _materialised(spec, model, feed.batch)
    if spec.mode == "train" and not any(p.requires_grad for p in model.parameters()):
        raise TargetError(
            f"{type(model).__name__} has no trainable parameters: nothing to train",
            where=where,
            hint=next_line(spec, add=("--mode", "infer")),
        )
    if tuning is not None and tuning.function is None and spec.optimizer is None:
        notes += (f"optimizer: {tuning.name}, because no configure_optimizer is defined",)
    if spec.amp is not None and device.type == "meta":
        notes += (f"--amp {spec.amp}: meta tensors know no autocast, so static bytes are those without it",)
    if objective is not None and isinstance(objective.function, nn.Module):
        held = meta_copy(objective.function) if device.type == "meta" else private_copy(objective.function)
        objective = objective.with_function(held.to(device))
    info = TargetInfo(
        spec=spec.spec if spec.spec != IN_PYTHON else type(model).__name__,
        name=type(model).__name__,
        inputs=(),
        mode=spec.mode,
        loss=objective.name if objective is not None else None,
        optimizer=tuning.name if tuning is not None else None,
        dtype=spec.dtype,
        amp=spec.amp,
        channels_last=spec.channels_last,
        inputs_from=feed.origin,
        has_loader=feed.loader is not None,
        notes=notes,
    )
    return Target(
        spec=spec,
        info=info,
        forward=forward,
        model=model.to(device),
        device=device,
        batch=feed.batch,
        objective=objective,
        tuning=tuning,
        loader=feed.loader,
    )


def _materialised(spec: TargetSpec, model: nn.Module, batch: Batch) -> tuple[str, ...]:
    """Gives lazy layers their shapes by one forward pass, where there are any; says so."""
    tensors = [*model.parameters(), *model.buffers()]
    if not any(is_lazy(tensor) for tensor in tensors):
        return ()
    device = tensors[0].device
    dtype = DTYPES[spec.dtype] if spec.dtype is not None else None

    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype)

    here = map_batch(batch, moved, moved)
    try:
        with torch.no_grad(), seeded(spec.seed):
            model(*here.args, **here.kwargs)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise TargetError(
            f"lazy layers could not be given their shapes: forward raised {first_line(error)}",
            where=user_place(error),
            hint=f"if the inputs are wrong, give others: {next_line(spec)}",
        ) from error
    return ("lazy layers were given their shapes by one forward pass",)

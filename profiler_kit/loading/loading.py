"""From the words of a target, or a model in hand, to a Target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.export import ExportedProgram

from profiler_kit.errors import UsageError
from profiler_kit.loading.assemble import assemble
from profiler_kit.loading.batch import NO_INPUTS, Batch
from profiler_kit.loading.command import IN_PYTHON, next_line
from profiler_kit.loading.compiled import as_written
from profiler_kit.loading.construct import check_arguments, construct
from profiler_kit.loading.feed import Feeder
from profiler_kit.loading.forms import Built, form_of, formatted, inputs_of, is_model
from profiler_kit.loading.inputs import FILE_INPUT, parse_inputs
from profiler_kit.loading.loader import find_loader
from profiler_kit.loading.meta import is_all_meta, meta_copy, private_copy
from profiler_kit.loading.model import Target
from profiler_kit.loading.place import a_kind
from profiler_kit.loading.resolve import Candidate, parse_arguments, resolve
from profiler_kit.loading.source import Source, open_source
from profiler_kit.loading.surroundings import flag_of, seeded, user_code
from profiler_kit.loading.syntax import binding_lines, builders, cudnn_off_lines
from profiler_kit.loading.words import check_words, device_of
from profiler_kit.loading.zoo import Recipe, open_zoo
from profiler_kit.records.target import TargetSpec


def load(
    spec: TargetSpec,
    *,
    device: str = "meta",
    compiled: bool = False,
    earlier: Source | None = None,
    ready: Callable[[], None] | None = None,
) -> Target:
    """The target that `spec` names, built on `device`: ``meta`` (nothing is computed), ``cpu``, ``cuda`` or ``cuda:1``.

    With `compiled` what the target compiles by torch.compile runs compiled; without it runs as it is written. `ready` is
    called once all is built on the host, before any of it is put on the device. With `earlier` nothing is imported again:
    torch frees a custom op's kernels when a file defines it a second time, also those that somebody is about to call.

    On real devices weights and inputs depend on ``spec.seed`` alone, so every process gets the same. No forward pass is
    run, except once where lazy layers need it to get their shapes.

    Raises: UsageError for words that make no sense, TargetError for a target that cannot be found, built or fed.
    """
    where = device_of(device)
    check_words(spec)
    if not any(FILE_INPUT.match(text) for text in spec.inputs):
        parse_inputs(spec.inputs)
    arguments = parse_arguments(spec.kwargs)
    recipe = open_zoo(spec, arguments)
    if recipe is not None:
        return _from_recipe(spec, recipe, device, ready)
    source = open_source(spec) if earlier is None else replace(earlier, spec=spec, is_fresh=False)
    with user_code(source.folders, source.name) as set_while_built, seeded(spec.seed):
        candidate = resolve(source, arguments)
        built = _build(source, candidate, arguments, on_meta=where.type == "meta", compiled=compiled)
    lines = binding_lines(source.tree) if source.tree is not None else {}
    place = source.at(candidate.line)
    forward = inputs_of(spec, built.model, place)
    model = formatted(spec, built.model)
    feeder = Feeder(
        spec=spec, model=model, forward=forward, device=where, source=source, maker=candidate.name, beside=built.inputs,
        loader=find_loader(source, forward, lines),
    )  # fmt: skip
    names = vars(source.module)
    notes = built.notes
    flags = tuple(dict.fromkeys((*source.flags, *set_while_built)))
    if flags:
        notes += (f"{source.name} sets {', '.join(flags)}: put back, each configuration sets its own",)
    return assemble(
        feeder, place, notes=notes, compiles=built.compiles, ready=ready,
        loss_fn=names.get("loss_fn"), loss_fn_at=source.at(lines.get("loss_fn")),
        configure=names.get("configure_optimizer"), configure_at=source.at(lines.get("configure_optimizer")),
        cudnn_flags=tuple(flag_of(flag) for flag in flags),
        cudnn_off_lines=cudnn_off_lines(source.tree) if source.tree is not None else (),
        again=lambda on, **words: load(replace(spec, **words), device=on, earlier=source),
    )  # fmt: skip


def _from_recipe(spec: TargetSpec, recipe: Recipe, device: str, ready: Callable[[], None] | None = None) -> Target:
    """The target that a model zoo's `recipe` makes, with inputs made up as it says."""
    where = device_of(device)
    with recipe.surroundings(), seeded(spec.seed):
        built = construct(spec, recipe.name, recipe.maker, {}, recipe.where, on_meta=where.type == "meta")
    model = built.model if where.type != "meta" or is_all_meta(built.model) else meta_copy(built.model)
    forward = inputs_of(spec, model, recipe.where)
    model = formatted(spec, model)
    return assemble(
        Feeder(spec=spec, model=model, forward=forward, device=where, recipe=recipe),
        recipe.where,
        notes=recipe.notes + built.notes,
        ready=ready,
        again=lambda on, **words: load(replace(spec, **words), device=on),
    )


def from_model(
    model: nn.Module | ExportedProgram,
    args: tuple[Any, ...] | Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    labels: tuple[Any, ...] | Tensor = (),
    loss_fn: Callable[..., Any] | None = None,
    configure_optimizer: Callable[[nn.Module], Any] | None = None,
    device: str = "meta",
    **words: Any,
) -> Target:
    """A target made of a copy of `model`, which itself is never changed; on ``meta`` the copy takes no memory.

    `args` and `kwargs` are what `forward` is called with, `labels` what ``loss_fn(output, *labels)`` compares with. The
    `words` are those of `TargetSpec` (``mode``, ``loss``, ``optimizer``, ``dtype``, ``amp``, ``batch`` …). Raises UsageError
    or TargetError.
    """
    batch = Batch(
        args=(args,) if isinstance(args, Tensor) else tuple(args),
        kwargs=dict(kwargs or {}),
        labels=(labels,) if isinstance(labels, Tensor) else tuple(labels),
    )
    return _from_model(model, batch, loss_fn, configure_optimizer, TargetSpec(spec=IN_PYTHON, **words), device)


def _from_model(
    model: nn.Module | ExportedProgram,
    batch: Batch,
    loss_fn: Callable[..., Any] | None,
    configure_optimizer: Callable[[nn.Module], Any] | None,
    spec: TargetSpec,
    device: str,
) -> Target:
    where = device_of(device)
    check_words(spec)
    if not is_model(model):
        raise UsageError(
            f"got {a_kind(model)}, not an nn.Module",
            hint="pass the model itself: profiler_kit.count(model, inputs)",
        )
    form = form_of(model)
    name = type(form.model).__name__
    forward = inputs_of(spec, form.model, name)
    copied = as_written(meta_copy(form.model) if where.type == "meta" else private_copy(form.model))
    copied = formatted(spec, copied)
    feeder = Feeder(
        spec=spec, model=copied, forward=forward, device=where, beside=form.inputs, maker=name,
        given=batch if batch.args or batch.kwargs else None,
    )  # fmt: skip

    def again(on: str, **words: Any) -> Target:
        return _from_model(model, batch, loss_fn, configure_optimizer, replace(spec, **words), on)

    held = [*form.model.parameters(), *form.model.buffers()]
    has_numbers = not any(tensor.is_meta for tensor in held)
    return assemble(
        feeder,
        name,
        notes=form.notes,
        again=again if has_numbers else None,
        loss_fn=loss_fn,
        configure=configure_optimizer,
    )


def _build(
    source: Source, candidate: Candidate, arguments: Mapping[str, Any], *, on_meta: bool, compiled: bool
) -> Built:
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
    form = form_of(built.model)
    model = form.model
    if on_meta:
        model = model if is_all_meta(model) and not candidate.is_model else meta_copy(model)
    elif not (source.is_fresh or isinstance(candidate.value, type)):
        model = private_copy(model)
    if not compiled:
        model = as_written(model)
    inputs = form.inputs if built.inputs is NO_INPUTS else built.inputs
    compiles = form.compiles if compiled else None
    return Built(model=model, inputs=inputs, notes=built.notes + form.notes, compiles=compiles)

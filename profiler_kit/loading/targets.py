"""Loads a Target from a spec or from a model object."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MethodType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from profiler_kit.errors import UsageError
from profiler_kit.loading.assembly import assemble
from profiler_kit.loading.candidates.arguments import Assumption
from profiler_kit.loading.candidates.building import construct
from profiler_kit.loading.candidates.construction import BuildFailure, Selection, pinned_values
from profiler_kit.loading.candidates.keywords import parse_arguments
from profiler_kit.loading.candidates.selection import select
from profiler_kit.loading.evidence.loader import find_loader
from profiler_kit.loading.evidence.recorded_run import run_notes, with_settings_of_run
from profiler_kit.loading.evidence.subject import Subject
from profiler_kit.loading.forms import BuiltModel, as_module, checked_forward, converted, is_model
from profiler_kit.loading.input_search.outcomes import NoFitError
from profiler_kit.loading.inputs import FILE_INPUT, parse_inputs
from profiler_kit.loading.joint_trials import JointTrials
from profiler_kit.loading.live.live_models import read_model
from profiler_kit.loading.model import Target
from profiler_kit.loading.program.definitions import cudnn_off_lines, definition_lines
from profiler_kit.loading.run_hint import run_as_hint
from profiler_kit.loading.scripts.import_errors import watchdog
from profiler_kit.loading.scripts.isolation import isolated
from profiler_kit.loading.scripts.source import Source, open_source
from profiler_kit.loading.training_step.file_losses import own_loss
from profiler_kit.loading.training_step.script_steps import ScriptSteps
from profiler_kit.loading.validation import check_options, parse_device
from profiler_kit.loading.zoo import Recipe, open_zoo
from profiler_kit.meta.batch import NO_INPUTS, Batch
from profiler_kit.meta.compilation import remove_compilation
from profiler_kit.meta.copies import copy_with_weights, is_all_meta, meta_copy
from profiler_kit.meta.device_moves import HOST, moves_redirected
from profiler_kit.meta.eager import compilation_disabled
from profiler_kit.records.notes import Note, plain_notes
from profiler_kit.records.target import IN_PYTHON, Checkout, Pinned, TargetSpec
from profiler_kit.user_code.environment import parse_flag, program_arguments, seeded, user_code
from profiler_kit.user_code.locations import type_with_article
from profiler_kit.user_code.process_settings import settings_restored

UNCOMPILED: Final = Note(
    subject="torch.compile",
    text="a model from Python is counted and measured without it. To measure it compiled, pass "
    "experiments=ExperimentOptions(also=('compile',))",
)


def load(
    spec: TargetSpec,
    *,
    device: str = "meta",
    compiled: bool = False,
    imported_source: Source | None = None,
    on_built: Callable[[], None] | None = None,
) -> Target:
    """Load the target of `spec` on `device`: ``meta`` (no computation), ``cpu``, ``cuda`` or ``cuda:N``.

    With `compiled`, torch.compile in the target stays active; otherwise it is removed. `on_built` is called after everything
    is built on the host and before anything is moved to the device. `imported_source` is reused: importing a file again
    would redefine its custom ops, and torch then frees kernels that are still in use.

    On real devices, weights and inputs depend only on ``spec.seed``, so every process gets the same. Forward does not run,
    except once to initialize lazy layers.

    Raises:
        UsageError: the spec is invalid.
        TargetError: the target cannot be found or built, or has no inputs.
    """
    where = parse_device(device)
    on_meta = where.type == "meta"
    spec = with_settings_of_run(spec)
    with (
        program_arguments(spec.seen.arguments if spec.seen is not None else ()),
        moves_redirected(HOST if on_meta else where) as moves,
        compilation_disabled() if on_meta else contextlib.nullcontext(),
        _search_path_of(spec.checkout),
    ):
        if spec.live is not None:
            target = _from_file_of_live_model(spec, where, on_built)
        else:
            target = _load(spec, where, compiled, imported_source, on_built)
    target.requested_devices |= moves.requested
    return target


@contextlib.contextmanager
def _search_path_of(checkout: Checkout | None) -> Iterator[None]:
    """Import the repository's modules from `checkout` inside the block."""
    if checkout is None:
        yield
        return
    folders = [folder for folder in (Path(checkout.folder), Path(checkout.folder, "src")) if folder.is_dir()]
    with settings_restored("sys.path"):
        sys.path[:] = [*map(str, folders), *map(checkout.redirected, sys.path)]
        yield


def _load(
    spec: TargetSpec,
    where: torch.device,
    compiled: bool,
    imported_source: Source | None,
    on_built: Callable[[], None] | None,
) -> Target:
    check_options(spec)
    if not any(FILE_INPUT.match(text) for text in spec.inputs):
        parse_inputs(spec.inputs)
    arguments = parse_arguments(spec.kwargs)
    recipe = open_zoo(spec, arguments)
    if recipe is not None:
        return _from_recipe(spec, recipe, where, on_built)
    source = open_source(spec) if imported_source is None else replace(imported_source, spec=spec, is_fresh=False)
    with run_as_hint(source):
        return _from_source(source, where, compiled, on_built)


def _from_source(source: Source, where: torch.device, compiled: bool, on_built: Callable[[], None] | None) -> Target:
    """The target of an imported file or module. Raises TargetError, UsageError."""
    arguments = parse_arguments(source.spec.kwargs)
    with _building(source) as effects:
        selection = select(source, arguments, on_meta=where.type == "meta")

    def build(assumptions: tuple[Assumption, ...]) -> Selection | BuildFailure:
        if assumptions == selection.assumptions:
            return selection
        assert selection.builds is not None
        with _building(source):
            return selection.builds.outcome(assumptions)

    def trials(*, may_change: bool) -> JointTrials:
        def target(chosen: Selection) -> Target:
            changes = may_change and chosen.builds is not None and bool(chosen.arguments.assumed)
            return _target(source, chosen, where, compiled, on_built, effects, may_change=changes)

        return JointTrials(build, target, lambda: _building(source))

    try:
        return trials(may_change=True).result(selection.assumptions)
    except NoFitError as error:
        if error.is_searched:
            raise
    return trials(may_change=False).result(selection.assumptions)  # other inputs, or the command explains why they fail


@contextlib.contextmanager
def _building(source: Source) -> Iterator[BuildEffects]:
    """The surroundings of code that builds a model. Yields the cuDNN flags that it sets, and notes about its side effects."""
    spec, notes = source.spec, list[str]()
    with (
        user_code(source.folders, source.name) as flags,
        seeded(spec.seed),
        watchdog(spec, source.file, "build"),
        isolated(source.session if spec.sliced else None, notes.append),
    ):
        yield BuildEffects(flags=flags, notes=notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildEffects:
    """cuDNN flags that building a model sets, and notes about its side effects."""

    flags: list[str]
    notes: list[str]


def _target(
    source: Source,
    selection: Selection,
    where: torch.device,
    compiled: bool,
    on_built: Callable[[], None] | None,
    effects: BuildEffects,
    *,
    may_change: bool,
) -> Target:
    """The target of the built model. Raises TargetError, UsageError."""
    candidate, spec = selection.candidate, source.spec
    with _building(source):
        built = _prepared(source, selection, on_meta=where.type == "meta", compiled=compiled)
    pinned = spec.pinned or Pinned(candidate=candidate.key)
    spec = replace(spec, pinned=replace(pinned, assumed=pinned_values(selection.assumptions)))
    lines = definition_lines(source.tree) if source.tree is not None else {}
    place = source.at(candidate.line)
    forward = checked_forward(built.model, place)
    model = converted(spec, built.model)
    finder = Subject(
        spec=spec, model=model, forward=forward, device=where, source=source, factory=candidate.name,
        returned_inputs=built.inputs,
        loader=find_loader(source, forward, lines), candidate=candidate, may_change=may_change,
    )  # fmt: skip
    names = source.names
    steps = None
    if spec.mode == "train" and spec.sliced:
        steps = ScriptSteps(source=source, model=model, forward=forward, use=finder.use, site=candidate.site)
    notes = (
        *([Note(subject="import", text=source.ran)] if source.ran else ()),
        *plain_notes(dict.fromkeys((*source.notes, *effects.notes))),
        *built.notes,
        *(run_notes(spec.seen, model) if spec.seen is not None else ()),
    )
    flags = tuple(dict.fromkeys((*source.flags, *effects.flags)))
    if flags:
        notes += (
            Note(
                subject="cuDNN flags",
                text=f"{source.name} sets {', '.join(flags)}; reset, because each configuration sets its own",
            ),
        )
    return assemble(
        finder, place, notes=notes, compiles=built.compiles, ready=on_built, steps=steps,
        loss_fn=own_loss(source), loss_fn_at=source.at(lines.get("loss_fn")),
        configure=names.get("configure_optimizer"), configure_at=source.at(lines.get("configure_optimizer")),
        cudnn_flags=tuple(parse_flag(flag) for flag in flags),
        cudnn_off_lines=cudnn_off_lines(source.tree) if source.tree is not None else (),
        confidence=selection.confidence, choices=selection.choices,
        again=lambda device, **options: load(replace(spec, **options), device=device, imported_source=source),
    )  # fmt: skip


def _from_recipe(
    spec: TargetSpec, recipe: Recipe, where: torch.device, ready: Callable[[], None] | None = None
) -> Target:
    """The target of a model zoo's `recipe`, with random inputs."""
    with recipe.surroundings(), seeded(spec.seed):
        built = construct(spec, recipe.name, recipe.factory, recipe.where, on_meta=where.type == "meta")
    model = built.model if where.type != "meta" or is_all_meta(built.model) else meta_copy(built.model)
    forward = checked_forward(model, recipe.where)
    model = converted(spec, model)
    return assemble(
        Subject(spec=spec, model=model, forward=forward, device=where, recipe=recipe),
        recipe.where,
        notes=recipe.notes + built.notes,
        ready=ready,
        again=lambda device, **options: load(replace(spec, **options), device=device),
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
    **options: Any,
) -> Target:
    """A target with a copy of `model`, which is not changed. On ``meta`` the copy takes no memory.

    `args` and `kwargs` are the arguments of `forward`; `labels` are those of ``loss_fn(output, *labels)``. `options` are
    fields of `TargetSpec` (``mode``, ``loss``, ``optimizer``, ``dtype``, ``amp``, ``batch`` …).

    Raises:
        UsageError, TargetError
    """
    batch = Batch(
        args=(args,) if isinstance(args, Tensor) else tuple(args),
        kwargs=dict(kwargs or {}),
        labels=(labels,) if isinstance(labels, Tensor) else tuple(labels),
    )
    return _from_model(model, batch, loss_fn, configure_optimizer, TargetSpec(spec=IN_PYTHON, **options), device)


def _from_file_of_live_model(spec: TargetSpec, where: torch.device, on_built: Callable[[], None] | None) -> Target:
    """The target of a model that another process wrote with `written_model`."""
    assert spec.live is not None
    with contextlib.redirect_stdout(sys.stderr):  # unpickling imports the user's modules
        live = read_model(Path(spec.live), lazily=where.type == "meta")
    target = _from_model(
        live.model, live.batch, live.loss_fn, live.configure_optimizer, spec, str(where),
        notes=tuple(UNCOMPILED if note.code in ("compiled", "compiled_whole") else note for note in live.notes),
        is_owned=where.type != "meta", on_built=on_built,
    )  # fmt: skip
    target.rebuild = lambda device, **options: load(replace(spec, **options), device=device)
    return target


def _from_model(
    model: nn.Module | ExportedProgram,
    batch: Batch,
    loss_fn: Callable[..., Any] | None,
    configure_optimizer: Callable[[nn.Module], Any] | None,
    spec: TargetSpec,
    device: str,
    *,
    notes: tuple[Note, ...] = (),
    is_owned: bool = False,
    on_built: Callable[[], None] | None = None,
) -> Target:
    """The target of `model`, of which it makes a copy unless `is_owned`."""
    where = parse_device(device)
    check_options(spec)
    if not is_model(model):
        raise UsageError(
            f"expected an nn.Module, got {type_with_article(model)}",
            hint="pass the model and its inputs: profiler_kit.count(model, inputs)",
        )
    form = as_module(model)
    name = type(form.model).__name__
    forward = checked_forward(form.model, name)
    copied = meta_copy if where.type == "meta" else copy_with_weights
    model_copy = converted(spec, remove_compilation(form.model if is_owned else copied(form.model)))
    finder = Subject(
        spec=spec, model=model_copy, forward=forward, device=where, returned_inputs=form.inputs, factory=name,
        caller_batch=batch if batch.args or batch.kwargs else None,
    )  # fmt: skip

    def rebuild(device: str, **options: Any) -> Target:
        return _from_model(model, batch, loss_fn, configure_optimizer, replace(spec, **options), device)

    tensors = [*form.model.parameters(), *form.model.buffers()]
    has_values = not any(tensor.is_meta for tensor in tensors)
    return assemble(
        finder,
        name,
        notes=(*notes, *form.notes),
        again=rebuild if has_values else None,
        ready=on_built,
        loss_fn=_method_of_copy(loss_fn, form.model, model_copy),
        configure=configure_optimizer,
    )


def _method_of_copy(function: Any, model: nn.Module, model_copy: nn.Module) -> Any:
    """`function`; if it is a method of `model` or of one of its modules, the same method of `model_copy`."""
    if type(function) is not MethodType or model_copy is model:
        return function
    path = next((path for path, module in model.named_modules() if module is function.__self__), None)
    return function if path is None else MethodType(function.__func__, model_copy.get_submodule(path))


def _prepared(source: Source, selection: Selection, *, on_meta: bool, compiled: bool) -> BuiltModel:
    """The selected model as a plain module that no other code shares, with its notes and inputs."""
    candidate, built = selection.candidate, selection.built
    form = as_module(built.model)
    model = form.model
    if on_meta:
        model = model if is_all_meta(model) and not candidate.is_model else meta_copy(model)
    elif not (source.is_fresh or isinstance(candidate.value, type)):
        model = copy_with_weights(model)
    if not compiled:
        model = remove_compilation(model)
    inputs = form.inputs if built.inputs is NO_INPUTS else built.inputs
    compiles = form.compiles if compiled else None
    return BuiltModel(model=model, inputs=inputs, notes=built.notes + form.notes, compiles=compiles)

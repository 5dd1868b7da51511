"""Chooses and builds the model of a target: the best candidate that can be built."""

from __future__ import annotations

import ast
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from torch import nn

from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.loading.candidates.announcement import announcement, join_words
from profiler_kit.loading.candidates.arguments import Arguments, Binder
from profiler_kit.loading.candidates.building import (
    NotAModelError,
    check_names,
    construct,
    missing_error,
    uses_missing_package,
)
from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.candidates.classes import helper_functions, module_classes
from profiler_kit.loading.candidates.factories import Factories
from profiler_kit.loading.candidates.guards import reached_first
from profiler_kit.loading.candidates.named import named_candidates
from profiler_kit.loading.candidates.ranking import Surroundings, rank
from profiler_kit.loading.candidates.signatures import MissingArgumentsError, missing_arguments
from profiler_kit.loading.candidates.sites import find_sites, is_module_definition
from profiler_kit.loading.candidates.suggestions import file_with_model
from profiler_kit.loading.command import bare_command, next_command
from profiler_kit.loading.forms import BuiltModel
from profiler_kit.loading.import_errors import import_failure
from profiler_kit.loading.scripts.execution import EvaluationError
from profiler_kit.loading.scripts.placeholders import UnavailableError
from profiler_kit.loading.scripts.time_limit import TimeLimitError, time_limit
from profiler_kit.loading.source import Source
from profiler_kit.loading.syntax import definition_lines
from profiler_kit.records.target import TargetSpec

MAX_BUILDS: Final = 8
_MAX_MISSING_PACKAGES: Final = 3  # candidates that fail for this reason, before the others are not tried
_MAX_SLOW_BUILDS: Final = 3  # fit into the time limit of a load
_MAX_COMPLETIONS: Final = 12  # missing names and fields of one candidate
_BUILD_LIMIT_S: Final = 60.0  # no new candidate is tried after this time; a backstop, MAX_BUILDS is the rule
_LAST_RESORT: Final = ("part", "loss")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The chosen candidate, with the arguments that built it, and its model."""

    candidate: Candidate
    built: BuiltModel


def select(source: Source, arguments: Mapping[str, Any], *, on_meta: bool) -> Selection:
    """Build the model that the target of `source` names, or the best candidate of its file.

    `arguments` are those of ``--kw``. With `on_meta`, on the meta device if possible.

    Raises:
        UsageError: no candidate has a parameter of the name of an argument.
        TargetError: nothing in the file can be built.
    """
    s = _surroundings(source)
    ranked = rank(s, arguments)
    candidates = ranked if source.attr is None else named_candidates(source, s, source.attr, arguments)
    if source.attr is None and not candidates:
        _reject_arguments(source, rank(s, {}), arguments)
        raise _no_model(source)
    pinned = source.spec.pinned
    if pinned is not None:
        candidates = [c for c in candidates if c.key == pinned.candidate] or candidates
    usable = [c for c in candidates if c.evidence not in _LAST_RESORT]
    if not usable:
        unavailable = _unavailable_model(source) if source.attr is None else None
        if unavailable is not None:
            raise unavailable
        usable = candidates
    if pinned is None:
        usable = reached_first(usable, source.evaluator)
    binder = Binder(names=source.names, classes=s.classes, evaluator=source.evaluator, texts=arguments)
    return _first_built(source, binder, usable, ranked, on_meta=on_meta)


def _surroundings(source: Source) -> Surroundings:
    factories = Factories()
    tree = source.tree
    classes = module_classes(tree, source.names, source.module.__name__, frozenset(_unavailable_classes(source)))
    return Surroundings(
        module_name=source.module.__name__,
        names=source.names,
        lines=definition_lines(tree) if tree is not None else {},
        classes=classes,
        helpers=helper_functions(tree, classes),
        sites=find_sites(source, source.documents, factories),
        factories=factories,
    )


def _first_built(
    source: Source, binder: Binder, candidates: Sequence[Candidate], ranked: Sequence[Candidate], *, on_meta: bool
) -> Selection:
    failures: list[tuple[Candidate, KitError]] = []
    fallback: Selection | None = None  # a module without parameters is rarely the model
    slow: set[str] = set()  # the evidence of candidates that took too long
    deadline = time.monotonic() + _BUILD_LIMIT_S
    attempts = [(candidate, False) for candidate in candidates]
    attempts += [
        (candidate, True) for candidate in candidates if candidate.value is not None and not candidate.is_model
    ]
    builds = 0
    for candidate, generic in attempts:
        if builds == MAX_BUILDS:
            break
        if failures and time.monotonic() > deadline:
            break
        if sum(uses_missing_package(error) for _, error in failures) >= _MAX_MISSING_PACKAGES:
            break
        if generic and any(failed == candidate and uses_missing_package(error) for failed, error in failures):
            continue  # other arguments do not help
        if candidate.evidence in slow:
            continue  # candidates with the same evidence are sizes of one model
        builds += 1
        is_only = len({c.evidence for c in candidates}) == 1  # then the limit of the whole load is enough
        seconds = source.spec.import_timeout_s / (1 if is_only else _MAX_SLOW_BUILDS)
        try:
            with time_limit(
                seconds + is_only
            ) as limit:  # later than the limit of the load, which then reports the line
                selection = _completed_build(
                    source, binder, candidate, ranked, failures, generic=generic, on_meta=on_meta
                )
        except UsageError:
            raise
        except TargetError as error:
            failures.append((candidate, error))
            continue
        except TimeLimitError as error:
            if error.limit is not limit:
                raise
            slow.add(candidate.evidence)
            where = candidate.site.where if candidate.site is not None else source.at(candidate.line)
            text = f"{candidate.name}() still running after {seconds:g} s"
            failures.append(
                (candidate, TargetError(text, where=where, hint="pass smaller arguments with --kw NAME=VALUE"))
            )
            continue
        is_last_resort = candidate.evidence in _LAST_RESORT
        if candidate.is_model or is_last_resort or len(candidates) == 1 or _has_parameters(selection.built.model):
            return selection
        fallback = fallback or selection
    if fallback is not None:
        return fallback
    if all(candidate.value is None and isinstance(error.__cause__, NotAModelError) for candidate, error in failures):
        raise _no_model(source)
    raise _explain(failures)


def _completed_build(source: Source, binder: Binder, candidate: Candidate, *args: Any, **options: Any) -> Selection:
    """`_build`, again with usual values for global names and fields of configurations that a data set or an option would set."""
    for _ in range(_MAX_COMPLETIONS):
        try:
            return _build(source, binder, candidate, *args, **options)
        except UsageError:
            raise
        except TargetError as error:
            if source.attr is None and uses_missing_package(error):
                raise
            if not binder.complete(error, vars(source.module), candidate.name):
                raise
    return _build(source, binder, candidate, *args, **options)


def _build(
    source: Source,
    binder: Binder,
    candidate: Candidate,
    ranked: Sequence[Candidate],
    failures: Sequence[tuple[Candidate, KitError]],
    *,
    generic: bool,
    on_meta: bool,
) -> Selection:
    spec, where = source.spec, candidate.site.where if candidate.site is not None else source.at(candidate.line)
    if candidate.is_model:
        if binder.texts:
            raise UsageError(
                f"--kw {spec.kwargs[0]}: {candidate.name!r} is already a model and takes no arguments",
                where=where,
                hint=f"omit it: {next_command(replace(spec, kwargs=()))}",
            )
        note = announcement(source, candidate, Arguments(), candidate.value, ranked, failures)
        return Selection(candidate=replace(candidate, note=note), built=BuiltModel(model=candidate.value))
    check_names(spec, candidate.name, candidate.value, binder.texts, where)
    bound = Arguments()

    def call() -> Any:
        nonlocal bound
        if candidate.value is None and candidate.site is not None:
            return _evaluated(source, candidate)
        try:
            bound = binder.bind(candidate, generic=generic)
        except MissingArgumentsError as missing:
            alternative = _alternative(source, candidate, ranked)
            raise missing_error(spec, candidate.name, missing, where, alternative) from missing
        return candidate.value(*bound.args, **bound.kwargs)

    built = construct(spec, candidate.name, call, where, on_meta=on_meta)
    _check_parameters(candidate, built.model, where, spec)
    note = announcement(source, candidate, bound, built.model, ranked, failures)
    candidate = replace(candidate, args=bound.args, kwargs=bound.kwargs, bound=bound.bound, note=note)
    return Selection(candidate=candidate, built=replace(built, notes=((note,) if note else ()) + built.notes))


def _alternative(source: Source, candidate: Candidate, ranked: Sequence[Candidate]) -> str | None:
    """The target text of the best other candidate that needs no arguments; None without one."""
    for other in ranked:
        if (
            other.evidence in ("factory", "class")
            and other.name != candidate.name
            and not missing_arguments(other.value, {})
        ):
            return f"{source.name}:{other.name}"
    return None


def _evaluated(source: Source, candidate: Candidate) -> Any:
    site = candidate.site
    assert site is not None
    try:
        return source.evaluator.value(site.place, site.call)
    except EvaluationError as error:
        names = {node.id for node in ast.walk(site.call) if isinstance(node, ast.Name)}
        missing: BaseException | None = next((f.error for f in source.failures if names & set(f.names)), None)
        if uses_missing_package(error) or isinstance(error.__cause__, UnavailableError):
            missing = error.__cause__
        if missing is not None:
            raise import_failure(source.spec, source.file, missing) from missing
        raise TargetError(
            f"{candidate.name}(), the model at {site.where}, cannot be built alone: {error.reason}",
            where=error.where,
            hint=f"define a function get_model() that returns it, then run {next_command(source.spec)}",
        ) from error


def _check_parameters(candidate: Candidate, model: Any, where: str, spec: TargetSpec) -> None:
    """Raise TargetError for a module of a package without parameters: a layer that a script calls, and no model."""
    if candidate.evidence == "library" and not _has_parameters(model):
        raise TargetError(
            f"{candidate.name}() has no parameters", where=where, hint=bare_command(spec, f"{spec.spec}:Net")
        )


def _has_parameters(model: Any) -> bool:
    return not isinstance(model, nn.Module) or any(True for _ in model.parameters())


def _explain(failures: Sequence[tuple[Candidate, KitError]]) -> KitError:
    """The error of the best candidate, or of the first one that needs a missing package, the usual cause of the others."""
    main = next((error for _, error in failures if uses_missing_package(error)), failures[0][1])
    names = list(dict.fromkeys(candidate.name for candidate, error in failures if error is not main))
    others = [name for name in names if name not in main.message]
    if not others or uses_missing_package(main):
        return main
    error = TargetError(f"{main.message}; {join_words(others)} failed too", where=main.where, hint=main.hint)
    error.__cause__ = main.__cause__
    return error


def _reject_arguments(source: Source, candidates: Sequence[Candidate], arguments: Mapping[str, Any]) -> None:
    """Raise UsageError if there are candidates, but none has parameters for all `arguments`."""
    if candidates:
        best = candidates[0]
        check_names(source.spec, best.name, best.value, arguments, source.at(best.line))


def _unavailable_model(source: Source) -> TargetError | None:
    """The error of a class of modules of the file that could not be defined, such as a missing package; None without one."""
    classes = _unavailable_classes(source)
    nodes = source.tree.body if source.tree is not None else []
    if not any(isinstance(node, (ast.ClassDef, ast.FunctionDef)) for node in nodes):
        error = next((failure.error for failure in source.failures), None)  # its model can only be an imported one
    else:
        error = next((failure.error for failure in source.failures if classes & set(failure.names)), None)
    if error is None:
        return None
    # the import that failed first, and not the class that needs it
    first = next((f.error for f in source.failures if str(f.error.cause) == str(error.cause)), error)
    return import_failure(source.spec, source.file, first)


def _unavailable_classes(source: Source) -> set[str]:
    """The classes of modules in the text of the file that its import could not define."""
    nodes = source.tree.body if source.tree is not None else []
    names = source.names
    return {
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef) and node.name not in names and is_module_definition(node, {})
    }


def _no_model(source: Source) -> TargetError:
    unavailable = _unavailable_model(source)
    if unavailable is not None:
        return unavailable
    message = "no model in this file: no nn.Module class, no function that returns a model, no 'model'"
    if source.file is None:
        return TargetError(message, where=source.name, hint=bare_command(source.spec, f"{source.name}:Net"))
    suggestion = file_with_model(source.file)
    if suggestion is None:
        return TargetError(
            message,
            where=source.at(None),
            hint=f"use the file that defines the model: {bare_command(source.spec, 'my_model.py')}",
        )
    return TargetError(
        f"{message}; did you mean {suggestion}?",
        where=source.at(None),
        hint=next_command(source.spec, target=str(suggestion)),
    )

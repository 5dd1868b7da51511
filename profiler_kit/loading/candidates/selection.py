"""Chooses and builds the model of a target: the best candidate that can be built."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from profiler_kit.errors import TargetError
from profiler_kit.loading.candidates.arguments import Binder
from profiler_kit.loading.candidates.building import NotAModelError, check_names
from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.candidates.classes import helper_functions, module_classes
from profiler_kit.loading.candidates.construction import LAST_RESORT, Construction, Selection
from profiler_kit.loading.candidates.factories import Factories
from profiler_kit.loading.candidates.guards import reached_first
from profiler_kit.loading.candidates.named import named_candidates
from profiler_kit.loading.candidates.ranking import Surroundings, rank
from profiler_kit.loading.candidates.sites import find_sites, is_module_definition
from profiler_kit.loading.candidates.suggestions import file_with_model
from profiler_kit.loading.command import next_command
from profiler_kit.loading.program.definitions import definition_lines
from profiler_kit.loading.scripts.import_errors import import_failure
from profiler_kit.loading.scripts.source import Source


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
    usable = [c for c in candidates if c.evidence not in LAST_RESORT]
    if not usable:
        unavailable = _unavailable_model(source) if source.attr is None else None
        if unavailable is not None:
            raise unavailable
        usable = candidates
    if pinned is None:
        usable = reached_first(usable, source.evaluator)
    binder = Binder(names=source.names, classes=s.classes, evaluator=source.evaluator, texts=arguments)
    try:
        return Construction(source=source, binder=binder, ranked=ranked, on_meta=on_meta).first(usable)
    except NotAModelError:
        raise _no_model(source) from None


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
        return TargetError(message, where=source.name, hint="name the module that defines the model")
    suggestion = file_with_model(source.file)
    if suggestion is None:
        return TargetError(
            message,
            where=source.at(None),
            hint="give the file that defines the model",
        )
    return TargetError(
        f"{message}; did you mean {suggestion}?",
        where=source.at(None),
        hint=next_command(source.spec, target=str(suggestion)),
    )

"""Chooses and builds the model of a target: the best candidate that can be built.

For the hint of a target without a model: files of the repository that define one.
"""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from torch import nn

from profiler_kit.errors import TargetError
from profiler_kit.loading.candidates.arguments import Binder
from profiler_kit.loading.candidates.building import NotAModelError, check_names
from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.candidates.classes import helper_functions, is_part_name, module_classes
from profiler_kit.loading.candidates.construction import LAST_RESORT, Construction, Selection
from profiler_kit.loading.candidates.factories import Factories
from profiler_kit.loading.candidates.ranking import PROGRAM_ROLES, Surroundings, best_site, rank
from profiler_kit.loading.candidates.signatures import missing_arguments
from profiler_kit.loading.candidates.sites import find_sites, is_module_definition
from profiler_kit.loading.command import next_command
from profiler_kit.loading.forms import is_model
from profiler_kit.loading.program.definitions import definition_lines, root_classes
from profiler_kit.loading.program.imports import imported_files
from profiler_kit.loading.program.names import all_nodes
from profiler_kit.loading.program.reading import parsed
from profiler_kit.loading.program.repository import local_sources, repository_root
from profiler_kit.loading.scripts.execution import Evaluator
from profiler_kit.loading.scripts.import_errors import import_failure
from profiler_kit.loading.scripts.placeholders import Placeholder, placeholder_error
from profiler_kit.loading.scripts.source import Source
from profiler_kit.records.seen import SeenRun
from profiler_kit.user_code.locations import type_with_article


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
        usable = _of_run_first(reached_first(usable, source.evaluator), source.spec.seen)
    binder = Binder(names=source.names, classes=s.classes, evaluator=source.evaluator, texts=arguments)
    try:
        return Construction(source=source, binder=binder, ranked=ranked, on_meta=on_meta).first(usable)
    except NotAModelError:
        raise _no_model(source) from None


def _of_run_first(candidates: Sequence[Candidate], seen: SeenRun | None) -> list[Candidate]:
    """`candidates` with those first that a run of the program shows: by the place of the call, then by the class."""
    models = seen.models if seen is not None else ()
    places = {place for model in models for place in model.built_at}
    classes = {model.class_name for model in models}

    def order(candidate: Candidate) -> int:
        site = candidate.site
        if site is not None and site.document.path is not None:
            first, last = site.call.lineno, site.call.end_lineno or site.call.lineno
            lines = range(first + site.document.line_offset, last + site.document.line_offset + 1)
            if any(f"{site.document.path}:{line}" in places for line in lines):
                return 0
        return 1 if {candidate.name, type(candidate.value).__name__} & classes else 2

    return sorted(candidates, key=order)


def _surroundings(source: Source) -> Surroundings:
    factories = Factories()
    tree = source.tree
    unavailable = frozenset(_unavailable_classes(source))
    classes = module_classes(tree, source.names, source.module.__name__, unavailable)
    return Surroundings(
        module_name=source.module.__name__,
        names=source.names,
        lines=definition_lines(tree) if tree is not None else {},
        classes=classes,
        helpers=helper_functions(tree, classes.keys() | unavailable),
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


_MAX_CALLS: Final = 24  # checked for one target; later ones count as reached


def reached_first(candidates: Sequence[Candidate], evaluator: Evaluator) -> list[Candidate]:
    """`candidates` of the same evidence with the calls first that a program reaches, and those last that it does not reach.

    ``if args.model == "rnn": net = RNN() else: net = Transformer()`` builds one of the two, by the default of the argument.
    """
    ordered: list[Candidate] = []
    checked = 0
    for _, group in groupby(candidates, key=lambda candidate: candidate.evidence):
        ranked: list[tuple[int, Candidate]] = []
        for candidate in group:
            is_reached: bool | None = True
            if candidate.site is not None and not candidate.is_model and checked < _MAX_CALLS:
                checked += 1
                is_reached = evaluator.reaches(candidate.site.place)
            ranked.append(((True, None, False).index(is_reached), candidate))
        ordered += [candidate for _, candidate in sorted(ranked, key=itemgetter(0))]
    return ordered


def named_candidates(source: Source, s: Surroundings, name: str, arguments: Mapping[str, Any]) -> list[Candidate]:
    """The candidates for `name`: as a document calls it, then without a call. Raises TargetError."""
    variable = next(
        (
            m
            for m in s.sites
            if m.site.variable == name and m.site.document.kind == "target" and m.site.role in ("script", "main")
        ),
        None,
    )
    if variable is not None and name not in source.names:  # an assignment that the import does not run
        return [Candidate(name=name, value=variable.value, line=variable.site.call.lineno, site=variable.site)]
    value = _value(source, name)
    plain = Candidate(name=name, value=value, line=s.lines.get(name.split(".")[0]))
    if plain.is_model:
        return [plain]
    needs_arguments = bool(missing_arguments(value, arguments))
    # The arguments of a program describe the model better than its defaults; those of an example do not.
    site = best_site(s, name) if needs_arguments else best_site(s, name, within=PROGRAM_ROLES)
    at_site = [] if site is None else [Candidate(name=name, value=value, line=plain.line, site=site)]
    return [*at_site, plain]


def _value(source: Source, name: str) -> Any:
    value: Any = source.module
    resolved: list[str] = []
    for part in name.split("."):
        if isinstance(value, Placeholder):
            break
        if not hasattr(value, part):
            raise _no_attribute(source, value, part, resolved)
        value = getattr(value, part)
        resolved.append(part)
    if isinstance(value, Placeholder):
        raise import_failure(source.spec, source.file, placeholder_error(value))
    is_class = isinstance(value, type)
    if is_model(value) or (is_class and issubclass(value, nn.Module)) or (callable(value) and not is_class):
        return value
    problem = (
        "a class, but not an nn.Module"
        if is_class
        else f"{type_with_article(value)}, not a model or a function that returns one"
    )
    line = source.line_of(name.split(".")[0])
    hint = next_command(source.spec, target=source.name) if source.file is not None else "name a model of this module"
    raise TargetError(f"{name} is {problem}", where=source.at(line), hint=hint)


def _no_attribute(source: Source, owner: object, part: str, resolved: list[str]) -> TargetError:
    names = [name for name in dir(owner) if not name.startswith("__")]
    matches = difflib.get_close_matches(part, names, n=3, cutoff=0.5)
    suggestion = f"; did you mean {' or '.join(matches)}?" if matches else ""
    target = f"{source.name}:{'.'.join([*resolved, matches[0]])}" if matches else source.name
    is_loadable = bool(matches) or source.name.endswith(".py")  # a module needs a name after the colon
    return TargetError(
        f"no {'.'.join([*resolved, part])!r} in this file{suggestion}",
        where=source.at(None),
        hint=next_command(source.spec, target=target) if is_loadable else "name a model of this module",
    )


_MAX_FILES: Final = 40
_MODULE_CLASS: Final = re.compile(r"^class \w+\([^)]*\bModule\b[^)]*\):", re.MULTILINE)


def file_with_model(excluded: Path) -> Path | None:
    """The file of the repository that defines a model, relative to the working directory; None without one.

    The files that `excluded` imports, directly or through others, come before those that are near.
    """
    fallback: Path | None = None
    root = repository_root(excluded)
    for count, (path, text) in enumerate((*_imported_sources(excluded, root), *local_sources(excluded, root))):
        if count == _MAX_FILES:
            break
        if path == excluded or not _MODULE_CLASS.search(text):
            continue
        tree = parsed(text)
        roots = root_classes(tree) if tree is not None else ()
        if any(not is_part_name(name) for name in roots):
            return _relative(path)
        fallback = fallback or (path if roots else None)
    return _relative(fallback) if fallback is not None else None


def _imported_sources(file: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """The files that `file` imports and their texts, then those that these import."""
    level, visited = [file], {file}
    while level and len(visited) <= _MAX_FILES:
        deeper: list[Path] = []
        for importer in level:
            tree = parsed(importer)
            if tree is None:
                continue
            if importer != file:
                yield importer, importer.read_text(encoding="utf-8", errors="replace")
            for node in all_nodes(tree):
                imports = imported_files(node, importer, root) - visited
                visited |= imports
                deeper += sorted(imports)
        level = deeper


def _relative(path: Path) -> Path:
    return Path(os.path.relpath(path)) if path.is_relative_to(Path.cwd()) else path

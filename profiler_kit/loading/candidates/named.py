"""The candidate that a target names: ``net.py:Net``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from torch import nn

from profiler_kit.errors import TargetError
from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.candidates.ranking import PROGRAM_ROLES, Surroundings, best_site
from profiler_kit.loading.candidates.signatures import missing_arguments
from profiler_kit.loading.command import next_command
from profiler_kit.loading.forms import is_model
from profiler_kit.loading.scripts.import_errors import import_failure
from profiler_kit.loading.scripts.placeholders import Placeholder, placeholder_error
from profiler_kit.loading.scripts.source import Source
from profiler_kit.user_code.locations import type_with_article


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

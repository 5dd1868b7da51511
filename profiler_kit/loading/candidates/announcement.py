"""The line that announces which model was chosen, why, and which others the file has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor, nn

from profiler_kit.errors import KitError
from profiler_kit.loading.candidates.arguments import Arguments
from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.candidates.classes import is_part_name
from profiler_kit.loading.candidates.ranking import PRETRAINED
from profiler_kit.loading.candidates.sites import CallSite
from profiler_kit.loading.command import bare_command
from profiler_kit.loading.scripts.source import Source
from profiler_kit.records.notes import Note

_VALUE_CHARACTERS: Final = 60
_LISTED_OTHERS: Final = 4
_SELECTABLE: Final = ("script", "importer", "factory", "class", "export", "convention")


def announcement(
    source: Source,
    candidate: Candidate,
    arguments: Arguments,
    model: nn.Module | None,
    ranked: Sequence[Candidate],
    failures: Sequence[tuple[Candidate, KitError]],
) -> tuple[Note, ...]:
    """``model: ResNet18(), as test() builds it at resnet.py:126; others: ...``; none if there was nothing to choose."""
    failed = {c.name: error for c, error in failures if c.name != candidate.name}
    variable = candidate.site.variable if candidate.site is not None else None
    chosen = {candidate.name, variable, type(model).__name__ if model is not None else None}
    is_explicit = candidate.evidence == "explicit"
    others = [] if is_explicit else selectable_names(source, ranked, frozenset(chosen | failed.keys()))
    if candidate.is_model or not (arguments.bound or arguments.args or others or failed or arguments.assumed):
        return ()
    if candidate.evidence == "explicit" and candidate.site is None and not arguments.assumed:
        return ()  # the user named the model and all of its arguments
    is_evaluated = candidate.value is None and candidate.site is not None
    text = candidate.name if is_evaluated else call_text(candidate.name, arguments)
    reasons = []
    if candidate.site is not None:
        reasons.append(f", as {_builder(candidate.site)} at {candidate.site.where}")
    elif others and candidate.evidence in ("factory", "class"):
        reasons.append(", the first function that returns a model" if candidate.evidence == "factory" else "")
    if arguments.assumed:
        verb = "is" if len(arguments.assumed) == 1 else "are"
        if arguments.failures:
            cause = f": {arguments.failures[0]}"
        elif candidate.site is None:
            cause = _without_site(candidate, ranked, failures)
        else:
            cause = ", because the call does not pass a value"
        reasons.append(f"; {join_words(arguments.assumed)} {verb} assumed{cause}")
    text += "".join(reasons)
    if failed:
        text += "; " + "; ".join(f"{name} failed: {error.message}" for name, error in list(failed.items())[:2])
    if others:
        more = f" and {len(others) - _LISTED_OTHERS} more" if len(others) > _LISTED_OTHERS else ""
        command = bare_command(source.spec, f"{source.name}:{others[0]}")
        text += f"; others: {', '.join(others[:_LISTED_OTHERS])}{more} ({command})"
    return (Note(subject="model", code="assumed" if arguments.assumed else "", text=text),)


def _without_site(
    candidate: Candidate, ranked: Sequence[Candidate], failures: Sequence[tuple[Candidate, KitError]]
) -> str:
    """Why the arguments of a model are not those of a call in the repository."""
    for other, error in failures:
        if other.name == candidate.name and other.site is not None:
            return f", because the call at {other.site.where} fails: {error.message}"
    site = next((other.site for other in ranked if other.name == candidate.name and other.site is not None), None)
    if site is not None:
        return f", because the call at {site.where} is not used"
    return ", because nothing in the repository builds it"


def selectable_names(source: Source, ranked: Sequence[Candidate], excluded: frozenset[str | None]) -> list[str]:
    """Names of candidates that a target text can select, except blocks and `excluded`."""
    names: dict[str, None] = {}
    for other in ranked:
        name: str | None = other.name
        if other.evidence == "library":
            is_variable = other.value is not None and other.site is not None and other.site.role in ("script", "main")
            name = other.site.variable if is_variable and other.site is not None else None
        elif other.evidence not in _SELECTABLE or other.name.split(".")[0] not in source.names:
            name = None
        if name is None or name in excluded or not name.isidentifier():
            continue
        if not is_part_name(name) and not PRETRAINED.search(name):
            names[name] = None
    return list(names)


def _builder(site: CallSite) -> str:
    match site.role:
        case "main" | "script":
            return "the script builds it"
        case "example":
            return "the example builds it" if site.document.kind == "docstring" else "the README builds it"
        case "sibling":
            return "the README builds the class of this name in another file"
        case "module" | "method":
            return "it is used"
        case _:
            return f"{site.function}() builds it"


def call_text(name: str, arguments: Arguments) -> str:
    """The call as text: ``Net(num_classes=10)``."""
    values = [value_text(value) for value in arguments.args]
    values += [f"{key}={value_text(value)}" for key, value in arguments.kwargs.items()]
    return f"{name}({', '.join(values)})"


def value_text(value: Any) -> str:
    """`value` in one short line: modules and tensors by their class, functions by their name."""
    if isinstance(value, nn.Module):
        return f"{type(value).__name__}(...)"
    if isinstance(value, Tensor):
        return f"tensor of shape {tuple(value.shape)}"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
        return str(value.__name__)
    text = " ".join(repr(value).split())
    if text.startswith("<"):
        return f"{type(value).__name__}(...)"
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[: _VALUE_CHARACTERS - 3]}..."


def join_words(words: Sequence[str]) -> str:
    """``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))

"""Which model was chosen, why, how it and its arguments are known, and which others the file has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from profiler_kit.records.notes import Certainty, Choice, Confidence, Note

_VALUE_CHARACTERS: Final = 60
_LISTED_OTHERS: Final = 4
_LISTED_VALUES: Final = 8
_STATED: Final = ("explicit", "instance", "convention", "script")
_BUILT: Final = ("library", "importer", "usage")  # a program, a README or another file of the repository builds it
_LAST: Final = ("part", "loss")
_SELECTABLE: Final = ("script", "importer", "factory", "class", "export", "convention", "plausible")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The choice of `candidate` and its `arguments` among the `ranked` ones, after `failures`."""

    source: Source
    candidate: Candidate
    arguments: Arguments
    model: nn.Module | None
    ranked: Sequence[Candidate]
    failures: Sequence[tuple[Candidate, KitError]]

    @property
    def confidence(self) -> Confidence:
        """How the model and its arguments are known."""
        arguments: Certainty = "derived" if self.candidate.site else "stated"
        if self.arguments.assumed or self._values_of_test:
            arguments = "assumed"
        return Confidence(model=self._certainty_of_model(), arguments=arguments)

    @property
    def _values_of_test(self) -> dict[str, Any]:
        """The arguments that a test passes, or a file that tries its own model: such models are small."""
        site = self.candidate.site
        if site is None:
            return {}
        is_trial = self.candidate.is_trial and site.role != "test"
        return dict(self.arguments.bound) if site.is_in_test or is_trial else {}

    def _certainty_of_model(self) -> Certainty:
        evidence, site = self.candidate.evidence, self.candidate.site
        is_part_of_class = site is not None and site.role == "method"  # which may use several models
        if evidence in _STATED and not is_part_of_class and (evidence == "explicit" or not self._failed):
            return "stated"
        if evidence in _BUILT and not self._failed and not is_part_of_class:
            return "derived"
        is_only = not self._others and not self._failed and evidence not in _LAST
        return "derived" if is_only else "assumed"

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The model and the arguments, as far as they are assumed."""
        known, name = self.confidence, self.candidate.name
        choices = []
        if known.is_assumed("model"):
            others = (*self._failed, *self._others)
            choices.append(Choice(subject="model", value=name, others=others))
        if known.is_assumed("arguments"):
            choices.append(self._assumed_arguments())
        return tuple(choices)

    def _assumed_arguments(self) -> Choice:
        bound = self.arguments.bound
        values = {**self._values_of_test, **{key: bound.get(key) for key in self.arguments.assumed}}
        texts = [f"{key}={value_text(value)}" if key in bound else key for key, value in values.items()]
        more = f" and {len(texts) - _LISTED_VALUES} more" if len(texts) > _LISTED_VALUES else ""
        plain = {key: value for key, value in values.items() if key in bound and _is_plain(value)}
        options = [word for key, value in plain.items() for word in ("--kw", _option(key, value))]
        return Choice(subject="arguments", value=", ".join(texts[:_LISTED_VALUES]) + more, options=tuple(options))

    @property
    def notes(self) -> tuple[Note, ...]:
        """``model: ResNet18(), as test() builds it at resnet.py:126; others: ...``; none if there was nothing to choose."""
        candidate, arguments, others, failed = self.candidate, self.arguments, self._others, self._failed
        if candidate.is_model or not (arguments.bound or arguments.args or others or failed or arguments.assumed):
            return ()
        if candidate.evidence == "explicit" and candidate.site is None and not arguments.assumed:
            return ()  # the user named the model and all of its arguments
        is_evaluated = candidate.value is None and candidate.site is not None
        text = candidate.name if is_evaluated else call_text(candidate.name, arguments)
        text += "".join(self._reasons())
        if failed:
            text += "; " + "; ".join(f"{name} failed: {error.message}" for name, error in list(failed.items())[:2])
        if others:
            more = f" and {len(others) - _LISTED_OTHERS} more" if len(others) > _LISTED_OTHERS else ""
            command = bare_command(self.source.spec, f"{self.source.name}:{others[0]}")
            text += f"; others: {', '.join(others[:_LISTED_OTHERS])}{more} ({command})"
        known = self.confidence
        is_assumed = known.is_assumed("model") or known.is_assumed("arguments")
        return (Note(subject="model", code="assumed" if is_assumed else "", text=text),)

    def _reasons(self) -> Iterator[str]:
        candidate, arguments = self.candidate, self.arguments
        if candidate.site is not None:
            yield f", as {_builder(candidate.site)} at {candidate.site.where}"
        elif self._others and candidate.evidence == "factory":
            yield ", the first function that returns a model"
        if not arguments.assumed:
            return
        verb = "is" if len(arguments.assumed) == 1 else "are"
        if arguments.failures:
            cause = f": {arguments.failures[0]}"
        elif candidate.site is None:
            cause = _without_site(candidate, self.ranked, self.failures)
        else:
            cause = ", because the call does not pass a value"
        yield f"; {join_words(arguments.assumed)} {verb} assumed{cause}"

    @property
    def _failed(self) -> dict[str, KitError]:
        """The other candidates that came first and could not be built."""
        return {c.name: error for c, error in self.failures if c.name != self.candidate.name}

    @property
    def _others(self) -> list[str]:
        """The names that the user can choose instead; none where the user chose."""
        if self.candidate.evidence == "explicit":
            return []
        variable = self.candidate.site.variable if self.candidate.site is not None else None
        kind = type(self.model).__name__ if self.model is not None else None
        chosen = {self.candidate.name, variable, kind}
        return selectable_names(self.source, self.ranked, frozenset(chosen | self._failed.keys()))


def _option(name: str, value: object) -> str:
    """``name=value`` for ``--kw``, with the quotes that need none inside those of a shell."""
    return f"{name}={json.dumps(value) if isinstance(value, str) else repr(value)}"


def _is_plain(value: object) -> bool:
    """Whether ``--kw`` can pass `value`."""
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))  # type: ignore[call-overload]
    return value is None or isinstance(value, (int, float, str, bool))


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
    return ", because no call with its values was found"


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

"""All candidates of a target, the best first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from torch import nn

from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.candidates.classes import ModuleClass, is_module_class, is_part_name
from profiler_kit.loading.candidates.factories import Factories
from profiler_kit.loading.candidates.signatures import accepts, missing_arguments, parameters
from profiler_kit.loading.candidates.sites import CallSite, SiteModel
from profiler_kit.loading.forms import is_model
from profiler_kit.loading.program.definitions import FACTORIES
from profiler_kit.loading.program.programs import program_rank
from profiler_kit.loading.vocabulary import MODELS, is_concept

# A network that judges another one's output is trained beside the network that a user asks about.
_ADVERSARY: Final = re.compile(r"(discriminator|critic|(^|_|\.)(net)?d(_\w)?$)", re.I)
PRETRAINED: Final = re.compile(r"pretrained|load|restore|checkpoint", re.I)
_ROLES: Final = ("main", "test", "script", "function", "method", "factory", "module", "example", "sibling")
PROGRAM_ROLES: Final = ("main", "test", "script", "function", "method")  # where a program builds the model that it runs
_MAX_OTHERS: Final = 3  # programs that are asked for what the first one does not state
_DOCUMENT_KINDS: Final = ("target", "importer", "docstring", "readme")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Facts about a target before a model is built: names, their lines, module classes, and calls that build models."""

    module_name: str
    names: Mapping[str, Any]
    lines: Mapping[str, int]
    classes: Mapping[str, ModuleClass]
    sites: Sequence[SiteModel]
    factories: Factories
    helpers: frozenset[str] = frozenset()

    def role_of(self, name: str) -> str:
        """The role of a class or a helper function; ``model`` for other names that are not classes of the file."""
        if name in self.helpers:
            return "part"
        module_class = self.classes.get(name)
        if module_class is None:
            return "model"
        return (
            "model" if module_class.role == "base" else module_class.role
        )  # a program that builds a base class means it


def rank(surroundings: Surroundings, arguments: Mapping[str, Any]) -> list[Candidate]:
    """The candidates without those that do not accept `arguments` (of ``--kw``), the best first; without repetitions."""
    candidates: list[Candidate] = []
    keys: set[str] = set()
    for candidate in _candidates(surroundings, arguments):
        if candidate.key not in keys and (candidate.is_model or accepts(candidate.value, arguments)):
            keys.add(candidate.key)
            candidates.append(candidate)
    return candidates


def _candidates(s: Surroundings, arguments: Mapping[str, Any]) -> Iterator[Candidate]:
    """The candidates in the order of trust; with repetitions."""
    names = s.names
    if is_model(names.get("model")):
        site = next((m.site for m in s.sites if m.site.variable == "model" and m.site.document.kind == "target"), None)
        yield Candidate(name="model", value=names["model"], line=s.lines.get("model"), site=site, evidence="instance")
    conventions = [
        Candidate(name=name, value=names[name], line=s.lines.get(name), evidence="convention")
        for name in FACTORIES
        if callable(names.get(name)) and not isinstance(names[name], (nn.Module, ModuleType))
    ]
    yield from (c for c in conventions if not missing_arguments(c.value, arguments))

    models = [c for c in s.classes.values() if c.role == "model"]
    parts = [c for c in s.classes.values() if c.role in ("base", "part")]
    losses = [c for c in s.classes.values() if c.role == "loss"]
    own_sites = [m for m in s.sites if m.site.document.kind == "target" and m.site.role in PROGRAM_ROLES]
    other_sites = [m for m in s.sites if m.site.document.kind == "importer" and m.site.role in PROGRAM_ROLES]

    def from_sites(
        sites: Sequence[SiteModel], role: str, evidence: Any = None, *, library: bool = False
    ) -> Iterator[Candidate]:
        usable = [m for m in sites if m.is_library is library and _role(s, m) == role and m.value is not None]
        for m in sorted(usable, key=lambda m: _site_order(s, m)):
            yield _at_site(s, m, evidence or ("script" if m.site.document.kind == "target" else "importer"))

    yield from from_sites([*own_sites, *other_sites], "model")
    # in a file with modules of its own, a function that builds one of a package needs it as a part, such as a backbone
    backbones = [m for m in own_sites if m.is_library and s.classes and m.site.role == "function"]
    yield from from_sites([m for m in own_sites if m not in backbones], "model", "library", library=True)
    factories = list(_factories(s))
    yield from (f for f in factories if not missing_arguments(f.value, arguments))
    roots = [_of_class(c, "class") for c in sorted(models, key=_class_order)]
    yield from (c for c in roots if not missing_arguments(c.value, arguments))
    yield from from_sites(backbones, "model", "library", library=True)
    exports = list(_exports(s))
    yield from (e for e in exports if not missing_arguments(e.value, arguments))
    programs = {id(m) for m in (*own_sites, *other_sites)}
    usages = [m for m in s.sites if id(m) not in programs and _is_own(s, m.value)]
    yield from from_sites([m for m in usages if m.site.role == "example"], "model", "usage")
    dynamic = [m for m in own_sites if m.value is None]
    yield from (_at_site(s, m, "library") for m in sorted(dynamic, key=lambda m: _site_order(s, m)))
    yield from from_sites(usages, "model", "usage")
    yield from conventions
    yield from (Candidate(name=f.name, value=f.value, line=f.line, evidence="plausible") for f in factories)
    yield from (_of_class(c, "plausible") for c in sorted(models, key=_class_order))
    yield from exports
    yield from from_sites([*own_sites, *other_sites], "part", "part")
    yield from (_of_class(c, "part") for c in sorted(parts, key=_class_order))
    yield from (_of_class(c, "loss") for c in sorted(losses, key=_class_order))


def best_site(s: Surroundings, name: str, *, within: Sequence[str] = _ROLES) -> CallSite | None:
    """The most trusted call of `name` in the documents; None without one."""
    sites = [m for m in s.sites if m.name == name and m.site.role in within]
    return min(sites, key=lambda m: _site_order(s, m)).site if sites else None


def _role(s: Surroundings, m: SiteModel) -> str:
    if m.site.document.kind == "target" and m.site.function in s.helpers:
        return "part"
    role = s.role_of(m.name)
    return "part" if role == "model" and m.site.is_part and not m.is_library and is_part_name(m.name) else role


def _site_order(s: Surroundings, m: SiteModel) -> tuple[Any, ...]:
    site = m.site
    module_class = s.classes.get(m.name)
    return (
        bool(s.classes) and not m.is_library and m.value is not None and not _is_own(s, m.value),  # it is imported
        site.is_part,
        module_class is not None and module_class.looks_like_part,
        bool(_ADVERSARY.search(m.name) or (site.variable is not None and _ADVERSARY.search(site.variable))),
        bool(PRETRAINED.search(m.name)),
        program_rank(site.document),
        _DOCUMENT_KINDS.index(site.document.kind),
        _ROLES.index(site.role),
        -len(module_class.contains) if module_class is not None else 0,
        str(site.document.path or ""),
        site.document.line_offset,
        site.call.lineno,
        site.call.col_offset,
    )


def _class_order(c: ModuleClass) -> tuple[Any, ...]:
    adversary = _ADVERSARY.search(c.name) is not None
    return (c.role == "base", c.looks_like_part, adversary, bool(_wrapper_parameters(c)), -len(c.contains), c.line or 0)


def _wrapper_parameters(c: ModuleClass) -> list[str]:
    return [name for name in missing_arguments(c.value, {}) if is_concept(name, "module")]


def _of_class(c: ModuleClass, evidence: Any) -> Candidate:
    return Candidate(name=c.name, value=c.value, line=c.line, evidence=evidence)


def _at_site(s: Surroundings, m: SiteModel, evidence: Any) -> Candidate:
    line = s.lines.get(m.name.split(".")[0])
    same = [other for other in s.sites if other.name == m.name and other is not m and other.site.role in PROGRAM_ROLES]
    others = tuple(other.site for other in sorted(same, key=lambda other: _site_order(s, other))[:_MAX_OTHERS])
    return Candidate(name=m.name, value=m.value, line=line, site=m.site, others=others, evidence=evidence)


def _factories(s: Surroundings) -> Iterator[Candidate]:
    """The public functions of the file that return a model, in the order of the file."""
    is_hub = s.module_name.split(".")[-1] == "hubconf"  # torch.hub calls every public function of it an entry point
    own = [
        (s.lines.get(name, 0), name, value)
        for name, value in s.names.items()
        if not name.startswith("_")
        and inspect.isfunction(value)
        and value.__module__ == s.module_name
        and name not in s.helpers
        and (is_hub or s.factories.is_factory(value))
        and not _transforms(value)
    ]
    own.sort(key=lambda entry: (is_part_name(entry[1]), entry[0]))
    for line, name, value in own:
        yield Candidate(name=name, value=value, line=line or None, evidence="factory")


def _transforms(function: Any) -> bool:
    """Whether `function` needs a module: it changes or wraps a model that another one builds."""
    return any(
        p.default is p.empty and (p.name in MODELS or p.annotation in (nn.Module, "nn.Module", "torch.nn.Module"))
        for p in parameters(function)
    )


def _exports(s: Surroundings) -> Iterator[Candidate]:
    """Classes and factories that the file imports from other files of the repository, if it defines nothing itself."""
    if any(
        _is_own(s, value) for name, value in s.names.items() if isinstance(value, type) or inspect.isfunction(value)
    ):
        return
    for name, value in s.names.items():
        module_name = getattr(value, "__module__", None)
        if name.startswith("_") or not isinstance(module_name, str) or _is_installed(value):
            continue
        if (is_module_class(value) and not is_part_name(name)) or s.factories.is_factory(value):
            yield Candidate(name=name, value=value, line=s.lines.get(name), evidence="export")


def _is_own(s: Surroundings, value: Any) -> bool:
    return getattr(value, "__module__", None) == s.module_name


def _is_installed(value: Any) -> bool:
    try:
        return "site-packages" in inspect.getfile(value)
    except (TypeError, OSError):
        return True  # built in

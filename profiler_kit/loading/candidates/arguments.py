"""The arguments of a candidate: from ``--kw``, from the call in a document, from configurations, and from usual values."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.candidates.classes import ModuleClass, is_module_class
from profiler_kit.loading.candidates.configs import (
    DATA_FIELD,
    AssumedConfig,
    assumed_config,
    config_class_of,
    configuration_names,
    fields_of,
    is_config,
    is_config_parameter,
    stated_config,
    takes_config,
    with_usual_values,
)
from profiler_kit.loading.candidates.hyperparameters import options_of_fullest_place, stated_arguments, stated_options
from profiler_kit.loading.candidates.keywords import evaluated
from profiler_kit.loading.candidates.plausible import (
    UNKNOWN,
    alternatives,
    chosen_value,
    plausible_value,
    read_attributes,
)
from profiler_kit.loading.candidates.signatures import MissingArgumentsError, missing_arguments, parameters
from profiler_kit.loading.candidates.sites import CallSite
from profiler_kit.loading.candidates.sourced import sourced
from profiler_kit.loading.candidates.unknown import Learned, Unknown
from profiler_kit.loading.program.reading import source_tree
from profiler_kit.loading.scripts.execution import EvaluationError, Evaluator
from profiler_kit.loading.scripts.placeholders import Placeholder, UnavailableError, causes, placeholder_error
from profiler_kit.loading.vocabulary import is_concept
from profiler_kit.user_code.boundary import error_text

_MAX_NESTED_MODULES: Final = 2
_BUILD_ERRORS: Final = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, MissingArgumentsError, NameError, OSError,
    RuntimeError, TypeError, UnavailableError, ValueError,
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Arguments:
    """The arguments of a call. `bound`: the same by parameter name. `assumed`: the parameters whose values nothing gives.

    `without_value`: the parameters for which a call passes an expression that cannot be evaluated.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    bound: dict[str, Any] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    without_value: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    errors: tuple[BaseException, ...] = ()


AssumedKind = Literal["argument", "global", "field"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """The value of an unknown that a failed call showed: an argument of `owner`, a global name, a field of a configuration."""

    kind: AssumedKind
    name: str
    value: Any = field(compare=False)
    text: str  # of the value, which compares them
    owner: str = ""


def repairs(error: BaseException, arguments: Arguments, name: str, binder: Binder) -> Iterator[Assumption]:
    """What may repair the call of `name` with `arguments`, which raised `error`.

    A global name or a field of a configuration gets its usual value, an assumed number becomes a sequence or a tensor.
    """
    assumed = {key: arguments.bound[key] for key in arguments.assumed if key in arguments.bound}
    configs = [fields_of(v) for v in arguments.bound.values() if is_config(v) or isinstance(v, AssumedConfig)]
    stated = dict(ChainMap(dict(arguments.bound), *map(dict, configs)))
    for cause in causes(error):
        for key, value in alternatives(cause, assumed, stated):
            yield Assumption(kind="argument", name=key, value=value, text=_text(value), owner=name)
        if isinstance(cause, UnavailableError) or (isinstance(cause, NameError) and cause.name):
            missing = str(cause.name)
            value = plausible_value(missing, binder.assumed("global"))
            if value is not UNKNOWN and value is not None:
                yield Assumption(kind="global", name=missing, value=value, text=_text(value))
            return
        if isinstance(cause, AttributeError) and cause.name and is_config(cause.obj):
            value = plausible_value(cause.name, binder.assumed("field"))
            value = Unknown((cause.name,)) if value is UNKNOWN else value
            yield Assumption(kind="field", name=cause.name, value=value, text=_text(value))
            return


def learned_values(learned: Learned, owner: str, file: Path | None) -> Iterator[Assumption]:
    """What a trial of `owner` showed about values that nothing gave.

    A field has the value that the place in the repository of `file` states which states the most of all fields that the trial
    read; else a value of the kind that its uses show.
    """
    options = options_of_fullest_place(file, learned.paths) if file is not None and learned.unknowns else {}
    for kind, path, usual in learned.values():
        stated: Any = options
        for name in path:
            stated = stated.get(name) if isinstance(stated, dict) else None
        value = usual if stated is None else stated
        text = _text(value)
        yield Assumption(
            kind=kind, name=".".join(path), value=value, text=text, owner=owner if kind == "argument" else ""
        )


def _text(value: object) -> str:
    return f"tensor {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)


def unknown_values(arguments: Arguments, factory: Callable[..., Any]) -> dict[tuple[AssumedKind, str], Any]:
    """The values that only their names suggest, by kind and name: of arguments and of fields; also defaults of None."""
    bound = arguments.bound
    values: dict[tuple[AssumedKind, str], Any] = {
        ("argument", p.name): None for p in parameters(factory) if p.default is None and p.name not in bound
    }
    values |= {("argument", name): bound[name] for name in arguments.assumed if name in bound}
    for value in bound.values():
        if isinstance(value, AssumedConfig):
            values |= {("field", name): item for name, item in vars(value).items() if name not in value.presets}
    return {key: value for key, value in values.items() if not isinstance(value, AssumedConfig)}


def with_sources(arguments: Arguments) -> Arguments:
    """`arguments` whose assumed numbers know their names, also the fields of assumed configurations."""
    for value in arguments.bound.values():
        if isinstance(value, AssumedConfig):
            value.names_sources = True
    kwargs = {
        name: sourced(value, name) if name in arguments.assumed else value for name, value in arguments.kwargs.items()
    }
    return replace(arguments, kwargs=kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binder:
    """Finds the arguments of candidates of one target. `texts`: those of ``--kw``. `generic`: unknown parameters are sizes.

    `assumptions`: what failed calls showed.
    """

    names: Mapping[str, Any]
    classes: Mapping[str, ModuleClass]
    evaluator: Evaluator
    texts: Mapping[str, Any]
    assumptions: tuple[Assumption, ...] = ()

    def assumed(self, kind: AssumedKind) -> dict[str, Any]:
        """The values of all assumptions of `kind`, by name."""
        return {assumption.name: assumption.value for assumption in self.assumptions if assumption.kind == kind}

    def bind(self, candidate: Candidate, *, generic: bool = False, depth: int = 0) -> Arguments:
        """The arguments for the value of `candidate`. Raises MissingArgumentsError."""
        sites = (candidate.site, *candidate.others) if candidate.site is not None else ()
        return self._bind(candidate.value, candidate.name, sites, self.texts, generic=generic, depth=depth)

    def _bind(
        self,
        factory: Callable[..., Any],
        name: str,
        sites: Sequence[CallSite],
        texts: Mapping[str, Any],
        *,
        generic: bool = False,
        depth: int = 0,
    ) -> Arguments:
        signature = {p.name: p for p in parameters(factory)}
        result = Arguments()
        for site in sites:
            stated = Arguments()
            _SiteArguments(self.evaluator, site, list(signature.values()), frozenset(texts)).add_to(stated)
            if site is sites[0]:
                result = stated
                if site.is_in_test:
                    self._replace_configs_of_test(factory, signature, result)
            found = {key: stated.kwargs[key] for key in result.without_value if key in stated.kwargs}
            result.kwargs |= found
            result.assumed += tuple(found)
            result.without_value = tuple(key for key in result.without_value if key not in found)
            if not result.without_value:
                break
        for text_name, value in texts.items():
            result.kwargs[text_name] = evaluated(value, text_name, self.names, signature.get(text_name))
        positional = [p.name for p in signature.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        result.bound = dict(zip(positional, result.args, strict=False)) | result.kwargs
        for key in dict.fromkeys(result.without_value):
            default = signature[key].default if key in signature else inspect.Parameter.empty
            if key not in result.bound and default is not inspect.Parameter.empty:
                result.bound[key] = default
                result.assumed += (key,)
        self._replace_zeros(signature, result)
        for key, value in result.bound.items():
            changed = with_usual_values(value, unset=()) if key in signature else ()
            result.assumed += tuple(f"{key}.{item}" for item in changed)
            for field_name, item in self.assumed("field").items():
                if is_config(value) and (
                    not hasattr(value, field_name) or isinstance(getattr(value, field_name), Unknown)
                ):
                    setattr(value, field_name, item)
        result.assumed += (*self.assumed("global"), *self.assumed("field"))
        if generic:
            self._complete_configs(signature, result)
        self._add_stated(factory, name, signature, result)
        repaired = {a.name: a.value for a in self.assumptions if a.kind == "argument" and a.owner == name}
        missing = []
        values_by_name = {p.name: p.default for p in signature.values() if p.default is not p.empty} | result.bound
        for required in missing_arguments(factory, result.bound):
            value = repaired.get(required, UNKNOWN)
            if value is UNKNOWN:
                value = self._assumed(signature[required], factory, name, values_by_name, generic=generic, depth=depth)
            if value is UNKNOWN:
                missing.append(required)
                continue
            if isinstance(value, Unknown):
                value.know(self.assumed("field"))
            values_by_name[required] = result.bound[required] = value
            result.assumed += (required,)
            if signature[required].kind is inspect.Parameter.POSITIONAL_ONLY:
                result.args += (value,)
            else:
                result.kwargs[required] = value
        if missing:
            raise MissingArgumentsError(
                tuple(missing), next(iter(result.failures), None), next(iter(result.errors), None)
            )
        self._add_repaired(name, signature, result)
        for value in result.bound.values():
            if isinstance(value, AssumedConfig):
                value.assume(self.assumed("field"))
        return result

    def _add_stated(
        self, factory: Callable[..., Any], name: str, signature: Mapping[str, inspect.Parameter], result: Arguments
    ) -> None:
        """Add the arguments that a table of the repository states, if required ones are missing. They are assumed."""
        file = self.evaluator.session.target
        missing = missing_arguments(factory, result.bound)
        # a table that is only passed on, ``Graph(**graph_args)``, is an argument as others
        configs = {key for key in missing if takes_config(signature[key], factory) and read_attributes(factory, key)}
        if file is None or not set(missing) - configs:
            return
        names = [key for key in signature if key not in result.bound and key not in configs]
        for key, value in stated_arguments(file, name, names).items() if names else ():
            if signature[key].kind is not inspect.Parameter.POSITIONAL_ONLY:
                result.kwargs[key] = result.bound[key] = value
                result.assumed += (key,)

    def _add_repaired(self, name: str, signature: Mapping[str, inspect.Parameter], result: Arguments) -> None:
        """Add the arguments that failed calls of `name` showed, in place of others."""
        for assumption in self.assumptions:
            key, value = assumption.name, assumption.value
            if assumption.kind != "argument" or assumption.owner != name or key not in signature:
                continue
            value = value.to(torch.get_default_device()) if isinstance(value, Tensor) else value
            result.kwargs[key] = result.bound[key] = value
            result.assumed = tuple(dict.fromkeys((*result.assumed, key)))

    def _replace_configs_of_test(
        self, factory: Callable[..., Any], signature: Mapping[str, inspect.Parameter], result: Arguments
    ) -> None:
        """Give configurations that only a test passes the values that a file of the repository states for programs."""
        file = self.evaluator.session.target
        for key in [key for key in result.kwargs if key in signature and takes_config(signature[key], factory)]:
            options = stated_options(file, source_tree(inspect.getmodule(factory)), key) if file is not None else {}
            if options:
                result.kwargs[key] = assumed_config(signature[key], factory, self.names, file)
                result.assumed += (key,)

    def _replace_zeros(self, signature: Mapping[str, inspect.Parameter], result: Arguments) -> None:
        """Give sizes of 0, as of an empty vocabulary or a required option, their usual value: no layer has size 0.

        There may be no extra layers.
        """
        for name, value in result.kwargs.items():
            if is_concept(name, "layers"):
                continue
            is_usual = name in signature and signature[name].default in (0, None)
            if type(value) is int and value == 0 and name in signature and name not in self.texts and not is_usual:
                usual = plausible_value(name, result.bound)
                if type(usual) is int and usual > 0:
                    result.kwargs[name] = result.bound[name] = usual
                    result.assumed += (name,)

    def _complete_configs(self, signature: Mapping[str, inspect.Parameter], result: Arguments) -> None:
        """Give fields that are None a usual value: a script sets them from its data set."""
        for name, value in result.bound.items():
            if name in signature and is_config_parameter(signature[name]):
                result.assumed += tuple(f"{name}.{item}" for item in with_usual_values(value, DATA_FIELD))

    def _assumed(
        self,
        parameter: inspect.Parameter,
        factory: Callable[..., Any],
        name: str,
        bound: Mapping[str, Any],
        *,
        generic: bool,
        depth: int,
    ) -> Any:
        if takes_config(parameter, factory) or config_class_of(parameter.annotation, self.names) is not None:
            return assumed_config(parameter, factory, self.names, self.evaluator.session.target)
        blocks = [c.value for c in self.classes.values() if c.role != "loss" and c.name != name and c.looks_like_part]
        if is_concept(parameter.name, "block class"):
            return blocks[0] if blocks else UNKNOWN
        if is_concept(parameter.name, "layers") and any(isinstance(value, type) for value in bound.values()):
            return [2, 2, 2, 2]  # of ResNet-18
        annotation = parameter.annotation
        annotated = self.names.get(annotation) if isinstance(annotation, str) else annotation
        if (
            isinstance(annotated, type)
            and is_module_class(annotated)
            and annotated is not nn.Module
            and depth < _MAX_NESTED_MODULES
        ):
            with contextlib.suppress(*_BUILD_ERRORS):  # otherwise the name of the parameter decides
                inner = self._bind(annotated, annotated.__name__, (), {}, depth=depth + 1)
                return annotated(*inner.args, **inner.kwargs)
        if is_concept(parameter.name, "module") or annotation in (nn.Module, "nn.Module", "torch.nn.Module"):
            return self._module(parameter.name, name, depth)
        own = self.classes.get(name)
        is_part = own is not None and (own.role == "part" or own.looks_like_part)
        value = plausible_value(parameter.name, bound, annotation=annotation, is_part=is_part, generic=generic)
        return chosen_value(factory, parameter.name, value, bound)

    def _module(self, parameter: str, owner: str, depth: int) -> Any:
        """A module of another class of the file, whose name contains that of the parameter if there is one."""
        if depth >= _MAX_NESTED_MODULES:
            return UNKNOWN
        word = parameter.strip("_").lower()
        others = [c for c in self.classes.values() if c.name != owner and c.role != "loss" and owner not in c.contains]
        matching = [c for c in others if word in c.name.lower()]
        for c in matching or [c for c in others if c.role == "model" and not c.looks_like_part]:
            try:
                arguments = self._bind(c.value, c.name, (), {}, depth=depth + 1)
                return c.value(*arguments.args, **arguments.kwargs)
            except _BUILD_ERRORS:
                continue  # the next class is tried; a candidate without a value for this parameter is not offered
        return UNKNOWN


class _SiteArguments:
    """The arguments of the call at `site`. Those in `replaced` are not evaluated."""

    def __init__(
        self, evaluator: Evaluator, site: CallSite, signature: list[inspect.Parameter], replaced: frozenset[str]
    ) -> None:
        self._evaluator, self._site, self._replaced = evaluator, site, replaced
        self._positional = [p for p in signature if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._optional = tuple(p.name for p in signature if p.default is not p.empty)
        self._takes_more = any(p.kind is p.VAR_POSITIONAL for p in signature) or not signature

    def add_to(self, result: Arguments) -> None:
        """Evaluate the arguments and add them; those that cannot be evaluated are added to `failures`.

        Those that follow from a configuration that nothing passes have the values of one that the repository states; they are
        assumed.
        """
        values, errors = self._values({})
        configured = self._values(self._configurations())[0] if errors else {}
        from_configuration = configured.keys() - values.keys()
        values |= configured
        call = self._site.call
        positional: list[Any] = []
        for expression in call.args:
            value = values.get(id(expression), UNKNOWN)
            if isinstance(expression, ast.Starred):
                if value is UNKNOWN:
                    break  # the positions of later arguments are unknown
                positional += list(value)
            else:
                positional.append(value)
        for word in call.keywords:
            value = values.get(id(word.value), UNKNOWN)
            if value is UNKNOWN:
                result.without_value += self._optional if word.arg is None else (word.arg,)
            elif word.arg is None:
                result.kwargs.update({key: item for key, item in dict(value).items() if key not in self._replaced})
            else:
                result.kwargs[word.arg] = value
                result.assumed += (word.arg,) if id(word.value) in from_configuration else ()
        self._place(positional, result)
        given = zip(self._positional, call.args, strict=False)
        result.assumed += tuple(parameter.name for parameter, value in given if id(value) in from_configuration)
        result.errors += tuple(errors)
        result.failures += tuple(_reason(error) for error in errors)

    def _place(self, values: list[Any], result: Arguments) -> None:
        """Add positional `values` by the name of their parameter, so that some may be left out."""
        if self._takes_more or any(p.kind is p.POSITIONAL_ONLY for p in self._positional):
            is_complete = all(value is not UNKNOWN for value in values)
            result.args = tuple(values) if is_complete else ()
            return
        for parameter, value in zip(self._positional, values, strict=False):
            if value is UNKNOWN:
                result.without_value += (parameter.name,)
            elif parameter.name not in self._replaced:
                result.kwargs[parameter.name] = value

    def _configurations(self) -> dict[str, Any]:
        """The configurations that the functions around the call take, by the names of the parameters and of attributes."""
        file, place = self._evaluator.session.target, self._site.place
        if file is None:
            return {}
        names = configuration_names(place)
        configs = {name: stated_config(file, place.document.tree, name) for name in names}
        return configs | {f"self.{name}": config for name, config in configs.items()}

    def _values(self, bindings: Mapping[str, Any]) -> tuple[dict[int, Any], list[BaseException]]:
        """(id of the expression -> value, the errors of those without a value). `bindings` are names with a fixed value."""
        call = self._site.call
        expressions = [a.value if isinstance(a, ast.Starred) else a for a in call.args]
        keys = [id(a) for a in call.args]
        for word in call.keywords:
            if word.arg is None or word.arg not in self._replaced:
                expressions.append(word.value)
                keys.append(id(word.value))
        # With the called name, so that globals that only the script defines exist for the class.
        together = ast.copy_location(ast.Tuple(elts=[*expressions, call.func], ctx=ast.Load()), call)
        try:  # one slice for all arguments, so that objects that they share stay shared
            values = self._evaluator.value(self._site.place, together, bindings)
            return _available(zip(keys, values[:-1], strict=True))
        except EvaluationError as error:
            if len(expressions) <= 1:
                return {}, [error] if expressions else []
        available: dict[int, Any] = {}
        errors: list[BaseException] = []
        for key, expression in zip(keys, expressions, strict=True):
            try:
                available[key] = self._evaluator.value(self._site.place, expression, bindings)
            except EvaluationError as error:
                errors.append(error)
        return available, errors


def _available(values: Iterable[tuple[int, Any]]) -> tuple[dict[int, Any], list[BaseException]]:
    """`values` without those that depend on something that does not exist here, and the errors of these."""
    available: dict[int, Any] = {}
    errors: list[BaseException] = []
    for key, value in values:
        if isinstance(value, Placeholder):
            errors.append(placeholder_error(value))
        else:
            available[key] = value
    return available, errors


def _reason(error: BaseException) -> str:
    """Why an expression has no value, with the line."""
    if isinstance(error, EvaluationError):
        return f"{error.reason} ({error.where})"
    return error_text(error)

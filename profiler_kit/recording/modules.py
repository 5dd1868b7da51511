"""Facts about the modules and optimizers of a program that runs, without a call of its own methods."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn


def named_parts(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Path and module of `module` and all modules inside of it, each once, in the order of ``named_modules()``."""
    seen: set[int] = set()
    waiting = [("", module)]
    while waiting:
        path, part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield path, part
        children = (vars(part).get("_modules") or {}).items()
        waiting += [(f"{path}.{name}" if path else name, child) for name, child in children if child is not None][::-1]


def parameters_of(module: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters of `module`, each once, also where its class replaces ``parameters()``."""
    seen: set[int] = set()
    for _, part in named_parts(module):
        for parameter in (vars(part).get("_parameters") or {}).values():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter


def is_model(module: nn.Module) -> bool:
    """Whether `module` has parameters: losses and metrics have none, and may call the model themselves."""
    return "_modules" in vars(module) and next(parameters_of(module), None) is not None


def live(kind: type) -> list[Any]:
    """All objects of a class. The type decides: ``isinstance`` would ask proxies for their class and import lazy modules."""
    return [item for item in gc.get_objects() if issubclass(type(item), kind)]


def different_optimizers() -> int:
    """The number of optimizers, where wrappers of one another count once: they have the same parameters."""
    first_parameters = set()
    for optimizer in live(torch.optim.Optimizer):
        groups = getattr(optimizer, "param_groups", None)
        if groups and groups[0]["params"]:
            first_parameters.add(id(groups[0]["params"][0]))
    return max(1, len(first_parameters))


def holders(parameters: set[int]) -> list[nn.Module]:
    """The outermost modules that hold some of the `parameters`, which are ids."""
    modules = [m for m in live(nn.Module) if "_modules" in vars(m)]
    modules = [m for m in modules if any(id(p) in parameters for p in parameters_of(m))]
    inner = {id(child) for module in modules for _, child in named_parts(module) if child is not module}
    return [module for module in modules if id(module) not in inner]


def owners(models: Sequence[nn.Module], parameters: Iterable[int]) -> list[nn.Module]:
    """Each of `models`, or the outermost module that holds it and some of the `parameters`; without repetitions."""
    outer = holders({*parameters} or {id(p) for model in models for p in parameters_of(model)})
    of_part = {id(part): module for module in outer for _, part in named_parts(module)}
    found = [of_part.get(id(model), model) for model in models]
    return list({id(module): module for module in found}.values())


def attribute_names() -> dict[int, str]:
    """id of each module that another module holds -> the name of the attribute; not of those that lists hold by number."""
    parts_of = [module._modules for module in live(nn.Module) if "_modules" in vars(module)]
    return {id(part): name for parts in parts_of for name, part in parts.items() if name.isidentifier()}

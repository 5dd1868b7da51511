"""FSDP2 for any model: which modules are sharded on their own."""

from __future__ import annotations

from typing import Any, Final

from torch import nn

MIN_UNITS: Final = 2  # equal blocks that make a container's children units


def shard(model: nn.Module, mesh: Any) -> tuple[str, ...]:
    """Shard `model` over `mesh` with ``fully_shard``, in place, and return the paths of the units beside the root."""
    from torch.distributed.fsdp import fully_shard

    units = sharding_units(model)
    for unit in units:
        fully_shard(model.get_submodule(unit), mesh=mesh)
    fully_shard(model, mesh=mesh)
    return units


def sharding_units(model: nn.Module) -> tuple[str, ...]:
    """The paths of the modules to shard on their own, beside the root: equal blocks in a container, as scripts usually do.

    A container is a ModuleList or Sequential with several children of one class that contain modules. Units are not nested.
    """
    units: list[str] = []
    for path, module in model.named_modules():
        if any(path.startswith(f"{unit}.") for unit in units) or not isinstance(module, (nn.ModuleList, nn.Sequential)):
            continue
        children = [
            (name, child) for name, child in module.named_children() if next(child.children(), None) is not None
        ]
        classes = [type(child) for _, child in children]
        blocks = [
            (name, child)
            for name, child in children
            if classes.count(type(child)) >= MIN_UNITS and not isinstance(child, (nn.ModuleList, nn.ModuleDict))
        ]
        if any(isinstance(child, nn.Sequential) for _, child in blocks):
            continue  # stages: their own blocks become units
        units += [f"{path}.{name}" if path else name for name, _ in blocks]
    return tuple(units)

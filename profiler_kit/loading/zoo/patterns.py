"""Names of a zoo's models by pattern: ``timm:resnet*``."""

from __future__ import annotations

import fnmatch

from profiler_kit.errors import UsageError, did_you_mean
from profiler_kit.loading.zoo.recipe import import_package
from profiler_kit.loading.zoo.timm_models import INSTALL as TIMM_INSTALL
from profiler_kit.loading.zoo.torchvision_models import INSTALL as TORCHVISION_INSTALL
from profiler_kit.user_code.environment import define_missing_ops


def zoo_models(pattern: str) -> tuple[str, ...]:
    """The TARGET texts of all models that `pattern` (``timm:*``, ``torchvision:resnet*``) selects, sorted.

    Raises:
        TargetError: the zoo's package is not installed.
        UsageError: the zoo has no list of models, or none matches.
    """
    zoo, _, name = pattern.partition(":")
    if zoo == "timm":
        define_missing_ops()  # timm imports torchvision
        names = import_package("timm", pattern, TIMM_INSTALL).list_models()
    elif zoo == "torchvision":
        define_missing_ops()
        names = import_package("torchvision", pattern, TORCHVISION_INSTALL).models.list_models()
    else:
        raise UsageError(
            f"a pattern needs a zoo with a list of models, and {zoo or 'this'} has none",
            where=pattern,
            hint="use timm:PATTERN or torchvision:PATTERN, or name the models",
        )
    found = tuple(f"{zoo}:{found}" for found in sorted(names) if fnmatch.fnmatchcase(found, name))
    if not found:
        raise UsageError(
            f"no model of {zoo} matches{did_you_mean(name, names)}",
            where=pattern,
            hint=f"{zoo} has {len(names)} models; use a pattern such as {zoo}:{sorted(names)[0][:3]}*",
        )
    return found

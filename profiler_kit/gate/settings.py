"""``[tool.profiler-kit]`` of pyproject.toml: targets, budgets and policies.

Every table and key must be known: a misspelt one would otherwise disarm the gate without a word. ::

    [tool.profiler-kit.check]
    base = "origin/main"                   # default: the merge base with the main branch
    new = "allow"                          # a target that the base does not have: allow, warn or error
    deleted = "warn"                       # a target that the change does not have any more

    [tool.profiler-kit.targets.small]
    target = "models/net.py:Net"
    inputs = ["8,3,224,224"]
    kw = { width = 64 }

    [tool.profiler-kit.budgets]            # every target
    flops = "+10%"                         # at most 10 % above the base
    "params@encoder.*" = "26M"             # a part of the model
    peak = { limit = "3GiB", severity = "warn" }

    [tool.profiler-kit.budgets.small]      # one target: replaces the budgets above on the same metric
    saved = { increase = "5%", accepted = "80MiB" }  # 80 MiB is allowed whatever the base has
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, get_args

from profiler_kit.errors import UsageError
from profiler_kit.gate.budgets import FIELDS, merge_budgets, parse_table_budget
from profiler_kit.gate.metrics import ORDER, gate_metric, nearest
from profiler_kit.gate.toml_text import parse_toml, read_toml_text
from profiler_kit.records.check import Budget
from profiler_kit.records.target import VALUE_OPTIONS

TOOL: Final = "profiler-kit"
TABLE: Final = "[tool.profiler-kit.budgets]"
Policy = Literal["allow", "warn", "error"]

_ZOOS: Final = ("timm", "torchvision", "hf")
_FLAGS: Final = {"channels_last": "--channels-last", "no_slice": "--no-slice"}
_TARGET_KEYS: Final = frozenset(
    {"target", "inputs", "kw", "base_target", "base_inputs", "base_kw", "gpu", *VALUE_OPTIONS, *_FLAGS}
)
_CHECK_KEYS: Final = frozenset({"base", "new", "deleted"})
_ROOT_KEYS: Final = frozenset({"check", "targets", "budgets"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """One target. `options`: its options as arguments of the command line. `base_options`: those of the base, if they differ.

    `gpu`: the device that memory and step time are predicted for.
    """

    name: str
    target: str
    options: tuple[str, ...] = ()
    gpu: str | None = None
    base_target: str | None = None
    base_options: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a pyproject.toml. `general`: budgets of all targets; `by_target`: those of single targets, maybe none."""

    file_name: str = "pyproject.toml"
    targets: Mapping[str, TargetSettings] = field(default_factory=dict)
    general: tuple[Budget, ...] = ()
    by_target: Mapping[str, tuple[Budget, ...]] = field(default_factory=dict)
    base: str | None = None
    new: Policy = "allow"
    deleted: Policy = "warn"

    def budgets(self, name: str, options: Sequence[Budget] = ()) -> tuple[Budget, ...]:
        """The budgets of the target `name`, with those of the command line, which have priority.

        Raises:
            UsageError: there are budgets, but none for this target. An empty table ``[tool.profiler-kit.budgets.NAME]`` says
                that a target has none.
        """
        budgets = merge_budgets(self.general, self.by_target.get(name, ()), options)
        if not (budgets or options or self.general) and self.by_target and name not in self.by_target:
            raise UsageError(
                f"budgets exist, but none for {name}{nearest(name, self.by_target)}",
                where=f"{self.file_name}: {TABLE}",
                hint=f"set a budget for all targets in {TABLE}, or for this one in {TABLE[:-1]}.{name}]; "
                "an empty table says that it has none",
            )
        return budgets


def read_settings(folder: Path) -> Settings:
    """The settings of the nearest pyproject.toml from `folder` up to the repository's root; empty ones without a file.

    `require_targets` then checks the names of targets.

    Raises:
        UsageError: the file is not TOML, or has an unknown table, key, metric, unit or value.
    """
    file = pyproject_file(folder)
    if file is None:
        return Settings()
    file_name = os.path.relpath(file, folder)
    return parse_settings(parse_toml(read_toml_text(file, file_name), file_name), file_name)


def parse_settings(content: Mapping[str, Any], file_name: str) -> Settings:
    """The settings in the `content` of a pyproject.toml. See `read_settings`."""
    tools = _table(content, "tool", file_name)
    _reject_misspelt_tool(tools, file_name)
    root = _table(tools, TOOL, file_name)
    _reject_unknown(root, _ROOT_KEYS, f"{file_name}: [tool.{TOOL}]", "table")
    targets = {
        name: _target(name, _table(_table(root, "targets", file_name), name, file_name), file_name)
        for name in _table(root, "targets", file_name)
    }
    check = _table(root, "check", file_name)
    where = f"{file_name}: [tool.{TOOL}.check]"
    _reject_unknown(check, _CHECK_KEYS, where, "key")
    general, by_target = _budgets(_table(root, "budgets", file_name), file_name)
    return Settings(
        file_name=file_name,
        targets=targets,
        general=tuple(general),
        by_target=by_target,
        base=_text(check, "base", where),
        new=_policy(check, "new", "allow", where),
        deleted=_policy(check, "deleted", "warn", where),
    )


def require_targets(settings: Settings, names: Collection[str]) -> None:
    """Raise UsageError if there are budgets of an unknown target. `names`: the names of files, and of targets without a table."""
    for name in settings.by_target:
        _require_target(name, {*settings.targets, *names}, f"{settings.file_name}: {TABLE[:-1]}.{name}]")


def pyproject_file(folder: Path) -> Path | None:
    """The nearest pyproject.toml from `folder` up to the repository's root; None without one."""
    start = folder.resolve()
    for parent in (start, *start.parents):
        if (parent / "pyproject.toml").is_file():
            return parent / "pyproject.toml"
        if (parent / ".git").exists():
            return None
    return None


def _table(parent: Mapping[str, Any], name: str, file_name: str) -> Mapping[str, Any]:
    value = parent.get(name, {})
    if not isinstance(value, dict):
        raise UsageError(f"{name} is not a table", where=file_name, hint=f"write a {TABLE} table")
    return value


def _reject_misspelt_tool(tools: Mapping[str, Any], file_name: str) -> None:
    """Raise UsageError for ``[tool.profiler_kit]`` and other spellings, whose budgets nothing would read."""
    for name in tools:
        plain = name.lower().replace("_", "").replace("-", "").replace(".", "")
        if name != TOOL and get_close_matches(plain, ["profilerkit"], n=1, cutoff=0.85):
            raise UsageError(
                f"no program reads the table [tool.{name}]", where=file_name, hint=f"write [tool.{TOOL}...]"
            )


def _reject_unknown(table: Mapping[str, Any], keys: Collection[str], where: str, kind: str) -> None:
    unknown = next((name for name in table if name not in keys), None)
    if unknown is not None:
        raise UsageError(
            f"unknown {kind} {unknown!r}{nearest(unknown, keys)}",
            where=where,
            hint=f"the {kind}s are {', '.join(sorted(keys))}",
        )


def _require_target(name: str, names: Collection[str], where: str) -> None:
    zoo, separator, _ = name.partition("_")
    is_part_of_file = any(name.startswith(f"{each}_") for each in names)  # net_Small for net.py:Small
    if name in names or is_part_of_file or (separator and zoo in _ZOOS):
        return
    raise UsageError(
        f"no target and no metric is called {name!r}{nearest(name, (*names, *ORDER))}",
        where=where,
        hint=f"define [tool.{TOOL}.targets.{name}], or use the name of a file: net for models/net.py, net_Small for "
        "models/net.py:Small",
    )


def _budgets(table: Mapping[str, Any], file_name: str) -> tuple[list[Budget], dict[str, tuple[Budget, ...]]]:
    general: list[Budget] = []
    by_target: dict[str, tuple[Budget, ...]] = {}
    for name, value in table.items():
        is_metric = gate_metric(name.partition("@")[0]) is not None
        if isinstance(value, dict) and not is_metric and not FIELDS & value.keys():
            prefix = f"{file_name}: {TABLE[:-1]}.{name}]"
            by_target[name] = tuple(parse_table_budget(key, limit, f"{prefix} {key}") for key, limit in value.items())
        else:
            general.append(parse_table_budget(name, value, f"{file_name}: {TABLE} {name}"))
    return general, by_target


def _target(name: str, table: Mapping[str, Any], file_name: str) -> TargetSettings:
    where = f"{file_name}: [tool.{TOOL}.targets.{name}]"
    _reject_unknown(table, _TARGET_KEYS, where, "key")
    target = _text(table, "target", where)
    if target is None:
        raise UsageError("no target", where=where, hint='write target = "models/net.py:Net"')
    base_target = _text(table, "base_target", where)
    common: list[str] = []
    for key in VALUE_OPTIONS:
        if key in table:
            common += [f"--{key}", _scalar(table[key], key, where)]
    for key, option in _FLAGS.items():
        if not isinstance(table.get(key, False), bool):
            raise UsageError(f"{key} is not true or false", where=where, hint=f"write {key} = true")
        common += [option] if table.get(key) else []
    own = _inputs(table, "inputs", where), _arguments(table, "kw", where)
    base = tuple(
        read(table, key, where) if key in table else default
        for (read, key), default in zip(((_inputs, "base_inputs"), (_arguments, "base_kw")), own, strict=True)
    )
    return TargetSettings(
        name=name,
        target=_from_working_directory(target, file_name),
        options=(*own[0], *own[1], *common),
        gpu=_text(table, "gpu", where),
        base_target=_from_working_directory(base_target, file_name) if base_target is not None else None,
        base_options=(*base[0], *base[1], *common) if base != own else None,
    )


def _from_working_directory(target: str, file_name: str) -> str:
    """TARGET of a file, whose path is relative to that of `file_name`, relative to the working directory as `file_name` is."""
    name, colon, attribute = target.partition(":")
    folder = os.path.dirname(file_name)  # noqa: PTH120 the text of a path, which may start with ..
    if not name.endswith(".py") or not folder:
        return target
    return f"{os.path.normpath(os.path.join(folder, name))}{colon}{attribute}"  # noqa: PTH118


def _inputs(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = table.get(key, [])
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        raise UsageError(f"{key} is not a list of texts", where=where, hint=f'write {key} = ["8,3,224,224"]')
    return tuple(word for item in values for word in ("-i", item))


def _arguments(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise UsageError(f"{key} is not a table", where=where, hint=f"write {key} = {{ width = 64 }}")
    return tuple(word for name, item in value.items() for word in ("--kw", f"{name}={item!r}"))


def _scalar(value: object, key: str, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise UsageError(f"{key} is not a text or a number", where=where, hint=f'write {key} = "..."')
    return str(value)


def _text(table: Mapping[str, Any], key: str, where: str) -> str | None:
    value = table.get(key)
    if value is not None and not (isinstance(value, str) and value.strip()):
        raise UsageError(f"{key} is not a text", where=where, hint=f'write {key} = "..."')
    return value


def _policy(table: Mapping[str, Any], key: str, default: Policy, where: str) -> Policy:
    value = table.get(key, default)
    if value not in get_args(Policy):
        raise UsageError(f"unknown value {value!r} of {key}", where=where, hint="write allow, warn or error")
    result: Policy = value
    return result

"""What was changed in a module itself: settings, state, own ops, sharing; and which of it only adapts to another input."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from profiler_kit.records.counts import ModuleNode
from profiler_kit.units import plural

UNSET: Final = "unset"
MAX_OPS_NAMED: Final = 4
# Ops that only prepare others are named if no other op differs.
_LAYOUT_OPS: Final = frozenset(
    {"alias", "clone", "contiguous", "detach", "empty", "expand", "new_empty", "permute", "reshape", "select", "slice"}
    | {"split", "squeeze", "t", "transpose", "unbind", "unsafe_view", "unsqueeze", "view"}
)
# Settings that follow from the input of a layer: another value alone is no edit of this layer.
_INPUT_SETTING: Final = re.compile(
    r"(in_?(channels|features|planes|chs|chans|dim|size|width)|inplanes|in_c|num_features|num_channels|normalized_shape|"
    r"input_(size|dim|dims|shape|width|channels))\Z"
)
_SHORT_CONFIG: Final = re.compile(r"(?P<input>[^\s,]+)->(?P<output>[^\s,]+)(?P<others>(, .*)?)\Z", re.DOTALL)
_CONVOLUTION_DEFAULTS: Final = {"stride": "1", "padding": "0", "dilation": "1", "groups": "1"}
_SHORT_NAMES: Final = {"k": "kernel_size", "s": "stride", "p": "padding", "d": "dilation", "g": "groups"}


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting on both sides as text; ``unset`` where a side lacks it. `is_state`: a parameter or buffer with its shape."""

    name: str
    before: str
    after: str
    is_state: bool = False

    @property
    def words(self) -> str:
        """The change: ``stride 2 -> 1``; for a parameter or buffer ``bias added (64)``."""
        if self.is_state and UNSET in (self.before, self.after):
            return (
                f"{self.name} added ({self.after})" if self.before == UNSET else f"{self.name} removed ({self.before})"
            )
        return f"{self.name} {self.before} -> {self.after}"

    @property
    def ratio(self) -> Fraction | None:
        """After over before, where both are positive integers."""
        if self.before.isdecimal() and self.after.isdecimal() and int(self.before) and int(self.after):
            return Fraction(int(self.after), int(self.before))
        return None


@dataclass(frozen=True, slots=True)
class ModuleChange:
    """The changes of two matched modules.

    - `edits`: changes of the module itself. `adaptions`: changes that follow from another input.
    - `forward`: the change of the ops that its own code calls, in words.
    - `shared`: the change of sharing, in words.
    """

    edits: tuple[SettingChange, ...] = ()
    adaptions: tuple[SettingChange, ...] = ()
    forward: str = ""
    shared: str = ""


def module_change(a: ModuleNode, b: ModuleNode) -> ModuleChange:
    """The changes of `b` against its counterpart `a`."""
    changes = _setting_changes(a, b)
    forward = _forward_change(a, b)
    if forward:  # new attributes of rewritten code are not the edit; the code is
        changes = [change for change in changes if UNSET not in (change.before, change.after)]
    adaptions = [change for change in changes if _INPUT_SETTING.match(change.name)]
    if _is_depthwise(a) and _is_depthwise(b):
        adaptions = [change for change in changes if change.name in ("in_channels", "out_channels", "groups")]
    edits = [change for change in changes if change not in adaptions]
    if not changes:
        for change in _state_changes(a, b):  # parameters come and go by an edit; other shapes may follow from the input
            (edits if UNSET in (change.before, change.after) else adaptions).append(change)
    edits += _parameter_changes(a, b)
    return ModuleChange(tuple(edits), tuple(adaptions), forward, _sharing_change(a, b))


def plain_settings(node: ModuleNode) -> dict[str, str]:
    """The settings of `node` by name; for a report without settings those in its short description."""
    if node.settings:
        pairs = (setting.partition("=") for setting in node.settings)
        settings = {name: _unified(value) for name, _, value in pairs}
        if node.state is not None and any(key.startswith("weight ") for key in node.state):
            settings["bias"] = str(any(key.startswith("bias ") for key in node.state))
        return settings
    match = _SHORT_CONFIG.match(node.config)
    if match is None:
        positions, names = config_parts(node.config)
        return {f"argument {index}": value for index, value in enumerate(positions, 1)} | names
    settings = {"in_channels": match["input"], "out_channels": match["output"]}
    for part in filter(None, match["others"].split(", ")):
        name = _SHORT_NAMES.get(part[0], "") if part[1:2].isdigit() or part[1:2] == "=" else ""
        settings[name or part] = part[1:].removeprefix("=") if name else "True"
    return _CONVOLUTION_DEFAULTS | settings if "kernel_size" in settings else settings


def _setting_changes(a: ModuleNode, b: ModuleNode) -> list[SettingChange]:
    if bool(a.settings) != bool(b.settings) and (a.state is None) != (b.state is None):
        if a.config == b.config:  # one report is older: only the descriptions compare
            return []
        return [SettingChange("configuration", a.config or UNSET, b.config or UNSET)]
    before, after = plain_settings(a), plain_settings(b)
    names = [*before, *(name for name in after if name not in before)]
    return [
        SettingChange(_shown_name(name), before.get(name, UNSET), after.get(name, UNSET))
        for name in names
        if before.get(name, UNSET) != after.get(name, UNSET)
    ]


def _shown_name(name: str) -> str:
    return "configuration" if name.startswith("argument ") else name


def _unified(value: str) -> str:
    """A tuple of equal items as one item: ``(2, 2)`` as ``2``."""
    if value.startswith("(") and value.endswith(")"):
        items = [item.strip() for item in value[1:-1].split(",")]
        if len(set(items)) == 1 and len(items) > 1:
            return items[0]
    return value


def _is_depthwise(node: ModuleNode) -> bool:
    settings = plain_settings(node)
    channels = {settings.get(name) for name in ("in_channels", "out_channels", "groups")}
    return len(channels) == 1 and channels != {None}


def _state_changes(a: ModuleNode, b: ModuleNode) -> list[SettingChange]:
    """Parameters and buffers of other shapes, where no setting differs: a module of the user's that stores no settings."""
    if a.state is None or b.state is None:
        return []
    before, after = (dict(key.rpartition(" ")[::2] for key in node.state or ()) for node in (a, b))
    names = [*before, *(name for name in after if name not in before)]
    return [
        SettingChange(name, before.get(name, UNSET), after.get(name, UNSET), is_state=True)
        for name in names
        if before.get(name) != after.get(name)
    ]


def _parameter_changes(a: ModuleNode, b: ModuleNode) -> list[SettingChange]:
    """Frozen or unfrozen parameters, and parameters of another type."""
    if a.params != b.params or not a.params:
        return []
    changes = []
    if a.trainable_params != b.trainable_params:
        words = [_trainable_words(node) for node in (a, b)]
        changes.append(SettingChange("parameters", words[0], words[1]))
    if a.param_bytes != b.param_bytes:
        sizes = [f"{Fraction(node.param_bytes * 8, node.params)}" for node in (a, b)]
        changes.append(SettingChange("bits per parameter", sizes[0], sizes[1]))
    return changes


def _trainable_words(node: ModuleNode) -> str:
    if not node.trainable_params:
        return "frozen"
    return "trainable" if node.trainable_params == node.params else "partly frozen"


def _forward_change(a: ModuleNode, b: ModuleNode) -> str:
    """The ops that a module's own code calls on one side alone, or a different number of times, in words.

    Numbers count only where the output is the same size: a loop over a longer sequence is no edit.
    """
    before, after = (dict(_op_calls(op) for op in node.forward_ops) for node in (a, b))
    if not a.calls or not b.calls or before == after:
        return ""
    removed = _notable([name for name in before if name not in after])
    added = _notable([name for name in after if name not in before])
    if added and removed:
        return f"calls {_names(added)} instead of {_names(removed)}"
    if added or removed:
        return f"also calls {_names(added)}" if added else f"no longer calls {_names(removed)}"
    if a.output_shape != b.output_shape:
        return ""
    counts = [f"{name} {before[name]} -> {after[name]} times" for name in after if before[name] != after[name]]
    return f"calls {_names(counts)}"


def _notable(names: list[str]) -> list[str]:
    return [name for name in names if name not in _LAYOUT_OPS] or names


def _op_calls(op: str) -> tuple[str, str]:
    """The short name of an op and its calls: ``("relu", "2")`` of ``aten.relu_ x2``."""
    name, _, calls = op.partition(" x")
    return _op_name(name), calls or "?"


def _op_name(op: str) -> str:
    return op.removeprefix("aten.").strip("_")


def _names(ops: list[str]) -> str:
    names = list(dict.fromkeys(ops))
    shown = names[:MAX_OPS_NAMED]
    others = len(names) - len(shown)
    return ", ".join(shown) + (f" and {plural(others, 'other op')}" if others else "")


def _sharing_change(a: ModuleNode, b: ModuleNode) -> str:
    """Modules under several names, and weights that another module owns too."""
    if len(a.aliases) != len(b.aliases):
        return f"used at {plural(1 + len(a.aliases), 'path')} -> {1 + len(b.aliases)}"
    if a.state is None or a.state != b.state or a.params == b.params:
        return ""
    return "weights shared -> its own" if b.params > a.params else "weights its own -> shared"


def config_parts(config: str) -> tuple[list[str], dict[str, str]]:
    """The positional and named parts of ``3, 32, kernel_size=(3, 3)``, split at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(config):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(config[start:index].strip())
            start = index + 1
    parts.append(config[start:].strip())
    named = {name: value for name, equals, value in (part.partition("=") for part in parts) if equals}
    return [part for part in parts if part and "=" not in part], named


def config_difference(before: str, after: str) -> str:
    """The difference of two module configurations: ``32 => 64; bias True => False``."""
    old_values, old_names = config_parts(before)
    new_values, new_names = config_parts(after)
    changes = []
    if len(old_values) == len(new_values):
        changes += [f"{old} => {new}" for old, new in zip(old_values, new_values, strict=True) if old != new]
    else:
        changes.append(f"{', '.join(old_values) or 'nothing'} => {', '.join(new_values) or 'nothing'}")
    for name in list(old_names) + [name for name in new_names if name not in old_names]:
        if old_names.get(name) != new_names.get(name):
            changes.append(f"{name} {old_names.get(name, 'default')} => {new_names.get(name, 'default')}")
    return "; ".join(changes) or "different spelling"

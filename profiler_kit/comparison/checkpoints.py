"""Whether the second model loads a checkpoint of the first: missing, unexpected and reshaped keys of the state dict."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from profiler_kit.comparison.alignment import Pair
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.edits import CheckpointChange, CheckpointGroup, CheckpointKind
from profiler_kit.records.paths import parent_path, shown_path
from profiler_kit.units import plural

MAX_NAMED: Final = 3  # groups named in the sentence
BATCH_COUNTER: Final = "num_batches_tracked"


def checkpoint_change(a: StaticCount, b: StaticCount, pairs: Sequence[Pair]) -> CheckpointChange | None:
    """What a strict load of a's state dict into b's model reports; None where a report does not record state.

    `pairs`: the aligned modules, which show where renamed keys went. Counts: parameters, persistent buffers and extra state,
    under every name of a shared module, as ``state_dict()`` has them. Keys that hooks or overridden methods add or translate
    are unknown.
    """
    before, after = _keys(a), _keys(b)
    if before is None or after is None:
        return None
    absent = [key for key in after if key not in before]
    added_by_torch = _keys_added_on_load(absent, a, b)
    missing = [key for key in absent if key not in added_by_torch]
    unexpected = [key for key in before if key not in after]
    reshaped = [key for key, shape in after.items() if key in before and before[key] != shape]
    moves = {
        a_node.path: b_node.path
        for a_node, b_node in pairs
        if a_node is not None and b_node is not None and a_node.path != b_node.path
    }
    renamed, renamed_keys = _renamed(before, after, unexpected, moves)
    groups = [
        *renamed,
        *_groups("reshaped", reshaped, {key: f"{before[key]} -> {after[key]}" for key in reshaped}),
        *_groups("missing", [key for key in missing if key not in renamed_keys], after),
        *_groups("unexpected", [key for key in unexpected if key not in renamed_keys], before),
    ]
    groups.sort(key=lambda group: -group.keys)  # stable: ties stay in the order above
    return CheckpointChange(
        missing=len(missing),
        unexpected=len(unexpected),
        reshaped=len(reshaped),
        groups=tuple(groups),
        sentence=_sentence(len(missing), len(unexpected), len(reshaped), groups),
    )


def _keys_added_on_load(absent: Sequence[str], a: StaticCount, b: StaticCount) -> set[str]:
    """The keys that torch adds while it loads: counters of batches of norms that the checkpoint does not have."""
    classes = [
        {path: node.class_name for node in static.modules for path in (node.path, *node.aliases)} for static in (a, b)
    ]
    counters = {key: key.rpartition(".")[0] for key in absent if key.rpartition(".")[2] == BATCH_COUNTER}
    return {key for key, path in counters.items() if classes[0].get(path) != classes[1].get(path)}


def _keys(static: StaticCount) -> dict[str, str] | None:
    """The shape of every key of the state dict, under all names of shared modules."""
    if any(node.state is None for node in static.modules if not node.path.startswith("(")):
        return None
    return {
        f"{path}.{name}" if path else name: shape
        for node in static.modules
        for path in (node.path, *node.aliases)
        for name, _, shape in (key.rpartition(" ") for key in node.state or ())
    }


def _renamed(
    before: dict[str, str], after: dict[str, str], unexpected: list[str], moves: dict[str, str]
) -> tuple[list[CheckpointGroup], set[str]]:
    """Keys that only moved with their module, by the topmost module that moved; also these keys of both sides."""
    counts: Counter[tuple[str, str]] = Counter()
    keys: set[str] = set()
    for key in unexpected:
        path, _, name = key.rpartition(".")
        if path not in moves:
            continue
        new_key = f"{moves[path]}.{name}" if moves[path] else name
        if new_key not in before and before[key] == after.get(new_key):
            counts[_topmost(path, moves[path], moves)] += 1
            keys |= {key, new_key}
    groups = [
        CheckpointGroup(
            kind="renamed",
            path=b_path,
            a_path=a_path,
            keys=count,
            change=f"{shown_path(a_path)} -> {shown_path(b_path)}",
        )
        for (a_path, b_path), count in counts.items()
    ]
    return groups, keys


def _topmost(a_path: str, b_path: str, moves: dict[str, str]) -> tuple[str, str]:
    """The outermost ancestors that moved in the same way: ``layer3`` for ``layer3.0.conv1`` in ``stage3.0.conv1``."""
    while True:
        a_parent, a_name = parent_path(a_path), a_path.rpartition(".")[2]
        b_parent, b_name = parent_path(b_path), b_path.rpartition(".")[2]
        is_moved = bool(a_parent) and moves.get(a_parent) == b_parent
        if a_name != b_name or not (is_moved or (a_parent != b_parent and a_parent and b_parent)):
            return a_path, b_path
        a_path, b_path = a_parent, b_parent


def _groups(kind: CheckpointKind, keys: Iterable[str], words: dict[str, str]) -> list[CheckpointGroup]:
    """The keys by the first two names of their modules, with one key as the example."""
    by_path: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        by_path[".".join(parent_path(key).split(".")[:2])].append(key)
    return [
        CheckpointGroup(
            kind=kind,
            path=path,
            a_path=None if kind == "missing" else path,
            keys=len(members),
            change=f"{members[0][len(path) + 1 :] if path else members[0]} {words[members[0]]}",
        )
        for path, members in by_path.items()
    ]


def _sentence(missing: int, unexpected: int, reshaped: int, groups: Sequence[CheckpointGroup]) -> str:
    if not (missing or unexpected or reshaped):
        return "A checkpoint of the first side loads (strict)."
    counts = [
        f"{count} {word}"
        for count, word in ((missing, "missing"), (unexpected, "unexpected"), (reshaped, "reshaped"))
        if count
    ]
    named = [_group_words(group) for group in groups[:MAX_NAMED]]
    others = sum(group.keys for group in groups[MAX_NAMED:])
    if others:
        named.append(plural(others, "other key"))
    return f"Checkpoints of the first side do not load: {', '.join(counts)} keys ({'; '.join(named)})."


def _group_words(group: CheckpointGroup) -> str:
    if group.kind == "renamed":
        return f"renamed {group.change}, {plural(group.keys, 'key')}"
    return f"{group.kind} in {shown_path(group.path)}: {group.change}" + (
        f" and {plural(group.keys - 1, 'other')}" if group.keys > 1 else ""
    )

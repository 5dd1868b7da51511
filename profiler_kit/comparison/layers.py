"""The change of each layer between two models, with its edits or causes, and the edits with their consequences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.comparison.alignment import Pair, align
from profiler_kit.comparison.checkpoints import checkpoint_change
from profiler_kit.comparison.consequences import Effects, effect_words, figure_changes, find_effects
from profiler_kit.comparison.edits import EditSearch, describe
from profiler_kit.comparison.groups import layer_groups
from profiler_kit.comparison.module_changes import config_difference, module_change
from profiler_kit.records.comparison import LayerChange, LayerFigures, LayerKind
from profiler_kit.records.counts import ModuleNode, StaticCount
from profiler_kit.records.edits import FIGURES, CheckpointChange, Consequence, Edit, FigureChanges, LayerGroup, Role
from profiler_kit.records.paths import innermost_module, shown_path
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import shape_text

# A layer's device time comes from a few traced steps. A change counts only above both: a share of the layer's own time, and a
# share of all layers' time.
LAYER_TIME_NOISE_SHARE: Final = 0.05
MIN_TOTAL_TIME_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChanges:
    """The layers of both sides, what was edited, and what follows from it: fields of `Comparison`."""

    layers: tuple[LayerChange, ...] = ()
    edits: tuple[Edit, ...] = ()
    consequences: tuple[Consequence, ...] = ()
    groups: tuple[LayerGroup, ...] = ()
    checkpoint: CheckpointChange | None = None


def model_changes(a: Report, b: Report, a_run: ConfigRun | None = None, b_run: ConfigRun | None = None) -> ModelChanges:
    """The changes of two models; empty if one was not counted. The runs give device times; None if these are not comparable.

    Counts: a layer is a module with figures of its own or without children. Ops in a module's own ``forward`` belong to it.
    """
    if a.static is None or b.static is None:
        return ModelChanges()
    a_times, b_times = device_times(a_run), device_times(b_run)
    if a_times is None or b_times is None:
        a_times = b_times = None
    pairs = align(_with_timed_paths(a.static, a_times), _with_timed_paths(b.static, b_times))
    search = EditSearch(pairs, a, b)
    effects = find_effects(search)
    links = _links(search, effects)
    order = _effect_order(search, links, (a, b))
    ranks = {number: rank for rank, number in enumerate(order)}
    links = {index: (role, tuple(sorted(ranks[n] for n in numbers))) for index, (role, numbers) in links.items()}
    layers = _layers(pairs, (a.static, b.static), (a_times, b_times), links)
    edits = tuple(_edit(search, number) for number in order)
    consequences = _consequences(pairs, links, effects, {node.path for node in b.static.modules})
    return ModelChanges(
        layers=layers,
        edits=edits,
        consequences=consequences,
        groups=layer_groups(layers, edits, consequences),
        checkpoint=checkpoint_change(a.static, b.static, pairs),
    )


Link = tuple[Role, tuple[int, ...]]


def _links(search: EditSearch, effects: Effects) -> dict[int, Link]:
    """The role of every changed pair, and the edits that it belongs to or is affected by."""
    links: dict[int, Link] = {index: ("affected", tuple(causes)) for index, causes in effects.causes.items()}
    links |= {index: ("affected", (number,)) for index, number in search.shifted.items() if index not in links}
    links |= {index: ("edited", tuple(numbers)) for index, numbers in search.of_pair.items() if numbers}
    return links


def _effect_order(search: EditSearch, links: Mapping[int, Link], reports: tuple[Report, Report]) -> list[int]:
    """The indices of the edits, largest effect first: the share of a total that they and their consequences change."""
    totals: defaultdict[str, int] = defaultdict(int)
    sums: dict[int, FigureChanges] = defaultdict(FigureChanges)
    for index, pair in enumerate(search.pairs):
        figures = [figure_changes(None, node) for node in pair]
        for key in FIGURES:
            totals[key] += max(getattr(each, key) for each in figures)
        change = figure_changes(*pair)
        if change and index in links:
            role, numbers = links[index]
            for number in numbers[:1] if role == "edited" else numbers:
                sums[number] += change
    effects = {}
    for number, draft in enumerate(search.drafts):
        shares = [abs(getattr(sums[number], key)) / totals[key] for key in FIGURES if totals[key]]
        effects[number] = max(shares, default=0.0)
        if draft.kind == "target":
            effects[number] = max(effects[number], _target_effect(draft.subject, reports))
    present = [number for number, draft in enumerate(search.drafts) if draft.pairs or draft.kind == "target"]

    def rank(number: int) -> tuple[float, bool]:
        draft = search.drafts[number]
        is_bare_setting = draft.kind == "settings" and len(draft.pairs) == 1 and draft.roots[0][1] == ""
        return -effects[number], is_bare_setting

    return sorted(present, key=rank)  # stable: ties stay in the order of discovery


def _target_effect(subject: str, reports: tuple[Report, Report]) -> float:
    """The share of the peak that an edit of the optimizer changes; 1 for edits that change every layer's figures."""
    if subject == "loss":
        return 0.0
    if subject != "optimizer":
        return 1.0
    memories = [report.static.memory if report.static is not None else None for report in reports]
    states = [memory.categories.optimizer_state or 0 for memory in memories if memory is not None]
    peak = max((memory.peak_bytes for memory in memories if memory is not None), default=0)
    return abs(states[-1] - states[0]) / peak if peak and len(states) == 2 else 0.0


def _edit(search: EditSearch, number: int) -> Edit:
    draft = search.drafts[number]
    subject, change = describe(draft, search)
    figures, layers = FigureChanges(), 0
    for index in draft.pairs:
        if search.of_pair[index][0] == number:
            difference = figure_changes(*search.pairs[index])
            figures += difference
            layers += bool(difference)
    roots = [root for each in (draft, *draft.parts) for root in each.roots]
    a_paths, b_paths = (
        ([path for path in side if path is not None] for side in zip(*roots, strict=True)) if roots else ([], [])
    )
    return Edit(
        kind=draft.kind,
        subject=subject,
        change=change,
        a_path=innermost_module(a_paths, search.a_positions) if a_paths else None,
        b_path=innermost_module(b_paths, search.b_paths) if b_paths else None,
        modules=len(draft.roots) if draft.kind in ("replaced", "class_renamed") else len(draft.pairs),
        layers=layers,
        figures=figures,
    )


def _consequences(
    pairs: Sequence[Pair], links: Mapping[int, Link], effects: Effects, b_paths: set[str]
) -> tuple[Consequence, ...]:
    """The affected layers by the edits that they follow from, the largest change of FLOPs first."""
    by_edits: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, (role, numbers) in links.items():
        if role == "affected" and figure_changes(*pairs[index]):
            by_edits[numbers].append(index)
    consequences = []
    for numbers, indices in by_edits.items():
        nodes = [b_node or a_node for a_node, b_node in (pairs[index] for index in indices)]
        paths = [node.path for node in nodes if node is not None]
        consequences.append(
            Consequence(
                edits=numbers,
                change=effect_words(effects.ratios[index] for index in indices if index in effects.ratios),
                path=innermost_module(paths, b_paths),
                layers=len(indices),
                figures=sum((figure_changes(*pairs[index]) for index in indices), FigureChanges()),
            )
        )
    return tuple(sorted(consequences, key=lambda each: (-abs(each.figures.flops), each.edits)))


def _layers(
    pairs: Sequence[Pair],
    counts: tuple[StaticCount, StaticCount],
    times: tuple[dict[str, int] | None, dict[str, int] | None],
    links: Mapping[int, Link],
) -> tuple[LayerChange, ...]:
    """The change of every layer: edited ones first, then affected ones, the largest contribution first."""
    shown = [_layer_paths(static, side_times) for static, side_times in zip(counts, times, strict=True)]
    chosen = [
        index
        for index, (a_node, b_node) in enumerate(pairs)
        if (a_node is not None and a_node.path in shown[0]) or (b_node is not None and b_node.path in shown[1])
    ]
    figures = {index: (_figures(pairs[index][0], times[0]), _figures(pairs[index][1], times[1])) for index in chosen}
    totals = _totals(list(figures.values()))
    changes = []
    for index in chosen:
        (a_node, b_node), (a_figures, b_figures) = pairs[index], figures[index]
        kind, description = _classify(a_node, b_node, a_figures, b_figures, totals[-1] if totals else 0)
        node = b_node or a_node
        has_effect = kind == "changed" and (a_figures != b_figures)
        role, numbers = links.get(index, ("affected" if has_effect else "same", ()))
        changes.append(
            LayerChange(
                kind=kind,
                a_path=a_node.path if a_node else None,
                b_path=b_node.path if b_node else None,
                class_name=node.class_name if node else "",
                change=description,
                a=a_figures,
                b=b_figures,
                contribution=_contribution(a_figures, b_figures, totals),
                role=role,
                edits=numbers,
            )
        )
    roles = ("edited", "affected", "same")
    return tuple(sorted(changes, key=lambda change: (roles.index(change.role or "same"), -change.contribution)))


def device_times(run: ConfigRun | None) -> dict[str, int] | None:
    """Device time in ns per step by module path, all phases together; None if the run has no trace."""
    if run is None or run.failure is not None or not run.modules:
        return None
    times: dict[str, int] = defaultdict(int)
    for layer in run.modules:
        times[layer.path] += layer.kernel_ns
    return dict(times)


def _layer_paths(static: StaticCount, times: dict[str, int] | None) -> set[str]:
    """The paths of modules that are layers, and paths that only occur in times, as the optimizer."""
    parents = {node.path.rpartition(".")[0] for node in static.modules if node.path}
    layers = {
        node.path
        for node in static.modules
        if node.path not in parents
        or node.step_cost.bytes_moved
        or node.step_cost.flops
        or node.params
        or node.saved_bytes
    }
    return layers | {path for path, time_ns in (times or {}).items() if time_ns or path not in parents}


def _with_timed_paths(static: StaticCount, times: dict[str, int] | None) -> list[ModuleNode]:
    """The modules, and paths that only occur in times as modules without figures."""
    module_paths = {node.path for node in static.modules}
    timed = [ModuleNode(path=path, class_name="") for path in (times or {}) if path not in module_paths]
    return [*static.modules, *timed]


def _figures(node: ModuleNode | None, times: dict[str, int] | None) -> LayerFigures:
    if node is None:
        return LayerFigures(device_ns=None if times is None else 0)
    cost = node.step_cost
    return LayerFigures(
        flops=cost.flops,
        macs=cost.macs,
        params=node.params,
        saved_bytes=node.saved_bytes,
        device_ns=None if times is None else times.get(node.path, 0),
        forward_flops=node.forward.flops,
        forward_macs=node.forward.macs,
        backward_flops=node.backward.flops + node.recompute.flops,
        trainable_params=node.trainable_params,
        param_bytes=node.param_bytes,
    )


def _totals(figures: list[tuple[LayerFigures, LayerFigures]]) -> tuple[int, ...]:
    """The larger side's total of FLOPs, parameters, saved bytes and device time."""
    sides = [[_measures(pair[side]) for pair in figures] for side in (0, 1)]
    columns = zip(*(map(sum, zip(*rows, strict=True)) for rows in sides if rows), strict=True)
    return tuple(max(column) for column in columns)


def _measures(figures: LayerFigures) -> tuple[int, int, int, int]:
    return figures.flops, figures.params, figures.saved_bytes, figures.device_ns or 0


def _contribution(a: LayerFigures, b: LayerFigures, totals: tuple[int, ...]) -> float:
    changes = zip(_measures(a), _measures(b), totals, strict=True)
    return max((abs(after - before) / total for before, after, total in changes if total), default=0.0)


def _classify(
    a_node: ModuleNode | None, b_node: ModuleNode | None, a: LayerFigures, b: LayerFigures, total_ns: int
) -> tuple[LayerKind, str]:
    """The kind of the layer's change and its description."""
    if a_node is None and b_node is not None:
        return "added", _description(b_node)
    if b_node is None and a_node is not None:
        return "removed", _description(a_node)
    if a_node is None or b_node is None:
        raise ValueError("a pair has at least one side")
    difference = _difference(a_node, b_node, a, b, total_ns)
    if a_node.path != b_node.path:
        rename = f"was {shown_path(a_node.path)}"
        return "renamed", f"{rename}; {difference}" if difference else rename
    return ("changed", difference) if difference else ("same", "")


def _description(node: ModuleNode) -> str:
    if not node.class_name:
        return ""
    return f"{node.class_name}({node.config})" if node.config else node.class_name


def _difference(a_node: ModuleNode, b_node: ModuleNode, a: LayerFigures, b: LayerFigures, total_ns: int) -> str:
    """The difference of two matched layers, in words; empty without any."""
    if a_node.class_name != b_node.class_name:
        return f"{a_node.class_name} => {b_node.class_name}"
    change = module_change(a_node, b_node)
    if change.edits or change.adaptions:
        if not (a_node.settings and b_node.settings) and a_node.config != b_node.config:
            return config_difference(a_node.config, b_node.config)
        return ", ".join(each.words for each in (*change.edits, *change.adaptions))
    if change.forward or change.shared:
        return change.forward or change.shared
    if a_node.output_shape != b_node.output_shape:
        return f"same layer, output {_shape(a_node)} => {_shape(b_node)}"
    if a_node.calls != b_node.calls:
        return f"same layer, {a_node.calls} => {b_node.calls} calls"
    if (a.flops, a.macs, a.params) != (b.flops, b.macs, b.params):
        return "same layer, different work"
    if a.saved_bytes != b.saved_bytes:
        return "same layer, different saved tensors"
    before_ns, after_ns = a.device_ns or 0, b.device_ns or 0
    if abs(after_ns - before_ns) > max(LAYER_TIME_NOISE_SHARE * before_ns, MIN_TOTAL_TIME_SHARE * total_ns):
        return "same work, different time"
    return ""


def _shape(node: ModuleNode) -> str:
    return "?" if node.output_shape is None else shape_text(node.output_shape)

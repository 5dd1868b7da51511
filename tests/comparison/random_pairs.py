"""Pairs of random reports, and the laws of `compare`: sums, swapped sides, types, and no difference without one.

Half of the pairs are a model and an edited copy (settings; inserted, removed, renamed and replaced modules; other figures). The
other half are two unrelated models.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from profiler_kit.comparison.alignment import align
from profiler_kit.comparison.compare import compare
from profiler_kit.records.comparison import Comparison
from profiler_kit.records.counts import ZERO, Cost, MemoryCategories, MemoryEstimate, ModuleNode, StaticCount
from profiler_kit.records.edits import FIGURES, FigureChanges
from profiler_kit.records.report import Report, Tool
from profiler_kit.records.target import InputInfo, TargetInfo

CLASSES: Final = ("Conv2d", "BatchNorm2d", "ReLU", "Linear", "Block", "Sequential")
NAMES: Final = ("conv", "norm", "act", "fc", "proj", "branch", "0", "1", "2")


@dataclass
class Module:
    """A module of a random model; `figures`: FLOPs of forward and backward, parameters, saved bytes."""

    class_name: str
    settings: dict[str, int]
    figures: tuple[int, int, int, int]
    shape: tuple[int, ...]
    children: dict[str, Module] = field(default_factory=dict)


def random_module(rng: random.Random, depth: int) -> Module:
    """A random tree of at most `depth` levels below its root."""
    module = Module(
        rng.choice(CLASSES),
        {"out_channels": rng.choice((8, 16, 32)), "in_channels": rng.choice((8, 16)), "stride": rng.choice((1, 2))},
        (rng.randrange(100), rng.randrange(100), rng.choice((0, 0, 7, 64)), rng.choice((0, 16, 32))),
        (2, rng.choice((8, 16)), rng.choice((4, 8)), rng.choice((4, 8))),
    )
    if depth and rng.random() < 0.7:
        count = rng.randrange(1, 5)
        names = [str(i) for i in range(count)] if rng.random() < 0.5 else rng.sample(NAMES, count)
        module.children = {name: random_module(rng, depth - 1) for name in names}
    return module


def edited(rng: random.Random, module: Module) -> Module:
    """A copy of `module` with up to four random edits."""
    copy = _copy(module)
    for _ in range(rng.randrange(1, 5)):
        chosen = rng.choice(list(_walk(copy)))
        action = rng.randrange(7)
        names = list(chosen.children)
        if action == 0:
            chosen.settings = {**chosen.settings, rng.choice(list(chosen.settings)): rng.randrange(1, 64)}
        elif action == 1:
            chosen.figures = (rng.randrange(100), rng.randrange(100), chosen.figures[2], rng.randrange(64))
        elif action == 2:
            chosen.shape = (2, 16, rng.choice((8, 16)), 8)
        elif action == 3:
            chosen.children = {**chosen.children, f"{len(names)}": random_module(rng, 1)}
        elif action == 4 and names:
            del chosen.children[rng.choice(names)]
        elif action == 5 and names:
            moved = rng.choice(names)
            chosen.children = {f"new_{name}" if name == moved else name: each for name, each in chosen.children.items()}
        elif action == 6:
            chosen.class_name = rng.choice(CLASSES)
    return copy


def _copy(module: Module) -> Module:
    return replace(
        module,
        settings=dict(module.settings),
        children={name: _copy(child) for name, child in module.children.items()},
    )


def _walk(module: Module) -> Iterator[Module]:
    yield module
    for child in module.children.values():
        yield from _walk(child)


def report_of(model: Module, name: str) -> Report:
    """A report of a random model."""
    nodes = tuple(_nodes(model, ""))
    forward, backward = ZERO, ZERO
    for node in nodes:
        forward, backward = forward + node.forward, backward + node.backward
    params, saved = sum(node.params for node in nodes), sum(node.saved_bytes for node in nodes)
    memory = MemoryEstimate(
        peak_bytes=8 * params + saved,
        peak_at="backward",
        categories=MemoryCategories(parameters=4 * params, gradients=4 * params, saved_activations=saved),
    )
    static = StaticCount(
        convention="MAC = 2 FLOPs",
        params=params,
        trainable_params=params,
        param_bytes=4 * params,
        forward=forward,
        loss=ZERO,
        backward=backward,
        recompute=ZERO,
        saved_bytes=saved,
        uncounted=(),
        modules=nodes,
        memory=memory,
    )
    target = TargetInfo(
        spec="net.py",
        name=name,
        inputs=(InputInfo(name="x", shape=(2, 3, 8, 8), dtype="float32"),),
        mode="train",
        loss="auto",
        optimizer="SGD",
    )
    tool = Tool(name="profiler_kit", version="0")
    return Report(tool=tool, created="2026-01-01T00:00:00+00:00", target=target, static=static)


def _nodes(module: Module, path: str) -> Iterator[ModuleNode]:
    forward, backward, params, saved = module.figures
    yield ModuleNode(
        path=path,
        class_name=module.class_name,
        calls=1,
        params=params,
        trainable_params=params,
        param_bytes=4 * params,
        forward=Cost(macs=forward // 2, flops=forward),
        backward=Cost(macs=backward // 2, flops=backward),
        output_shape=module.shape,
        saved_bytes=saved,
        settings=tuple(f"{name}={value}" for name, value in module.settings.items()),
        state=(f"weight {params}",) if params else (),
    )
    for name, child in module.children.items():
        yield from _nodes(child, f"{path}.{name}" if path else name)


def check_laws(a: Report, b: Report) -> Comparison:
    """Compare `a` and `b` and check every law. Raises AssertionError with the law that does not hold."""
    if a.static is None or b.static is None:
        raise ValueError("both reports have a count")
    pairs = align(a.static.modules, b.static.modules)
    _require(sorted(x.path for x, _ in pairs if x) == sorted(x.path for x in a.static.modules), "each module of a once")
    _require(sorted(x.path for _, x in pairs if x) == sorted(x.path for x in b.static.modules), "each module of b once")
    _require(all(x.class_name == y.class_name for x, y in pairs if x and y and y.path), "one type in a pair")
    swapped = {(x.path if x else None, y.path if y else None) for y, x in align(b.static.modules, a.static.modules)}
    _require({(x.path if x else None, y.path if y else None) for x, y in pairs} == swapped, "swapped sides pair alike")
    there, back = compare(a, b, labels=("a", "b")), compare(b, a, labels=("b", "a"))
    expected = _totals(b) + _negated(_totals(a))
    for compared, change in ((there, expected), (back, _negated(expected))):
        by_edit = sum((edit.figures for edit in compared.edits), FigureChanges())
        by_edit = sum((each.figures for each in compared.consequences), by_edit)
        _require(by_edit == change, "edits and consequences sum to the difference")
        _require(sum((group.figures for group in compared.groups), FigureChanges()) == change, "groups sum up")
        _require(sum((layer.figures for layer in compared.layers), FigureChanges()) == change, "layers sum up")
        for reason in compared.reasons:
            _require(sum(part.change for part in reason.parts) == reason.change, f"parts of {reason.metric} sum up")
            _require(
                all(part.role != "remainder" or reason.metric == "largest_layer" for part in reason.parts),
                "no remainder",
            )
        rows = [row for row in compared.metrics if row.change and row.verdict in ("better", "worse")]
        _require(len(rows) == len(compared.reasons), "every metric that differs has a reason")
    negated = {(layer.b_path, layer.a_path, _negated(layer.figures)) for layer in back.layers}
    _require({(layer.a_path, layer.b_path, layer.figures) for layer in there.layers} == negated, "swapping negates")
    same = compare(a, a, labels=("a", "b"))
    _require(not (same.edits or same.consequences or same.groups or same.reasons), "no edit without a difference")
    return there


def _totals(report: Report) -> FigureChanges:
    static = report.static
    if static is None:
        return FigureChanges()
    return FigureChanges(
        flops=static.step.flops,
        forward_flops=static.forward.flops,
        backward_flops=static.backward.flops,
        macs=static.forward.macs,
        params=static.params,
        trainable_params=static.trainable_params,
        param_bytes=static.param_bytes,
        saved=static.saved_bytes,
    )


def _negated(figures: FigureChanges) -> FigureChanges:
    return FigureChanges(**{key: -getattr(figures, key) for key in FIGURES})


def _require(holds: bool, law: str) -> None:
    if not holds:
        raise AssertionError(law)


def random_reports(seed: int) -> tuple[Report, Report]:
    """Two reports: of a model and an edited copy for an even `seed`, else of unrelated models."""
    rng = random.Random(seed)
    model = random_module(rng, 3)
    other = random_module(rng, 3) if seed % 2 else edited(rng, model)
    return report_of(model, "Net"), report_of(other, "Net")

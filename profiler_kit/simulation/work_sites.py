"""The places without which a step would save most, as records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from profiler_kit.attribution.result import phase_name
from profiler_kit.records.counts import Phase
from profiler_kit.records.traces import Saving, WorkSite
from profiler_kit.simulation.graph import Bytes, Ids, Ints, Mask
from profiler_kit.simulation.places import CPU, Places
from profiler_kit.simulation.step_model import USUAL, StepModel
from profiler_kit.traces.table import NONE

MAX_SITES: Final = 6  # of each kind
# What the step's own function launches besides is a place in it from a fifth of all launches on.
MIN_STEP_LAUNCHES: Final = 0.2
MAX_OPERATORS: Final = 3  # of a place
MIN_RANGED_SAVING: Final = 0.02  # the range of a smaller saving says nothing


def work_sites(model: StepModel) -> tuple[WorkSite, ...]:
    """Return the functions, operators, modules, loops and phases without which a step would save most."""
    places = model.labels.places
    # where nothing trains, a loop calls the model, and nothing else shows it
    kinds = [kind for kind in places.groupings if kind not in ("core", CPU) and (kind != "call" or places.trains)]
    largest = [candidate for kind in kinds for candidate in _largest(model, kind)]
    rows = [places.place(kind, name) for kind, name, _, _ in largest]
    savings = [[saving] for saving in model.savings_without(rows)]
    ranged = [i for i, (saving,) in enumerate(savings) if saving >= MIN_RANGED_SAVING]
    for cost in range(1, len(model.untraced)):
        for i, saving in zip(ranged, model.savings_without([rows[i] for i in ranged], cost), strict=True):
            savings[i].append(saving)
    order = sorted(range(len(largest)), key=lambda i: (kinds.index(largest[i].kind), -savings[i][USUAL]))
    sites = [_site(model, *largest[i], savings[i]) for i in order]
    alone = {(site.source, site.launches) for site in sites}  # functions that call no other
    return tuple(site for site in sites if (site.call, site.launches) not in alone or not site.call)


class _Candidate(NamedTuple):
    """A place: its kind and name, its nodes, and its pieces of host work."""

    kind: str
    name: str
    members: Mask
    pieces: Mask


def _largest(model: StepModel, kind: str) -> list[_Candidate]:
    """Return the places of a kind with most work; without functions that are the step, unless they launch much themselves."""
    places, is_device = model.labels.places, model.traced.is_device
    grouping, ns = places.groupings[kind], model.untraced[USUAL].duration_ns
    index = {name: i for i, name in enumerate(dict.fromkeys(name for name in grouping.names if name))}
    group = np.array([*(index.get(name, NONE) for name in grouping.names), NONE], np.int32)
    node, piece = group[grouping.node], group[grouping.piece]
    device = is_device & (node != NONE)
    launches, total = np.bincount(node[device], minlength=len(index)), max(int(is_device.sum()), 1)
    totals = np.bincount(node[device], ns[device], minlength=len(index)).astype(np.float64)
    pieces = places.pieces
    totals += np.bincount(piece[piece != NONE], pieces.ns[piece != NONE], minlength=len(index))
    names = list(index)
    return [
        _Candidate(kind, names[i], node == i, piece == i)
        for i in np.argsort(-totals, kind="stable")[:MAX_SITES].tolist()
        if totals[i] > 0 and (names[i] not in places.step_functions or launches[i] >= MIN_STEP_LAUNCHES * total)
    ]


def _site(model: StepModel, kind: str, name: str, members: Mask, pieces: Mask, savings: Sequence[float]) -> WorkSite:
    """Return the place of the nodes `members` and of `pieces`. `savings`: for each cost of the profiler."""
    places, is_device, ns = model.labels.places, model.traced.is_device, model.untraced[USUAL].duration_ns
    work = np.flatnonzero(members & is_device)
    computes = _computes(places, model.labels.is_product, whole=kind == "call")
    return WorkSite(
        source=name if kind == "function" else "",
        operator=name if kind == "operator" else "",
        module=name if kind == "module" else "",
        call=name if kind == "call" else "",
        row=name if kind == "row" else "",
        loop=name if kind == "loop" else "",
        repeated=name if kind == "repeated" else "",
        rounds=_rounds(places, kind, name),
        within=_within(places, work) if kind == "loop" else "",
        has_gradient=kind != "gradient",
        phase=_longest_phase(
            np.concatenate((model.labels.phase[work], places.piece_phase[pieces])),
            np.concatenate((ns[work], places.pieces.ns[pieces])),
        ),
        launches=len(work) / max(model.traced.steps, 1),
        launch_share=len(work) / max(int(is_device.sum()), 1),
        product_share=float(ns[members & computes].sum()) / max(int(ns[members].sum()), 1),
        saving=Saving(median=savings[USUAL], low=min(savings), high=max(savings)),
        operators=_longest_operators(model, members, pieces) if kind != "operator" else (),
    )


def _rounds(places: Places, kind: str, name: str) -> float:
    """Return how often a step has a loop or a row; 0 for other places."""
    grouping = places.groupings[kind]
    return grouping.rounds[list(grouping.names).index(name)] if grouping.rounds else 0.0


def _within(places: Places, work: Ids | Ints) -> str:
    """Return the function that launches most of `work`; "" if it is unknown."""
    sources = Counter(places.sites[i].source for i in places.site[work].tolist() if i != NONE)
    return sources.most_common(1)[0][0] if sources else ""


def _computes(places: Places, is_product: Mask, *, whole: bool) -> Mask:
    """Return which nodes are the purpose of a step: operators that launch products, in a training step only with a backward pass.

    `whole`: for a call with all that it calls. Then all work with a backward pass is the purpose.
    """
    products = {places.sites[i].operator for i in np.unique(places.site[is_product]).tolist() if i != NONE}
    purpose = (
        site.has_backward and (whole or site.operator in products) if places.trains else site.operator in products
        for site in places.sites
    )
    mask: Mask = np.array([*purpose, False])[places.site]
    return mask


def _longest_operators(model: StepModel, nodes: Mask, pieces: Mask) -> tuple[str, ...]:
    """Return the operators with the most time in device work and pieces of host work, at most `MAX_OPERATORS`."""
    totals: Counter[str] = Counter()
    places, work = model.labels.places, nodes & model.traced.is_device
    site = np.concatenate((places.site[work], places.piece_site[pieces]))
    ns = np.concatenate((model.untraced[USUAL].duration_ns[work], places.pieces.ns[pieces]))
    for number in np.unique(site[site != NONE]).tolist():
        totals[places.sites[number].operator] += int(ns[site == number].sum())
    return tuple(name for name, _ in totals.most_common() if name)[:MAX_OPERATORS]


def _longest_phase(phase: Bytes, ns: Ints) -> Phase | Literal[""]:
    known = phase != NONE
    return phase_name(int(np.bincount(phase[known], ns[known]).argmax())) if known.any() else ""

"""Sums of MACs by module, and the rows and layers that a cross-check is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Final

from profiler_kit.errors import KitError
from profiler_kit.loading.place import first_line
from profiler_kit.records.counts import CountPhase, CrossCheck, CrossCheckLayer, CrossCheckRow

UNEXPLAINED: Final = "(not explained)"
UNKNOWN_TO_KIT: Final = "the kit has no formula for this op"


@dataclass(slots=True)
class Pair:
    """What the kit and a peer make of one kind of call, summed up; `known` says that the kit has a formula for it."""

    calls: int = 0
    kit_macs: int = 0
    peer_macs: int = 0
    known: bool = True


def with_descendants(rows: Iterable[CrossCheckRow], figure: Callable[[CrossCheckRow], int]) -> dict[str, int]:
    """`figure` of every module that has rows, its descendants' included; the root's path is empty."""
    sums: dict[str, int] = {}
    for row in rows:
        parts = row.path.split(".") if row.path else []
        owners = [row.path] if row.path.startswith("(") else [".".join(parts[:n]) for n in range(len(parts) + 1)]
        for path in owners:
            sums[path] = sums.get(path, 0) + figure(row)
    return sums


def layers(
    rows: Sequence[CrossCheckRow], paths: Iterable[str], said: Mapping[str, int] | None
) -> tuple[CrossCheckLayer, ...]:
    """Every module of `paths` that somebody counts something for; `said` is what the peer itself says, by path."""
    kit = with_descendants(rows, lambda row: row.kit_macs)
    expected = with_descendants(rows, lambda row: row.peer_macs)
    found = (
        CrossCheckLayer(
            path=path,
            kit_macs=kit.get(path, 0),
            expected_macs=expected.get(path, 0),
            peer_macs=None if said is None else said.get(path, 0),
        )
        for path in paths
    )
    return tuple(each for each in found if each.kit_macs or each.expected_macs or each.peer_macs)


def build_check(
    peer: str,
    version: str | None,
    covers: tuple[CountPhase, ...],
    rows: Iterable[tuple[str, str, CountPhase, Pair, str]],
    paths: Sequence[str],
) -> CrossCheck:
    """The cross-check by the peer's formulas, before it runs itself; `rows` are op, path, phase, figures and reason of each.

    Rows for which nobody counts anything are left out. `paths` are those of the modules that were called.
    """
    nonzero = tuple(
        CrossCheckRow(
            op=op, path=path, phase=phase, calls=pair.calls, kit_macs=pair.kit_macs, peer_macs=pair.peer_macs, reason=reason
        )
        for op, path, phase, pair, reason in rows
        if pair.kit_macs or pair.peer_macs
    )  # fmt: skip
    return CrossCheck(
        peer=peer,
        version=version,
        covers=covers,
        kit_macs=sum(row.kit_macs for row in nonzero),
        peer_macs=None,
        rows=nonzero,
        layers=layers(nonzero, paths, None),
    )


def unexplained_row(op: str, macs: int, reason: str) -> CrossCheckRow:
    """A row of what the peer itself says beyond its formulas."""
    return CrossCheckRow(op=op, path="", phase="forward", calls=0, kit_macs=0, peer_macs=macs, reason=reason)


def failed(check: CrossCheck, failure: str, hint: str = "") -> CrossCheck:
    """`check` of a peer that did not run: its rows are what its formulas give."""
    return replace(check, peer_macs=None, failure=failure, hint=hint)


def not_followed(
    peer: str, version: str | None, covers: tuple[CountPhase, ...], kit_macs: int, error: Exception
) -> CrossCheck:
    """A cross-check without rows: the peer's formulas could not be applied to the step."""
    said = error.message if isinstance(error, KitError) else first_line(error)
    return CrossCheck(
        peer=peer,
        version=version,
        covers=covers,
        kit_macs=kit_macs,
        peer_macs=None,
        rows=(),
        failure=f"{peer}'s formulas could not be applied: {said}",
    )


def version_of(package: str) -> str | None:
    """The installed version of `package`, None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

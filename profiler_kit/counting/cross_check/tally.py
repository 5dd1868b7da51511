"""Sums of MACs by module; the rows and layers of a cross-check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.errors import KitError
from profiler_kit.records.counts import CountPhase, CrossCheck, CrossCheckLayer, CrossCheckRow
from profiler_kit.user_code.locations import one_line_message

UNEXPLAINED: Final = "(not explained)"
NO_KIT_FORMULA: Final = "the kit has no formula for this op"


@dataclass(slots=True)
class MacPair:
    """MACs of equal calls by the kit and by a peer. `has_kit_formula`: whether the kit has a formula for the op."""

    calls: int = 0
    kit_macs: int = 0
    peer_macs: int = 0
    has_kit_formula: bool = True


def with_descendants(rows: Iterable[CrossCheckRow], figure: Callable[[CrossCheckRow], int]) -> dict[str, int]:
    """Total of `figure` per module, including descendants. The root's path is ""."""
    sums: dict[str, int] = {}
    for row in rows:
        parts = row.path.split(".") if row.path else []
        owners = [row.path] if row.path.startswith("(") else [".".join(parts[:n]) for n in range(len(parts) + 1)]
        for path in owners:
            sums[path] = sums.get(path, 0) + figure(row)
    return sums


def layer_rows(
    rows: Sequence[CrossCheckRow], paths: Iterable[str], peer_macs: Mapping[str, int] | None
) -> tuple[CrossCheckLayer, ...]:
    """The modules of `paths` with a nonzero figure. `peer_macs`: the peer's own figures by path; None if it did not run."""
    kit = with_descendants(rows, lambda row: row.kit_macs)
    expected = with_descendants(rows, lambda row: row.peer_macs)
    all_layers = (
        CrossCheckLayer(
            path=path,
            kit_macs=kit.get(path, 0),
            expected_macs=expected.get(path, 0),
            peer_macs=None if peer_macs is None else peer_macs.get(path, 0),
        )
        for path in paths
    )
    return tuple(layer for layer in all_layers if layer.kit_macs or layer.expected_macs or layer.peer_macs)


def build_check(
    peer: str,
    version: str | None,
    covers: tuple[CountPhase, ...],
    rows: Iterable[tuple[str, str, CountPhase, MacPair, str]],
    paths: Sequence[str],
) -> CrossCheck:
    """The cross-check by the peer's formulas, before the peer runs. `rows`: (op, path, phase, MACs, reason).

    Rows with zero MACs on both sides are omitted. `paths`: the modules that were called.
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
        layers=layer_rows(nonzero, paths, None),
    )


def unexplained_row(op: str, macs: int, reason: str) -> CrossCheckRow:
    """A row for the difference between the peer's own figure and its formulas."""
    return CrossCheckRow(op=op, path="", phase="forward", calls=0, kit_macs=0, peer_macs=macs, reason=reason)


def with_failure(check: CrossCheck, failure: str, hint: str = "") -> CrossCheck:
    """`check` with the reason why the peer did not run. Its rows are those of the peer's formulas."""
    return replace(check, peer_macs=None, failure=failure, hint=hint)


def check_without_rows(
    peer: str, version: str | None, covers: tuple[CountPhase, ...], kit_macs: int, error: Exception
) -> CrossCheck:
    """A cross-check without rows: the peer's formulas failed on the step."""
    reason = error.message if isinstance(error, KitError) else one_line_message(error)
    return CrossCheck(
        peer=peer,
        version=version,
        covers=covers,
        kit_macs=kit_macs,
        peer_macs=None,
        rows=(),
        failure=f"{peer}'s formulas could not be applied: {reason}",
    )

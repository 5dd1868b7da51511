"""Which modules to checkpoint: never worse than a little above the best of all sets, which small models allow to try."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn

from profiler_kit.counting import count_target
from profiler_kit.devices.cards.data_center import H100
from profiler_kit.loading import Target, from_model
from profiler_kit.memory import Setup, simulate
from profiler_kit.memory.search import Candidate, candidates, cheapest, families

WITHIN = 1.05  # of the best set's FLOPs


class Mixed(nn.Module):
    """Blocks that differ in what they keep and in what they cost."""

    def __init__(self, widths: tuple[int, ...], depths: tuple[int, ...]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(self._block(width, depth) for width, depth in zip(widths, depths, strict=True))

    @staticmethod
    def _block(width: int, depth: int) -> nn.Sequential:
        layers: list[nn.Module] = [nn.Linear(64, width)]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.GELU()]
        return nn.Sequential(*layers, nn.Linear(width, 64))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Nested(nn.Module):
    """Stages of blocks: a whole stage may be checkpointed, or some of its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.Sequential(
            *(nn.Sequential(*(Mixed((width,), (1,)) for _ in range(2))) for width in (512, 256))
        )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.stages(x)
        return result


MODELS = {
    "alike": lambda: Mixed((256,) * 5, (1,) * 5),
    "widths": lambda: Mixed((64, 128, 256, 512, 256), (1,) * 5),
    "depths": lambda: Mixed((256, 128, 192, 128, 256), (1, 4, 2, 3, 1)),
    "nested": Nested,
}
GOALS = (0.15, 0.4, 0.6, 0.85)  # of what checkpointing can do for the peak


def made(name: str) -> Target:
    return from_model(MODELS[name](), (torch.zeros(4096, 64),), loss="sum", optimizer="sgd", device="meta")


@cache
def worked_out(name: str) -> tuple[tuple[Candidate, ...], dict[tuple[str, ...], int]]:
    """The candidates of a model and the peak of each set of disjoint ones, every set simulated."""
    target = made(name)
    found = candidates(count_target(target), simulate(target).modules)
    return found, {paths: peak(target, paths) for paths in disjoint(found)}


def peak(target: Target, paths: tuple[str, ...]) -> int:
    device = simulate(target, H100, Setup(checkpoint=paths)).device
    assert device is not None
    return device.allocated_bytes


def disjoint(found: tuple[Candidate, ...]) -> Iterator[tuple[str, ...]]:
    outer = [one for one in found if one.path.count(".") <= 2]  # all sets of the deepest too would take minutes
    for size in range(len(outer) + 1):
        for members in combinations(outer, size):
            if not any(one.overlaps(other) for one, other in combinations(members, 2)):
                yield tuple(one.path for one in members)


@pytest.mark.parametrize("name", MODELS)
def test_a_proposal_is_nearly_the_cheapest(name: str) -> None:
    found, peaks = worked_out(name)
    flops = {one.path: one.flops for one in found}
    now, least = peaks[()], min(peaks.values())
    assert least < now
    for share in GOALS:
        goal = round(now - share * (now - least))
        best = min(sum(flops[path] for path in paths) for paths, peak in peaks.items() if peak <= goal)
        target = made(name)
        proposed = cheapest(found, lambda paths: known(target, peaks, paths) <= goal, now - goal)  # noqa: B023
        assert proposed is not None, share
        assert known(target, peaks, proposed) <= goal
        assert sum(flops[path] for path in proposed) <= WITHIN * best, (share, proposed)


def known(target: Target, peaks: dict[tuple[str, ...], int], paths: tuple[str, ...]) -> int:
    return peaks[paths] if paths in peaks else peaks.setdefault(paths, peak(target, paths))


def test_families_hold_disjoint_modules() -> None:
    found, _ = worked_out("nested")
    sets = list(families(found))
    assert len(sets) >= 2
    for members in sets:
        assert not any(one.overlaps(other) for one, other in combinations(members, 2))


def test_what_a_module_lets_go_of_is_what_checkpointing_it_saves() -> None:
    target = made("widths")
    plain = simulate(target)
    for one in candidates(count_target(target), plain.modules):
        if one.path.count(".") == 1:
            again = simulate(target, H100, Setup(checkpoint=(one.path,)))
            assert (plain.saved_bytes or 0) - (again.saved_bytes or 0) == one.inside_bytes


def test_no_set_where_none_reaches() -> None:
    found, _ = worked_out("alike")
    assert cheapest(found, lambda paths: False, 1) is None

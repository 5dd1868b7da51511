"""What if: the answers' order, the largest batch that fits, proposals, over a made-up simulation and a real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from profiler_kit.counting import count_target
from profiler_kit.devices.cards.cpu import CPU
from profiler_kit.devices.cards.data_center import H100
from profiler_kit.devices.device import Device
from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading import Target, from_model
from profiler_kit.memory import Setup, simulate
from profiler_kit.memory.what_if_study import WhatIfStudy
from profiler_kit.meta.checkpointing import checkpointed
from profiler_kit.records.counts import (
    Cost,
    DeviceMemory,
    Forecast,
    MemoryCategories,
    MemoryEstimate,
    MemoryOptions,
    ModuleMemory,
    ModuleNode,
    StaticCount,
    WhatIf,
)
from profiler_kit.records.samples import Interval
from profiler_kit.records.variation import Variation, read_variations

BASE, SAMPLE, SCRATCH, CONTEXT = 1000, 70, 30, 500
BLOCKS = {"blocks.0": (400, 10), "blocks.1": (300, 10), "blocks.2": (200, 10)}  # what each saves, and its FLOPs


def cost(flops: int = 0) -> Cost:
    return Cost(flops=flops)


def counted() -> StaticCount:
    """A root, its container, and three blocks of one layer each."""
    nodes = [ModuleNode(path="", class_name="Net", calls=1), ModuleNode(path="blocks", class_name="ModuleList")]
    for path, (saved, flops) in BLOCKS.items():
        nodes.append(ModuleNode(path=path, class_name="Block", calls=1))
        nodes.append(
            ModuleNode(path=f"{path}.fc", class_name="Linear", calls=1, saved_bytes=saved, forward=cost(flops))
        )
    return StaticCount(
        convention="", params=0, trainable_params=0, param_bytes=0, forward=cost(30), loss=cost(), backward=cost(),
        recompute=cost(), saved_bytes=0, uncounted=(), modules=tuple(nodes),
    )  # fmt: skip


class Line:
    """Bytes that grow by the sample and shrink by what checkpoints save; notes every batch that is simulated."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(self, target: Any, device: Device, setup: Setup) -> tuple[MemoryEstimate, None]:
        batch = target if isinstance(target, int) else 8
        self.batches.append(batch)
        tensors = BASE + SAMPLE * batch - sum(BLOCKS[path][0] for path in setup.checkpoint)
        device = DeviceMemory(
            profile="sm90", allocated_bytes=tensors, allocated_low_bytes=tensors - SCRATCH,
            allocated_high_bytes=tensors + SCRATCH, reserved_bytes=tensors, reserved_high_bytes=tensors + SCRATCH,
            categories=MemoryCategories(), rounding_bytes=0, peak_phase="backward", peak_path="", peak_op="",
            after_forward_bytes=0, context_bytes=CONTEXT,
        )  # fmt: skip
        kept = tuple(
            ModuleMemory(path=path, created_bytes=saved, inside_bytes=saved) for path, (saved, _) in BLOCKS.items()
        )
        memory = MemoryEstimate(
            peak_bytes=tensors, peak_at="", categories=MemoryCategories(), device=device, modules=kept, saved_bytes=900
        )
        return memory, None


def simulated(target: Any, device: Device, setup: Setup) -> tuple[MemoryEstimate, None]:
    """The memory of a step, without a forecast."""
    return simulate(target, device, setup), None


def study(line: Line, fits_bytes: int | None = None, device: Device = H100) -> WhatIfStudy:
    def count(target: Any, paths: Sequence[str]) -> StaticCount:
        static = counted()
        flops = sum(BLOCKS[path][1] for path in paths)
        return StaticCount(
            convention="", params=0, trainable_params=0, param_bytes=0, forward=cost(30), loss=cost(), backward=cost(),
            recompute=cost(flops), saved_bytes=0, uncounted=(), modules=static.modules,
        )  # fmt: skip

    target: Any = object()

    def again(words: Mapping[str, Any]) -> Any:
        return words["batch"]

    return WhatIfStudy(target, device, counted(), again, line, count, fits_bytes)


def answers(asked: MemoryOptions, line: Line | None = None) -> list[WhatIf]:
    return list(study(line or Line(), asked.fits_bytes).answers(asked))


def test_each_batch_is_simulated() -> None:
    found = answers(MemoryOptions(batches=(16, 32)))
    assert [answer.change for answer in found] == ["as it is", "batch 16", "batch 32"]
    assert [answer.allocated_bytes for answer in found] == [BASE + SAMPLE * batch for batch in (8, 16, 32)]
    assert all(answer.fits is None for answer in found)


@pytest.mark.parametrize("batch", [1, 2, 3, 17, 1000, 123_456])
def test_the_largest_batch_that_fits_is_found_to_the_sample(batch: int) -> None:
    line = Line()
    goal = BASE + SAMPLE * batch + SCRATCH + CONTEXT
    found = {answer.batch: answer for answer in answers(MemoryOptions(fits_bytes=goal), line)}
    assert found[batch].fits == "yes"
    assert study(Line(), goal).at(Variation(batch=batch + 1)).fits != "yes"
    assert len(line.batches) < 12


def timed(step_ns: Callable[[int], float]) -> Callable[[Any, Device, Setup], tuple[MemoryEstimate, Forecast]]:
    """A simulation whose step of a batch takes ``step_ns(batch)``."""

    def run(target: Any, device: Device, setup: Setup) -> tuple[MemoryEstimate, Forecast]:
        memory, _ = Line()(target, device, setup)
        ns = round(step_ns(target if isinstance(target, int) else 8))
        time = Interval(median=ns, low=ns, high=ns)
        return memory, Forecast(
            device="", source="", is_scaled=False, kernel_ns=time, host_ns=time, step_ns=time, calls=1, modules=()
        )

    return run


@pytest.mark.parametrize(
    ("step_ns", "fastest"),
    [
        (lambda batch: 1e6 + 1e3 * batch, 1000),  # the larger the better
        (lambda batch: 1e6 * max(batch, 100), 128),  # from 100 on, each example takes as long
        (lambda batch: 1e3 * batch**2 + 1e6, 32),  # large batches are slower
    ],
)
def test_the_batch_with_the_best_throughput_is_a_row_and_a_note(step_ns: Callable[[int], float], fastest: int) -> None:
    goal = BASE + SAMPLE * 1000 + SCRATCH + CONTEXT
    asked = replace(study(Line(), goal), simulate=timed(step_ns))
    rows = {answer.batch: answer for answer in asked.answers(MemoryOptions(fits_bytes=goal))}
    assert rows[fastest].examples_per_s == pytest.approx(1e9 * fastest / round(step_ns(fastest)))
    assert rows[1000].fits == "yes"
    assert f"batch {fastest}," in asked.notes[-1]


def test_without_a_forecast_no_batch_is_the_fastest() -> None:
    goal = BASE + SAMPLE * 1000 + SCRATCH + CONTEXT
    asked = study(Line(), goal)
    assert all(answer.examples_per_s is None for answer in asked.answers(MemoryOptions(fits_bytes=goal)))
    assert asked.notes == []


def test_where_nothing_fits_the_smallest_batch_says_so() -> None:
    found = answers(MemoryOptions(fits_bytes=CONTEXT))
    assert [(answer.batch, answer.fits) for answer in found] == [(None, "no"), (1, "no")]


def test_sure_and_likely_are_told_apart() -> None:
    goal = BASE + SAMPLE * 10 + CONTEXT  # ten samples fit without the most scratch, nine with it
    found = {answer.batch: answer.fits for answer in answers(MemoryOptions(fits_bytes=goal))}
    assert (found[9], found[10]) == ("yes", "likely")


def test_a_proposal_takes_the_fewest_modules_that_make_it_fit() -> None:
    goal = BASE + SAMPLE * 8 + CONTEXT - 500  # the two blocks that save most per FLOP are needed
    found = answers(MemoryOptions(fits_bytes=goal, checkpoint=("auto",)))
    proposal = next(answer for answer in found if answer.checkpoint)
    assert proposal.checkpoint == ("blocks.0", "blocks.1")
    assert proposal.recompute_flops == 20
    assert proposal.fits in ("yes", "likely")


def test_no_proposal_where_it_fits_anyway() -> None:
    asked = study(Line(), 10**6)
    assert not any(answer.checkpoint for answer in asked.answers(MemoryOptions(checkpoint=("auto",))))
    assert len(asked.notes) == 1


def test_where_no_set_is_enough_the_one_that_takes_least_is_shown() -> None:
    asked = study(Line(), CONTEXT + BASE - 500)
    shown = [answer for answer in asked.answers(MemoryOptions(checkpoint=("auto",))) if answer.checkpoint]
    assert [(answer.checkpoint, answer.fits) for answer in shown] == [(tuple(BLOCKS), "no")]
    assert asked.notes


def test_differences_are_from_the_step_as_it_is() -> None:
    first, second, third = answers(MemoryOptions(batches=(16, 4)))
    assert first.difference_bytes is None
    assert (second.difference_bytes, third.difference_bytes) == (8 * SAMPLE, -4 * SAMPLE)


def test_a_cpu_has_no_memory_to_fit_into() -> None:
    with pytest.raises(UsageError, match="CPU"):
        list(study(Line(), device=CPU).answers(MemoryOptions(batches=(2,))))


class Deep(nn.Module):
    """Four blocks of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64)) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def test_real_answers() -> None:
    def made(words: Mapping[str, Any]) -> Target:
        return from_model(Deep(), (torch.zeros(words["batch"], 64),), loss="sum", optimizer="sgd", device="meta")

    def count(target: Target, paths: tuple[str, ...]) -> StaticCount:
        with checkpointed(target.model, paths):
            return count_target(target)

    target = made({"batch": 4096})
    asked = MemoryOptions(batches=(8192,), checkpoint=("blocks.0", "blocks.1", "auto"))
    found = list(WhatIfStudy(target, H100, count_target(target), made, simulated, count).answers(asked))
    plain, double, named, proposed = found
    assert double.saved_bytes == 2 * (plain.saved_bytes or 0)
    inside = 2 * 4 * 4096 * 512  # what GELU keeps and what the second layer keeps
    assert (plain.saved_bytes or 0) - (named.saved_bytes or 0) == 2 * inside
    assert tuple(sorted(proposed.checkpoint)) == tuple(f"blocks.{number}" for number in range(4))
    assert plain.allocated_bytes > named.allocated_bytes > proposed.allocated_bytes
    assert named.recompute_flops is not None
    assert proposed.recompute_flops == 2 * named.recompute_flops > 0


def test_a_path_that_is_no_module_is_told() -> None:
    target = from_model(Deep(), (torch.zeros(1, 64),), loss="sum", device="meta")
    with pytest.raises(UsageError, match=r"blocks\.9"):
        simulate(target, setup=Setup(checkpoint=("blocks.9",)))


def varied(model: type[nn.Module], *texts: str) -> tuple[list[WhatIf], WhatIfStudy]:
    def made(words: Mapping[str, Any]) -> Target:
        return from_model(model(), (torch.zeros(4096, 64),), loss="sum", device="meta", **words)

    def count(target: Target, paths: tuple[str, ...]) -> StaticCount:
        with checkpointed(target.model, paths):
            return count_target(target)

    target = made({})
    asked = WhatIfStudy(target, H100, count_target(target), made, simulated, count, recompute_ns=lambda static: 7.0)
    variations = tuple(one for text in texts for one in read_variations(text))
    return list(asked.answers(MemoryOptions(variations=variations))), asked


def test_the_optimizer_the_gradients_and_the_types_are_varied() -> None:
    found, _ = varied(
        Deep, "optimizer=sgd", "optimizer=adamw", "zero_grad=keep", "amp=bfloat16", "checkpoint=blocks.0+blocks.1"
    )
    plain, sgd, adamw, kept, amp, checkpoint = found
    assert plain.allocated_bytes == adamw.allocated_bytes  # adamw is what a target gets that names none
    parameters = sum(p.numel() for p in Deep().parameters())
    assert plain.allocated_bytes - sgd.allocated_bytes <= 3 * 4 * parameters
    assert kept.allocated_bytes >= plain.allocated_bytes
    assert (amp.saved_bytes or 0) < (plain.saved_bytes or 0)
    assert (checkpoint.recompute_ns, checkpoint.checkpoint) == (7.0, ("blocks.0", "blocks.1"))
    assert checkpoint.recompute_percent is not None
    assert 0 < checkpoint.recompute_percent < 100 / 3


def test_gradients_that_are_kept_are_there_at_the_end_of_the_step() -> None:
    target = from_model(Deep(), (torch.zeros(8, 64),), loss="sum", optimizer="sgd", device="meta")
    ends = [simulate(target, H100, Setup(zero_grad=how)).end_bytes or 0 for how in ("none", "zero")]  # type: ignore[arg-type]
    assert ends[1] - ends[0] == sum(4 * p.numel() for p in target.model.parameters())


def test_what_is_never_called_can_not_be_checkpointed() -> None:
    with pytest.raises(UsageError, match="blocks") as told:
        varied(Deep, "checkpoint=blocks")
    assert "blocks.0" in str(told.value)


class Fickle(nn.Module):
    """Computes something else every second time."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.back, self.calls = nn.Linear(64, 512), nn.Linear(512, 64), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = self.wide(x)
        back: torch.Tensor = self.back((x.sin().cos() if self.calls % 2 else x).relu())
        return back


class HalfFickle(nn.Module):
    """A part that can be checkpointed beside one that can't."""

    def __init__(self) -> None:
        super().__init__()
        self.steady = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64))
        self.fickle = Fickle()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fickle(self.steady(x))
        return out


def test_what_computes_something_else_again_can_not_be_checkpointed() -> None:
    with pytest.raises(TargetError, match="checkpoint fickle") as told:
        varied(HalfFickle, "checkpoint=fickle")
    assert told.value.hint


def test_a_proposal_leaves_out_what_can_not_be_checkpointed() -> None:
    _, asked = varied(HalfFickle)
    proposed = [answer for answer in asked.answers(MemoryOptions(checkpoint=("auto",))) if answer.checkpoint]
    assert [answer.checkpoint for answer in proposed] == [("steady",)]
    assert any("fickle" in note for note in asked.notes)

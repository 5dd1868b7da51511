"""The batch size that `analyze` chooses for one example."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profiler_kit.pipeline.batch_choice import is_one_example, with_chosen_batch
from profiler_kit.pipeline.memory_prediction import Counted, counted_if_possible
from profiler_kit.records.counts import DEFAULT_CONVENTION
from profiler_kit.records.target import TargetSpec

NET = (
    "import torch\nfrom torch import nn\n"
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.fc = nn.Linear(64, 10)\n"
    "    def forward(self, x):\n"
    "        {check}return self.fc(x)\n"
)


def counted(folder: Path, check: str = "", **options: object) -> tuple[Counted, TargetSpec]:
    (folder / "net.py").write_text(NET.format(check=check))
    spec = TargetSpec(spec=str(folder / "net.py"), **options)  # type: ignore[arg-type]
    return counted_if_possible(spec, DEFAULT_CONVENTION, "cpu"), spec


@pytest.mark.parametrize(("flops_per_second", "batch"), [(1e12, 8), (5e3, 4), (2.5e3, 2), (1.0, 1)])
def test_the_largest_batch_that_fits_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flops_per_second: float, batch: int
) -> None:
    monkeypatch.setattr("profiler_kit.pipeline.batch_choice._flops_per_second", lambda device: flops_per_second)
    first, spec = counted(tmp_path)
    assert first.by_kit is not None
    step_s = first.by_kit.step.flops / 5e3
    chosen = with_chosen_batch(
        first, spec, DEFAULT_CONVENTION, "cpu", configs=1, budget_s=4.5 * step_s * 24
    )  # 24 steps: four examples fit at 5,000 FLOP/s
    assert chosen.info.inputs[0].shape == (batch, 64)
    assert chosen.info.inputs_from == "search"
    assert any(note.startswith(f"batch: {batch}") for note in map(str, chosen.info.notes)) == (batch > 1)
    assert chosen.target is not None
    assert chosen.target.spec.pinned is not None
    assert chosen.target.spec.pinned.batch == (batch if batch > 1 else None)


def test_a_model_for_one_example_stays_at_one(tmp_path: Path) -> None:
    first, spec = counted(tmp_path, check="assert len(x) == 1; ")
    chosen = with_chosen_batch(first, spec, DEFAULT_CONVENTION, "cpu", configs=1, budget_s=1e6)
    assert chosen is first


def test_requested_sizes_are_not_changed(tmp_path: Path) -> None:
    first, spec = counted(tmp_path)
    assert is_one_example(spec, first.info)
    assert not is_one_example(replace(spec, batch=1), first.info)
    assert not is_one_example(replace(spec, batch_factor=2.0), first.info)
    assert not is_one_example(spec, replace(first.info, inputs_from="option"))
    several, _ = counted(tmp_path, inputs=("4,64",))
    assert not is_one_example(spec, replace(several.info, inputs_from="evidence"))

"""The axes of the data loader: the same batches from worker processes and pinned memory, and clear refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.configurations.axes.loader import AXES  # noqa: E402
from profiler_kit.configurations.naming import parse_config  # noqa: E402
from profiler_kit.errors import TargetError, UsageError  # noqa: E402
from profiler_kit.loading import load  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402
from profiler_kit.worker import variant  # noqa: E402
from profiler_kit.worker.steps import Runner  # noqa: E402

NET = """
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x)

class Stream(IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        for i in range(6):
            yield torch.full((4,), float(i if worker is None else 10 * worker.num_workers)), i % 3

data = TensorDataset(torch.arange(48.0).reshape(12, 4), torch.arange(12) % 3)
def get_loader():
    return LOADER
"""
BATCHED = "DataLoader(data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1), drop_last=True)"


def runner(folder: Path, loader: str, *names: str) -> Runner:
    file = folder / "net.py"
    file.write_text(NET.replace("LOADER", loader))
    built = Runner(load(TargetSpec(spec=str(file), sliced=False), device="cpu"))
    variant.apply_to_steps(parse_config("+".join(names) or "default", RunConfig(name="default")), built)
    return built


def batches(built: Runner, count: int = 3) -> list[Any]:
    return [next(iter(built.fetch().tensors())) for _ in range(count)]


def loader_of(built: Runner) -> Any:
    return built.target.loader.batches()  # type: ignore[union-attr]


def test_workers_yield_the_same_batches_in_the_same_order(tmp_path: Path) -> None:
    plain = runner(tmp_path, BATCHED)
    with_workers = runner(tmp_path, BATCHED, "loader_workers=2")
    assert loader_of(with_workers).num_workers == 2
    assert loader_of(with_workers).persistent_workers
    assert loader_of(plain).num_workers == 0
    for a, b in zip(batches(plain), batches(with_workers), strict=True):
        assert torch.equal(a, b)
        assert a.shape == (4, 4)
    with_workers.step()


def test_no_workers_replace_those_of_the_target(tmp_path: Path) -> None:
    built = runner(
        tmp_path, BATCHED.replace("batch_size=4", "batch_size=4, num_workers=1, timeout=30"), "loader_workers=0"
    )
    assert loader_of(built).num_workers == 0
    assert batches(built, 1)[0].shape == (4, 4)


def test_a_stream_keeps_its_batch_size(tmp_path: Path) -> None:
    built = runner(tmp_path, "DataLoader(Stream(), batch_size=3)", "loader_workers=1")
    assert batches(built, 1)[0].tolist() == [[10.0] * 4] * 3


def test_samples_without_batches_keep_their_sampler(tmp_path: Path) -> None:
    loader = "DataLoader(data, batch_size=None, sampler=torch.utils.data.SequentialSampler(data))"
    built = runner(tmp_path, loader, "loader_workers=1")
    assert batches(built, 2)[1].tolist() == [4.0, 5.0, 6.0, 7.0]


def test_pinned_memory_is_requested(tmp_path: Path) -> None:
    built = runner(tmp_path, BATCHED)
    built.configure_loader(pinned=True)
    assert loader_of(built).pin_memory
    assert loader_of(built).num_workers == 0


def test_both_axes_add_up(tmp_path: Path) -> None:
    built = runner(tmp_path, BATCHED)
    built.configure_loader(workers=2)
    built.configure_loader(pinned=True)
    assert (loader_of(built).num_workers, loader_of(built).pin_memory) == (2, True)


def test_what_is_no_data_loader_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="a list, not a DataLoader"):
        runner(tmp_path, "[(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long))]", "loader_workers=2")
    file = tmp_path / "plain.py"
    file.write_text(NET.partition("class Stream")[0] + "example_inputs = torch.zeros(2, 4)\n")
    with pytest.raises(TargetError, match="no data loader"):
        Runner(load(TargetSpec(spec=str(file)), device="cpu")).configure_loader(workers=1)


def test_values_and_reasons_to_skip() -> None:
    with pytest.raises(UsageError, match="not a number of worker processes"):
        parse_config("loader_workers=many", RunConfig(name="default"))
    workers = next(axis for axis in AXES if axis.name == "loader_workers")
    assert workers.skip_reason("1000", "cpu", None) is not None
    assert workers.skip_reason("1", "cpu", None) is None

"""Sources of inputs: their order, and what adding one takes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from profiler_kit.loading import load
from profiler_kit.loading.evidence import providers
from profiler_kit.loading.evidence.record import Provider
from profiler_kit.records.target import TargetSpec

NET = (
    "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.f = nn.Linear(6, 4)\n    def forward(self, x):\n        return self.f(x)\n"
)
LOADER = "def get_loader():\n    return [(torch.zeros(4, 6), torch.zeros(4, dtype=torch.long))]\n"
EXAMPLE = "example_inputs = torch.zeros(5, 6)\n"
CALL = "if __name__ == '__main__':\n    net = Net()\n    net(torch.zeros(7, 6))\n"
SOURCE = '''
"""Inputs of a recorded run."""
import torch
from profiler_kit.loading.evidence.record import (Evidence)
from profiler_kit.meta.batch import Batch

def from_record(subject):
    """The inputs that a run of this target had."""
    value = Batch(args=(torch.zeros(11, 6),))
    return Evidence(value=value, where="run.json", strength="derived", source="record")
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_and_source(text: str, *inputs: str) -> tuple[int, str]:
    Path("net.py").write_text(text)
    target = load(TargetSpec(spec="net.py:Net", inputs=inputs))
    return next(target.batch.tensors()).shape[0], target.info.inputs_from


@pytest.mark.parametrize(
    ("text", "inputs", "expected"),
    [
        (NET + LOADER + EXAMPLE + CALL, ("3,6",), (3, "option")),
        (NET + LOADER + EXAMPLE + CALL, (), (4, "loader")),
        (NET + EXAMPLE + CALL, (), (5, "example_inputs")),
        (NET + CALL, (), (7, "evidence")),
        (NET, (), (1, "search")),
    ],
)
def test_the_most_trusted_source_is_used(text: str, inputs: tuple[str, ...], expected: tuple[int, str]) -> None:
    assert rows_and_source(text, *inputs) == expected


def test_a_source_is_one_file_and_one_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "recorded.py").write_text(SOURCE)
    specification = importlib.util.spec_from_file_location("recorded_evidence", folder / "recorded.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "recorded_evidence", module)
    specification.loader.exec_module(module)
    row: Provider = module.from_record
    monkeypatch.setattr(providers, "PROVIDERS", (*providers.PROVIDERS[:-1], row, providers.PROVIDERS[-1]))
    assert rows_and_source(NET) == (11, "record")
    assert rows_and_source(NET + CALL) == (7, "evidence")

"""An exception of the user whose message cannot be read is an error of the target, wherever it is raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_kit.errors import TargetError

pytest.importorskip("torch")

import profiler_kit

FILE = """
import torch
from torch import nn

class Silent(Exception):
    def __str__(self):
        return 1 / 0

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        raise Silent()

{inputs}
"""


@pytest.mark.parametrize("inputs", ["", "def example_inputs():\n    return (torch.zeros(2, 8),)"])
def test_a_message_that_raises_is_replaced(tmp_path: Path, inputs: str) -> None:
    (tmp_path / "net.py").write_text(FILE.format(inputs=inputs))
    with pytest.raises(TargetError, match="its message is not available: ZeroDivisionError"):
        profiler_kit.count(str(tmp_path / "net.py"))

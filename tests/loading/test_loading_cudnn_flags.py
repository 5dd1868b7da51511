"""What a target's file does to cuDNN's flags is known: what it sets and gets back, and calls that switch cuDNN off."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from profiler_kit.loading import load
from profiler_kit.loading.program.definitions import cudnn_off_lines
from profiler_kit.records.configs import NamedValue
from profiler_kit.records.target import TargetSpec

NET = """
import torch
{at_import}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {in_init}
        self.fc = torch.nn.Linear(4, 2)
    def forward(self, x):
        return self.fc(x)
example_inputs = (torch.zeros(2, 4),)
"""


def write(folder: Path, at_import: str = "", in_init: str = "pass") -> str:
    file = folder / "net.py"
    file.write_text(NET.format(at_import=at_import, in_init=in_init))
    return str(file)


def test_flags_set_at_import_and_while_building_are_told_and_put_back(tmp_path: Path) -> None:
    before = (torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark)
    text = write(tmp_path, "torch.backends.cudnn.enabled = False", "torch.backends.cudnn.benchmark = True")
    info = load(TargetSpec(spec=text)).info
    assert info.cudnn_flags == (NamedValue(name="enabled", value="False"), NamedValue(name="benchmark", value="True"))
    assert any("cudnn.enabled=False, cudnn.benchmark=True" in note for note in map(str, info.notes))
    assert (torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark) == before


def test_a_file_that_sets_nothing_has_nothing_to_tell(tmp_path: Path) -> None:
    info = load(TargetSpec(spec=write(tmp_path))).info
    assert (info.cudnn_flags, info.cudnn_off_lines) == ((), ())


def test_a_call_that_switches_cudnn_off_is_found_with_its_line(tmp_path: Path) -> None:
    text = write(tmp_path, in_init="ctx = torch.backends.cudnn.flags(benchmark=True)")
    assert load(TargetSpec(spec=text)).info.cudnn_off_lines == (7,)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("with torch.backends.cudnn.flags(benchmark=True): pass", (1,)),
        ("with torch.backends.cudnn.flags(): pass", (1,)),
        ("with torch.backends.cudnn.flags(enabled=True, benchmark=True): pass", ()),
        ("with torch.backends.cudnn.flags(enabled=False): pass", ()),  # on purpose
        ("with torch.backends.cudnn.flags(True, True): pass", ()),
        ("with torch.backends.cudnn.flags(**words): pass", ()),
        ("from torch.backends import cudnn as c\nc.flags(deterministic=True)", (2,)),
        ("import torch.backends.cudnn as c\nc.flags(deterministic=True)", (2,)),
        ("from torch.backends.cudnn import flags as f\nf(benchmark=True)", (2,)),
        ("parser.flags(benchmark=True)\nflags()", ()),
    ],
)
def test_calls_of_flags_as_they_are_written(source: str, lines: tuple[int, ...]) -> None:
    assert cudnn_off_lines(ast.parse(source)) == lines


def test_the_default_that_the_rule_is_about_is_still_torchs() -> None:
    with torch.backends.cudnn.flags(benchmark=True):
        assert torch.backends.cudnn.enabled is False

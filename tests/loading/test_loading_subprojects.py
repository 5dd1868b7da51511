"""Imports of a file in a project inside of a repository: the nearest folder above the file that has the module."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_kit.errors import TargetError
from profiler_kit.loading import load
from profiler_kit.records.target import TargetSpec

NET = """
from torch import nn
from {module} import Deep
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = Deep(16, 4)
    def forward(self, x):
        return self.f(x)
"""
DEEP = "from torch import nn\nclass Deep(nn.Linear): ...\n"
SHALLOW = "from torch import nn\nclass Shallow(nn.Linear): ...\n"


@pytest.mark.parametrize(
    ("module", "files"),
    [
        ("part_a.blocks", {"part_a/blocks.py": SHALLOW, "nested/part_a/blocks.py": DEEP}),
        ("part_b.blocks", {"part_b/__init__.py": "", "part_b/blocks.py": SHALLOW, "nested/part_b/blocks.py": DEEP}),
        ("part_c.blocks", {"part_c.py": SHALLOW, "nested/part_c/__init__.py": "", "nested/part_c/blocks.py": DEEP}),
        ("part_d", {"part_d.py": SHALLOW, "nested/part_d.py": DEEP}),
        ("part_e.blocks", {"part_e/blocks.py": DEEP, "nested/other/blocks.py": SHALLOW}),
        ("part_f.blocks", {"part_f/blocks.py": SHALLOW, "nested/models/part_f/blocks.py": DEEP}),
    ],
)
def test_the_nearest_folder_above_the_file_is_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, files: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    for name, text in {**files, "nested/models/net.py": NET.format(module=module)}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    target = load(TargetSpec(spec="nested/models/net.py"), device="meta")
    assert sum(p.numel() for p in target.model.parameters()) == 16 * 4 + 4


def test_a_module_with_the_name_of_its_package_does_not_replace_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "style_h").mkdir()
    (tmp_path / "style_h" / "__init__.py").touch()
    (tmp_path / "style_h" / "blocks.py").write_text(DEEP)
    (tmp_path / "style_h" / "style_h.py").write_text("from style_h.blocks import Deep\nnet = Deep(16, 4)\n")
    (tmp_path / "style_h" / "net.py").write_text(NET.format(module="style_h.blocks"))
    for name in ("net", "style_h"):
        target = load(TargetSpec(spec=f"style_h/{name}.py"), device="meta")
        assert sum(p.numel() for p in target.model.parameters()) == 16 * 4 + 4


def test_the_hint_for_a_file_that_cannot_be_imported_is_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blocks_g.py").write_text(SHALLOW)
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "net.py").write_text(NET.format(module="blocks_g"))
    with pytest.raises(TargetError) as caught:
        load(TargetSpec(spec="nets/net.py"), device="meta")
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("nets/net.py")
    assert " -c " not in caught.value.hint

"""Modules and objects that answer attributes in unexpected ways stop neither a load nor a count."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import hostile_objects
import pytest

import profiler_kit
from profiler_kit import process
from profiler_kit.errors import KitError
from profiler_kit.foreign import (
    attribute_of,
    attributes_of,
    has_class,
    installed_version,
    loaded_modules,
    module_places,
)
from profiler_kit.user_code.interpreter_state import record_imports
from profiler_kit.user_code.locations import is_user_code

NET = """
import torch
from torch import nn
{before}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(10, 5)

    def forward(self, x):
        return self.fc(x)
{after}
"""
NAMES = tuple(hostile_objects.hostile_objects())


@pytest.mark.parametrize("name", NAMES)
def test_an_attribute_has_the_expected_type_or_is_missing(name: str) -> None:
    value = hostile_objects.hostile_objects()[name]
    for attribute in ("__file__", "__path__", "__version__", "__spec__", "__name__", "__doc__", "__class__", "shape"):
        assert attribute_of(value, attribute, bytes) in (None, b"")
        text = attribute_of(value, attribute, str, "default")
        assert issubclass(type(text), str)
    assert all(type(place) is str for place in module_places(value))
    assert type(attributes_of(value)) in (dict, type(None))


def test_usual_attributes_are_read() -> None:
    assert attribute_of(sys, "__name__", str) == "sys"
    assert attribute_of(sys, "maxsize", str) is None
    assert attribute_of(None, "anything", int, 3) == 3
    assert module_places(profiler_kit)[0] == profiler_kit.__file__
    assert module_places(profiler_kit)[1:] == tuple(profiler_kit.__path__)
    assert attributes_of(SimpleNamespace(a=1)) == {"a": 1}
    assert not has_class(hostile_objects.hostile_objects()["refusing"])
    assert has_class(3)


def test_an_interrupt_is_not_dropped() -> None:
    class Interrupted:
        @property
        def name(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attribute_of(Interrupted(), "name", str)


def test_metadata_without_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_package-1.0.dist-info").mkdir()
    (tmp_path / "broken_package-1.0.dist-info" / "METADATA").write_text("Name: broken-package\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed_version("broken-package") is None
    assert installed_version("no-such-package-at-all") is None
    assert installed_version("pytest") == pytest.__version__


def test_hostile_modules_are_recorded_by_their_places_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = set(sys.modules)
    for name, value in hostile_objects.hostile_objects().items():
        monkeypatch.setitem(sys.modules, f"zz_{name}", value)
    own = ModuleType("zz_own")
    own.__file__ = str(tmp_path / "zz_own.py")
    monkeypatch.setitem(sys.modules, "zz_own", own)
    assert record_imports(before, (tmp_path,)) == {"zz_own"}
    assert not any(name == "zz_none" for name, _ in loaded_modules())


def test_a_count_among_hostile_modules_and_globals(
    write: Callable[[dict[str, str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in hostile_objects.hostile_objects().items():
        monkeypatch.setitem(sys.modules, f"zz_{name}", value)
        monkeypatch.setitem(sys.modules, f"torch.zz_{name}", value)
    names = "import hostile_objects\nglobals().update(hostile_objects.hostile_objects())"
    write({"net.py": NET.format(before=names, after="")})
    static = profiler_kit.count("net.py").static
    assert static is not None
    assert static.forward.macs % 50 == 0
    assert static.forward.macs > 0


@pytest.mark.bad_hints
@pytest.mark.parametrize("role", ["get_loader", "loss_fn", "configure_optimizer", "example_inputs", "get_model"])
def test_hostile_objects_in_a_role_of_the_file(role: str, write: Callable[[dict[str, str]], None]) -> None:
    files = {
        f"net_{name}.py": NET.format(
            before="import hostile_objects", after=f"{role} = hostile_objects.hostile_objects()[{name!r}]"
        )
        for name in ("zero", "exit", "panic", "refusing", "refusing_module", "everything", "wrong_kinds")
    }
    write(files)
    for file in files:
        macs = 50
        with contextlib.suppress(KitError):  # the file is refused with a message
            report: Any = profiler_kit.count(file)
            macs = report.static.forward.macs
        assert macs % 50 == 0, file


def test_packages_in_a_target_folder_are_no_user_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thing-1.0.dist-info").mkdir()
    (tmp_path / "thing-1.0.dist-info" / "RECORD").write_text(
        "thing/__init__.py,,\nsingle.py,,\nthing-1.0.dist-info/RECORD,,\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not is_user_code(str(tmp_path / "thing" / "core.py"))
    assert not is_user_code(str(tmp_path / "single.py"))
    assert is_user_code(str(tmp_path / "train.py"))  # installed into the folder of the program
    monkeypatch.undo()
    assert is_user_code(str(tmp_path / "thing" / "core.py"))


def test_a_file_that_needs_a_torchvision_without_operators(write: Callable[[dict[str, str]], None]) -> None:
    """A stand-in registers a fake of ``nms`` when it is imported, as torchvision does, which fails for unknown operators."""
    package = """
import torch
Base = torch.nn.Module
@torch.library.register_fake("torchvision::nms")
def nms(boxes, scores, limit):
    return scores
"""
    net = NET.format(before="import torchvision", after="").replace("nn.Module", "torchvision.Base")
    write({"torchvision/__init__.py": package, "net.py": net})
    script = "import profiler_kit; print(profiler_kit.count('net.py').static.forward.macs)"
    result = process.run([sys.executable, "-c", script], timeout_s=120)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) % 50 == 0


def test_flags_of_absl_have_their_defaults(write: Callable[[dict[str, str]], None]) -> None:
    pytest.importorskip("absl.flags")
    flags = "from absl import app, flags\nWIDTH = flags.DEFINE_integer('width_of_this_test', 5, 'outputs')"
    net = NET.format(
        before=flags, after="if __name__ == '__main__':\n    app.run(lambda argv: Net()(torch.randn(4, 10)))"
    )
    write({"net.py": net.replace("nn.Linear(10, 5)", "nn.Linear(10, WIDTH.value)")})
    report: Any = profiler_kit.count("net.py")
    assert report.static.forward.macs % 50 == 0

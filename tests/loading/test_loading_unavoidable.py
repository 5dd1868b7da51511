"""Failures of forward that no input avoids: they end the search, and the error names the cause and not the shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading import load
from profiler_kit.loading.input_search.outcomes import InputGuess, NoGuess
from profiler_kit.loading.input_search.search import search_inputs
from profiler_kit.records.target import TargetSpec


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)
        self.settings: dict[str, float] = {}

    def last(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class Missing(Base):
    def forward(self, x: Tensor) -> Tensor:
        import package_that_is_not_installed as package

        y: Tensor = package.sum(self.conv(x))
        return y


class Lacks(Base):
    def forward(self, x: Tensor) -> Any:
        return self.head(self.conv(x).mean((2, 3)))


class Abstract(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.conv(x))


class Unset(Base):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        scale = self.settings["scale"]
        return y * scale


class WrongCall(Base):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(self.conv(x).mean((2, 3)), None)
        return y


class OldNorm(nn.BatchNorm2d):
    def _check_input_dim(self, *values: Tensor) -> None:
        nn.modules.batchnorm._BatchNorm._check_input_dim(self, *values)


class Normed(Base):
    def __init__(self) -> None:
        super().__init__()
        self.norm = OldNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.conv(x))
        return y


class Checks(Base):
    """The same exception for each shape but one."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != 1234567:
            raise ValueError("bad size")
        y: Tensor = self.conv(x)
        return y


class NeedsList(Base):
    def forward(self, x: Any) -> Tensor:
        y: Tensor = self.conv(x.tensors)
        return y


@pytest.mark.parametrize("kind", [Missing, Lacks, Abstract, Unset, WrongCall, Normed])
def test_a_failure_that_looks_at_no_input_ends_the_search(kind: type[nn.Module]) -> None:
    result = search_inputs(kind().to("meta"), {})
    assert isinstance(result, NoGuess)
    assert result.is_unavoidable
    assert result.trials <= 30


@pytest.mark.parametrize("kind", [Checks, NeedsList])
def test_a_check_of_the_input_is_no_such_failure(kind: type[nn.Module]) -> None:
    result = search_inputs(kind().to("meta"), {})
    assert isinstance(result, NoGuess)
    assert not result.is_unavoidable


def test_number_of_dimensions_from_an_unpacked_shape_is_searched() -> None:
    class Clips(Base):
        def forward(self, x: Tensor) -> Tensor:
            batch, frames, channels, height, width = x.shape
            y: Tensor = self.conv(x.view(batch * frames, channels, height, width))
            return y

    assert isinstance(search_inputs(Clips().to("meta"), {}), InputGuess)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def error_of(text: str) -> TargetError:
        Path("net.py").write_text(text)
        with pytest.raises(TargetError) as caught:
            load(TargetSpec(spec="net.py"), device="meta")
        return caught.value

    return error_of


NET = """
class Net(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        self.f = {layer}
    def forward(self, x):
        return self.f(x){after}
"""


@pytest.mark.parametrize(
    ("head", "parameters", "layer", "after"),
    [
        ("env = absent.make('x')\nSIZE = env.space.n\n", "", "nn.Linear(SIZE, 5)", ""),
        ("SIZE = absent.size\n", ", size=SIZE", "nn.Conv2d(3, size, 3)", ""),
        ("env = absent.make('x')\n", "", "nn.Parameter(torch.zeros(env.space.shape[0], 5))", ""),
        ("", "", "nn.Embedding(len(absent.words), 5)", ""),
        ("", "", "nn.Linear(8, 6)", ".view(-1, absent.width)"),
        ("", "", "nn.Linear(8, 6)", " + absent.bias()"),
    ],
)
def test_the_package_whose_placeholder_reached_torch_is_named(
    write: Any, head: str, parameters: str, layer: str, after: str
) -> None:
    net = NET.format(parameters=parameters, layer=layer, after=after)
    error = write(f"import torch\nimport absent\nfrom torch import nn\n{head}{net}")
    assert "absent" in error.message
    assert error.hint is not None
    assert error.hint.endswith("pip install absent")


def test_an_error_of_forward_has_the_place_and_no_inputs_as_hint(write: Any) -> None:
    error = write(
        f"from torch import nn\n{NET.format(parameters='', layer='nn.Linear(8, 6)', after='.mean(self.missing)')}"
    )
    assert error.where == "net.py:8"
    assert error.hint is not None
    assert "-i" not in error.hint.split()


def test_an_assertion_that_every_input_fails_is_named_with_its_line(tmp_path: Path) -> None:
    text = (
        "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.conv = nn.Conv2d(3, 8, 3)\n    def forward(self, x):\n        y = self.conv(x)\n"
        "        assert isinstance(y, torch.cuda.FloatTensor)\n        return y\n"
    )
    (tmp_path / "net.py").write_text(text)
    with pytest.raises(TargetError, match=r"forward\(x\) raised AssertionError with each of the \d+ inputs") as caught:
        load(TargetSpec(spec=str(tmp_path / "net.py"), command=("count", "")))
    assert str(caught.value.where).endswith("net.py:9")

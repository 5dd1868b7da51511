"""Facts about modules, without a call of a method that the program may have replaced."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

pytest.importorskip("torch")

from torch import nn

from profiler_kit.recording.modules import is_model, named_parts, parameters_of


class Hostile(nn.Module):
    """A module whose own ways to its parts end the program."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.again = self.first
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(3, 1, bias=False))

    def _end(self, *_: Any, **__: Any) -> NoReturn:
        raise SystemExit

    parameters = named_parameters = modules = named_modules = children = named_children = _named_members = _end


def test_parts_and_parameters_come_without_the_methods_of_the_module() -> None:
    model = nn.Sequential(Hostile())
    assert [path for path, _ in named_parts(model)] == ["", "0", "0.first", "0.rest", "0.rest.0", "0.rest.1"]
    assert [parameter.numel() for parameter in parameters_of(model)] == [6, 3, 3]
    assert is_model(model)
    assert not is_model(nn.Sequential(nn.ReLU()))


def test_parts_are_those_of_torch_in_its_order() -> None:
    model = nn.Transformer(8, 2, 1, 1, 16)
    assert [(path, id(part)) for path, part in named_parts(model)] == [(p, id(m)) for p, m in model.named_modules()]
    assert [id(parameter) for parameter in parameters_of(model)] == [id(p) for p in model.parameters()]

"""Values that nothing states learn their kind from their uses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from profiler_kit.loading import load
from profiler_kit.loading.candidates.unknown import GENERIC_SIZE, Unknown, learn_from, learning, plain_value, settle
from profiler_kit.loading.model import Target
from profiler_kit.records.target import TargetSpec

Write = Callable[..., None]


@pytest.mark.parametrize(
    ("use", "value"),
    [
        (lambda u: nn.Linear(u, 3), GENERIC_SIZE),
        (lambda u: torch.empty(3, u, device="meta"), GENERIC_SIZE),
        (lambda u: list(range(u)), GENERIC_SIZE),
        (lambda u: int(np.prod(u)), GENERIC_SIZE),
        (lambda u: (u - 4) // 6, GENERIC_SIZE),
        (lambda u: 4 * u, GENERIC_SIZE),
        (lambda u: 1.0 - u, 0.1),
        (nn.Dropout, 0.1),
        (lambda u: 1 if u else 2, False),
        (lambda u: u == "relu", "relu"),
        (lambda u: [nn.Linear(size, 3) for size in u], [GENERIC_SIZE] * 2),
        (lambda u: u[2], [GENERIC_SIZE] * 3),
        (lambda u: u(8), nn.Identity),
        (lambda u: u.depth * 2, {"depth": GENERIC_SIZE}),
        (lambda u: u["depth"] * 2, {"depth": GENERIC_SIZE}),
        (lambda u: None, False),
    ],
)
def test_a_use_shows_the_kind(use, value):
    unknown = Unknown(("width",))
    use(unknown)
    assert plain_value(unknown) == value
    assert type(plain_value(unknown)) is type(value)


def test_without_a_use_a_field_is_a_switch_and_an_argument_a_size() -> None:
    assert plain_value(Unknown(("shared",))) is False
    assert plain_value(Unknown(("users",), "argument")) == GENERIC_SIZE


def test_the_first_use_decides():
    unknown = Unknown(("width",))
    assert unknown + 1 == GENERIC_SIZE + 1
    assert unknown  # not a switch any more
    assert plain_value(unknown) == GENERIC_SIZE


def test_a_built_model_keeps_no_unknown_values() -> None:
    width, sizes = Unknown(("width",)), Unknown(("sizes",))
    model = nn.Sequential(nn.Linear(width, 3), nn.Conv2d(1, 2, 3))
    model[1].padding = (sizes[0] + 0, sizes[1])
    model.options = {"width": width, "names": ["a"]}
    settle(model)
    assert (type(model[0].in_features), model[0].in_features) == (int, GENERIC_SIZE)
    assert not any(isinstance(part, Unknown) for part in (*model[1].padding, *model.options.values()))
    assert model.options == {"width": GENERIC_SIZE, "names": ["a"]}


def test_an_error_about_types_shows_a_size():
    unknown = Unknown(("width",))
    with pytest.raises(TypeError) as caught:
        nn.LSTM(unknown, 4)
    learn_from(caught.value)
    assert plain_value(unknown) == GENERIC_SIZE


def test_the_fields_of_an_unknown_configuration_are_the_unknowns():
    with learning() as learned:
        unknown = Unknown(("data",), "argument")
        nn.Linear(unknown.nodes, 3)
    assert list(learned.values()) == [("field", ("data", "nodes"), GENERIC_SIZE)]


NESTED = """
from torch import nn

class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        part = config.model.tower
        self.layers = nn.ModuleList(nn.Linear(part.breadth, part.breadth) for _ in range((part.rungs - 2) // 2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""


def load_text(write: Write, text: str, **files: str) -> Target:
    write({"net.py": text, **{name.replace("_", "."): content for name, content in files.items()}})
    return load(TargetSpec(spec="net.py"))


def test_fields_behind_a_variable_are_read_from_the_file_that_states_them(write: Write) -> None:
    target = load_text(write, NESTED, tower_yaml="model:\n  tower:\n    breadth: 24\n    rungs: 8\n")
    assert [layer.in_features for layer in target.model.layers] == [24, 24, 24]


def test_fields_that_nothing_states_become_sizes(write: Write) -> None:
    target = load_text(write, NESTED)
    assert {layer.in_features for layer in target.model.layers} == {GENERIC_SIZE}
    assert target.info.confidence.arguments == "assumed"


LISTS = """
from torch import nn

class Net(nn.Module):
    def __init__(self, options):
        super().__init__()
        sizes = options["bank_Sizes"]
        self.layers = nn.Sequential(*(nn.Conv1d(a, b, 3) for a, b in zip([1, *sizes], sizes)))
        self.depth, self.kind = len(options["bank_Sizes"]), options["bank_kind"]

    def forward(self, x):
        return self.layers(x)
"""


def test_sections_of_an_ini_file_state_options(write: Write) -> None:
    ini = "[bank]\nbank_Sizes=12,8,4\nbank_kind=plain\n"
    target = load_text(write, LISTS, bank_cfg=ini)
    assert [layer.out_channels for layer in target.model.layers] == [12, 8, 4]
    assert target.model.kind == "plain"


def test_a_required_argument_without_a_usual_name_may_be_a_configuration(write: Write) -> None:
    text = """
from torch import nn

class Net(nn.Module):
    def __init__(self, source):
        super().__init__()
        self.layer = nn.Linear(source.nodes, 8)

    def forward(self, x):
        return self.layer(x)
"""
    target = load_text(write, text)
    assert type(target.model.layer.in_features) is int
    assert target.info.confidence.arguments == "assumed"


def test_a_required_option_of_the_script_that_is_no_argument_keeps_its_call(write: Write) -> None:
    script = (
        "import argparse\nimport torch\nfrom net import Net\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--images-dir', required=True)\nparser.add_argument('--breadth', type=int, default=24)\n"
        "args = parser.parse_args()\nmodel = Net(args)\nmodel(torch.rand(4, 24)).sum().backward()\n"
    )
    net = NESTED.replace("part = config.model.tower", "part, rungs = config, 8").replace("part.rungs", "rungs")
    write({"train.py": script})
    assert [layer.in_features for layer in load_text(write, net).model.layers] == [24] * 3

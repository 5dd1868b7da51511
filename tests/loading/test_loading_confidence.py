"""How each part of a target is known: stated, derived from the repository, or assumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from profiler_kit.cli import main
from profiler_kit.pipeline.count import count_spec
from profiler_kit.records.notes import Confidence
from profiler_kit.records.serde import dumps, loads
from profiler_kit.records.target import TargetInfo, TargetSpec

Write = Callable[[Mapping[str, str]], None]
NET = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, width, depth=1):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])
    def forward(self, x):
        return self.layers(x)
"""
OTHER = NET[NET.index("class") :].replace("Net", "Other")
TRAIN = """\
from net import *
net = Net(5)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
"""


def info(text: str, **options: Any) -> TargetInfo:
    return count_spec(TargetSpec(spec=text, **options)).target


def test_what_nothing_shows_is_assumed_with_the_options_that_set_it(write: Write) -> None:
    write({"net.py": NET})
    found = info("net.py")
    assert found.confidence == Confidence(
        model="derived", arguments="assumed", inputs="assumed", loss="assumed", optimizer="assumed"
    )
    assert [choice.subject for choice in found.assumed] == ["arguments", "inputs", "loss", "optimizer"]
    (arguments, _, loss, optimizer) = found.assumed
    assert arguments.options[0] == "--kw"
    assert optimizer.options == ("--optimizer", "adamw")
    options = {"kwargs": (arguments.options[1],), "loss": loss.options[1], "optimizer": "adamw", "inputs": ("1,256",)}
    again = info("net.py", **options)
    assert again.assumed == ()
    assert (again.inputs, again.loss, again.optimizer) == (found.inputs, found.loss, found.optimizer)


def test_what_a_program_shows_is_derived(write: Write) -> None:
    write({"net.py": NET, "train.py": TRAIN})
    assert info("net.py").confidence == Confidence(
        model="derived", arguments="derived", inputs="derived", loss="derived", optimizer="derived"
    )


def test_what_the_user_states_is_stated(write: Write) -> None:
    write({"net.py": NET + "model = Net(5)\nexample_inputs = torch.ones(2, 5)\n"})
    assert info("net.py", loss="mse", optimizer="sgd").confidence == Confidence(loss="stated", optimizer="stated")


def test_inference_has_neither_a_loss_nor_an_optimizer(write: Write) -> None:
    write({"net.py": NET + "model = Net(5)\n"})
    assert info("net.py", mode="infer").confidence == Confidence(inputs="assumed")


@pytest.mark.parametrize(
    ("more", "certainty", "others"),
    [
        (OTHER, "assumed", ("Other",)),
        ("class Wrong(nn.Module):\n    def __init__(self):\n        super().__init__()\n        raise OSError('no')\n"
         "    def forward(self, x): pass\n", "assumed", ("Wrong",)),
        ("class Trainer:\n    def __init__(self):\n        self.critic = Net(4)\n", "derived", ()),
        ("class Trainer:\n    def __init__(self):\n        self.critic = Net(4)\n" + OTHER, "assumed",
         ("Other",)),
    ],
)  # fmt: skip
def test_a_model_among_others_is_assumed(write: Write, more: str, certainty: str, others: tuple[str, ...]) -> None:
    write({"net.py": NET + more})
    found = info("net.py")
    assert found.confidence is not None
    assert found.confidence.model == certainty
    assert [choice.others for choice in found.choices if choice.subject == "model"] == [others] * bool(others)


@pytest.mark.parametrize(
    ("files", "certainty"),
    [
        ({"net.py": NET + "if __name__ == '__main__':\n    Net(3, depth=2)(torch.ones(1, 3))\n"}, "assumed"),
        (
            {"net.py": NET + "if __name__ == '__main__':\n    Net(3, depth=2)(torch.ones(1, 3)).sum().backward()\n"},
            "derived",
        ),
        ({"net.py": NET, "test_net.py": "from net import *\ndef test_net():\n    Net(3, depth=2)\n"}, "assumed"),
        ({"net.py": NET, "use_net.py": "from net import *\ndef use_net():\n    Net(3, depth=2)\n"}, "derived"),
    ],
)
def test_the_sizes_of_a_test_are_assumed(write: Write, files: Mapping[str, str], certainty: str) -> None:
    write(files)
    found = info("net.py")
    assert found.confidence is not None
    assert found.confidence.arguments == certainty
    expected = [{"--kw", "width=3", "depth=2"}] * (certainty == "assumed")
    assert [{*choice.options} for choice in found.assumed if choice.subject == "arguments"] == expected


def test_all_arguments_of_a_test_are_assumed_beside_those_that_it_leaves_open(write: Write) -> None:
    write({"net.py": NET, "test_net.py": "from net import *\ndef test_net(width):\n    Net(width, depth=2)\n"})
    (arguments,) = (choice for choice in info("net.py").assumed if choice.subject == "arguments")
    assert {word.partition("=")[0] for word in arguments.options} == {"--kw", "width", "depth"}


def test_the_first_screen_has_all_that_is_assumed_and_the_json_how_it_is_known(
    write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    write({"net.py": NET})
    assert main(["count", "net.py"]) == 0
    screen = capfd.readouterr().out.partition("Findings")[0]
    assert all(words in " ".join(screen.split()) for words in ("--kw width=256", "-i 1,256", "--loss", "adamw"))
    report = count_spec(TargetSpec(spec="net.py"))
    assert json.loads(dumps(report))["target"]["confidence"]["arguments"] == "assumed"
    assert loads(type(report), dumps(report), "x.json").target.confidence == report.target.confidence


def test_a_model_from_python_is_stated() -> None:
    from profiler_kit import count

    target = count(torch.nn.Linear(2, 2), torch.ones(1, 2)).target
    assert target.confidence == Confidence(loss="assumed", optimizer="assumed")

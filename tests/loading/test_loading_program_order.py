"""One program trains the model: its class and arguments are those of this program, and what it does not state is assumed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from profiler_kit.loading import load
from profiler_kit.loading.model import Target
from profiler_kit.records.target import TargetSpec

Write = Callable[..., None]
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, size, depth):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(size, size) for _ in range(depth)))

    def forward(self, x):
        return self.layers(x)
"""
TRAIN = "from net import Net\nmodel = Net({size}, {depth})\nx = torch.rand(4, {size})\nmodel(x).sum().backward()\n"


def train(size: object, depth: object = 2, head: str = "import torch\n") -> str:
    return head + TRAIN.format(size=size, depth=depth)


def loaded(target: str = "net.py") -> Target:
    return load(TargetSpec(spec=target, command=("count", "")))


def shape(target: Target) -> tuple[int, int]:
    layers = target.model.layers
    return layers[0].in_features, len(layers)


@pytest.mark.parametrize("command", ["python b_train.py", "CUDA_VISIBLE_DEVICES=0 torchrun --n 2 ./b_train.py --lr 1"])
def test_the_documented_program_comes_before_others(write: Write, command: str) -> None:
    readme = f"# Net\nTo train:\n```\n{command}\n```\n"
    write({"net.py": NET, "a_train.py": train(5), "b_train.py": train(7), "README.md": readme})
    assert shape(loaded()) == (7, 2)


def test_a_program_that_is_named_so_comes_before_another_one(write: Write) -> None:
    write({"net.py": NET, "ablation.py": train(5), "train.py": train(7)})
    assert shape(loaded()) == (7, 2)


def test_a_program_comes_before_the_trial_of_the_file(write: Write) -> None:
    trial = "if __name__ == '__main__':\n    net = Net(3, 1)\n    net(torch.rand(2, 3))\n"
    write({"net.py": NET + trial, "train.py": train(7)})
    assert shape(loaded()) == (7, 2)


def test_what_the_program_does_not_state_comes_from_the_next_one(write: Write) -> None:
    trial = "if __name__ == '__main__':\n    net = Net(3, 6)\n    net(torch.rand(2, 3))\n"
    head = "import torch\nfrom absent_package import settings\n"
    write({"net.py": NET + trial, "train.py": train(7, "settings.depth", head)})
    target = loaded()
    assert shape(target) == (7, 6)
    assert [choice.value for choice in target.info.choices if choice.subject == "arguments"] == ["depth=6"]


def test_a_class_that_the_file_imports_is_not_its_model(write: Write) -> None:
    whole = (
        "from torch import nn\nfrom net import Net\n\nclass Whole(nn.Module):\n    def __init__(self, body):\n"
        "        super().__init__()\n        self.body = body\n\n    def forward(self, x):\n        return self.body(x)\n\n"
        "def test():\n    body = Net(3, 1)\n    net = Whole(body)\n"
    )
    write({"net.py": NET, "whole.py": whole})
    assert type(loaded("whole.py").model).__name__ == "Whole"


def test_an_import_in_a_branch_is_one_of_several(write: Write) -> None:
    script = (
        "import sys\nimport torch\nif len(sys.argv) > 9:\n    from net import Net\nelse:\n    from other import Net\n"
        "model = Net(7, 3)\nmodel(torch.rand(4, 7)).sum().backward()\n"
    )
    write({"net.py": NET, "other.py": NET, "train.py": script})
    assert shape(loaded()) == (7, 3)


def test_an_attribute_that_is_made_of_itself_has_the_value_of_another_statement(write: Write) -> None:
    names = [f"size_{index}" for index in range(5)]
    copies = "".join(f"        self.{a}, self.{b} = pair(self.{a}, self.{b})\n" for a in names for b in names if a < b)
    script = (
        "import torch\nfrom net import Net\ndef pair(a, b):\n    return a, b\nclass Trainer:\n"
        + "".join(f"    {name} = 7\n" for name in names)
        + "    def __init__(self):\n"
        + copies
        + "    def fit(self):\n        net = Net(self.size_3, 2)\n        net(torch.rand(4, self.size_4)).sum().backward()\n"
    )
    write({"net.py": NET, "train.py": script})
    assert shape(loaded()) == (7, 2)

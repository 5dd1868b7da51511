"""Constructor arguments and inputs that nothing states are found together: the failing operation decides which changes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from profiler_kit.errors import TargetError
from profiler_kit.loading import load
from profiler_kit.loading.candidates.sourced import SourcedInt, numbers_in, sourced
from profiler_kit.loading.model import Target
from profiler_kit.records.target import TargetSpec

Write = Callable[[Mapping[str, str]], None]
GRAPH = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, node_dim, edge_dim, width=16):
        super().__init__()
        self.embed = nn.Linear(node_dim, width)
        self.full = nn.Linear(2 * width + edge_dim, width)
    def forward(self, nodes, edges):
        rows = self.embed(nodes)
        return self.full(torch.cat([rows, rows, edges], dim=1))
"""
CHECKED = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, num_nodes, num_features):
        super().__init__()
        self.num_nodes = num_nodes
        self.fc = nn.Linear(num_features, 2)
    def forward(self, x):
        assert x.shape[1] == self.num_nodes and x.dim() == 3
        return self.fc(x)
"""
PADDED = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, vocab_size, pad_idx=None):
        super().__init__()
        self.pad_idx = pad_idx
        self.embed = nn.Embedding(vocab_size, 8)
    def forward(self, tokens):
        kept = (tokens != self.pad_idx).unsqueeze(-1)
        return self.embed(tokens) * kept
"""
CONFIGURED = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.horizon = args.horizon
        self.bias = args.with_shift
        self.end = nn.Linear(6, args.horizon * 3, bias=args.with_shift)
    def forward(self, x):
        return self.end(x).view(-1, self.horizon, 3)
"""
README = """\
```python
from net import Net
net = Net(in_features, 2)
y = net(torch.randn(4, 7))
```
"""
SMALL = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, in_features, num_classes):
        super().__init__()
        self.fc = nn.Linear(in_features, num_classes)
    def forward(self, x):
        return self.fc(x)
"""


def target_of(text: str, *inputs: str, kwargs: tuple[str, ...] = ()) -> Target:
    return load(TargetSpec(spec=text, inputs=inputs, kwargs=kwargs, mode="infer"))


def weights(target: Target) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in target.model.named_parameters() if name.endswith("weight")}


def test_stated_inputs_decide_about_assumed_arguments(write: Write) -> None:
    write({"net.py": GRAPH})
    target = target_of("net.py", "5,92", "5,41")
    assert weights(target) == {"embed.weight": (16, 92), "full.weight": (16, 2 * 16 + 41)}
    assert target.info.confidence.arguments == "assumed"


def test_a_given_argument_is_never_changed(write: Write) -> None:
    write({"net.py": GRAPH})
    target = target_of("net.py", "5,92", "5,41", kwargs=("node_dim=90",))
    assert weights(target)["embed.weight"] == (16, 90)


def test_an_assertion_of_the_code_decides_about_an_assumed_argument(write: Write) -> None:
    write({"net.py": CHECKED})
    target = target_of("net.py", "2,207,12")
    assert vars(target.model)["num_nodes"] == 207
    assert weights(target) == {"fc.weight": (2, 12)}


def test_a_default_of_none_gets_the_usual_value_if_forward_needs_one(write: Write) -> None:
    write({"net.py": PADDED})
    target = target_of("net.py")
    assert vars(target.model)["pad_idx"] == 0
    assert "pad_idx" in next(choice.value for choice in target.info.assumed if choice.subject == "arguments")


def test_a_field_that_gives_a_layer_its_size_is_no_switch(write: Write) -> None:
    write({"net.py": CONFIGURED})
    model = target_of("net.py").model
    assert vars(model)["horizon"] > 1
    assert model.end.weight.shape == (3 * vars(model)["horizon"], 6)
    assert model.bias is False or model.end.bias is None


def test_the_inputs_of_a_call_decide_about_an_assumed_argument(write: Write) -> None:
    write({"net.py": SMALL, "README.md": README})
    target = target_of("net.py")
    assert weights(target) == {"fc.weight": (2, 7)}
    assert [tuple(spec.shape) for spec in target.info.inputs] == [(4, 7)]


def test_later_loads_have_the_same_arguments(write: Write) -> None:
    write({"net.py": GRAPH})
    target = target_of("net.py", "5,92", "5,41")
    again = load(target.spec, device="cpu")
    assert weights(again) == weights(target)


def test_inputs_that_no_argument_fits_are_kept_for_the_explanation(write: Write) -> None:
    write({"net.py": GRAPH})
    target = target_of("net.py", "5,92", "6,41")
    assert [tuple(spec.shape) for spec in target.info.inputs] == [(5, 92), (6, 41)]


def test_a_failure_that_no_unknown_avoids_keeps_its_error(write: Write) -> None:
    write({"net.py": CHECKED.replace("x.dim() == 3", "False")})
    with pytest.raises(TargetError):
        target_of("net.py")


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 9))
def test_sizes_know_how_they_grow(a: int, b: int, step: int) -> None:
    def size(first: int, second: int) -> int:
        return 3 * first + (second - 1) * 4 + first * 2 - 7

    number = size(sourced(a, "a"), sourced(b, "b"))
    assert isinstance(number, SourcedInt)
    assert number == size(a, b)
    assert size(a + step, b) - size(a, b) == step * number.slopes["a"]
    assert size(a, b + step) - size(a, b) == step * number.slopes["b"]


def test_layers_keep_the_sources_of_their_sizes() -> None:
    layer = nn.Conv2d(sourced(4, "channels"), 2 * sourced(4, "channels"), 3, groups=sourced(2, "groups"))
    assert layer(torch.zeros(1, 4, 8, 8)).shape == (1, 8, 6, 6)
    slopes = {(int(number), name): slope for number in numbers_in(layer) for name, slope in number.slopes.items()}
    assert slopes == {(4, "channels"): 1, (8, "channels"): 2, (2, "groups"): 1}


def test_copies_of_numbers() -> None:
    number = sourced(4, "channels")
    assert copy.deepcopy(number) is number
    assert type(pickle.loads(pickle.dumps(number))) is int
    assert number / 2 == 2.0
    assert 10.0 - number == 6.0


PHASES = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
    def forward(self, x, phase):
        if phase in ("grow", "stay"):
            return self.fc(x)
"""


def test_a_parameter_that_is_compared_with_texts_gets_one_of_them(write: Write) -> None:
    write({"net.py": PHASES})
    assert dict(target_of("net.py").batch.kwargs) == {"phase": "grow"}

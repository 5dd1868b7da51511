"""What is tried when the usual way fails: other values, other candidates, and the model that the hint of an error names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from profiler_kit import count
from profiler_kit.errors import TargetError
from profiler_kit.loading import Target, load
from profiler_kit.loading.candidates.plausible import UNKNOWN, plausible_value
from profiler_kit.records.target import TargetSpec

HEAD = "import torch\nfrom torch import nn\n"
Write = Callable[..., None]
ONE_WAY = """
class OneWay(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1
    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("there is no way back")
"""


def module(name: str, parameters: str = "", width: str = "4", first: str = "", forward: str = "self.fc(x)") -> str:
    """A class with one Linear(3, width). `first` are statements of its constructor."""
    return (
        f"class {name}(nn.Module):\n"
        f"    def __init__(self{', ' if parameters else ''}{parameters}):\n"
        "        super().__init__()\n"
        f"{first}"
        f"        self.fc = nn.Linear(3, {width})\n"
        "    def forward(self, x):\n"
        f"        return {forward}\n"
    )


def loaded(target: str, *inputs: str) -> Target:
    return load(TargetSpec(spec=target, inputs=inputs, mode="infer", command=("count", "")))


def chosen(target: str) -> tuple[str, int]:
    """(class, width) of the chosen model."""
    model = loaded(target, "2,3").model
    return type(model).__name__, model.fc.out_features


def note(target: str) -> str:
    return next((text for text in map(str, loaded(target, "2,3").info.notes) if text.startswith("model: ")), "")


def test_a_function_with_keywords_needs_what_its_class_needs(write: Write) -> None:
    net = module("Net", "num_classes, bias=True", "num_classes") + "def net(**kwargs):\n    return Net(**kwargs)\n"
    write({"net.py": HEAD + net})
    assert chosen("net.py:net") == ("Net", 10)
    write({"net.py": HEAD + net.replace("Net(**kwargs)", "Net(5, **kwargs)")})
    assert chosen("net.py:net") == ("Net", 5)


def test_a_subclass_with_keywords_needs_what_its_base_needs(write: Write) -> None:
    base = module("Base", "num_classes", "num_classes")
    child = "class Net(Base):\n    def __init__(self, *args, **kwargs):\n        super().__init__(*args, **kwargs)\n"
    write({"net.py": HEAD + base + child})
    assert chosen("net.py") == ("Net", 10)


@pytest.mark.parametrize(
    ("statement", "depth"),
    [
        ("assert (depth - 4) % 6 == 0", 28),
        ("assert (depth - 2) % 9 == 0, 'depth must be 9n + 2'", 20),
        ("assert depth in [10, 18, 34]", 10),
        ("assert depth > 0", 2),
        ("self.kind = 'basic' if depth == 18 else 'bottleneck' if depth == 50 else None", 18),
        ("self.is_flat = depth == 1", 2),
    ],
)
def test_an_assumed_value_is_one_that_the_constructor_allows(write: Write, statement: str, depth: int) -> None:
    write({"net.py": HEAD + module("Net", "depth", "depth", f"        {statement}\n")})
    assert chosen("net.py") == ("Net", depth)


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("width = sum(num_channels[:1])", "num_channels=[64, 64]"),
        ("width = len(num_channels)", "num_channels=[64, 64]"),
        ("assert isinstance(num_channels, tuple), 'num_channels must be a tuple'; width = 1", "num_channels=(64, 64)"),
    ],
)
def test_a_size_becomes_a_sequence_if_the_constructor_needs_one(write: Write, statement: str, text: str) -> None:
    write({"net.py": HEAD + module("Net", "num_inputs, num_channels", "width", f"        {statement}\n")})
    assert f"model: Net(num_inputs=64, {text});" in note("net.py")


def test_the_first_word_of_a_name_is_the_part_that_it_describes() -> None:
    assert plausible_value("vision_patch_size", {}) == 16
    assert plausible_value("transformer_heads", {"width": 30, "transformer_width": 512}) == 8
    assert plausible_value("model_channels", {}) == 64
    assert plausible_value("unusual", {}) is UNKNOWN


@pytest.mark.parametrize("name", ["dp_ratio", "dropout_ratio", "attn_drop", "drop_path_rate", "mask_prob", "dropRate"])
def test_probabilities_are_below_one(name: str) -> None:
    assert 0 <= plausible_value(name, {}) < 1


def test_no_part_stands_for_a_model_that_cannot_be_built(write: Write) -> None:
    classes = module("ConvBlock", width="900") + module("Head", width="1") + module("Net", width="9")
    remote = "        self.parts = [Head(), Net(), ConvBlock()]\n        raise RuntimeError('no server')\n"
    write({"net.py": HEAD + classes + module("Remote", first=remote)})
    with pytest.raises(TargetError) as raised:
        chosen("net.py")
    assert "no server" in raised.value.message


def test_no_helper_of_a_class_that_a_missing_package_defines_stands_for_it(write: Write) -> None:
    helper = "def Separable(in_channels, width):\n    return nn.Sequential(nn.Conv2d(in_channels, width, 1))\n"
    stack = "def Stack(width):\n    return nn.Sequential(Separable(3, width), Separable(width, 4))\n"
    net = module("Net", first="        self.parts = Stack(8)\n").replace("Net(nn.Module)", "Net(BACKBONE)")
    write({"net.py": HEAD + "from vision_of_nobody import Backbone\nBACKBONE = Backbone()\n" + helper + stack + net})
    with pytest.raises(TargetError) as raised:
        chosen("net.py")
    assert "vision_of_nobody" in raised.value.message


def test_a_layer_of_a_package_that_a_helper_builds_is_a_part(write: Write) -> None:
    helper = "def layers(width):\n    layer = nn.Linear(width, width)\n    return [layer]\n"
    first = "        self.layers = nn.Sequential(*layers(width))\n"
    write({"net.py": HEAD + helper + module("Encoder", "width", "width", first=first)})
    assert chosen("net.py")[0] == "Encoder"


def test_a_function_that_needs_a_model_is_no_factory(write: Write) -> None:
    wrap = "def freeze(model):\n    model = nn.Sequential(model)\n    return model\n"
    write({"net.py": HEAD + wrap + module("Net", "num_classes", "num_classes")})
    assert chosen("net.py") == ("Net", 10)


def test_a_function_that_fills_a_table_runs(write: Write) -> None:
    text = "TABLE = {}\ndef register(name, width):\n    TABLE[name] = width\n"
    text += "for name, width in (('a', 6), ('b', 7)):\n    register(name, width)\n"
    write({"net.py": HEAD + text + module("Net", "name", "TABLE[name]") + "net = Net('b')\n"})
    assert chosen("net.py") == ("Net", 7)


def test_a_function_that_builds_a_class_by_a_local_name_is_a_factory(write: Write) -> None:
    create = "def create(wide=False):\n    cls = Wide if wide else Net\n    model = cls()\n    return model\n"
    write({"net.py": HEAD + module("Net", width="5") + module("Wide", width="6") + create})
    assert chosen("net.py") == ("Net", 5)
    assert "model: create(), the first function that returns a model" in note("net.py")


def test_a_model_of_a_package_is_a_part_in_a_file_with_models(write: Write) -> None:
    hybrid = "def hybrid(**kwargs):\n    backbone = nn.Transformer(8)\n    return make(backbone, **kwargs)\n"
    make = "def make(backbone, **kwargs):\n    return helper(Net, backbone, **kwargs)\n"
    write({"net.py": HEAD + module("Net", width="5") + "from other import helper\n" + make + hybrid})
    assert chosen("net.py") == ("Net", 5)


def test_a_module_without_parameters_does_not_stand_for_a_model_that_failed(write: Write) -> None:
    """It is tried before a class whose arguments nothing shows."""
    identity = "class Identity(nn.Module):\n    def forward(self, x):\n        return x\n"
    net = "class Net(nn.Module):\n    def __init__(self, layers):\n        super().__init__()\n        raise ValueError(layers)\n"
    write({"net.py": f"from torch import nn\n{identity}{net}    def forward(self, x):\n        return x\n"})
    with pytest.raises(TargetError) as raised:
        loaded("net.py", "2,3")
    assert raised.value.message.startswith("Net()")


def test_a_graph_without_parameters_is_a_model_and_a_layer_is_not(write: Write) -> None:
    graph = "from torch import fx\ngraph = fx.Graph()\ngraph.output(graph.placeholder('x'))\nrelu = nn.ReLU()\n"
    write({"net.py": HEAD + graph + "net = fx.GraphModule(nn.Module(), graph)\n"})
    target = load(TargetSpec(spec="net.py", inputs=("2,3",), command=("count", "")))
    assert (type(target.model).__name__, target.spec.mode) == ("GraphModule", "infer")
    write({"layer.py": HEAD + "relu = nn.ReLU()\n"})
    with pytest.raises(TargetError):
        loaded("layer.py")


def test_an_example_of_another_file_is_used_if_all_of_its_keywords_fit(write: Write) -> None:
    readme = "# Nets\n```python\nfrom nets import Net\nnet = Net(width=5)\n```\n"
    write(
        {
            "nets/__init__.py": "from nets.net import Net\n",
            "nets/net.py": HEAD + module("Net", "width", "width"),
            "nets/net_with_mask.py": HEAD + module("Net", "width, bias=True", "width"),
            "nets/net_with_depth.py": HEAD + module("Net", "width, depth", "width"),
            "README.md": readme,
        }
    )
    assert chosen("nets/net_with_mask.py") == ("Net", 5)
    assert "as the README builds the class of this name in another file at README.md:4" in note("nets/net_with_mask.py")
    assert chosen("nets/net_with_depth.py") == ("Net", 256)


def test_the_hint_of_a_failing_step_is_inference_if_that_runs(write: Write) -> None:
    write({"net.py": HEAD + ONE_WAY + module("Net", forward="OneWay.apply(self.fc(x))")})
    with pytest.raises(TargetError, match="there is no way back") as raised:
        count("net.py")
    assert (raised.value.hint or "").endswith(
        "; the model runs without a training step: profiler-kit count net.py --mode infer"
    )
    assert count("net.py", mode="infer").target.mode == "infer"

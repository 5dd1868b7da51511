"""Which model is chosen in a file as people write them, with which arguments, and what is announced."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading import Target, load
from profiler_kit.loading.candidates.plausible import UNKNOWN, plausible_value
from profiler_kit.records.target import TargetSpec

HEAD = "import torch\nfrom torch import nn\n"
Write = Callable[..., None]


def module(name: str, parameters: str = "", width: str = "4", base: str = "nn.Module", extra: str = "") -> str:
    """A class with one Linear(3, width)."""
    return (
        f"class {name}({base}):\n"
        f"    def __init__(self{', ' if parameters else ''}{parameters}):\n"
        "        super().__init__()\n"
        f"        self.fc = nn.Linear(3, {width})\n"
        f"{extra}"
        "    def forward(self, x):\n"
        "        return self.fc(x)\n"
    )


def loaded(target: str, *kwargs: str) -> Target:
    return load(TargetSpec(spec=target, kwargs=kwargs, inputs=("2,3",), mode="infer", command=("count", "")))


def chosen(target: str, *kwargs: str) -> tuple[str, int]:
    """(class, width) of the chosen model."""
    model = loaded(target, *kwargs).model
    return type(model).__name__, model.fc.out_features


def note(target: str, *kwargs: str) -> str:
    return next((text for text in map(str, loaded(target, *kwargs).info.notes) if text.startswith("model: ")), "")


FACTORIES = HEAD + module("ResNet", "block, depth", "depth", extra="        self.layer = block()\n")
FACTORIES += module("BasicBlock") + module("Bottleneck")
FACTORIES += "".join(f"def ResNet{n}():\n    return ResNet(BasicBlock, {n})\n" for n in (18, 34, 50))


def test_the_factory_that_test_calls_is_the_model(write: Write) -> None:
    write({"resnet.py": FACTORIES + "def test():\n    net = ResNet34()\n    y = net(torch.randn(1, 3))\n"})
    assert chosen("resnet.py") == ("ResNet", 34)
    text = note("resnet.py")
    assert text == (
        "model: ResNet34(), as test() builds it at resnet.py:29; others: ResNet18, ResNet50 "
        "(profiler-kit count resnet.py:ResNet18)"
    )


def test_without_a_call_the_first_factory_is_the_model_and_blocks_are_not_listed(write: Write) -> None:
    write({"resnet.py": FACTORIES})
    assert chosen("resnet.py") == ("ResNet", 18)
    assert "Block" not in note("resnet.py")
    assert "Bottleneck" not in note("resnet.py")


def test_the_class_of_the_main_block_gets_its_arguments(write: Write) -> None:
    main = "if __name__ == '__main__':\n    width = 5 + 2\n    net = VGG('VGG11', width)\n    print(net)\n"
    write({"vgg.py": HEAD + module("VGG", "name, width", "width") + main})
    assert chosen("vgg.py") == ("VGG", 7)
    assert note("vgg.py") == "model: VGG(name='VGG11', width=7), as the script builds it at vgg.py:11"


def test_the_training_script_gives_the_arguments_of_a_model_file(write: Write) -> None:
    script = (
        "import argparse\nfrom nets.model import Net\n"
        "def main():\n"
        "    parser = argparse.ArgumentParser()\n    parser.add_argument('--width', type=int, default=9)\n"
        "    args = parser.parse_args()\n    model = Net(args.width)\n    for i in range(10):\n        model(i)\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    write({"nets/__init__.py": "", "nets/model.py": HEAD + module("Net", "width", "width"), "train.py": script})
    for target in ("nets/model.py", "train.py", "nets/model.py:Net"):
        assert chosen(target) == ("Net", 9)
    assert "as main() builds it at train.py:7" in note("nets/model.py")


def test_an_example_for_a_class_of_the_same_name_in_another_file_is_not_used(write: Write) -> None:
    readme = "# Nets\n```python\nfrom nets import ViT\nv = ViT(width=5)\n```\n"
    readme += "```python\nfrom nets.vit_1d import ViT\nv = ViT(width=6)\n```\n"
    vit = HEAD + module("ViT", "width", "width")
    write(
        {
            "nets/__init__.py": "from nets.vit import ViT\n",
            "nets/vit.py": vit,
            "nets/vit_1d.py": vit,
            "README.md": readme,
        }
    )
    assert chosen("nets/vit.py") == ("ViT", 5)
    assert chosen("nets/vit_1d.py") == ("ViT", 6)
    assert "as the README builds it at README.md:8" in note("nets/vit_1d.py")


def test_a_docstring_is_an_example(write: Write) -> None:
    net = module("Net", "width", "width").replace(
        "):\n", "):\n    '''A net.\n\n    Example:\n        >>> net = Net(width=11)\n    '''\n", 1
    )
    write({"net.py": HEAD + net})
    assert chosen("net.py") == ("Net", 11)


def test_a_branch_that_no_program_reaches_is_not_the_model(write: Write) -> None:
    script = (
        "kind = 'rnn'\nif kind == 'transformer':\n    model = Transformer(5)\nelif kind == 'rnn':\n    model = RNN(6)\n"
    )
    classes = module("Transformer", "width", "width") + module("RNN", "width", "width")
    write({"model.py": HEAD + classes, "main.py": f"from model import *\n{script}"})
    assert chosen("model.py") == chosen("main.py") == ("RNN", 6)


def test_the_generator_is_the_model_of_two_networks(write: Write) -> None:
    script = "discriminator = Discriminator()\ngenerator = Generator()\n"
    write({"gan.py": HEAD + module("Discriminator") + module("Generator") + script})
    assert chosen("gan.py")[0] == "Generator"
    assert "others: Discriminator (profiler-kit count gan.py:Discriminator)" in note("gan.py")


def test_a_network_that_takes_the_others_is_the_model(write: Write) -> None:
    pair = "class Pair(nn.Module):\n    def __init__(self, encoder, decoder):\n        super().__init__()\n"
    pair += "        self.encoder, self.decoder = encoder, decoder\n    def forward(self, x):\n        return self.encoder(x)\n"
    main = "if __name__ == '__main__':\n    enc = Encoder()\n    dec = Decoder()\n    model = Pair(enc, dec)\n"
    write({"pair.py": HEAD + module("Encoder") + module("Decoder") + pair + main})
    assert type(loaded("pair.py").model).__name__ == "Pair"


def test_a_loss_is_no_model_if_there_is_another_class(write: Write) -> None:
    loss = (
        "class FocalLoss(nn.Module):\n    def forward(self, input, target):\n        return (input - target).mean()\n"
    )
    distance = (
        "class Distance(nn.Module):\n    def forward(self, output, target):\n        return (output - target).abs()\n"
    )
    write({"net.py": HEAD + loss + distance + module("Net", "num_classes", "num_classes")})
    assert chosen("net.py") == ("Net", 10)


def test_values_that_nothing_gives_are_usual_ones_and_announced(write: Write) -> None:
    write({"net.py": HEAD + module("Net", "num_classes, dropout", "num_classes")})
    assert chosen("net.py") == ("Net", 10)
    assert note("net.py") == (
        "model: Net(num_classes=10, dropout=0.1); num_classes and dropout are assumed, "
        "because no call with its values was found"
    )


def test_an_assumed_number_becomes_the_table_that_the_constructor_reads(write: Write) -> None:
    text = """
class Net(nn.Module):
    def __init__(self, embedding_matrix, opt):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(torch.as_tensor(embedding_matrix), freeze=True)
        self.fc = nn.Linear(opt.embed_dim, opt.classes)
    def forward(self, ids):
        return self.fc(self.table(ids))
"""
    write({"net.py": HEAD + text, "train.py": "OPTIONS = dict(embed_dim=300, classes=7, layers=2, heads=4)\n"})
    target = load(TargetSpec(spec="net.py"), device="meta")
    (choice,) = [choice for choice in target.info.choices if choice.subject == "arguments"]
    assert tuple(target.model.get_submodule("table").weight.shape)[1] == 300
    assert target.info.confidence.arguments == "assumed"
    assert "embedding_matrix" in choice.value


def test_sizes_of_a_script_that_do_not_build_are_not_dropped_without_a_word(write: Write) -> None:
    net = module("Net", "hidden_dim", "hidden_dim").replace(
        "super().__init__()", "super().__init__(); assert hidden_dim < 512"
    )
    write({"net.py": HEAD + net + "if __name__ == '__main__':\n    net = Net(hidden_dim=1024)\n"})
    text = note("net.py")
    assert "no call" not in text
    assert re.search(r"the call at net\.py:\d+ fails", text)


def test_a_large_model_whose_constructor_reads_values_keeps_its_sizes(write: Write) -> None:
    net = module("Net", "hidden_dim, layers", "hidden_dim").replace(
        "super().__init__()",
        "super().__init__(); self.rates = (1 - torch.exp(torch.linspace(-3.0, -6.0, layers))).cpu().tolist()\n"
        "        self.more = nn.ModuleList(nn.Linear(hidden_dim, hidden_dim) for _ in self.rates)",
    )
    write({"net.py": HEAD + net + "if __name__ == '__main__':\n    net = Net(hidden_dim=8192, layers=16)\n"})
    model = loaded("net.py").model
    assert sum(p.numel() for p in model.more.parameters()) == 16 * (8192 * 8192 + 8192)
    assert {p.device.type for p in model.parameters()} == {"meta"}


def test_usual_values_agree_with_each_other() -> None:
    assert plausible_value("num_heads", {"embed_dim": 96}) == 8
    assert plausible_value("num_heads", {"embed_dim": 90}) == 6
    assert plausible_value("mlp_dim", {"dim": 192}) == 768
    assert plausible_value("num_classes", {"image_size": 224}) == 1000
    assert plausible_value("num_classes", {"image_size": 32}) == 10
    assert plausible_value("frobnicator", {}) is UNKNOWN


CONFIG = HEAD + (
    "from dataclasses import dataclass\n"
    "@dataclass\nclass GPTConfig:\n    n_embd: int = 12\n    n_layer: int = 3\n"
    + module("GPT", "config", "config.n_embd")
)


def test_a_configuration_has_the_defaults_of_its_class(write: Write) -> None:
    write({"model.py": CONFIG})
    assert chosen("model.py") == ("GPT", 12)
    assert note("model.py").startswith("model: GPT(config=GPTConfig(n_embd=12, n_layer=3)); config is assumed")


def test_an_expression_of_kw_is_evaluated_in_the_file(write: Write) -> None:
    write({"model.py": CONFIG})
    assert chosen("model.py", "config=GPTConfig(n_embd=20)") == ("GPT", 20)
    with pytest.raises(UsageError, match=r"--kw config=GPTConfig\(n_emb=20\): TypeError"):
        loaded("model.py", "config=GPTConfig(n_emb=20)")


def test_a_name_in_kw_stays_text_for_a_parameter_of_strings(write: Write) -> None:
    text = (
        HEAD + module("small") + "def get_model(arch='big'):\n    net = small()\n    net.arch = arch\n    return net\n"
    )
    write({"net.py": text})
    assert loaded("net.py", "arch=small").model.arch == "small"


@pytest.mark.parametrize("parameter", ["width: int", "width: 'float' = 2", "width=8"])
def test_a_text_in_kw_for_a_number_is_refused(parameter: str, write: Write) -> None:
    write({"net.py": HEAD + module("small") + f"def get_model({parameter}):\n    return small()\n"})
    assert loaded("net.py", "width=8").model is not None
    with pytest.raises(UsageError, match=r"--kw width=nope: expected a value of type (int|float)\n"):
        loaded("net.py", "width=nope")


def test_a_factory_that_returns_none_or_raises_falls_through(write: Write) -> None:
    text = HEAD + module("Net") + "def broken():\n    net = Net()\n    raise OSError('no file')\n    return net\n"
    write({"net.py": text})
    assert chosen("net.py") == ("Net", 4)


def test_hubconf_functions_are_entry_points(write: Write) -> None:
    hub = "dependencies = ['torch']\ndef net_small(pretrained=False, **kwargs):\n"
    hub += "    from nets.net import Net as _Net\n    return _Net(**kwargs)\n"
    write({"nets/__init__.py": "", "nets/net.py": HEAD + module("Net", "width=6", "width"), "hubconf.py": hub})
    assert chosen("hubconf.py") == ("Net", 6)


def test_a_variable_of_a_script_is_a_target(write: Write) -> None:
    script = "import sys\nG = nn.Sequential(nn.Linear(3, 5))\nD = nn.Sequential(nn.Linear(5, 1))\nG(D)\n"
    write({"gan.py": HEAD + script})
    assert loaded("gan.py").model[0].out_features == 5
    assert "others: D (profiler-kit count gan.py:D)" in note("gan.py")
    target = load(TargetSpec(spec="gan.py:D", inputs=("2,5",), mode="infer"))
    assert target.model[0].in_features == 5


def test_two_conventional_factories_are_no_error(write: Write) -> None:
    write(
        {"net.py": HEAD + module("Net") + "def get_model():\n    return Net()\ndef make_model():\n    return Net()\n"}
    )
    assert "others: make_model" in note("net.py")


def test_one_class_without_arguments_is_not_announced(write: Write) -> None:
    write({"net.py": HEAD + module("Net")})
    assert note("net.py") == ""


def test_the_choice_is_pinned_for_other_processes(write: Write) -> None:
    write({"resnet.py": FACTORIES + "def test():\n    net = ResNet34()\n"})
    pinned = loaded("resnet.py").spec.pinned
    assert pinned is not None
    assert pinned.candidate == "resnet.py:29:10 ResNet34"
    again = load(replace(loaded("resnet.py").spec, pinned=replace(pinned, candidate="ResNet50")))
    assert again.model.fc.out_features == 50


def test_a_missing_package_is_the_reason_and_not_a_part(write: Write) -> None:
    net = "class Net(timm.VisionTransformer):\n    def __init__(self):\n        self.block = Block()\n"
    net += "    def forward(self, x):\n        return x\n"
    write({"net.py": "import no_such_timm as timm\n" + HEAD + module("Block") + net})
    with pytest.raises(TargetError, match="No module named 'no_such_timm'"):
        loaded("net.py")


def test_the_hint_of_a_file_without_a_model_is_a_file_with_one(write: Write) -> None:
    write({"project/data.py": "def read():\n    pass\n", "project/nets/net.py": HEAD + module("Net")})
    with pytest.raises(TargetError) as error:
        loaded("project/data.py")
    assert error.value.hint == "profiler-kit count project/nets/net.py -i 2,3 --mode infer"


def test_a_field_that_needs_data_is_assumed_and_the_others_are_kept(write: Write) -> None:
    script = "config = GPTConfig()\nconfig.n_embd = 20\nconfig.vocab_size = len(open('words.txt').read())\nmodel = GPT(config)\n"
    table = "        self.table = nn.Embedding(config.vocab_size, 4)\n"
    classes = "class GPTConfig:\n    pass\n" + module("GPT", "config", "config.n_embd", extra=table)
    write({"model.py": HEAD + classes, "train.py": f"from model import *\n{script}"})
    assert chosen("train.py") == ("GPT", 20)
    assert loaded("train.py").model.table.num_embeddings == 10_000
    assert "config.vocab_size is assumed" in note("model.py")


@pytest.mark.usefixtures("sleeping_passes_time")
def test_a_candidate_that_takes_too_long_gives_way_to_the_next(write: Write) -> None:
    slow = "def slow_net():\n    net = Net()\n    while True:\n        time.sleep(1)\n    return net\n"
    write(
        {
            "net.py": "import time\n"
            + HEAD
            + module("Net", "width=6", "width")
            + slow
            + slow.replace("slow_net", "slower_net")
        }
    )
    target = load(TargetSpec(spec="net.py", inputs=("2,3",), import_timeout_s=60))
    assert target.model.fc.out_features == 6
    assert any("slow_net() still running after 20 s" in text for text in map(str, target.info.notes))

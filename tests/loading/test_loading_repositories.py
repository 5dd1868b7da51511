"""Models whose arguments, imports and inputs only the rest of their repository shows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_files import HEAD, NET
from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading import Target, load
from profiler_kit.loading.candidates.hyperparameters import stated_options
from profiler_kit.loading.input_search.outcomes import InputGuess
from profiler_kit.loading.input_search.search import search_inputs
from profiler_kit.loading.program.reading import function_node, source_tree
from profiler_kit.loading.program.repository import local_sources
from profiler_kit.loading.training_step.script_loss import _moved
from profiler_kit.records.target import TargetSpec

Write = Callable[..., None]


def loaded(target: str) -> Target:
    return load(TargetSpec(spec=target, inputs=("2,3",), mode="infer", command=("count", "")))


def width(target: str) -> int:
    size: int = loaded(target).model.fc.out_features
    return size


def test_a_script_finds_the_package_below_src(write: Write) -> None:
    write(
        {
            "src/kan/net.py": HEAD + NET.format(name="n", width="n"),
            "src/kan/__init__.py": "from .net import Net\n",
            "examples/train.py": "from kan import Net\nmodel = Net(11)\n",
        }
    )
    assert width("src/kan/net.py") == 11
    assert width("examples/train.py") == 11


def test_the_files_of_an_installed_package_are_no_programs(write: Write) -> None:
    text = HEAD + NET.format(name="n", width="n")
    for folder, count in (("site-packages/kan", 0), ("src/kan", 1)):
        write({f"{folder}/net.py": text, f"{folder}/train.py": "from net import Net\nmodel = Net(11)\n"})
        file = Path(f"{folder}/net.py").resolve()
        assert len(list(local_sources(file, file.parent))) == count


def test_a_script_shows_more_than_a_test(write: Write) -> None:
    write(
        {
            "net.py": HEAD + NET.format(name="n", width="n"),
            "demo.py": "from net import Net\nmodel = Net(11)\n",
            "check/test_net.py": "from net import Net\ndef test_net():\n    model = Net(2)\n",
        }
    )
    assert width("net.py") == 11


def test_relative_entries_of_the_path_count_from_the_importing_file(write: Write) -> None:
    text = "import sys\nsys.path.append('parts')\nfrom width_of_net import WIDTH\n" + HEAD
    write({"models/net.py": text + NET.format(name="", width="WIDTH"), "models/parts/width_of_net.py": "WIDTH = 5\n"})
    assert width("models/net.py") == 5


def test_a_function_imports_from_a_folder_that_the_file_added_to_the_path(write: Write) -> None:
    script = (
        "import importlib\nimport os\nimport sys\n"
        "ROOT = os.path.dirname(os.path.abspath(__file__))\n"
        "sys.path.append(os.path.join(ROOT, 'models'))\n"
        "def main():\n"
        "    module = importlib.import_module('net_with_width')\n"
        "    classifier = module.Net(6)\n"
        "    return 0\n"
    )
    write({"train.py": script, "models/net_with_width.py": HEAD + NET.format(name="n", width="n")})
    path = list(sys.path)
    assert width("train.py") == 6
    assert sys.path == path


def test_an_annotated_dataclass_is_the_configuration_whatever_its_name(write: Write) -> None:
    text = "from dataclasses import dataclass\n" + HEAD
    text += "@dataclass\nclass Sizes:\n    n_ctx: int\n    n_state: int = 12\n"
    write({"net.py": text + NET.format(name="dims: Sizes", width="dims.n_state")})
    assert width("net.py") == 12


def test_a_parameter_annotated_with_a_class_of_modules_gets_one(write: Write) -> None:
    text = "from core import Core\n" + HEAD + NET.format(name="core: Core, vocab_size", width="core.width")
    core = HEAD + NET.format(name="", width="7").replace("Net", "Core") + "    width = 7\n"
    write({"net.py": text, "core.py": core})
    assert width("net.py") == 7


CANONICAL = (
    "        if args.kind == 'wide':\n            self.size = args.width\n"
    "        elif args.kind == 'narrow':\n            self.size = 1\n"
    "        self.fc = nn.Linear(3, self.size)\n"
)


def test_an_option_that_the_constructor_compares_has_one_of_the_values(write: Write) -> None:
    text = NET.format(name="args", width="1").replace("        self.fc = nn.Linear(3, 1)\n", CANONICAL)
    write({"net.py": HEAD + text})
    assert width("net.py") > 1


@pytest.mark.parametrize(
    "options",
    [
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--kind', default='wide')\n"
        "p.add_argument('--width', type=int, default=int(5e1))\n",
        "settings = make(kind='wide', width=5 * 10, rate=0.1, name='a')\n",
        "settings = {'kind': 'wide', 'width': 50, 'rate': 0.1, 'name': open}\n",
    ],
)
def test_the_repository_states_the_hyperparameters(write: Write, options: str) -> None:
    text = NET.format(name="args", width="1").replace("        self.fc = nn.Linear(3, 1)\n", CANONICAL)
    write({"net.py": HEAD + text, "settings.py": options})
    assert width("net.py") == 50


def test_hyperparameters_of_another_model_are_not_used(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "other.py").write_text("make(step=1, rate=2, size=3, kind=4)\n")
    assert stated_options(tmp_path / "net.py", source_tree(CloudNet), "points") == {}


def test_the_hint_of_a_script_is_the_model_that_its_imports_lead_to(write: Write) -> None:
    write(
        {
            "main.py": "from experiment import run\nrun()\n",
            "a_model.py": HEAD + NET.format(name="", width="1"),
            "experiment.py": "from zoo import Net\ndef run():\n    return 1\n",
            "zoo.py": HEAD + NET.format(name="", width="2"),
        }
    )
    with pytest.raises(TargetError, match=r"did you mean zoo\.py"):
        loaded("main.py")


class CloudNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Conv1d(6, 8, 1)

    def forward(self, points: Tensor) -> Tensor:
        y: Tensor = self.net(points)
        return y


class Batched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 4)
        self.project = nn.Linear(80, 4)

    def forward(self, batch: Tensor) -> Tensor:
        text_ids, text_lengths, mels = batch
        assert text_lengths.dim() == 1
        assert not text_lengths.is_floating_point()
        return self.table(text_ids).sum(1) + self.project(mels)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(16, 16)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y: Tensor = self.query(x.view(x.shape[0], -1, 16))
        return y.masked_fill(mask.view(mask.shape[0], -1, 1) == 0, 0.0)


def shapes(model: nn.Module) -> list[tuple[int, ...]]:
    guess = search_inputs(model.to("meta"), {})
    assert isinstance(guess, InputGuess)
    return [text.shape for text in guess.texts]


def test_points_are_a_cloud() -> None:
    assert shapes(CloudNet()) == [(1, 6, 1024)]


def test_the_items_of_a_list_are_what_their_names_say() -> None:
    ids, lengths, mels = shapes(Batched())
    assert (len(ids), len(lengths), mels[-1]) == (2, 1, 80)


def test_an_input_with_a_mask_is_a_sequence() -> None:
    data, mask = shapes(Block())
    assert (len(data), data[-1], mask) == (3, 16, data[:2])


def test_a_module_of_the_script_that_an_optimizer_refers_to_is_moved() -> None:
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.LBFGS(layer.parameters())
    assert _moved(layer, torch.device("cpu"), lambda module: module) is layer
    assert optimizer.param_groups


class Indented:
    def __init__(self, depth: int) -> None:
        self.text = """
at the first column"""
        assert depth in (18, 34)


def test_a_method_whose_text_has_a_line_at_the_first_column_is_read() -> None:
    node = function_node(Indented)
    assert node is not None
    assert [statement.lineno for statement in node.body] == [2, 4]


def test_a_configuration_class_that_needs_a_data_set_states_fields(write: Write) -> None:
    config = (
        "class Config:\n"
        "    def __init__(self, dataset, embedding):\n"
        "        self.names = open(dataset).readlines()\n"
        "        self.num_classes = len(self.names)\n"
        "        self.pretrained = torch.load(dataset) if embedding != 'random' else None\n"
        "        self.width = self.pretrained.size(1) if self.pretrained is not None else 11\n"
        "        self.n_vocab = 0\n"
    )
    net = NET.format(name="config", width="config.width + config.n_vocab if config.pretrained is None else 1")
    write({"net.py": HEAD + config + net})
    assert width("net.py") == 10_011


def test_a_json_file_states_the_fields_of_a_configuration(write: Write) -> None:
    net = NET.format(name="h", width="h.rates[0] * h.kernel + h.groups")
    write({"net.py": HEAD + net, "conf/small.json": '{"model": {"rates": [5, 2], "kernel": 2, "groups": 1}}'})
    assert width("net.py") == 11


CONFIGURED = """\
from torch import nn
class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(config.model.width, config.model.width) for _ in range(config.model.depth)])
        source = config.data.source
        self.rate = source.rate
    def forward(self, x):
        return self.layers(x)
"""


@pytest.mark.parametrize("separator", ["", "---\n"])
def test_a_configuration_inside_another_one_comes_from_a_yaml_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, separator: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(CONFIGURED)
    Path("configs").mkdir()
    Path("configs/small.yml").write_text("model:\n  depth: 2\n")
    Path("configs/whole.yml").write_text(
        f"model:\n  width: 11\n  depth: 3\n{separator}data:\n  source:\n    rate: 0.5\n"
    )
    Path("configs/wrong.yaml").write_text("model: {width\n")
    Path("configs/endless.yaml").write_text("model: &model\n  again: *model\n")
    model = load(TargetSpec(spec="net.py"), device="meta").model
    assert ([tuple(layer.weight.shape) for layer in model.layers], model.rate) == ([(11, 11)] * 3, 0.5)


def test_a_configuration_inside_another_one_that_no_file_states_has_usual_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        CONFIGURED.replace("source = config.data.source\n        self.rate = source", "self.rate = config.data.source")
    )
    target = load(TargetSpec(spec="net.py"), device="meta")
    assert len(target.model.layers) > 0
    assert "arguments" in [choice.subject for choice in target.info.assumed]

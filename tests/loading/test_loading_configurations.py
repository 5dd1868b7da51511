"""Arguments that a repository states in configurations, registries, command lines and programs of several files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder

import pytest
from small_files import HEAD, NET

from profiler_kit.errors import TargetError
from profiler_kit.loading import load
from profiler_kit.loading.scripts.settings import Settings, parsed_settings, resolved
from profiler_kit.records.target import TargetSpec

Write = Callable[..., None]
SIZED = HEAD + NET.format(name="size", width="size")
CONFIGURED = HEAD + NET.format(name="cfg", width="cfg.net.size")


def width(target: str, confidence: str | None = None) -> int:
    """The width of the target's model; `confidence`: how its arguments must be known."""
    found = load(TargetSpec(spec=target, inputs=("2,3",), mode="infer", command=("count", "")))
    if confidence is not None:
        assert found.info.confidence.arguments == confidence
    size: int = found.model.fc.out_features
    return size


PACKAGES = {
    "yacs": "from yacs.config import CfgNode as CN\ncfg = CN()\ncfg.net = CN()\ncfg.net.size = 4\ncfg.merge_from_file('c.yaml')\n"
    "cfg.merge_from_list(['a.b', 3])\ncfg.freeze()\n",
    "omegaconf": "from omegaconf import OmegaConf\ncfg = OmegaConf.merge(OmegaConf.load('c.yaml'), OmegaConf.from_cli())\n",
    "easydict": "from easydict import EasyDict as edict\ncfg = edict()\ncfg.net = edict({'size': 17})\n",
    "ml_collections": "import ml_collections\ncfg = ml_collections.ConfigDict()\ncfg.net = ml_collections.ConfigDict()\n"
    "cfg.net.size = 17\n",
    "addict": "from addict import Dict\ncfg = Dict(net=Dict(size=17))\n",
    "absl": "from absl import app, flags\nflags.DEFINE_integer('size', 17, 'width')\nFLAGS = flags.FLAGS\n"
    "class cfg:\n    class net:\n        size = FLAGS.size\n",
    "configargparse": "import configargparse\np = configargparse.ArgumentParser()\n"
    "p.add_argument('--config', is_config_file=True)\n"
    "p.add_argument('--size', type=int, default=17)\nclass cfg:\n    net = p.parse_args()\n",
    "tyro": "import tyro\nfrom dataclasses import dataclass\n@dataclass\nclass Inner:\n    size: int = 17\n"
    "class cfg:\n    net = tyro.cli(Inner)\n",
}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_missing_package_of_configurations_has_a_stand_in(
    write: Write, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = PathFinder.find_spec
    monkeypatch.setattr(
        PathFinder, "find_spec", lambda name, *args: None if name.split(".")[0] == package else find(name, *args)
    )
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    script = PACKAGES[package] + "from net import Net\nmodel = Net(cfg)\n"
    write({"net.py": CONFIGURED, "train.py": script, "c.yaml": "net:\n  size: 17\n"})
    assert width("net.py", "derived") == 17
    assert package not in sys.modules
    notes = load(TargetSpec(spec="train.py", inputs=("2,3",), mode="infer", command=("count", ""))).info.notes
    assert any(package in note.text and "stand-in" in note.text for note in notes)


@pytest.mark.parametrize(
    "script",
    [
        "import fire\ndef main(size=17):\n    model = Net(size)\nif __name__ == '__main__':\n    fire.Fire(main)\n",
        "import click\n@click.command()\n@click.option('--size', default=17)\ndef main(size):\n    model = Net(size)\n",
        "import typer\napp = typer.Typer()\n@app.command()\ndef main(size: int = typer.Option(17)):\n    model = Net(size)\n",
    ],
)
def test_the_options_of_a_command_have_their_defaults(write: Write, script: str) -> None:
    write({"net.py": SIZED, "train.py": f"from net import Net\n{script}"})
    assert width("net.py", "derived") == 17


def test_hydra_composes_its_files(write: Write) -> None:
    write(
        {
            "net.py": CONFIGURED,
            "train.py": "import hydra\nfrom net import Net\n"
            "@hydra.main(version_base=None, config_path='conf', config_name='main')\n"
            "def run(cfg):\n    model = Net(cfg)\n    loss = model(1).sum().backward()\nif __name__ == '__main__':\n    run()\n",
            "conf/main.yaml": "defaults:\n  - _self_\n  - net: wide\n  - optional other: none\nbase: 17\n",
            "conf/net/wide.yaml": "size: ${base}\nname: wide-${base}\n",
        }
    )
    assert width("net.py", "derived") == 17


def test_references_and_trees_of_settings() -> None:
    tree = resolved(parsed_settings("a: 1\nb: {c: '${a}', d: ['${b.c}'], e: 'x${a}y', f: '${no}'}\n"))
    assert tree.to_dict() == {"a": 1, "b": {"c": 1, "d": [1], "e": "x1y", "f": "${no}"}}
    tree.merge({"b": {"c": 5}})
    assert (tree.b.c, tree.b.e) == (5, "x1y")
    copy = tree.clone()
    copy.b.c = 6
    assert (tree.b.c, type(copy.to_dict()["b"])) == (5, dict)
    with pytest.raises(AttributeError):
        _ = Settings().missing
    with pytest.raises(ValueError, match="line"):
        parsed_settings("a: [1\n")


@pytest.mark.parametrize(
    "script",
    [
        "NETS = {'small': Net, 'other': None}\nmodel = NETS[kind](17)\n",
        "import net\nmodel = getattr(net, 'Net')(17)\n",
        "import net\nmodel = net.__dict__['Net'](17)\n",
        "NETS = {'small': Net}\nmodel = NETS.get(kind)(17)\n",
        "NETS = {'small': Net}\nclass_ = NETS[kind]\nmodel = class_(17)\n",
    ],
)
def test_a_callee_from_a_table_is_found_by_its_value(write: Write, script: str) -> None:
    write({"net.py": SIZED, "train.py": f"from net import Net\nkind = 'small'\n{script}"})
    assert width("net.py", "derived") == 17


EXPERIMENT = (
    "from base import Base\nfrom net import Net\n"
    "class Experiment(Base):\n"
    "    def __init__(self, args):\n"
    "        super().__init__(args)\n"
    "    def build(self):\n"
    "        return {'net': Net}[self.args.kind](self.args.size)\n"
)
BASE = (
    "class Base:\n"
    "    def __init__(self, args):\n"
    "        self.args = args\n"
    "        self.model = self.build()\n"
    "    def build(self):\n"
    "        raise NotImplementedError\n"
)
MAIN = (
    "import argparse\nfrom experiment import Experiment\n"
    "p = argparse.ArgumentParser()\np.add_argument('--size', type=int, default=17)\np.add_argument('--kind', default='net')\n"
    "args = p.parse_args()\nExp = Experiment\nexp = Exp(args)\n"
)


def test_options_reach_a_model_through_classes_of_several_files(write: Write) -> None:
    write({"net.py": SIZED, "experiment.py": EXPERIMENT, "base.py": BASE, "main.py": MAIN})
    assert width("net.py", "derived") == 17


@pytest.mark.parametrize(
    "start", ["mp.Process(target=train, args=(3, 17)).start()", "mp.spawn(train, args=(17,), nprocs=2)"]
)
def test_arguments_that_another_process_gets(write: Write, start: str) -> None:
    script = f"import torch.multiprocessing as mp\nfrom net import Net\ndef train(rank, size):\n    model = Net(size)\n{start}\n"
    write({"net.py": SIZED, "train.py": script})
    assert width("net.py", "derived") == 17


def test_the_configuration_of_a_constructor_is_what_the_repository_states(write: Write) -> None:
    outer = "from net import Net\nclass Outer:\n    def __init__(self, opt):\n        self.net = Net(opt.size)\n"
    options = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--size', type=int, default=17)\n"
    write({"net.py": SIZED, "outer.py": outer, "options.py": options})
    assert width("net.py", "assumed") == 17


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("conf.yaml", "model:\n  type: Net\n  size: 17\n"),
        ("conf/net.yaml", "_target_: net.Net\nsize: 17\n"),
        ("specs.json", '{"Arch": "Net", "NetworkSpecs": {"size": 17}}'),
        ("conf.py", "model = dict(type='Net', size=17, a=1, b=2)\n"),
    ],
)
def test_a_table_that_names_the_class_has_its_arguments(write: Write, name: str, text: str) -> None:
    write({"net.py": SIZED, name: text})
    assert width("net.py", "assumed") == 17


def test_a_table_with_most_of_the_arguments_has_the_others(write: Write) -> None:
    net = HEAD + NET.format(name="size, depth, kind", width="size")
    write({"net.py": net, "specs.json": '{"size": 17, "depth": 2}', "other.json": '{"size": 5, "rate": 1}'})
    assert width("net.py", "assumed") == 17


def test_a_program_shows_more_than_the_trial_of_the_file_itself(write: Write) -> None:
    trial = "if __name__ == '__main__':\n    model = Net(2)\n    print(model(torch.rand(2, 3)))\n"
    write({"net.py": SIZED + trial, "train.py": "from net import Net\nmodel = Net(17)\n"})
    assert width("net.py", "derived") == 17
    write({"net.py": SIZED + trial, "train.py": "from net import Net\nimport missing\nmodel = Net(missing.size)\n"})
    assert width("net.py", "assumed") == 2


def test_a_line_of_another_version_of_python_hides_no_file(write: Write) -> None:
    script = "from net import Net\nmodel = Net(17)\nfor x in data:\n    y = x.cuda(async=True)\n    print 'step'\n"
    write({"net.py": SIZED, "train.py": script})
    assert width("net.py", "derived") == 17


@pytest.mark.parametrize(
    "command", ["python train.py --config big.yaml", "torchrun --nproc 2 \\\n  tools/../train.py --config big.yaml"]
)
def test_required_options_are_those_of_the_documented_command(write: Write, command: str) -> None:
    script = (
        "import argparse, pathlib, yaml\nfrom net import Net\np = argparse.ArgumentParser()\n"
        "p.add_argument('--config', required=True)\nargs = p.parse_args()\n"
        "config = yaml.safe_load(pathlib.Path(args.config).read_text())\nmodel = Net(config['size'])\n"
    )
    readme = f"# Net\n```\npython train.py --config <FILE>\n{command}\n```\n"
    write({"net.py": SIZED, "train.py": script, "big.yaml": "size: 17\n", "README.md": readme})
    assert width("net.py", "derived") == 17
    notes = load(TargetSpec(spec="net.py", inputs=("2,3",), mode="infer", command=("count", ""))).info.notes
    assert [note.text for note in notes if "--config big.yaml" in note.text] != []


def test_an_option_that_the_documented_command_does_not_know_is_ignored(write: Write) -> None:
    script = (
        "import argparse\nfrom net import Net\np = argparse.ArgumentParser()\np.add_argument('--root', required=True)\n"
        "p.add_argument('--size', type=int, default=17)\nargs = p.parse_args()\nmodel = Net(args.size)\n"
    )
    write({"net.py": SIZED, "train.py": script, "run.sh": "python train.py --root\n"})
    assert width("net.py", "derived") == 17


def test_a_table_lists_the_class_though_its_default_is_another(write: Write) -> None:
    script = (
        "from net import Net\nfrom other import Other\nNETS = {'net': Net, 'other': Other}\nmodel = NETS['other'](17)\n"
    )
    write({"net.py": SIZED, "other.py": "class Other:\n    pass\n", "train.py": script})
    assert width("net.py", "derived") == 17


IMAGE_NET = HEAD + (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.conv = nn.Conv2d(3, 3, 3)\n"
    "    def forward(self, x):\n"
    "        return self.conv(x)\n"
)


def test_an_option_of_a_program_gives_the_size_of_images(write: Write) -> None:
    options = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--image_size', type=int, default=48)\n"
    write({"net.py": IMAGE_NET, "main.py": options, "solver.py": "from net import Net\nmodel = Net()\n"})
    target = load(TargetSpec(spec="net.py", command=("count", "")))
    assert [tuple(tensor.shape) for tensor in target.batch.tensors()] == [(1, 3, 48, 48)]
    assert target.info.confidence.inputs == "assumed"


def test_a_loss_that_a_script_names_is_used_where_its_step_does_not_run(write: Write) -> None:
    script = (
        "from net import Net\nfrom torch import nn\nmodel = Net()\n"
        "for x, y in loader:\n    loss = nn.MSELoss()(missing.change(model(x)), y)\n    loss.backward()\n"
    )
    write({"net.py": IMAGE_NET, "train.py": script})
    target = load(TargetSpec(spec="net.py", command=("count", "")))
    assert target.objective is not None
    batch = target.batch
    settled = target.objective.settled(target.model(*batch.args), batch, ())
    assert (settled.name, settled.certainty, settled.named_at) == ("mse", "assumed", "train.py:5")


KEPT = "class Base:\n    def __init__(self):\n        self.model = self.build()\n"
LOOP = (
    "from kept import Base\nfrom net import Net\nfrom torch import nn, optim\nclass Run(Base):\n"
    "    def build(self):\n        model = Net()\n        return model.float()\n"
    "    def train(self):\n        optimizer = optim.SGD(self.model.parameters(), lr=0.5)\n"
    "        for x, y in loader:\n            loss = nn.functional.l1_loss(self.model(x), y)\n            loss.backward()\n"
)


def test_a_model_that_a_base_class_keeps_is_that_of_the_loop(write: Write) -> None:
    write({"net.py": IMAGE_NET, "run.py": LOOP, "kept.py": KEPT})
    target = load(TargetSpec(spec="net.py", command=("count", "")))
    assert target.info.optimizer == "SGD"
    assert target.objective is not None
    assert [script.name for script in target.objective.scripts] == ["l1_loss"]


@pytest.mark.parametrize("package", ["gym", "gymnasium"])
@pytest.mark.parametrize(
    ("code", "size"),
    [
        ("env = {p}.make('CartPole-v1')\nsize = env.observation_space.shape[0] + env.action_space.n", 6),
        ("env = {p}.make('HalfCheetah-v4')\nsize = env.observation_space.shape[0] + env.action_space.shape[0]", 23),
        ("env = {p}.make('PongNoFrameskip-v4')\nsize = env.unwrapped.action_space.n", 6),
        ("from {p}.wrappers import *\nimport {p}.wrappers as w\nenv = w.FrameStack(w.GrayScaleObservation(w.ResizeObservation("
         "{p}.make('PongNoFrameskip-v4'), 84)), 4)\nsize = sum(env.observation_space.shape)", 172),
        ("def one():\n    return {p}.make('Ant-v4')\nenvs = {p}.vector.SyncVectorEnv([one] * 3)\n"
         "size = envs.single_observation_space.shape[0] + envs.num_envs", 30),
        ("env = {p}.make('FrozenLake-v1')\nsize = env.observation_space.n", 16),
    ],
)  # fmt: skip
def test_environments_have_their_shapes_without_their_package(write: Write, package: str, code: str, size: int) -> None:
    script = f"import {package}\n{code.format(p=package)}\nfrom net import Net\nmodel = Net(size)\n"
    write({"net.py": SIZED, "train.py": script})
    assert width("net.py", "derived") == size


def test_an_unknown_environment_is_the_reason_for_an_assumed_size(write: Write) -> None:
    script = (
        "import gym\nfrom net import Net\nsize = gym.make('MyGame-v0').observation_space.shape[0]\nmodel = Net(size)\n"
    )
    write({"net.py": SIZED, "train.py": script})
    found = load(TargetSpec(spec="net.py", inputs=("2,3",), mode="infer", command=("count", "")))
    assert found.info.confidence.arguments == "assumed"
    assert any("MyGame-v0" in note.text for note in found.info.notes)


def test_a_configuration_is_read_by_keys(write: Write) -> None:
    net = HEAD + NET.format(name="config", width="config['model']['size'] + config['extra']")
    write(
        {
            "net.py": net,
            "params.py": "PARAMS = {'model': {'size': 16, 'name': 'a'}, 'extra': 1, 'rate': 0.1, 'seed': 2}\n",
        }
    )
    assert width("net.py", "assumed") == 17


SOLVER = (
    "from net import Net\nclass Solver:\n    DEFAULTS = {'size': 3}\n    def __init__(self, config):\n"
    "        %s\n        self.build()\n    def build(self):\n        self.model = Net(self.size)\n"
)
RUN = (
    "import argparse\nfrom solver import Solver\np = argparse.ArgumentParser()\n"
    "p.add_argument('--size', type=int, default=17)\nsolver = Solver(vars(p.parse_args()))\n"
)


@pytest.mark.parametrize("update", ["self.__dict__.update(Solver.DEFAULTS, **config)", "vars(self).update(config)"])
def test_attributes_that_are_set_from_a_mapping(write: Write, update: str) -> None:
    write({"net.py": SIZED, "solver.py": SOLVER % update, "main.py": RUN})
    assert width("net.py", "derived") == 17


def test_a_call_of_a_class_of_the_same_name_shows_the_arguments(write: Write) -> None:
    agent = "from net import Net\nclass Agent:\n    def __init__(self, size):\n        self.net = Net(size)\n"
    main = (
        "import importlib\nAgent = importlib.import_module('chosen').Agent\n"
        "class Game:\n    size = 17\nagent = Agent(Game.size)\n"
    )
    write({"net.py": SIZED, "agent.py": agent, "main.py": main})
    assert width("net.py", "derived") == 17


def test_a_call_that_is_reached_comes_before_one_whose_condition_has_no_value(write: Write) -> None:
    unknown = (
        "from net import Net\nimport json\nconfig = json.load(open(path))\nif config['small']:\n    model = Net(3)\n"
    )
    known = (
        "import argparse\nfrom net import Net\np = argparse.ArgumentParser()\np.add_argument('--small', action='store_true')\n"
        "opt = p.parse_args()\nif opt.small:\n    model = Net(4)\nelse:\n    model = Net(17)\n"
    )
    write({"net.py": SIZED, "a.py": unknown, "b.py": known})
    assert width("net.py", "derived") == 17


def test_a_script_that_trains_comes_before_others(write: Write) -> None:
    loop = "for x in data:\n    loss = model(x).sum()\n    loss.backward()\n"
    write(
        {
            "net.py": SIZED,
            "a.py": "from net import Net\nmodel = Net(4)\n",
            "b.py": f"from net import Net\nmodel = Net(17)\n{loop}",
        }
    )
    assert width("net.py", "derived") == 17


def test_no_extra_layers_are_none(write: Write) -> None:
    net = HEAD + NET.format(name="size, n_extra_layers", width="size + n_extra_layers")
    write({"net.py": net, "train.py": "from net import Net\nmodel = Net(17, n_extra_layers=0)\n"})
    assert width("net.py", "derived") == 17


def test_an_error_of_assumed_arguments_says_so(write: Write) -> None:
    net = NET.format(name="hidden_size", width="hidden_size").replace(
        "__init__()\n", "__init__()\n        hidden_size.table()\n", 1
    )
    write({"net.py": HEAD + net})
    with pytest.raises(TargetError, match=r"with assumed hidden_size=\d+") as caught:
        width("net.py")
    assert caught.value.hint is not None
    assert "--kw" in caught.value.hint


def test_a_model_that_stands_for_one_that_failed_is_assumed(write: Write) -> None:
    large = NET.format(name="n", width="missing_package.size(n)").replace("Net", "Large")
    large = large.replace("        super", "        import missing_package\n        super")
    tests = "def test_net():\n    net = Large(1)\ndef test_small():\n    net = Net(17)\n"
    write({"net.py": SIZED + large + tests})
    info = load(TargetSpec(spec="net.py", inputs=("2,3",), mode="infer", command=("count", ""))).info
    assert (info.name, info.confidence.model) == ("Net", "assumed")
    assert next(choice.others for choice in info.choices if choice.subject == "model") == ("Large",)


def test_options_set_the_assumed_arguments_that_they_can(write: Write) -> None:
    net = HEAD + NET.format(name="hidden_size, config", width="hidden_size + config.extra")
    write({"net.py": net, "conf.py": "make(extra=1, a=2, b=3, c=4)\n"})
    choices = load(TargetSpec(spec="net.py", inputs=("2,3",), mode="infer", command=("count", ""))).info.choices
    options = next(choice.options for choice in choices if choice.subject == "arguments")
    assert options[0] == "--kw"
    assert options[1].startswith("hidden_size=")
    assert len(options) == 2

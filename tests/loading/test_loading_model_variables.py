"""Which variables of a program hold the model: whatever wraps it, by structure and not by name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from profiler_kit.counting import count_target
from profiler_kit.loading import load
from profiler_kit.loading.program import model_use
from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.model_use import ModelUse
from profiler_kit.loading.program.model_variables import model_names, returns_model
from profiler_kit.records.target import TargetSpec


def names_in(text: str, path: Path | None = None) -> frozenset[str]:
    return model_names(Document(tree=ast.parse(text), text=text, path=path, kind="target"), frozenset({"Net"}))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("net = FSDP(Net())\nnet(x)", {"net"}),
        ("net = thunder.jit(Net().cuda(), mode='x')\nnet(x)", {"net"}),
        ("net = Net()\nwrapped = Anything(net, device_ids=[0])\nwrapped(x)", {"net", "wrapped"}),
        ("net = Net()\nengine, opt, _, _ = deepspeed.initialize(args=args, model=net)\nengine(x)", {"net", "engine"}),
        (
            "net = Net()\nopt2, model2, loader2 = accelerator.prepare(opt, net, loader)\nmodel2(x)",
            {"net", "model2"},
        ),
        ("net = Net()\nhalf = net.half().to(device)", {"net", "half"}),
        ("net = Net() if big else DDP(Net(1))\nnet(x)", {"net"}),
        ("self.net = Net()\nself.ddp = wrap(self.net)\nSGD(self.ddp.parameters())", {"self.net", "self.ddp"}),
        # not the model: what only receives it, a model that has it as a part, and a result of calling it
        ("net = Net()\ntrainer = Trainer(net)\ntrainer.fit()", {"net"}),
        ("net = Net()\nscore = evaluate(net)\nnet(x)\nscore(1)", {"net"}),
        ("class Pair(Module): ...\npair = Pair(Net(), Net())\nnet = Net()\npair(x)", {"net"}),
        ("net = Net()\ny = net(x)\ny.parameters()", {"net"}),
        ("def train(m): m(x)\ntrain(Net())\nnet = Net()\ntrain(net)", {"net", "m"}),
    ],
)
def test_names_that_hold_the_model(text: str, names: set[str]) -> None:
    assert names_in(text) == names


def test_conventional_names_only_where_nothing_builds_the_model() -> None:
    assert {"model", "net"} <= names_in("def train(model): model(x)")
    assert "model" not in names_in("model = Teacher()\nmodel(x)")
    assert "model" in names_in("model = get_model(Config())\nmodel(x)")


def test_a_class_of_the_repository_that_takes_the_model_is_another_model(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("class Pair: ...\n")
    (tmp_path / "README.md").touch()
    text = "from nets import Pair\nfrom library import Shard\nnet = {}(Net())\nnet(x)"
    assert "net" in names_in(text.format("Shard"), tmp_path / "train.py")
    assert "net" not in names_in(text.format("Pair") + "\nother = Net()", tmp_path / "train.py")


def test_inputs_and_loss_of_a_script_whose_model_an_unknown_library_wraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "import torch\nfrom torch import nn\nfrom torch.distributed.fsdp import FullyShardedDataParallel as Shard\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.f = nn.Linear(12, 4)\n"
        "    def forward(self, x):\n        return self.f(x)\n"
        "def main():\n    net = Shard(Net())\n    x, y = torch.randn(7, 12), torch.randn(7, 4)\n"
        "    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "    for i in range(3):\n        loss = nn.functional.mse_loss(net(x), y)\n        loss.backward()\n"
        "        optimizer.step()\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    target = load(TargetSpec(spec="net.py"), device="meta")
    static = count_target(target)
    assert [tuple(item.shape) for item in target.info.inputs] == [(7, 12)]
    assert (target.info.loss, target.info.optimizer, static.forward.macs) == ("mse_loss", "SGD", 7 * 12 * 4)


def test_inputs_of_a_script_that_imports_the_model_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inputs, the loss and the optimizer ask the same question: which variable is the model."""
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.f = nn.Linear(12, 4)\n    def forward(self, x):\n        return self.f(x)\n"
    )
    Path("use.py").write_text(
        "import torch\nfrom net import Net as Classifier\nclf = Classifier()\nclf(torch.randn(9, 12))\n"
    )
    target = load(TargetSpec(spec="net.py"), device="meta")
    assert [tuple(item.shape) for item in target.info.inputs] == [(9, 12)]
    assert target.info.inputs_from == "evidence"


def test_a_document_is_read_once_for_all_of_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a library has thousands of calls; a reading of its imports for each takes half a minute."""
    reads: list[Document] = []

    def counted(document: Document) -> frozenset[str]:
        reads.append(document)
        return frozenset()

    monkeypatch.setattr(model_use, "own_classes", counted)
    text = "net = Net()\n" + "print(net(1))\n" * 30
    document = Document(tree=ast.parse(text), text=text, path=None, kind="target")
    assert len(list(ModelUse(builders=frozenset({"Net"})).calls(document))) == 30
    assert reads == [document]


def test_each_variable_is_looked_at_once() -> None:
    lines = "".join(f"    if name == {n}: net = make{n}(net)\n" for n in range(30))
    function = ast.parse(f"def build(name):\n{lines}    return net\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    asked: list[str] = []

    def builds_model(callee: ast.expr) -> None:
        asked.append(ast.unparse(callee))

    assert not returns_model(function, builds_model)
    assert sorted(asked) == sorted(f"make{n}" for n in range(30))

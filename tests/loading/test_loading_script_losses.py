"""Losses and optimizers as training scripts write them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from profiler_kit.counting import count_target
from profiler_kit.loading import Target, load
from profiler_kit.records.target import TargetSpec

HEAD = "import torch\nfrom torch import nn, optim\nimport torch.nn.functional as F\nimport argparse\n"
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)
        self.n_classes = 4
    def forward(self, x):
        return self.fc(x)
"""
TRAIN = """
def train(args, model, device, train_loader, optimizer):
    model.train()
    for i, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
{body}
        optimizer.step()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--regularize", action="store_true")
    parser.add_argument("--smooth", type=float, default=0.1)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Net().to(device)
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    loader = torch.utils.data.DataLoader(open("never"), batch_size=4)
    for epoch in range(2):
        train(args, model, device, loader, optimizer)

if __name__ == "__main__":
    main()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load_text(text: str, *inputs: str, device: str = "cpu", target: str = "net.py:Net", **options: object) -> Target:
    Path("net.py").write_text(HEAD + text)
    return load(TargetSpec(spec=target, inputs=inputs, **options), device=device)  # type: ignore[arg-type]


def step(target: Target) -> tuple[float, tuple[torch.Tensor, ...]]:
    """(loss, labels) of one training step."""
    output = target.model(*target.batch.args, **target.batch.kwargs)
    labels = target.labels_for(output)
    loss = target.loss(output, target.batch, labels)
    loss.backward()  # type: ignore[no-untyped-call]
    target.make_optimizer().step()
    return (float(loss.detach()) if target.device.type == "cpu" else 0.0), labels


def train_script(*lines: str) -> str:
    return NET + TRAIN.format(body="\n".join(f"        {line}" for line in lines))


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize(
    ("lines", "name", "kind"),
    [
        (
            "output = model(data); loss = F.nll_loss(F.log_softmax(output, 1), target); loss.backward()",
            "nll_loss",
            "class",
        ),
        ("F.cross_entropy(model(data), target).backward()", "cross_entropy", "class"),
        ("loss = nn.CrossEntropyLoss()(model(data), target); loss.backward()", "CrossEntropyLoss", "class"),
        ("with torch.autocast('cpu'): loss = F.mse_loss(model(data), target)\nloss.backward()", "mse_loss", "like"),
        (
            "out = model(data).sigmoid(); loss = F.binary_cross_entropy(out, target); scaler.scale(loss).backward()",
            "binary_cross_entropy",
            "binary",
        ),
        (
            "loss = F.cross_entropy(model(data), target, label_smoothing=args.smooth); accelerator.backward(loss)",
            "cross_entropy",
            "class",
        ),
    ],
)
def test_the_loss_of_the_training_loop_is_used(lines: str, name: str, kind: str, device: str) -> None:
    target = load_text(train_script(*lines.splitlines()), "3,6", device=device)
    loss, (label,) = step(target)
    assert target.info.loss == name
    assert any(note.startswith("loss: ") and ", as at net.py:" in note for note in map(str, target.info.notes))
    assert torch.isfinite(torch.tensor(loss))
    if kind == "class":
        assert (tuple(label.shape), label.dtype) == ((3,), torch.int64)
    else:
        assert (tuple(label.shape), label.dtype) == ((3, 4), torch.float32)
    if kind == "binary" and device == "cpu":
        assert 0 <= float(label.min()) <= float(label.max()) <= 1


@pytest.mark.parametrize(
    ("loss", "shape"),
    [
        ("F.smooth_l1_loss(model(data)[:, :3], target)", (5, 3)),  # the failed operation shows the size
        ("F.mse_loss(model(data)[:, :2].unsqueeze(1), target)", (5, 1, 2)),  # and the number of dimensions
    ],
)
def test_labels_get_the_size_that_the_loss_needs(loss: str, shape: tuple[int, ...]) -> None:
    target = load_text(train_script(f"{loss}.backward()"), "3,6", batch=5)
    _, (label,) = step(target)
    assert tuple(label.shape) == shape
    assert target.info.confidence.loss == "derived"


def test_every_device_uses_the_same_loss_and_labels() -> None:
    text = train_script("loss = F.cross_entropy(model(data), target)", "loss.backward()")
    first, second = load_text(text, "3,6"), load_text(text, "3,6")
    assert step(first)[0] == step(second)[0]


def test_a_branch_of_the_step_is_decided_by_the_options_of_the_script() -> None:
    text = train_script(
        "loss = F.cross_entropy(model(data), target)",
        "if args.regularize:",
        "    loss = loss + model.fc.weight.norm()",
        "loss.backward()",
    )
    target = load_text(text, "3,6")
    step(target)
    assert target.info.loss == "cross_entropy"


def test_a_sum_of_losses_keeps_all_terms() -> None:
    text = train_script(
        "out = model(data)",
        "loss = F.cross_entropy(out, target)",
        "if model.n_classes > 1:",
        "    loss += 0.5 * out.pow(2).mean()",
        "loss.backward()",
    )
    target = load_text(text, "3,6")
    output = target.model(*target.batch.args)
    (label,) = target.labels_for(output)
    expected = torch.nn.functional.cross_entropy(output, label) + 0.5 * output.pow(2).mean()
    assert torch.allclose(target.loss(output, target.batch, (label,)), expected)


def test_a_function_of_several_outputs_and_the_input() -> None:
    text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.decoder = nn.Linear(6, 2), nn.Linear(2, 6)
    def forward(self, x):
        mu = self.mean(x)
        return torch.sigmoid(self.decoder(mu)), mu

def loss_function(recon_x, x, mu):
    return F.binary_cross_entropy(recon_x, x.view(-1, 6), reduction="sum") + mu.pow(2).sum()

model = Net()
optimizer = optim.Adam(model.parameters(), lr=1e-3)

def train(train_loader):
    for data, _ in train_loader:
        recon_batch, mu = model(data)
        loss = loss_function(recon_batch, data, mu)
        loss.backward()
        optimizer.step()
"""
    target = load_text(text, "3,6")
    loss, labels = step(target)
    assert target.info.loss == "loss_function"
    assert "loss: loss_function(recon_batch, data, mu), as at net.py:23" in map(str, target.info.notes)
    assert loss > 0  # the input is compared with probabilities, so it was replaced by values in [0, 1]
    assert [tuple(label.shape) for label in labels] == [(3, 6)]
    assert target.info.optimizer == "Adam"


def test_the_loss_of_an_importing_script() -> None:
    Path("train.py").write_text(
        HEAD + "from net import Net\ncriterion = nn.MultiLabelSoftMarginLoss()\n"
        "model = Net()\nfor x, y in []:\n    loss = criterion(model(x), y)\n    loss.backward()\n"
    )
    target = load_text(NET, "3,6")
    _, (label,) = step(target)
    assert target.info.loss == "MultiLabelSoftMarginLoss"
    assert any("as at train.py:9" in note for note in map(str, target.info.notes))
    assert tuple(label.shape) == (3, 4)


def test_a_loss_that_does_not_run_here_is_replaced_by_the_default() -> None:
    text = train_script("loss = F.cross_entropy(model(data).view(7, 7), target)", "loss.backward()")
    target = load_text(text, "3,6")
    step(target)
    assert target.info.loss == "cross_entropy"
    assert any(note.startswith("loss: the training step at net.py:") for note in map(str, target.info.notes))


def test_a_loss_of_another_network_is_not_used() -> None:
    text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)
    def forward(self, x):
        return self.fc(x)
class Critic(Net):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)
generator, critic = Net(), Critic()
for x in []:
    loss = -critic(generator(x)).mean()
    loss.backward()
"""
    target = load_text(text, "3,6")
    step(target)
    assert target.info.loss == "cross_entropy"
    note = "loss: the training step at net.py:18 is not used, because it needs another network, critic"
    assert note in map(str, target.info.notes)


@pytest.mark.parametrize(
    ("words", "loss", "optimizer"), [({"loss": "sum"}, "sum", "SGD"), ({"optimizer": "adam"}, "cross_entropy", "adam")]
)
def test_an_option_wins_over_the_script(words: dict[str, str], loss: str, optimizer: str) -> None:
    target = load_text(train_script("loss = F.cross_entropy(model(data), target)", "loss.backward()"), "3,6", **words)
    step(target)
    assert (target.info.loss, target.info.optimizer) == (loss, optimizer)


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_the_optimizer_of_the_script(device: str) -> None:
    target = load_text(
        train_script("loss = F.cross_entropy(model(data), target)", "loss.backward()"), "3,6", device=device
    )
    optimizer = target.make_optimizer()
    assert isinstance(optimizer, torch.optim.SGD)
    assert (optimizer.defaults["lr"], optimizer.defaults["momentum"]) == (0.5, 0.9)
    assert any(
        note.startswith("optimizer: SGD(lr=0.5, momentum=0.9), as at net.py:") for note in map(str, target.info.notes)
    )
    assert {id(p) for p in target.model.parameters()} == {id(p) for g in optimizer.param_groups for p in g["params"]}


def test_an_optimizer_in_a_branch_that_is_not_taken() -> None:
    text = NET + (
        "use_adam = False\nmodel = Net()\nif use_adam:\n    optimizer = optim.Adam(model.parameters())\n"
        "else:\n    optimizer = optim.RMSprop(model.parameters())\n"
    )
    assert isinstance(load_text(text, "3,6").make_optimizer(), torch.optim.RMSprop)


def test_lbfgs_needs_a_closure_and_is_not_used() -> None:
    text = NET + "model = Net()\noptimizer = optim.LBFGS(model.parameters())\n"
    target = load_text(text, "3,6")
    assert isinstance(target.make_optimizer(), torch.optim.AdamW)
    assert any("LBFGS" in note for note in map(str, target.info.notes))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_fused_optimizers_are_built_on_meta(device: str) -> None:
    text = NET + "model = Net()\noptimizer = optim.AdamW(model.parameters(), fused=True)\n"
    assert isinstance(load_text(text, "3,6", device=device).make_optimizer(), torch.optim.AdamW)


LIGHTNING = """
class LightningModule(nn.Module):
    def log(self, name, value):
        raise RuntimeError("no trainer")

class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 4)
        self.example_input_array = torch.ones(3, 6)
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, batch_idx):
        x, y = batch
        {call}
        loss = F.cross_entropy(logits, y)
        self.log("train_loss", loss)
        return {returned}
    def configure_optimizers(self):
        optimizer = optim.RMSprop(self.parameters(), lr=0.125)
        scheduler = optim.lr_scheduler.StepLR(optimizer, 1)
        return {configured}
"""


@pytest.mark.parametrize(
    "configured",
    ["optimizer", "[optimizer]", "[optimizer], [scheduler]", "{'optimizer': optimizer, 'lr_scheduler': scheduler}"],
)
@pytest.mark.parametrize("returned", ["loss", "{'loss': loss}"])
def test_a_lightning_module(configured: str, returned: str) -> None:
    text = LIGHTNING.format(call="logits = self(x)", returned=returned, configured=configured)
    target = load_text(text)
    value, labels = step(target)
    assert target.info.loss == ("output" if returned == "loss" else "output.loss")
    (inputs, label) = target.batch.args[0]
    assert inputs.shape == (3, 6)
    assert label.shape == (3,)
    assert label.max() < 4
    assert not labels
    assert value == pytest.approx(torch.log(torch.tensor(4.0)), abs=1)
    assert target.info.optimizer == "RMSprop"
    assert any("configure_optimizers()" in note for note in map(str, target.info.notes))


def test_a_criterion_with_moves_to_a_gpu() -> None:
    text = train_script("loss = nn.L1Loss()(model(data.cuda()), target.cuda())", "loss.backward()")
    target = load_text(text, "3,6", device="meta")
    count_target(target)
    assert target.info.loss == "L1Loss"


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("def criterion(pred, target):\n    return F.l1_loss(pred, target)\n", "criterion"),
        ("loss_function = nn.BCEWithLogitsLoss()\n", "BCEWithLogitsLoss"),
        ("def loss_fn(pred, labels):\n    return F.nll_loss(pred.log_softmax(1), labels)\n", "loss_fn"),
        ("def loss_fn(output, x):\n    return (output.sum(1) - x.sum(1)).square().mean()\n", "loss_fn"),
        (
            "def evaluate(model, loader):\n    crit = nn.MSELoss()\n    with torch.no_grad():\n"
            "        for x, y in loader:\n            out = model(x)\n            total = crit(out, y).item()\n",
            "MSELoss",
        ),
    ],
)
def test_a_loss_that_no_backward_names(text: str, loss: str) -> None:
    target = load_text(NET + text, "3,6")
    assert step(target)[0] > 0
    assert target.info.loss == loss


def test_a_loss_fn_that_the_model_calls_is_not_the_loss_of_the_step() -> None:
    text = """
def loss_fn(teacher, student, temperature):
    return (teacher.detach() - student / temperature).square().mean()

class Distillation(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher, self.student = nn.Linear(6, 4), nn.Linear(6, 4)
    def forward(self, x):
        return loss_fn(self.teacher(x), self.student(x), 0.5)
"""
    target = load_text(text, "3,6", target="net.py:Distillation")
    step(target)
    assert target.info.loss == "output"


FROZEN = """
class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Linear(6, 4), nn.Linear(6, 4)
    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return {returned}
"""


@pytest.mark.parametrize("returned", ["features", "features.argmax(1)"])
def test_a_model_without_gradients_is_counted_as_inference(returned: str) -> None:
    target = load_text(FROZEN.format(returned=returned), "3,6", target="net.py:Features", device="meta")
    assert target.spec.mode == "infer"
    assert any(note.startswith("mode: infer, because the output of Features") for note in map(str, target.info.notes))
    assert count_target(target).forward.macs == 3 * 6 * 4


def test_only_outputs_with_gradients_are_summed() -> None:
    target = load_text(FROZEN.format(returned="features, self.head(x)"), "3,6", target="net.py:Features")
    step(target)
    assert target.info.loss == "sum"


def test_names_of_a_script_that_are_also_those_of_builtin_functions() -> None:
    """``input`` and ``sum`` are variables where the script assigns them, also before the call of the model."""
    text = (
        NET + "if __name__ == '__main__':\n    net = Net()\n    input = torch.randn(5, 6)\n    out = net(input)\n"
        "    sum = out.mean()\n    loss = sum * input.abs().max()\n    loss.backward()\n"
    )
    target = load_text(text)
    assert [tuple(tensor.shape) for tensor in target.batch.tensors()] == [(5, 6)]
    output = target.model(*target.batch.args)
    loss, _ = step(target)
    assert loss == pytest.approx(float((output.mean() * target.batch.args[0].abs().max()).detach()))


def test_attributes_that_a_step_assigns_are_variables_of_its_loss() -> None:
    text = NET + (
        "class Trainer:\n    def __init__(self):\n        self.net = Net()\n"
        "    def step(self, loader):\n        for x, y in loader:\n            self.real = x\n"
        "            self.fake = self.net(self.real)\n            self.fake.mul_(2)\n"
        "            self.total = F.l1_loss(self.fake, y) + self.real.pow(2).mean()\n            self.total.backward()\n"
    )
    target = load_text(text, "3,6")
    output = target.model(*target.batch.args)
    loss, (label,) = step(target)
    expected = torch.nn.functional.l1_loss(output * 2, label) + target.batch.args[0].pow(2).mean()
    assert label.shape == (3, 4)
    assert loss == pytest.approx(float(expected.detach()))


def test_a_backward_call_before_the_loss_is_not_part_of_it() -> None:
    """``loss.backward()`` changes ``loss``, but a loss that ran it would train."""
    text = train_script("output = model(data)", "loss = F.cross_entropy(output, target)", "loss.backward(retain_graph=True)",
                        "total = loss + output.mean()", "total.backward()")  # fmt: skip
    target = load_text(text, "3,6")
    step(target)
    loss = target.objective.script if target.objective is not None else None
    assert loss is not None
    assert "backward" not in loss.code.co_names


def test_a_block_without_gradients_keeps_the_module_of_its_context() -> None:
    text = train_script("output = model(data)", "with torch.no_grad():", "    scale = output.abs().max()",
                        "loss = F.cross_entropy(output / scale, target)", "loss.backward()")  # fmt: skip
    target = load_text(text, "3,6")
    output = target.model(*target.batch.args).detach()
    loss, (label,) = step(target)
    assert target.info.loss == "cross_entropy"
    assert loss == pytest.approx(float(torch.nn.functional.cross_entropy(output / output.abs().max(), label)))


@pytest.mark.parametrize("file", ["test_net.py", "tests/net_steps.py"])
def test_a_loss_of_a_test_is_assumed_and_comes_last(tmp_path: Path, file: str) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(6, 4)\n"
    )
    test = tmp_path / file
    test.parent.mkdir(exist_ok=True)
    step = "import torch\nfrom net import Net\nmodel = Net()\nx, y = torch.randn(3, 6), torch.randint(0, 4, (3,))\n"
    test.write_text(step + "model(x).sum().backward()\n")
    spec = TargetSpec(spec=str(tmp_path / "net.py"))
    alone = load(spec)
    count_target(alone)
    (tmp_path / "train.py").write_text(step + "torch.nn.functional.cross_entropy(model(x), y).backward()\n")
    trained = load(spec)
    count_target(trained)
    assert trained.info.loss == "cross_entropy"
    assert [any(choice.subject == "loss" for choice in target.info.choices) for target in (alone, trained)] == [
        True,
        False,
    ]

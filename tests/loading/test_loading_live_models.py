"""A model of this process is written for other processes, read there, and not changed."""

from __future__ import annotations

import copy
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading import load
from profiler_kit.loading.live.live_models import LiveModel, live_model, read_model, written_model
from profiler_kit.records.target import IN_PYTHON, TargetSpec


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8))
        self.body[2].weight = self.body[0].weight  # tied

    def forward(self, x: Tensor, scale: float = 1.0, bias: Tensor | None = None) -> Tensor:
        out: Tensor = self.body(x) * scale
        return out if bias is None else out + bias

    def own_loss(self, out: Tensor, *inputs: Tensor) -> Tensor:
        return out.mean() + self.body[0].weight.mean()


X = torch.zeros(4, 8)


def through_file(live: LiveModel, *, lazily: bool = False) -> LiveModel:
    with written_model(live) as file:
        return read_model(file, lazily=lazily)


def loaded(live: LiveModel, device: str = "cpu", **options: Any) -> Any:
    with written_model(live) as file:
        return load(TargetSpec(spec=IN_PYTHON, live=str(file), **options), device=device)


def test_weights_sharing_and_inputs_survive() -> None:
    net = Net()
    live = through_file(live_model(net, (torch.arange(3.0), 2.0), kwargs={"bias": X}, labels=X))
    assert all(
        torch.equal(a, b) for a, b in zip(net.state_dict().values(), live.model.state_dict().values(), strict=True)
    )
    assert live.model.body[0].weight is live.model.body[2].weight
    assert torch.equal(live.batch.args[0], torch.arange(3.0))
    assert live.batch.args[1] == 2.0
    assert torch.equal(live.batch.kwargs["bias"], live.batch.labels[0])


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_the_target_of_a_file(device: str) -> None:
    target = loaded(live_model(Net(), X), device, mode="infer")
    assert {p.device.type for p in target.model.parameters()} == {device}
    assert (target.info.spec, target.info.name, target.info.inputs_from) == ("Net", "Net", "caller")
    assert not target.model.training


def test_the_model_is_not_changed() -> None:
    net = Net().train()
    net.register_forward_hook(lambda *_: None)
    net(X).sum().backward()
    values = copy.deepcopy(net.state_dict())
    gradient = net.body[0].weight.grad
    random_state = torch.get_rng_state()
    target = loaded(live_model(net, X, loss_fn=net.own_loss))
    target.loss(target.model(X + 1), target.batch, ()).backward()
    assert net.training
    assert net.body[0].weight.grad is gradient
    assert len(net._forward_hooks) == 1
    assert all(torch.equal(a, b) for a, b in zip(values.values(), net.state_dict().values(), strict=True))
    assert torch.equal(random_state, torch.get_rng_state())


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_loss_that_is_a_method_uses_the_weights_of_the_copy(device: str) -> None:
    net = Net()
    target = loaded(live_model(net, X, loss_fn=net.own_loss), device)
    loss = target.loss(target.model(target.batch.args[0]), target.batch, ())
    loss.backward()
    assert target.model.body[0].weight.grad is not None


def test_a_dict_holds_keyword_inputs_or_is_the_input() -> None:
    class Whole(nn.Linear):
        def forward(self, batch: dict[str, Tensor]) -> Tensor:
            return super().forward(batch["images"])

    assert set(live_model(Net(), {"x": X, "bias": X}).batch.kwargs) == {"x", "bias"}
    assert set(live_model(Whole(8, 8), {"images": X}).batch.args[0]) == {"images"}


def test_the_optimizer_is_built_again_with_its_groups() -> None:
    net = Net()
    groups = [
        {"params": net.body[0].parameters(), "lr": 0.5, "weight_decay": 0.25},
        {"params": net.body[1].parameters()},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.125, betas=(0.5, 0.75))
    target = loaded(live_model(net, X, optimizer=optimizer))
    copied = target.make_optimizer()
    assert type(copied) is torch.optim.AdamW
    assert [
        (g["lr"], g["weight_decay"], g["betas"], [tuple(p.shape) for p in g["params"]]) for g in copied.param_groups
    ] == [
        (0.5, 0.25, (0.5, 0.75), [(8, 8), (8,)]),
        (0.125, 0.01, (0.5, 0.75), [(8,), (8,)]),
    ]
    assert copied.param_groups[0]["params"][0] is target.model.body[0].weight
    assert target.info.optimizer == "AdamW"


def test_an_optimizer_may_be_a_function() -> None:
    rate = 0.5
    target = loaded(live_model(Net(), X, optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=rate)))
    assert target.make_optimizer().param_groups[0]["lr"] == rate


def test_compiled_and_parallel_wrappers_are_removed() -> None:
    plain = Net()
    wrapped = live_model(nn.DataParallel(plain), X)
    assert wrapped.model is plain
    assert [*map(str, wrapped.notes)] == ["DataParallel: counted and measured as the module inside, on one device"]
    compiled = nn.Sequential(torch.compile(Net()), nn.Linear(8, 2))
    target = loaded(live_model(compiled, X, optimizer=torch.optim.SGD(compiled.parameters(), lr=1.0)))
    assert next(name for name, _ in target.model.named_parameters()) == "0.body.0.weight"
    assert any(
        note.startswith("torch.compile: ") and "ExperimentOptions" in note for note in map(str, target.info.notes)
    )
    assert len(target.make_optimizer().param_groups[0]["params"]) == len(list(compiled.parameters()))


def generator() -> Any:
    yield 1


def with_attribute(value: Any) -> Net:
    net = Net()
    net.body[1].extras = {"resources": [value]}
    return net


@pytest.mark.parametrize(
    ("create", "kind"),
    [
        (threading.Lock, "lock"),
        (generator, "generator"),
        (lambda: Path(__file__).open(), "TextIOWrapper"),  # noqa: SIM115 closed with its model
        (socket.socket, "socket"),
    ],
)
def test_what_cannot_be_sent_is_named(create: Callable[[], Any], kind: str) -> None:
    value = create()
    with pytest.raises(TargetError) as caught, written_model(live_model(with_attribute(value), X)):
        pass
    assert caught.value.message.startswith(f"model.body.1.extras['resources'][0] is a {kind}, which cannot be sent")
    assert "remove model.body.1.extras['resources'][0]" in (caught.value.hint or "")
    getattr(value, "close", lambda: None)()


def test_what_a_hook_or_a_loss_holds_is_named() -> None:
    lock = threading.Lock()
    net = Net()
    net.body[1].register_forward_hook(lambda *_: lock.locked())
    with pytest.raises(TargetError, match=r"model\.body\.1 \(forward hook\) \(variable lock\) is a lock"):
        through_file(live_model(net, X))

    def loss_fn(out: Tensor, *_: Tensor) -> Tensor:
        return out.mean() if lock.locked() else out.sum()

    with pytest.raises(TargetError, match=r"loss_fn \(variable lock\) is a lock"):
        through_file(live_model(Net(), X, loss_fn=loss_fn))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Net().to("meta"), X), "on the meta device"),
        (("Net", X), "expected an nn.Module, got a str"),
        ((Net(), "4,8"), "the inputs contain no tensor"),
    ],
)
def test_models_and_inputs_without_values_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises((TargetError, UsageError), match=message):
        live_model(*arguments)


def test_a_sharded_model_is_refused() -> None:
    kind = type("FullyShardedDataParallel", (nn.Module,), {})
    with pytest.raises(TargetError, match="sharded over processes"):
        live_model(nn.Sequential(kind()), X)


def test_wrong_optimizers_are_refused() -> None:
    with pytest.raises(UsageError, match="1 parameter that the model does not have, the first of shape \\(3,\\)"):
        live_model(Net(), X, optimizer=torch.optim.SGD([nn.Parameter(torch.zeros(3))], lr=1.0))
    with pytest.raises(UsageError, match="optimizer is a type"):
        live_model(Net(), X, optimizer=torch.optim.SGD)


def test_only_the_user_can_read_the_file_and_it_is_deleted() -> None:
    with written_model(live_model(Net(), X)) as file:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not file.parent.exists()


def test_a_full_disk_is_an_expected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(TargetError, match="no space for the weights of Net"), written_model(live_model(Net(), X)):
        pass


def test_classes_that_no_process_can_import_travel_by_value(tmp_path: Path) -> None:
    """As in a notebook: the class belongs to ``__main__`` or to a module that has no file."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(
        "from torch import nn\nclass Cell(nn.Linear):\n    def forward(self, x): return super().forward(x) * 2",
        namespace,
    )
    module = type(sys)("made_by_exec")
    sys.modules["made_by_exec"] = module
    try:
        exec("from torch import nn\nclass Made(nn.Linear): pass", vars(module))
        model = nn.Sequential(namespace["Cell"](8, 8), module.Made(8, 8))
        with written_model(live_model(model, X)) as file:
            code = (
                "from pathlib import Path; from profiler_kit.loading.live.live_models import read_model; "
                f"live = read_model(Path({str(file)!r}), lazily=False); print(live.model(*live.batch.args).shape)"
            )
            child = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
            )
    finally:
        del sys.modules["made_by_exec"]
    assert child.stdout.strip() == "torch.Size([4, 8])", child.stderr

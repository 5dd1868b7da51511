"""Inputs that nobody passed: found by search on meta tensors, or shown by the user's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading import load
from profiler_kit.loading.candidates.configs import AssumedConfig
from profiler_kit.loading.input_search import meta_run
from profiler_kit.loading.input_search.facts import facts_of
from profiler_kit.loading.input_search.outcomes import InputGuess, NoGuess
from profiler_kit.loading.input_search.roles import role_of
from profiler_kit.loading.input_search.search import search_inputs
from profiler_kit.loading.inputs import InputText, build_arguments, parse_input, parse_inputs
from profiler_kit.loading.vocabulary import Role
from profiler_kit.records.target import Pinned, TargetSpec


class Model(nn.Module):
    """A model whose forward is a function of its layers and its inputs."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)


def guessed(model: nn.Module, **arguments: object) -> list[str]:
    """The texts that the search finds for `model`."""
    result = search_inputs(model.to("meta"), arguments)
    assert isinstance(result, InputGuess), result
    assert result.doubt == ""
    return [str(text) for text in result.texts]


def conv_net(channels: int, classes: int, *, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, stride, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes)
    )


class Split(nn.Module):
    """Its last dimension is known from the sizes of its parts alone."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.sizes, self.layers = sizes, nn.ModuleList(nn.Linear(size, 2) for size in sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = torch.split(x, self.sizes, dim=-1)
        return self.layers[0](first) + self.layers[1](second)


def flat_net(side: int, channels: int = 3) -> nn.Module:
    """Two pools and a Linear layer that fits images of `side` only."""
    return nn.Sequential(
        nn.Conv2d(channels, 2, 3, padding=1), nn.MaxPool2d(2), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(2 * (side // 4) ** 2, 1000),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (conv_net(3, 10), "1,3,32,32"),
        (conv_net(3, 100), "1,3,32,32"),
        (conv_net(1, 10), "1,1,28,28"),
        (conv_net(3, 1000), "1,3,224,224"),
        (conv_net(3, 10, stride=2), "1,3,224,224"),
        (flat_net(32), "1,3,32,32"),
        (flat_net(48), "1,3,48,48"),
        (nn.Sequential(nn.Conv2d(3, 8, 32, 32), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2)), "2,3,32,32"),
        (Split([3, 5]), "1,8"),
        (flat_net(200), "1,3,200,200"),  # no usual size: solved
        (nn.Sequential(nn.ConvTranspose2d(100, 8, 4), nn.ReLU(), nn.ConvTranspose2d(8, 3, 4)), "1,100,1,1"),
        (nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)), "1,3,256,256"),
        (nn.Sequential(nn.Conv1d(2, 4, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 5)), "1,2,256"),
        (nn.Sequential(nn.Conv1d(2, 4, 3), nn.Flatten(), nn.Linear(4 * 998, 5)), "1,2,1000"),
        (nn.Sequential(nn.Conv3d(3, 4, 3), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 5)), "1,3,16,112,112"),
        (nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), "1,1,28,28"),
        (nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)), "1,3,32,32"),
        (nn.Sequential(nn.Linear(7, 2)), "1,7"),
        (nn.Sequential(nn.Linear(7, 4), nn.BatchNorm1d(4)), "2,7"),
        (nn.Sequential(nn.Embedding(50, 4), nn.Linear(4, 50)), "1,128:int64[0:50]"),
        (nn.Sequential(nn.Linear(6, 8), nn.TransformerEncoderLayer(8, 2, batch_first=True)), "1,128,6"),
    ],
)  # fmt: skip
def test_one_input_fits_its_model(model: nn.Module, expected: str) -> None:
    assert guessed(model) == [expected]


def test_the_sizes_that_a_model_states_are_used() -> None:
    assert guessed(conv_net(3, 10), image_size=96) == ["1,3,96,96"]
    assert guessed(nn.Sequential(nn.Embedding(50, 4)), block_size=64) == ["1,64:int64[0:50]"]
    assert guessed(nn.Sequential(nn.Embedding(50, 4)), block_size=4096) == ["1,1024:int64[0:50]"]
    facts = facts_of(nn.Linear(2, 2), {"opt": type("Options", (), {"imageSize": 64, "nz": 100})()})
    assert facts.latent is None  # a class attribute is no option
    assert facts_of(nn.Linear(2, 2), {"imageSize": 64}).image == (64, 64)


class Positions(Model):
    def forward(self, idx: Tensor) -> Tensor:
        return self.tokens(idx) + self.positions(torch.arange(idx.shape[1]))


class TwoTowers(Model):
    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.net(x1) - self.net(x2)


class Translator(Model):
    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.net(self.source(src), self.target(tgt))


class Denoiser(Model):
    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.out(self.conv(x) + self.steps(t)[:, :, None, None])


class Conditional(Model):
    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        return self.net(torch.cat((self.classes(labels), noise), -1))


class Recurrent(Model):
    def init_hidden(self, batch: int) -> tuple[Tensor, Tensor]:
        return torch.zeros(1, batch, 6), torch.zeros(1, batch, 6)

    def forward(self, tokens: Tensor, hidden: tuple[Tensor, Tensor]) -> Tensor:
        out, _ = self.rnn(self.table(tokens), hidden)
        return out


class Graph(Model):
    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return torch.mm(adj, self.weights(x))


class Keys(Model):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.net(batch["image"])


class Several(Model):
    def forward(self, xs: list[Tensor]) -> Tensor:
        return sum(self.net(x) for x in xs)


class Steps(Model):
    def forward(self, x: Tensor, n: int) -> Tensor:
        for _ in range(n):
            x = self.net(x)
        return x


class Masked(Model):
    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.net(self.table(ids), src_key_padding_mask=attention_mask)


class ByKeyword(Model):
    def forward(self, x: Tensor, **kwargs: Tensor) -> Tensor:
        return self.net(x) + self.of_class(kwargs["labels"].float())


class Numbered(Model):
    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.net(self.table(x[0]))


class Replaced(Model):
    def forward(self, x):  # type: ignore[no-untyped-def]
        x = x[0]
        return self.net(self.table(x))


class Unpacked(Model):
    def forward(self, x: Tensor) -> Tensor:
        n, frames, c, h, w = x.shape
        return self.net(x.view(n * frames, c, h, w)).view(n, frames, -1)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Positions(tokens=nn.Embedding(50, 4), positions=nn.Embedding(16, 4)), ["1,16:int64[0:50]"]),
        (TwoTowers(net=conv_net(1, 10)), ["1,1,28,28", "1,1,28,28"]),
        (
            Translator(
                net=nn.Transformer(8, 2, 1, 1, 8, batch_first=True), source=nn.Embedding(40, 8), target=nn.Embedding(30, 8)
            ),
            ["1,128:int64[0:40]", "1,128:int64[0:30]"],
        ),
        (
            Denoiser(conv=nn.Conv2d(3, 4, 3, padding=1), steps=nn.Embedding(1000, 4), out=nn.Conv2d(4, 3, 1)),
            ["1,3,256,256", "1:int64[0:1000]"],
        ),
        (Conditional(classes=nn.Embedding(10, 10), net=nn.Linear(110, 8)), ["1,100", "1:int64[0:10]"]),
        (
            Recurrent(table=nn.Embedding(30, 5), rnn=nn.LSTM(5, 6)),
            ["128,1:int64[0:30]", "hidden[0]=1,1,6", "hidden[1]=1,1,6"],
        ),
        (Graph(weights=nn.Linear(16, 4)), ["100,16", "100,100"]),
        (Keys(net=conv_net(3, 1000)), ["batch.image=1,3,224,224"]),
        (Several(net=conv_net(3, 10)), ["xs[0]=1,3,32,32", "xs[1]=1,3,32,32"]),
        (Steps(net=nn.Linear(4, 4)), ["1,4", "n:=1"]),
        (
            Masked(table=nn.Embedding(30, 8), net=nn.TransformerEncoderLayer(8, 2, batch_first=True)),
            ["1,128:int64[0:30]", "1,128:bool"],
        ),
        (ByKeyword(net=conv_net(3, 1000), of_class=nn.Linear(10, 1000)), ["1,3,224,224", "labels=1,10"]),
        (Numbered(table=nn.Embedding(30, 8), net=nn.Linear(8, 2)), ["x[0]=1,128:int64[0:30]"]),
        (Replaced(table=nn.Embedding(30, 8), net=nn.Linear(8, 2)), ["x[0]=1,128:int64[0:30]"]),
        (Unpacked(net=conv_net(3, 1000)), ["1,8,3,224,224"]),
    ],
)  # fmt: skip
def test_inputs_are_found_by_name_type_and_use(model: nn.Module, expected: list[str]) -> None:
    assert guessed(model) == expected


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("weights")


class Reads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x)
        return y if y.sum() > 0 else -y


class Endless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        while True:
            x = self.net(x)


def test_a_model_that_always_fails_ends_the_search() -> None:
    result = search_inputs(Broken().to("meta"), {})
    assert isinstance(result, NoGuess)
    assert isinstance(getattr(result.failure, "error", None), KeyError)


class ReadsThenMixes(nn.Module):
    """Meta tensors show only that the input has at least three features; the second layer needs six."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 1)

    def forward(self, points: Tensor) -> Tensor:
        near = points[:, :3].sum(1) > -100
        y: Tensor = self.net(points.transpose(1, 2)[near])
        return y


def test_an_input_that_torch_cannot_describe_is_a_failure() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(x.shape[0], 1 << 50)

    result = search_inputs(Net(), {}, seed=0)
    assert isinstance(result, NoGuess)


def test_a_loop_of_python_over_a_large_input_is_another_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    # the first one imports modules, which the limit must not end
    nn.Linear(6, 2, device="meta")(torch.zeros(1, 6, device="meta"))
    monkeypatch.setattr(meta_run, "_LOOP_S", 0.2)

    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while x.shape[1] > 100:
                pass
            return self.fc(x)

    assert guessed(Pairs()) == ["1,6"]


def test_a_guess_for_code_that_reads_values_is_checked_to_the_end() -> None:
    result = search_inputs(ReadsThenMixes().to("meta"), {})
    assert isinstance(result, InputGuess)
    assert (result.doubt, result.texts[0].shape[1]) == ("", 6)


def test_values_that_cannot_be_drawn_leave_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler_kit.meta.drawn_values.MAX_READS", 0)
    result = search_inputs(Reads().to("meta"), {})
    assert isinstance(result, InputGuess)
    assert "reads values" in result.doubt
    monkeypatch.setattr("profiler_kit.loading.input_search.meta_run.RUN_S", 0.2)
    result = search_inputs(Endless().to("meta"), {})
    assert isinstance(result, InputGuess)
    assert "takes long" in result.doubt


def test_the_search_changes_no_model_and_is_repeatable() -> None:
    model = flat_net(48).to("meta")
    before = {
        path: len(module._forward_hooks) + len(module._forward_pre_hooks) for path, module in model.named_modules()
    }
    first, second = search_inputs(model, {}), search_inputs(model, {})
    assert isinstance(first, InputGuess)
    assert isinstance(second, InputGuess)
    assert (first.texts, first.trials) == (second.texts, second.trials)
    assert before == {p: len(m._forward_hooks) + len(m._forward_pre_hooks) for p, m in model.named_modules()}


def test_a_correction_changes_only_what_is_wrong() -> None:
    start = (InputText(name="input", shape=(5, 3, 40, 40)),)
    result = search_inputs(conv_net(4, 10).to("meta"), {}, start=start, corrects=True)
    assert isinstance(result, InputGuess)
    assert [str(text) for text in result.texts] == ["5,4,40,40"]
    unbatched = search_inputs(
        conv_net(3, 10).to("meta"), {}, start=(InputText(name="input", shape=(3, 40, 40)),), corrects=True
    )
    assert isinstance(unbatched, InputGuess)
    assert [str(text) for text in unbatched.texts] == ["1,3,40,40"]


@pytest.mark.parametrize(
    ("name", "annotation", "role"),
    [
        ("x", "", Role.DATA),
        ("input_ids", "Tensor", Role.TOKENS),
        ("srcSeq", "", Role.TOKENS),
        ("tgt_key_padding_mask", "", Role.PADDING_MASK),
        ("src_mask", "", Role.ATTENTION_MASK),
        ("t", "", Role.TIME),
        ("t", "int", Role.INTEGER),
        ("h0", "", Role.STATE),
        ("edge_index", "", Role.EDGES),
        ("xs", "list[Tensor]", Role.LIST),
        ("return_features", "", Role.FLAG),
        ("src_img", "", Role.DATA),
    ],
)
def test_roles_of_parameters(name: str, annotation: str, role: Role) -> None:
    assert role_of(name, annotation) is role


@pytest.mark.parametrize("text", ["xs[0]=1,3,8,8", "batch.image=2,3:int64[0:9]", "n:=5", "mask:=None", "size:=(2, 3)"])
def test_items_and_values_are_inputs_too(text: str) -> None:
    assert str(parse_input(text)) == text


def test_items_become_one_argument() -> None:
    texts = parse_inputs(("1,2", "xs[1]=4", "xs[0]=3", "batch.a=5", "n:=7"))
    args, kwargs = build_arguments((text, str(text)) for text in texts)
    assert args == ("1,2",)
    assert kwargs == {"xs": ["xs[0]=3", "xs[1]=4"], "batch": {"a": "batch.a=5"}, "n": "n:=7"}
    with pytest.raises(UsageError, match="not the items of one list"):
        build_arguments((text, None) for text in parse_inputs(("xs[1]=4", "xs[3]=4")))


HEAD = "import torch\nfrom torch import nn\n"
NET = HEAD + (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.conv = nn.Conv2d(3, 4, 3)\n"
    "        self.fc = nn.Linear(4, 10)\n"
    "    def forward(self, x):\n"
    "        return self.fc(self.conv(x).mean((2, 3)))\n"
)
FLAT = HEAD + (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.fc = nn.Linear(784, 10)\n"
    "    def forward(self, x):\n"
    "        return self.fc(x)\n"
)
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def create(**files: str) -> None:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)

    return create


def inputs_of(**options: object) -> tuple[list[tuple[int, ...]], str, str]:
    """(shapes, source, notes) of the inputs of net.py."""
    target = load(TargetSpec(spec="net.py:Net", **options))  # type: ignore[arg-type]
    notes = " | ".join(note for note in map(str, target.info.notes) if note.startswith("inputs:"))
    return [tensor.shape for tensor in target.info.inputs], target.info.inputs_from, notes


@pytest.mark.parametrize(
    "call",
    [
        "    print(net(torch.randn(1, 3, 40, 48)).shape)\n",
        "    h = 40\n    x = torch.rand(1, 3, h, h + 8)\n    net.forward(x)\n",
        "    torch.onnx.export(net, torch.randn(1, 3, 40, 48), 'net.onnx')\n",
        "    from torchsummary import summary\n    summary(net, (3, 40, 48))\n",
        "    from torchinfo import summary\n    summary(net, input_size=(1, 3, 40, 48))\n",
        "    from thop import profile\n    profile(net, inputs=(torch.randn(1, 3, 40, 48),))\n",
    ],
)
def test_calls_of_the_model_show_its_inputs(write: Write, call: str) -> None:
    write(net=NET + "def test():\n    net = Net()\n" + call)
    shapes, source, notes = inputs_of()
    assert (shapes, source) == ([(1, 3, 40, 48)], "evidence")
    assert "net.py:1" in notes


def test_a_call_that_does_not_run_is_no_evidence(write: Write) -> None:
    write(net=NET + "def test():\n    net = Net()\n    net(torch.randn(1, 5, 8, 8))\n")
    assert inputs_of()[:2] == ([(1, 3, 32, 32)], "search")


LOOP = (
    "from torchvision import datasets, transforms\n"
    "from torch.utils.data import DataLoader\n"
    "loader = DataLoader(datasets.{data}('data', transform={transform}), batch_size=16)\n"
    "model = Net()\n"
    "for i, (images, labels) in enumerate(loader):\n"
    "    images = {prepared}\n"
    "    out = model(images)\n"
)


@pytest.mark.parametrize(
    ("text", "data", "transform", "prepared", "shape"),
    [
        (NET, "CIFAR10", "None", "images.to('cpu')", (16, 3, 32, 32)),
        (NET, "ImageFolder", "transforms.Compose([transforms.Resize(70), transforms.CenterCrop(64)])", "images", (16, 3, 64, 64)),
        (NET, "ImageFolder", "transforms.Compose([transforms.CenterCrop(90), transforms.Resize(64)])", "images", (16, 3, 64, 64)),
        (NET, "ImageFolder", "transforms.Compose([transforms.Resize((80, 64))]), "
            "target_transform=transforms.Compose([transforms.CenterCrop(90)])",
         "images", (16, 3, 80, 64)),
        (FLAT, "MNIST", "None", "images.reshape(-1, 28 * 28)", (16, 784)),
    ],
)  # fmt: skip
def test_data_sets_give_the_shape_of_an_example(
    write: Write, text: str, data: str, transform: str, prepared: str, shape: tuple[int, ...]
) -> None:
    write(net=text + LOOP.format(data=data, transform=transform, prepared=prepared))
    shapes, source, notes = inputs_of()
    assert (shapes, source) == ([shape], "data_set")
    assert "passes them" in notes


NORM = (
    "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.conv, self.norm = nn.Conv2d(3, 4, 32), nn.BatchNorm2d(4)\n"
    "    def forward(self, x):\n        return self.norm(self.conv(x)).flatten(1)\n"
)


def test_batch_normalization_of_one_value_gets_two_examples_of_a_data_set(write: Write) -> None:
    loop = LOOP.format(data="CIFAR10", transform="None", prepared="images").replace(
        "batch_size=16", "batch_size=unknown()"
    )
    write(net=NORM, train="from net import Net\n" + loop)
    assert inputs_of()[:2] == ([(2, 3, 32, 32)], "data_set")


def test_a_forward_that_is_a_method_for_the_compiler_of_torch(write: Write) -> None:
    """Its class has no attribute `forward`."""
    net = NET.replace("class Net(nn.Module)", "class Net(torch.jit.ScriptModule)")
    write(net=net.replace("    def forward", "    @torch.jit.script_method\n    def forward"))
    assert inputs_of()[1] == "search"


def test_a_data_set_of_another_model_is_not_used(write: Write) -> None:
    write(net=NET + LOOP.format(data="MNIST", transform="None", prepared="images"))
    assert inputs_of()[:2] == ([(16, 3, 32, 32)], "search")


def test_a_guess_is_pinned_for_later_loads(write: Write) -> None:
    write(net=NET)
    spec = load(TargetSpec(spec="net.py:Net")).spec
    assert spec.pinned is not None
    assert spec.pinned.inputs == ("1,3,32,32",)
    pinned = Pinned(candidate=spec.pinned.candidate, inputs=("1,3,20,20",), batch=4)
    target = load(TargetSpec(spec="net.py:Net", pinned=pinned), device="cpu")
    assert target.info.inputs[0].shape == (4, 3, 20, 20)
    assert target.info.inputs_from == "search"
    assert load(TargetSpec(spec="net.py:Net", pinned=pinned, batch=2)).info.inputs[0].shape == (2, 3, 20, 20)
    assert load(TargetSpec(spec="net.py:Net", pinned=pinned, inputs=("1,3,9,9",))).info.inputs[0].shape == (1, 3, 9, 9)


def test_no_inputs_name_the_closest_attempt(write: Write) -> None:
    write(net=HEAD + "class Net(nn.Module):\n    def forward(self, x):\n        raise KeyError('weights')\n")
    with pytest.raises(TargetError, match="KeyError: 'weights'") as failure:
        load(TargetSpec(spec="net.py:Net", mode="infer"))
    assert failure.value.where == "net.py:5"


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.transpose(2, 3)).softmax(-1) @ v


class Projections(Model):
    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        batch, length, _ = query.shape
        return (self.q(query) + self.k(key) + self.v(value)).view(batch, length, 4, -1)


def test_attention_gets_queries_keys_and_values_of_one_kind() -> None:
    assert guessed(Attention()) == ["1,8,128,64"] * 3
    assert guessed(Projections(q=nn.Linear(16, 8), k=nn.Linear(16, 8), v=nn.Linear(16, 8))) == ["1,128,16"] * 3


class LastSoftmax(Model):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.softmax(self.net(x), dim=2)


def test_a_softmax_over_a_missing_dimension_is_refused() -> None:
    assert guessed(LastSoftmax(net=nn.Linear(4, 2))) == ["1,128,4"]


class Documented(Model):
    def forward(self, image: Tensor) -> Tensor:
        """Detect objects.

        :param image: images, a tensor of dimensions (N, 3, 60, 60)
        """
        maps = self.net(image)
        return maps.flatten(1)[:, : 2 * 30 * 30].view(-1, 2, 30, 30)


def test_the_docstring_of_forward_states_the_image() -> None:
    assert guessed(Documented(net=nn.Conv2d(3, 2, 3, 2, 1))) == ["1,3,60,60"]


def test_the_data_set_of_an_imported_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.py").write_text(
        "import torch\nfrom torchvision import datasets\n"
        "def loaders(size):\n    return torch.utils.data.DataLoader(datasets.MNIST('.'), batch_size=size)\n"
    )
    Path("net.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.conv = nn.Conv1d(1, 2, 3)\n"
        "    def forward(self, x):\n        return self.conv(x).mean(2)\n"
    )
    Path("train.py").write_text(
        "from data import loaders\nfrom net import Net\nmodel = Net()\nlength = 28 * 28\n"
        "for x, y in loaders(16):\n    x = x.view(-1, 1, length)\n    model(x).sum().backward()\n"
    )
    target = load(TargetSpec(spec="net.py"))
    assert [tuple(tensor.shape) for tensor in target.batch.tensors()] == [(16, 1, 784)]
    assert any("train.py:7 passes them" in note for note in map(str, target.info.notes))


class Forecast(nn.Module):
    """A model of time series with marks of the time of each step; `configs` has fields that it does not read."""

    def __init__(self, configs: AssumedConfig) -> None:
        super().__init__()
        self.values, self.marks = nn.Conv1d(configs.enc_in, 8, 3, padding=1), nn.Linear(4, 8)

    def forward(self, x_enc: Tensor, x_mark_enc: Tensor) -> Tensor:
        return self.values(x_enc.transpose(1, 2)).transpose(1, 2) + self.marks(x_mark_enc)


def test_time_series_have_the_length_and_the_variables_of_the_configuration() -> None:
    configs = AssumedConfig({"enc_in": 7, "seq_len": 96})
    assert guessed(Forecast(configs), configs=configs) == ["1,96,7", "1,96,4"]


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.q(x) @ self.k(x).transpose(-2, -1), -1) @ x


class Compares(Attends):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.q(x) @ self.k(x).t()
        return y


@pytest.mark.parametrize(("kind", "rank"), [(Attends, 3), (Compares, 2)])
def test_matrices_below_a_batch_are_no_rows(kind: type[nn.Module], rank: int) -> None:
    """``transpose(-2, -1)`` is written for a batch of matrices, ``t()`` for one."""
    result = search_inputs(kind().to("meta"), {})
    assert isinstance(result, InputGuess)
    assert (len(result.texts[0].shape), result.texts[0].shape[-1]) == (rank, 64)


class Critic(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Linear(width, 1)

    def joined(self, *parts: Tensor) -> Tensor:
        y: Tensor = self.net(torch.cat(parts, -1))
        return y


class StateAction(Critic):
    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        return self.joined(state, action)


class Letters(Critic):
    def forward(self, s: Tensor, a: Tensor) -> Tensor:
        return self.joined(s, a)


class Observations(Critic):
    def forward(self, obs: Tensor, act: Tensor, goal: Tensor) -> Tensor:
        return self.joined(obs, act, goal)


class TextImage(Critic):
    def forward(self, text_features: Tensor, image_features: Tensor) -> Tensor:
        return self.joined(text_features, image_features)


@pytest.mark.parametrize(
    ("kind", "arguments", "widths"),
    [
        (StateAction, {"state_dim": 64, "action_dim": 10}, (64, 10)),
        (StateAction, {"num_inputs": 64, "num_actions": 10, "hidden_size": 256}, (64, 10)),
        (StateAction, {"n_states": 3, "n_actions": 71}, (3, 71)),
        (Letters, {"state_dim": 64, "action_dim": 10}, (64, 10)),
        (Observations, {"observation_dim": 50, "action_dim": 14, "goal_dim": 10}, (50, 14, 10)),
        (TextImage, {"text_dim": 24, "image_dim": 50}, (24, 50)),
        (StateAction, {"state_dim": 5, "action_dim": 5}, None),  # does not run: the trial decides
    ],
)
def test_sizes_that_only_add_up_follow_the_names(
    kind: type[Critic], arguments: dict[str, int], widths: tuple[int, ...] | None
) -> None:
    result = search_inputs(kind(74).to("meta"), arguments)
    assert isinstance(result, InputGuess)
    sizes = tuple(text.shape[-1] for text in result.texts)
    assert sum(sizes) == 74
    assert widths is None or sizes == widths


class Labeled(nn.Module):
    """A generator that changes an image towards a label: the label is a vector, which forward makes a map."""

    def __init__(self, c_dim: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3 + c_dim, 3, 3, padding=1)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        c = c.view(c.size(0), c.size(1), 1, 1)
        return self.conv(torch.cat([x, c.repeat(1, 1, x.size(2), x.size(3))], dim=1))


def test_a_concatenated_input_has_the_size_that_the_constructor_states_for_it() -> None:
    assert guessed(Labeled(5), c_dim=5) == ["1,3,256,256", "1,5"]


class Enlarged(nn.Module):
    """A network for larger images, whose second input is optional in the signature alone."""

    def __init__(self, in_channels: int, num_res_blocks: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2 * in_channels, in_channels, 3, padding=1)

    def forward(self, x: Tensor, low_res: Tensor | None = None) -> Tensor:
        height, width = x.shape[-2:]
        enlarged = nn.functional.interpolate(low_res, (height, width))
        return self.conv(torch.cat([x, enlarged], dim=1))


def test_an_optional_input_that_forward_reads_is_needed() -> None:
    found = guessed(Enlarged(3, 2), in_channels=3, num_res_blocks=2)
    assert found == ["1,3,256,256", "1,3,256,256"]


class Branches(nn.Module):
    """A network that gives no output unless one of its optional inputs is passed."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 8)

    def forward(self, ids: Tensor, items: Tensor | None = None, positive: Tensor | None = None) -> Tensor:
        if items is not None:
            scores = self.embedding(ids) @ self.embedding(items).transpose(2, 1)
        elif positive is not None:
            scores = self.embedding(ids) * self.embedding(positive)
        return scores


def test_a_variable_that_no_branch_sets_needs_an_optional_input() -> None:
    assert guessed(Branches()) == ["1,128:int64[0:30]", "1,128:int64[0:30]"]


class GraphSeries(nn.Module):
    """Four dimensions that are no image: (batch, nodes, steps, features), of which the last layer fixes the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(5, 8, (1, 3)), nn.Linear(10 * 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        steps = self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return self.last(steps.reshape(steps.shape[0], steps.shape[1], -1))


def test_one_of_four_dimensions_has_its_own_size() -> None:
    (text,) = guessed(GraphSeries())
    assert (text.split(",")[2], text.split(",")[3]) == ("12", "5")


class Asserts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.kernels, self.nodes = nn.Conv2d(3, 4, 1), 5, 25

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        assert adjacency.size(0) == self.kernels
        assert self.nodes == adjacency.shape[-1]
        return self.conv(x).sum() * adjacency


def test_an_assertion_states_a_size_of_any_dimension() -> None:
    assert guessed(Asserts())[1] == "5,25"


class Expands(nn.Module):
    """A speaker's vector is repeated along time."""

    def forward(self, x: Tensor, speaker: Tensor) -> Tensor:
        speaker = speaker.unsqueeze(-1).expand(-1, -1, x.size(-1))
        return torch.cat([x, speaker], dim=1)


class Sums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return torch.einsum("nchw, wv -> nchv", self.conv(x), adjacency)


@pytest.mark.parametrize(("kind", "ranks"), [(Expands, (3, 2)), (Sums, (4, 2))])
def test_expand_and_einsum_state_numbers_of_dimensions(kind: type[nn.Module], ranks: tuple[int, ...]) -> None:
    result = search_inputs(kind().to("meta"), {})
    assert isinstance(result, InputGuess)
    assert tuple(len(text.shape) for text in result.texts) == ranks


class Cloud(nn.Module):
    """Points by coordinates: no layer fixes their number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(3, 4, 1)

    def forward(self, xyz: torch.Tensor) -> torch.Tensor:
        batch, _, _ = xyz.shape
        return self.layer(xyz.transpose(2, 1)).amax(2).view(batch, -1)


def test_the_number_of_points_is_not_that_of_coordinates() -> None:
    (text,) = guessed(Cloud())
    assert text == "1,128,3"


class Pixels(nn.Module):
    """Its output has a row for each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).permute(0, 2, 3, 1).contiguous().view(-1, 2)


def test_rows_for_pixels_are_no_reason_for_one_pixel() -> None:
    assert guessed(Pixels()) == ["1,1,256,256"]

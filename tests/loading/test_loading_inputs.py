"""The -i grammar, and every place inputs are found in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from profiler_kit.loading import Batch, Target, example_count, load
from profiler_kit.loading.inputs import DTYPES, InputText, parse_input
from profiler_kit.records.target import TargetSpec

HEAD = "import torch\nfrom torch import nn\n"
CONV = HEAD + (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.conv = nn.Conv2d(3, 2, 1)\n"
    "    def forward(self, x, scale=None):\n"
    "        return self.conv(x)\n"
)
TOKENS = HEAD + (
    "class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.table = nn.Embedding(50, 4)\n"
    "    def forward(self, ids, mask=None):\n"
    "        return self.table(ids)\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load_text(folder: Path, text: str, *inputs: str, device: str = "cpu", **words: object) -> Target:
    (folder / "net.py").write_text(text)
    return load(TargetSpec(spec="net.py", inputs=inputs, **words), device=device)  # type: ignore[arg-type]


INTEGERS = [name for name in DTYPES if "int" in name]


@st.composite
def input_texts(draw: st.DrawFn) -> InputText:
    dtype = draw(st.none() | st.sampled_from(sorted(DTYPES)))
    low = high = None
    if dtype in INTEGERS and draw(st.booleans()):
        low = draw(st.integers(0, 100))
        high = draw(st.integers(low + 1, 127))
    elif (dtype is None or "float" in dtype) and draw(st.booleans()):
        low = draw(st.floats(-1e4, 1e4))
        high = low + draw(st.floats(0.5, 1e4))
    return InputText(
        shape=tuple(draw(st.lists(st.integers(1, 4), max_size=4))),
        name=draw(st.none() | st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)),
        dtype=dtype, low=low, high=high,
    )  # fmt: skip


@settings(derandomize=True)
@given(input_texts())
def test_text_and_input_are_each_others_inverse(text: InputText) -> None:
    assert parse_input(str(text)) == text


@settings(derandomize=True)
@given(input_texts())
def test_values_are_what_the_text_says(text: InputText) -> None:
    make = {"dtype": torch.float32, "device": torch.device("cpu")}
    first = text.make(generator=torch.Generator().manual_seed(3), **make)  # type: ignore[arg-type]
    again = text.make(generator=torch.Generator().manual_seed(3), **make)  # type: ignore[arg-type]
    assert first.shape == text.shape
    assert first.dtype == DTYPES[text.dtype or "float32"]
    assert torch.equal(first, again)
    low, high = (0, 2) if text.dtype in INTEGERS else (None, None)
    low, high = (low, high) if text.low is None else (text.low, text.high)
    if low is not None and high is not None and first.numel():
        slack = (
            0.01 * (high - low) + 0.01 * max(abs(low), abs(high)) if first.is_floating_point() else 0
        )  # half precision rounds
        assert first.min().item() >= low - slack
        assert first.max().item() < high + slack


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8,3,256,256", InputText(shape=(8, 3, 256, 256))),
        ("1", InputText(shape=(1,))),
        ("()", InputText(shape=())),
        ("t=():int64[0:1000]", InputText(shape=(), name="t", dtype="int64", low=0, high=1000)),
        ("ids=8,128:int64[0:30522]", InputText(shape=(8, 128), name="ids", dtype="int64", low=0, high=30522)),
        ("x=4:float16[-1.5:2]", InputText(shape=(4,), name="x", dtype="float16", low=-1.5, high=2)),
        ("mask=8,128:bool", InputText(shape=(8, 128), name="mask", dtype="bool")),
    ],
)
def test_grammar(text: str, expected: InputText) -> None:
    assert parse_input(text) == expected


def test_names_make_keywords(folder: Path) -> None:
    target = load_text(folder, CONV, "2,3,4,4", "scale=5")
    assert [tuple(t.shape) for t in target.batch.args] == [(2, 3, 4, 4)]
    assert {name: tuple(t.shape) for name, t in target.batch.kwargs.items()} == {"scale": (5,)}
    assert [(i.name, i.shape, i.dtype) for i in target.info.inputs] == [
        ("x", (2, 3, 4, 4), "float32"),
        ("scale", (5,), "float32"),
    ]
    assert target.info.inputs_from == "option"


@pytest.mark.parametrize(
    "value",
    [
        "torch.ones(2, 3, 4, 4)",
        "(torch.ones(2, 3, 4, 4),)",
        "[torch.ones(2, 3, 4, 4)]",
        "{'x': torch.ones(2, 3, 4, 4)}",
    ],
)
@pytest.mark.parametrize("style", ["example_inputs = {}\n", "def example_inputs():\n    return {}\n"])
def test_example_inputs_of_every_kind(folder: Path, value: str, style: str) -> None:
    target = load_text(folder, CONV + style.format(value))
    given_inputs = [*target.batch.args, *target.batch.kwargs.values()]
    assert torch.equal(given_inputs[0], torch.ones(2, 3, 4, 4))
    assert [(i.name, i.shape) for i in target.info.inputs] == [("x", (2, 3, 4, 4))]
    assert target.info.inputs_from == "example_inputs"


def test_inputs_beside_the_model_and_on_the_model(folder: Path) -> None:
    beside = load_text(folder, CONV + "def get_model():\n    return Net(), torch.ones(5, 3, 2, 2)\n")
    assert beside.info.inputs[0].shape == (5, 3, 2, 2)
    on_model = load_text(folder, CONV + "model = Net()\nmodel.example_input_array = torch.ones(6, 3, 2, 2)\n")
    assert on_model.info.inputs[0].shape == (6, 3, 2, 2)


def test_inputs_from_another_file(folder: Path) -> None:
    (folder / "feed.py").write_text(
        "import torch\ndef make():\n    return {'x': torch.ones(2, 3, 5, 5), 'scale': None}\n"
    )
    target = load_text(folder, CONV, "feed.py:make")
    assert target.info.inputs[0].shape == (2, 3, 5, 5)
    assert target.batch.kwargs["scale"] is None


SMOKE = "if __name__ == '__main__':\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    print(Net()(torch.randn(2, 3, 8, 8)).shape)\n", "2,3,8,8"),
        ("    net = Net().eval()\n    x = torch.rand((2, 3, 9, 9)).to('cpu')\n    y = net(x)\n", "2,3,9,9"),
        ("    B = 4\n    size = 7\n    m = Net()\n    m.forward(torch.zeros(B, 3, size, size))\n", "4,3,7,7"),
        (
            "    model = whatever()\n    x = torch.ones(1, 2)\n    x = torch.ones(2, 3, 6, 6)\n    model(x=x)\n",
            "3,3,5,5",  # test() builds the model that it calls
        ),
        ("    test()\n", "3,3,5,5"),
        (
            "    criterion = nn.MSELoss()\n    x = torch.ones(9, 9)\n    criterion(x, x)\n    Net()(torch.ones(2, 3, 4, 4))\n",
            "2,3,4,4",
        ),
    ],
)
def test_a_smoke_test_is_read_and_announced(folder: Path, body: str, expected: str) -> None:
    function = "def test():\n    net = Net()\n    y = net(torch.randn(3, 3, 5, 5))\n"
    target = load_text(folder, CONV + function + SMOKE + body)
    assert ",".join(map(str, target.info.inputs[0].shape)) == expected
    assert target.info.inputs_from == "evidence"
    assert any(note.code == "guessed" and "as net.py:" in note.text for note in target.info.notes)


def test_inputs_of_a_program_that_trains_are_no_guess(folder: Path) -> None:
    training = SMOKE + "    Net()(torch.randn(2, 3, 8, 8)).sum().backward()\n"
    target = load_text(folder, CONV + training)
    assert target.info.inputs[0].shape == (2, 3, 8, 8)
    assert not any(note.code == "guessed" for note in target.info.notes)


def test_a_smoke_test_of_another_model_is_not_taken(folder: Path) -> None:
    other = "class Other(nn.Module):\n    pass\n" + SMOKE + "    other = Other()\n    other(torch.randn(9, 9))\n"
    (folder / "net.py").write_text(CONV + other)
    assert load(TargetSpec(spec="net.py:Net")).info.inputs_from == "search"


def test_a_smoke_test_keeps_dtype_and_range(folder: Path) -> None:
    target = load_text(
        folder, TOKENS + SMOKE + "    Net()(torch.randint(0, 40, (2, 9)), torch.ones(2, 9, dtype=torch.bool))\n"
    )
    assert [(i.shape, i.dtype) for i in target.info.inputs] == [((2, 9), "int64"), ((2, 9), "bool")]
    assert target.batch.args[0].max() < 40


def test_the_first_option_wins(folder: Path) -> None:
    text = CONV + "example_inputs = torch.ones(2, 3, 4, 4)\n" + SMOKE + "    Net()(torch.ones(7, 3, 2, 2))\n"
    assert load_text(folder, text, "9,3,2,2").info.inputs[0].shape[0] == 9
    assert load_text(folder, text).info.inputs[0].shape[0] == 2
    assert load_text(folder, text.replace("example_inputs", "other")).info.inputs[0].shape[0] == 7


@pytest.mark.parametrize(
    ("layer", "shape", "dtype"),
    [
        ("nn.Conv1d(3, 2, 3)", (1, 3, 256), "float32"),
        ("nn.Conv2d(3, 2, 3)", (1, 3, 256, 256), "float32"),
        ("nn.Conv3d(3, 2, 3)", (1, 3, 16, 112, 112), "float32"),
        ("nn.Linear(7, 2)", (1, 7), "float32"),
        ("nn.Embedding(9, 2)", (1, 128), "int64"),
        ("nn.LSTM(7, 2, batch_first=True)", (1, 128, 7), "float32"),
        ("nn.TransformerEncoderLayer(8, 2)", (128, 1, 8), "float32"),
    ],
)
def test_a_guess_fits_its_layer_and_is_announced(folder: Path, layer: str, shape: tuple[int, ...], dtype: str) -> None:
    target = load_text(folder, HEAD + f"model = {layer}\n", device="meta")
    assert [(i.shape, i.dtype) for i in target.info.inputs] == [(shape, dtype)]
    assert target.info.inputs_from == "search"
    (note,) = [note for note in target.info.notes if note.code == "guessed"]
    (choice,) = [choice for choice in target.info.assumed if choice.subject == "inputs"]
    assert note.subject == "inputs"
    assert ",".join(map(str, shape)) in choice.value
    assert choice.value in note.text
    target.model(*target.batch.args)


def test_tokens_stay_inside_the_first_embedding(folder: Path) -> None:
    target = load_text(folder, TOKENS, "64,64:int64", "mask=64,64:int64")
    assert 40 < target.batch.args[0].max() < 50
    assert target.batch.kwargs["mask"].max() == 1
    assert any("[0, 50)" in note for note in map(str, target.info.notes))


def test_batch_replaces_the_leading_dimension_they_share(folder: Path) -> None:
    target = load_text(folder, CONV, "2,3,4,4", "scale=5", batch=6)
    assert [i.shape for i in target.info.inputs] == [(6, 3, 4, 4), (5,)]
    x = target.batch.args[0]
    assert torch.equal(x[0], x[2])
    assert not torch.equal(x[0], x[1])
    assert load_text(folder, CONV, "2,3,4,4", batch=1).info.inputs[0].shape == (1, 3, 4, 4)


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_dtype_casts_what_floats(folder: Path, device: str) -> None:
    text = CONV.replace("self.conv =", "self.register_buffer('steps', torch.zeros(1, dtype=torch.int64)); self.conv =")
    target = load_text(folder, text, "2,3,4,4", "scale=5:int64", device=device, dtype="bfloat16")
    assert {p.dtype for p in target.model.parameters()} == {torch.bfloat16}
    assert target.model.steps.dtype == torch.int64
    assert [i.dtype for i in target.info.inputs] == ["bfloat16", "int64"]
    assert target.model(*target.batch.args).dtype == torch.bfloat16


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_channels_last_reaches_model_and_inputs(folder: Path, device: str) -> None:
    target = load_text(folder, CONV, "2,3,4,4", device=device, channels_last=True)
    assert target.model.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert target.batch.args[0].is_contiguous(memory_format=torch.channels_last)
    assert not target.batch.args[0].is_contiguous()


def test_amp_autocasts_on_a_real_device(folder: Path) -> None:
    target = load_text(folder, CONV, "2,3,4,4", amp="bfloat16")
    with target.autocast():
        assert target.model(*target.batch.args).dtype == torch.bfloat16
    assert {p.dtype for p in target.model.parameters()} == {torch.float32}
    meta = load_text(folder, CONV, "2,3,4,4", amp="bfloat16", device="meta")
    assert not any(
        "--amp" in note for note in map(str, meta.info.notes)
    )  # the count knows whether its bytes include autocast


def test_a_model_without_trainable_parameters_is_counted_as_inference(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\nmodel = nn.Sequential(nn.Linear(4, 3)).requires_grad_(False)\n"
    )
    target = load(TargetSpec(spec=str(tmp_path / "net.py"), inputs=("2,4",)))
    assert (target.info.mode, target.info.loss, target.model.training) == ("infer", None, False)
    assert any(note.startswith("mode: infer, because Sequential") for note in map(str, target.info.notes))


IMAGES, SEQUENCE = torch.zeros(8, 3, 4, 4), torch.zeros(53, 2, 5)
PACKED = pack_sequence([torch.zeros(4, 5), torch.zeros(3, 5), torch.zeros(1, 5)])


@pytest.mark.parametrize(
    ("layer", "value", "count"),
    [
        (nn.Conv2d(3, 2, 1), IMAGES, 8),
        (nn.LSTM(5, 4), SEQUENCE, None),
        (nn.LSTM(5, 4, batch_first=True), SEQUENCE, 53),
        (nn.MultiheadAttention(4, 1), torch.zeros(2, 53, dtype=torch.long), None),
        (nn.MultiheadAttention(4, 1), IMAGES, 8),
        (nn.LSTM(5, 4), PACKED, 3),
        (nn.Identity(), torch.zeros(()), None),
        (nn.Identity(), {"x": torch.zeros(7, 2)}, 7),
        (nn.Identity(), 3, None),
    ],
)
def test_examples_are_counted_where_the_first_dimension_is_the_batch(
    layer: nn.Module, value: object, count: int | None
) -> None:
    assert example_count(Batch(args=(value,)), nn.Sequential(layer)) == count

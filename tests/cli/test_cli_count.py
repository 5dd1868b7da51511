"""`count` and `env` as a user calls them: deep models, shared modules and odd names, in every format and width."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from cli_files import HEAD, call

NAMES = ("a b", "\x1b[2J", "\u202e", "=1+1", "| x |", "`y`", "<script>", "(root)", "\n", "├ z", "日本語" * 20)
MODELS = {
    "resnet.py": HEAD
    + """
class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = nn.Conv2d(cin, cout, 1, stride) if cin != cout else None
    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.down is None else self.down(x)))
class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.layer1 = nn.Sequential(*(Block(8, 8, 1) for _ in range(6)))
        self.layer2 = nn.Sequential(Block(8, 16, 2), *(Block(16, 16, 1) for _ in range(5)))
        self.fc = nn.Linear(16, 10)
    def forward(self, x):
        return self.fc(self.layer2(self.layer1(self.stem(x))).mean((2, 3)))
example_inputs = torch.zeros(2, 3, 16, 16)
""",
    "transformer.py": HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True) for _ in range(12))
        self.head = nn.Linear(32, 100, bias=False)
        self.head.weight = self.embed.weight
    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
example_inputs = torch.zeros(2, 16, dtype=torch.long)
""",
    "shared.py": HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = self.a
        self.tower = nn.Sequential(self.a, nn.Linear(8, 8))
    def forward(self, x):
        return self.tower(self.b(self.a(x)))
example_inputs = torch.zeros(2, 8)
""",
    "odd.py": HEAD
    + """
NAMES = NAMES_HERE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        for name in NAMES:
            self.add_module(name, nn.Linear(8, 8))
    def forward(self, x):
        for module in self.children():
            x = module(x)
        return x
example_inputs = torch.zeros(2, 8)
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("count")
    for name, text in MODELS.items():
        (made / name).write_text(text.replace("NAMES_HERE", ascii(NAMES)), encoding="utf-8")
    return made


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("options", ["", "--by op --hardware h100", "--by layer --hardware a100", "--hardware rtx4090"])
def test_a_count_fits_a_hundred_columns(name: str, options: str, capfd: pytest.CaptureFixture[str]) -> None:
    ended = call(["count", name, "-q", *options.split()], capfd)
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out
    assert "\u202e" not in ended.out
    lines = ended.out.splitlines()
    assert max(sum(2 if ord(char) > 0x2E80 else 1 for char in line) for line in lines) <= 100
    assert len(lines) <= 80
    if "--hardware" in options:
        heads = " ".join(lines[: next(i for i, line in enumerate(lines) if line.startswith("total"))])
        assert "bound" in heads
        assert "floor" in heads
        assert ", datasheet: fp32 " in ended.out


def test_the_bytes_and_the_intensity_are_in_the_count(capfd: pytest.CaptureFixture[str]) -> None:
    for by in ("tree", "op"):
        out = call(["count", "resnet.py", "-q", "--by", by], capfd).out
        body = out[out.index("Modules (" if by == "tree" else "Ops (") :]
        assert "FLOP/B" in body
        assert "traffic" in body


def test_repeated_blocks_are_one_row(capfd: pytest.CaptureFixture[str]) -> None:
    out = call(["count", "resnet.py", "-q"], capfd).out
    assert "├ layer1.0-5 ×6" in out  # noqa: RUF001
    assert "│ ├ 0 " in out
    assert "│ └ 1-5 ×5" in out  # noqa: RUF001
    out = call(["count", "transformer.py", "-q"], capfd).out
    assert "├ layers.0-11 ×12" in out  # noqa: RUF001
    assert "│ ├ self_attn" in out


def test_depth_top_and_sort_shape_the_tree(capfd: pytest.CaptureFixture[str]) -> None:
    def rows(*options: str) -> list[str]:
        out = call(["count", "resnet.py", "-q", *options], capfd).out
        table = out[out.index("Modules (") : out.index("\ntotal")].splitlines()
        return [line.split("  ")[0] for line in table if line.startswith(("(", "├", "│", "└"))]

    assert rows("--depth", "0") == ["(root)", "(loss)"]
    assert rows("--depth", "1")[1:3] == ["├ (own ops)", "├ stem"]
    assert rows("--depth", "1", "--top", "1")[1:] == ["├ layer1.0-5 ×6", "└ (4 more)", "(loss)"]  # noqa: RUF001
    assert rows("--depth", "1", "--sort", "memory")[1].startswith("├ layer1")


def test_a_shared_module_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    out = call(["count", "shared.py", "-q"], capfd).out
    assert "├ a (also b and 1 more)" in out


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("by", ["tree", "layer", "op"])
def test_every_format_has_the_same_totals(name: str, by: str, capfd: pytest.CaptureFixture[str]) -> None:
    files = ["-o", "r.json", "-o", "r.md", "-o", "r.csv", "-o", "r.txt"]
    assert call(["count", name, "-q", "--by", by, "--hardware", "h100", *files], capfd).code == 0
    report = json.loads(Path("r.json").read_text())
    static = report["static"]
    flops = sum(static[phase]["flops"] for phase in ("forward", "loss", "backward", "recompute"))
    with Path("r.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert sum(int(row["flops"] or 0) for row in rows) == flops
    assert sum(float(row["floor_ns"] or 0) for row in rows) > 0
    if by != "op":
        assert next(int(row["total_params"]) for row in rows if row["path"] == "") == static["params"]
        step = next(phase for phase in report["roofline"][0]["phases"] if phase["phase"] == "step")
        assert sum(float(row["floor_ns"] or 0) for row in rows) == pytest.approx(step["layers_ns"], rel=1e-6)
    assert call(["show", "r.json", "--by", by], capfd).code == 0


def test_a_saved_count_shows_its_roof_again(capfd: pytest.CaptureFixture[str]) -> None:
    counted = call(["count", "resnet.py", "-q", "--hardware", "h200", "-o", "saved.json"], capfd)
    assert call(["show", "saved.json"], capfd).out == counted.out


def test_env_in_every_format(capfd: pytest.CaptureFixture[str]) -> None:
    ended = call(["env", "--device", "cpu", "-o", "env.md", "-o", "env.csv", "-f", "json"], capfd)
    assert ended.code == 0, ended.err
    machine = json.loads(ended.out)
    assert machine["ceilings"]["device"] == "cpu"
    assert machine["environment"]["torch"]
    assert "fp32" in Path("env.csv").read_text()
    assert "## Measured peaks" in Path("env.md").read_text()
    if not any("neither cached" in note for note in machine["notes"]):  # as they are where other tests use the machine
        assert "measuring" not in call(["env", "--device", "cpu", "-f", "csv"], capfd).err

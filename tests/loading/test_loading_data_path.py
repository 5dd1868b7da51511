"""Inputs that follow from the data path of a program: loaders, data sets, transforms, windows and reshapes."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from profiler_kit.loading import Target, load
from profiler_kit.loading.data_path.flow import Flow
from profiler_kit.loading.data_path.values import UNKNOWN, Array
from profiler_kit.loading.program.documents import Document
from profiler_kit.records.target import TargetSpec

HEAD = "import cv2\nimport numpy as np\nimport torch\nimport torch.nn.functional as F\nfrom PIL import Image\nfrom torch.utils.data import DataLoader\nfrom torchvision import transforms\n"  # noqa: E501


def sizes(text: str) -> Any:
    """The sizes and the type of the last expression of a program."""
    tree = ast.parse(HEAD + text)
    last = tree.body[-1]
    assert isinstance(last, ast.Expr)
    document = Document(tree=tree, text=text, path=None, kind="importer")
    value = Flow((document,), lambda document, node: UNKNOWN).follow(document, last.value)
    return (value.sizes, value.dtype) if isinstance(value, Array) else value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch.randn(2, 3).unsqueeze(1)", ((2, 1, 3), None)),
        ("np.zeros((4, 5)).reshape(-1, 10)", ((2, 10), None)),
        ("board().reshape(-1, 4, 6, 7)", ((None, 4, 6, 7), None)),
        ("torch.randint(0, 9, (2, 7))", ((2, 7), "int64")),
        ("torch.zeros(2, 3, 4).permute(2, 0, 1).float()", ((4, 2, 3), None)),
        ("torch.zeros(2, 3, 4).transpose(1, 2)", ((2, 4, 3), None)),
        ("torch.cat([torch.zeros(2, 3), torch.zeros(2, 5)], dim=1)", ((2, 8), None)),
        ("torch.stack([torch.zeros(3), torch.zeros(3)], 1)", ((3, 2), None)),
        ("torch.LongTensor([[1, 2, 3]])", ((1, 3), "int64")),
        ("F.one_hot(torch.zeros(2, 5).long(), 7)", ((2, 5, 7), "int64")),
        ("torch.zeros(8, 3)[2:5, None]", ((3, 1, 3), None)),
        ("torch.zeros(8, 3).size(1)", 3),
        ("cv2.resize(cv2.imread('a.png'), (64, 48))", ((48, 64, 3), "uint8")),
        ("cv2.cvtColor(cv2.resize(frame(), (64, 48)), cv2.COLOR_BGR2GRAY)", ((48, 64), "uint8")),
        ("np.array(Image.open('a.png').convert('L').resize((64, 48)))", ((48, 64), "uint8")),
        ("transforms.Compose([transforms.Resize((40, 30)), transforms.ToTensor()])(Image.open('a.png'))", ((3, 40, 30), None)),
        ("image = Image.open('a.png')\nx = left()\nimage = image.crop((x, 0, x + 32, 16))\nnp.array(image)",
         ((16, 32, 3), "uint8")),
        ("items = []\nfor i in range(7):\n    items.append(np.zeros(5))\nnp.array(items)", ((7, 5), None)),
        ("pair = [torch.zeros(9, 8, 3), torch.zeros(4, 4)]\npair[0] = pair[0].permute(2, 0, 1)\npair[0]", ((3, 9, 8), None)),
        ("sample = {'image': torch.zeros(9, 3)}\nsample['image'] = sample['image'].t()\nsample['image']", ((3, 9), None)),
        ("sample = read()\nsample['image'] = torch.zeros(9, 3)\nuse(sample)\nsample['image']", ((9, 3), None)),
        ("images = [torch.zeros(9, 3) for name in names]\nimages[0] = images[0].t()\nimages[1]", ((3, 9), None)),
        ("x = torch.zeros(4, 3)\nx[0] = torch.zeros(3)\nx", ((4, 3), None)),
        ("class First:\n    def __call__(self, x):\n        return torch.from_numpy(np.transpose(x, (2, 0, 1)))\n"
         "transforms.Compose([First(), transforms.Normalize(0, 1)])(cv2.imread('a.png'))", ((3, None, None), "uint8")),
        ("transforms.Compose([lambda x: x.permute(2, 0, 1), strange])(torch.zeros(9, 8, 3))", ((3, 9, 8), None)),
        ("start = first()\nsignal = load()\nsignal[start:start + 300]", ((300,), None)),
        ("x = load()\nif fast:\n    x = torch.zeros(2, 3)\nelse:\n    x = torch.zeros(4, 3)\nx", ((2, 3), None)),
        ("def double(x, times=2):\n    return x.repeat(1, times)\ndouble(torch.zeros(3, 4), times=3)", ((3, 12), None)),
        ("x = torch.zeros(2, 3)\nx = unknown(x)\nx", UNKNOWN),
        ("total = 0\nfor line in lines:\n    total = max(total, line)\ntorch.zeros(total, 3)", ((None, 3), None)),
    ],
)  # fmt: skip
def test_the_sizes_of_an_expression(text: str, expected: Any) -> None:
    found = sizes(text)
    assert found is UNKNOWN if expected is UNKNOWN else found == expected


@pytest.mark.parametrize(
    ("collate", "expected"),
    [
        ("", ((6, 3, 20), None)),
        (", collate_fn=lambda rows: torch.stack([row[0] for row in rows]).mean(1)", ((6, 20), None)),
    ],
)
def test_a_loader_gives_batches_of_what_its_data_set_returns(collate: str, expected: Any) -> None:
    text = f"""
class Signals:
    def __init__(self, length, channels=1):
        self.length, self.channels = length, channels
    def __getitem__(self, index):
        signal = np.zeros((self.channels, self.length))
        return torch.from_numpy(signal), self.labels[index]
loader = DataLoader(Signals(20, channels=3), batch_size=6{collate})
for step, batch in enumerate(loader):
    pass
{"batch" if collate else "batch[0]"}
"""
    assert sizes(text) == expected


def test_an_expression_that_follows_from_itself_is_unknown() -> None:
    assert sizes("def f(x):\n    return f(x)\nx = f(x)\nx") is UNKNOWN


NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
    def forward(self, x):
        return self.conv(x).mean((2, 3))

if __name__ == "__main__":
    print(Net()(torch.randn(2, 3, 64, 128)).shape)
"""
DATA = """
import random
from PIL import Image
from torch.utils.data import Dataset

class Photos(Dataset):
    def __init__(self, files, mode, transform, crop_size=400):
        self.files, self.mode, self.transform, self.crop_size = files, mode, transform, crop_size
    def __getitem__(self, index):
        image = Image.open(self.files[index])
        if self.mode == "train":
            image = self._cropped(image)
        else:
            image = image.resize((50, 50))
        return self.transform(image), 0
    def _cropped(self, image):
        left = random.randint(0, 9)
        return image.crop((left, left, left + self.crop_size, left + self.crop_size))

sets = {"photos": Photos}

def get_data(name, **options):
    return sets[name](**options)
"""
TRAIN = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from data import get_data
from net import Net
parser = argparse.ArgumentParser()
parser.add_argument("--crop-size", type=int, default=72)
parser.add_argument("--files", default="")

class Trainer:
    def __init__(self, args):
        options = {"transform": transforms.ToTensor(), "crop_size": args.crop_size, "files": args.files}
        self.loader = DataLoader(get_data("photos", mode="train", **options), batch_size=5)
        self.check = DataLoader(get_data("photos", mode="val", **options), batch_size=1)
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def validate(self):
        for images, labels in self.check:
            self.model(images)

    def train(self):
        for images, labels in self.loader:
            loss = nn.functional.cross_entropy(self.model(images), labels)
            loss.backward()
            self.optimizer.step()

if __name__ == "__main__":
    Trainer(parser.parse_args()).train()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load_net(net: str = NET, **files: str) -> Target:
    for name, text in {"net": net, **files}.items():
        Path(f"{name}.py").write_text(text)
    return load(TargetSpec(spec="net.py"), device="meta")


@pytest.mark.usefixtures("folder")
def test_the_crop_of_the_training_data_comes_before_the_trial_of_the_file() -> None:
    target = load_net(data=DATA, train=TRAIN)
    assert [tensor.shape for tensor in target.batch.tensors()] == [(5, 3, 72, 72)]
    assert target.info.confidence.inputs == "derived"
    (note,) = [note.text for note in target.info.notes if note.subject == "inputs"]
    assert note == "x=5,3,72,72, as train.py:27 passes them"


@pytest.mark.usefixtures("folder")
def test_sizes_that_a_program_leaves_open_are_searched() -> None:
    loop = """
import torch
from net import Net
model = Net()
for step in range(9):
    video = torch.zeros(4, 3, 88, width())
    model(video).sum().backward()
"""
    target = load_net(train=loop)
    ((batch, channels, height, width),) = [tensor.shape for tensor in target.batch.tensors()]
    assert (batch, channels, height) == (4, 3, 88)
    assert width > 3
    assert target.info.confidence.inputs == "assumed"


@pytest.mark.usefixtures("folder")
def test_sizes_with_which_forward_fails_are_not_used() -> None:
    loop = "import torch\nfrom net import Net\nmodel = Net()\nmodel(torch.zeros(4, 5, 88, 88)).sum().backward()\n"
    target = load_net(NET.partition("if __name__")[0], train=loop)
    assert next(target.batch.tensors()).shape[1] == 3
    assert target.info.confidence.inputs == "assumed"

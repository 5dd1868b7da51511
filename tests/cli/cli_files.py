"""Model files, good and bad, that the command line is tried on, and a way to call it in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from profiler_kit.cli import main

HEAD = "import torch\nfrom torch import nn\n"  # what follows begins in line 3


def net(forward: str = "return self.fc(x)", after: str = "example_inputs = torch.zeros(2, 4)\n") -> str:
    """A network of one Linear(4, 4), with this body of forward (line 8) and this code after it."""
    return HEAD + (
        "class Net(nn.Module):\n"
        "    def __init__(self, width=4):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(4, width)\n"
        "    def forward(self, x):\n"
        f"        {forward}\n"
        f"{after}"
    )


def in_worker(action: str) -> str:
    """A network that counts well, and does `action` when it runs on a CPU."""
    return net(f"if x.device.type == 'cpu': {action}\n        return self.fc(x)")


FILES = {
    "net.py": net(),
    "wide.py": net().replace("width=4", "width=8"),
    "two.py": net(after="").replace("Net", "Encoder") + net(after="").removeprefix(HEAD).replace("Net", "Decoder"),
    "tools.py": "WIDTH = 3\n",
    "weights.pt": "x",
    "nets/inner.py": net(),
    "syntax.py": "x = 1\ndef f(:\n",
    "package.py": "import no_such_package_at_all\n",
    "raises.py": net() + "1 / 0\n",
    "exits.py": net() + "import sys\nsys.exit(0)\n",
    "needy.py": net().replace("width=4", "table, rule").replace("(4, width)", "(4, len(open(table).read()) + rule)"),
    "choice.py": net().replace("width=4", "table, rule").replace("(4, width)", "(4, len(open(table).read()) + rule)")
    + "class Plain(Net):\n    def __init__(self):\n        nn.Module.__init__(self)\n        self.fc = nn.Linear(4, 4)\n",
    "none.py": net() + "def build():\n    Net()\n",
    "chain.py": HEAD + (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.features = nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.Flatten(), nn.Linear(2048, 10))\n"
        "    def forward(self, x):\n"
        "        return self.features(x)\n"
    ),
    "masked.py": HEAD + (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.table = nn.Embedding(100, 4)\n"
        "    def forward(self, ids, mask):\n"
        "        return self.table(ids) * mask.unsqueeze(-1)\n"
    ),
    "guessed.py": net(after=""),
    "quits.py": net("import sys; sys.exit(0)"),
    "greedy.py": net("raise MemoryError('no more')"),
    "row_loss.py": net() + "def loss_fn(output, x):\n    return output.sum(1)\n",
    "raw.py": net("import os; print('said'); os.system('echo shouted'); return self.fc(x)"),
    "empty_loader.py": net(after="train_loader = []\n"),
    "nul.py": "x = 1\x00\n",
    "talks.py": net("raise ValueError('x' * 100_000)"),
    "huge.json": '{"schema": 1, "tool": 1' + "0" * 400 + "}",
    "not_json.json": "this is no JSON",
    "other.json": '{"a": 1}',
    "newer.json": '{"schema": 99}',
    "wrong_type.json": '{"schema": 1, "tool": 3}',
    "file": "a file, no folder",
}  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a call of the command line ended, and what it said."""

    code: int
    out: str
    err: str


def call(argv: Sequence[str], capfd: pytest.CaptureFixture[str]) -> Ended:
    """Runs the command line in this process. What was said before is forgotten."""
    capfd.readouterr()
    code = main(list(argv))
    said = capfd.readouterr()
    return Ended(code, said.out, said.err)


def write(folder: Path) -> None:
    """Writes `FILES` into `folder`."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

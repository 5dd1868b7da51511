"""Texts of small files that tests of loading write."""

from __future__ import annotations

HEAD = "import torch\nfrom torch import nn\n"
# `name`: the parameters of the constructor; `width`: the width of the layer
NET = (
    "class Net(nn.Module):\n"
    "    def __init__(self, {name}):\n"
    "        super().__init__()\n"
    "        self.fc = nn.Linear(3, {width})\n"
    "    def forward(self, x):\n"
    "        return self.fc(x)\n"
)

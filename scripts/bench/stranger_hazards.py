"""Files that do at import what a model file should not do. `count` must handle each within the time limit, with no trace left."""

from __future__ import annotations

from typing import Final

MODEL: Final = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))
"""

# Name of the file: the lines after the model's class.
HAZARDS: Final[dict[str, str]] = {
    "endless_loop.py": """
counter = 0
while True:
    counter += 1
""",
    "input.py": """
name = input("name of the run: ")
""",
    "exit.py": """
import sys

sys.exit(1)
""",
    "training.py": """
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(10**9):
    loss = net(torch.randn(8, 3, 32, 32)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.save(net.state_dict(), "net.pt")
""",
    "download.py": """
import os
import urllib.request

os.makedirs("data", exist_ok=True)
urllib.request.urlretrieve("http://example.com/weights.pt", "data/weights.pt")
weights = torch.load("data/weights.pt")
""",
    "processes.py": """
import os
import subprocess
import sys
import time

subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
if os.fork() == 0:
    time.sleep(600)
    os._exit(0)
with open("log.txt", "w") as log:
    log.write("started")
""",
}


def source_of(name: str) -> str:
    """Return the text of the file."""
    return MODEL + HAZARDS[name]

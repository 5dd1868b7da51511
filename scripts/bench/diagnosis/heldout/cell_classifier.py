"""Cell types in bfloat16 and channels_last, with wide convolutions and a large batch: nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "nothing"
DEVICE = "cuda"


class Stage(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
        self.same = nn.Conv2d(outputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.same(torch.relu_(self.down(x))))


def train(device: str) -> Iterator[None]:
    torch.backends.cudnn.benchmark = True
    model = nn.Sequential(
        nn.Conv2d(8, 128, 4, stride=4),
        Stage(128, 256),
        Stage(256, 512),
        Stage(512, 1024),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1024, 16),
    )
    model = model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    cells = torch.rand(256, 8, 256, 256, device=device, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    types = torch.randint(0, 16, (256,), device=device)
    while True:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(cells), types)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield

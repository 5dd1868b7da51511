"""Food photos in channels_last and bfloat16: widths of 67 and 131 channels do not fit the tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "channels"
DEVICE = "cuda"
ALSO = ("layout", "copies")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.conv2(torch.relu(self.conv1(x))))


def train(device: str) -> Iterator[None]:
    torch.backends.cudnn.benchmark = True
    model = nn.Sequential(
        nn.Conv2d(3, 67, 4, stride=4), Block(67), Block(67), nn.Conv2d(67, 131, 2, stride=2), Block(131), Block(131), Block(131),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(131, 101),
    )  # fmt: skip
    model = model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    photos = torch.rand(96, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    dishes = torch.randint(0, 101, (96,), device=device)
    while True:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(photos), dishes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield

"""A small digit classifier with its own DataLoader: a step includes the time to load data.

The digits are generated: strokes, randomly shifted, slanted and scaled, with noise.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SIZE = 28
COUNT = 3000
MEAN, STD = 0.13, 0.27

# Each digit as strokes (x0, y0, x1, y1) on a 2 wide, 4 high grid, y downwards.
STROKES: dict[int, list[tuple[float, float, float, float]]] = {
    0: [(0, 0, 2, 0), (2, 0, 2, 4), (2, 4, 0, 4), (0, 4, 0, 0)],
    1: [(0.3, 0.9, 1.2, 0), (1.2, 0, 1.2, 4)],
    2: [(0, 0.6, 1, 0), (1, 0, 2, 0.8), (2, 0.8, 0, 4), (0, 4, 2, 4)],
    3: [(0, 0, 2, 0), (2, 0, 0.8, 1.8), (0.8, 1.8, 2, 2.8), (2, 2.8, 1.2, 4), (1.2, 4, 0, 3.8)],
    4: [(1.5, 4, 1.5, 0), (1.5, 0, 0, 2.7), (0, 2.7, 2, 2.7)],
    5: [(2, 0, 0, 0), (0, 0, 0, 1.8), (0, 1.8, 2, 1.9), (2, 1.9, 2, 4), (2, 4, 0, 4)],
    6: [(1.7, 0, 0, 2.4), (0, 2.4, 0, 4), (0, 4, 2, 4), (2, 4, 2, 2.3), (2, 2.3, 0, 2.4)],
    7: [(0, 0, 2, 0), (2, 0, 0.6, 4), (0.5, 2, 1.9, 2)],
    8: [(0, 0, 2, 0), (2, 0, 0, 4), (0, 4, 2, 4), (2, 4, 0, 0)],
    9: [(2, 1.8, 0, 1.8), (0, 1.8, 0, 0), (0, 0, 2, 0), (2, 0, 2, 1.8), (2, 1.8, 1.4, 4)],
}


@cache
def draw_digits(count: int = COUNT, seed: int = 0) -> tuple[Tensor, Tensor]:
    """`count` gray images (count, 28, 28) of uint8 and their labels, the same for the same seed."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (count,), generator=random)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=random)

    scale, slant, thickness = uniform(3.2, 4.8), uniform(-0.25, 0.25), uniform(0.8, 1.5)
    left, top = uniform(6, 12), uniform(3, 6)
    noise = 0.08 * torch.randn(count, SIZE, SIZE, generator=random)

    y, x = torch.meshgrid(torch.arange(SIZE) + 0.5, torch.arange(SIZE) + 0.5, indexing="ij")
    images = torch.empty(count, SIZE, SIZE)
    for digit, strokes in STROKES.items():
        rows = labels == digit
        # pixel centers in the grid of the strokes
        v = (y - top[rows]) / scale[rows]
        u = (x - left[rows]) / scale[rows] - slant[rows] * (2 - v)
        distance = torch.full_like(u, torch.inf)
        for x0, y0, x1, y1 in strokes:
            dx, dy = x1 - x0, y1 - y0
            along = (((u - x0) * dx + (v - y0) * dy) / (dx * dx + dy * dy)).clamp(0, 1)
            distance = torch.minimum(distance, torch.hypot(u - x0 - along * dx, v - y0 - along * dy))
        images[rows] = (thickness[rows] + 0.5 - distance * scale[rows]).clamp(0, 1)
    return ((images + noise).clamp(0, 1) * 255).to(torch.uint8), labels


class Digits(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, count: int = COUNT) -> None:
        self.images, self.labels = draw_digits(count)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.images[index].unsqueeze(0).float() / 255
        return (image - MEAN) / STD, self.labels[index]


class MnistCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.fc = nn.Linear(320, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        scores: Tensor = self.fc(x.flatten(1))
        return scores


def example_inputs() -> Tensor:
    return torch.randn(100, 1, SIZE, SIZE)


def train_loader() -> DataLoader[tuple[Tensor, Tensor]]:
    return DataLoader(Digits(), batch_size=100, shuffle=True, generator=torch.Generator().manual_seed(0))


def loss_fn(output: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(output, labels)


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

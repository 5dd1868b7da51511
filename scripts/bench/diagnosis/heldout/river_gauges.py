"""A flood forecaster decodes every gauge record in Python inside its data set, in the process that trains."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CAUSE = "data"
DEVICE = "cpu"


class Gauges(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, stations: int = 512, hours: int = 720) -> None:
        self.lines = [
            ";".join(f"{math.sin(hour / 24 + station):.4f}" for hour in range(hours)) for station in range(stations)
        ]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        levels = [float(value) for value in self.lines[index].split(";")]
        smooth = [sum(levels[max(0, i - 48) : i + 1]) / min(i + 1, 49) for i in range(len(levels))]
        return torch.tensor(smooth[:-24]), torch.tensor(max(smooth[-24:]))


class Forecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Sequential(nn.Conv1d(1, 8, 9, stride=4), nn.ReLU(), nn.Conv1d(8, 16, 9, stride=4), nn.ReLU())
        self.head = nn.LazyLinear(1)

    def forward(self, levels: Tensor) -> Tensor:
        peak: Tensor = self.head(self.filters(levels.unsqueeze(1)).flatten(1))
        return peak.squeeze(1)


def train(device: torch.device) -> Iterator[None]:
    model = Forecaster().to(device)
    loader = DataLoader(Gauges(), batch_size=64, shuffle=True)
    model(torch.zeros(1, 696, device=device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:
        for levels, peak in loader:
            loss = nn.functional.mse_loss(model(levels.to(device)), peak.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield

"""Rainfall forecast: an LSTM cell written by hand is called for 16 time steps; every op works on 8 x 12 numbers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "launch"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("Forecast", "-i", "8,16,12")
STEPS = 1


class Cell(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.forget = nn.Linear(2 * size, size)
        self.update = nn.Linear(2 * size, size)
        self.output = nn.Linear(2 * size, size)
        self.candidate = nn.Linear(2 * size, size)

    def forward(self, x: Tensor, hidden: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        both_inputs = torch.cat([x, hidden], 1)
        memory = torch.sigmoid(self.forget(both_inputs)) * memory
        memory = memory + torch.sigmoid(self.update(both_inputs)) * torch.tanh(self.candidate(both_inputs))
        return torch.sigmoid(self.output(both_inputs)) * torch.tanh(memory), memory


class Forecast(nn.Module):
    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.cell = Cell(size)
        self.rain = nn.Linear(size, 1)
        self.size = size

    def forward(self, series: Tensor) -> Tensor:
        hidden = memory = torch.zeros(len(series), self.size, device=series.device)
        for hour in range(series.shape[1]):
            hidden, memory = self.cell(series[:, hour], hidden, memory)
        rain: Tensor = self.rain(hidden)
        return rain


def train(device: str) -> Iterator[None]:
    model = Forecast().to(device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    while True:
        series, rain = torch.randn(8, 16, 12, device=device), torch.rand(8, 1, device=device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(series), rain)
        loss.backward()
        optimizer.step()
        yield

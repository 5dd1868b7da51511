"""Keyword spotting: each item is resampled and turned into a spectrogram by one worker, which cannot keep up."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CAUSE = "data"
STEPS = 2

RATE = 16_000


class Words(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 2048

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        wave = torch.sin(torch.arange(RATE) * (0.01 + index * 1e-5)) + 0.1 * torch.randn(RATE)
        wave = nn.functional.interpolate(wave[None, None], scale_factor=1.5, mode="linear")[0, 0]
        spectrum = torch.stft(wave, 512, hop_length=64, window=torch.hann_window(512), return_complex=True)
        return spectrum.abs().clamp(min=1e-5).log()[:64, ::4], index % 12


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(64, 64, 5, stride=2)
        self.conv2 = nn.Conv1d(64, 64, 5, stride=2)
        self.out = nn.Linear(64, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        logits: Tensor = self.out(x.mean(2))
        return logits


def train(device: str) -> Iterator[None]:
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for spectra, words in DataLoader(Words(), batch_size=64, num_workers=1):
        loss = criterion(model(spectra.to(device)), words.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield

"""Credit risk: autocast around many narrow layers; the casts cost more than the faster matrix products save."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "autocast"
DEVICE = "cuda"
ALSO = ("copies", "pointwise")


class Tower(nn.Module):
    def __init__(self, fields: int = 24, width: int = 32) -> None:
        super().__init__()
        self.narrow = nn.ModuleList(nn.Linear(width, width) for _ in range(fields))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(fields))
        self.risk = nn.Linear(width, 1)

    def forward(self, fields: Tensor) -> Tensor:
        columns = fields.unbind(1)
        total = torch.zeros_like(columns[0])
        for column, layer, norm in zip(columns, self.narrow, self.norms, strict=True):
            total = total + norm(layer(column)).float()
        risk: Tensor = self.risk(total)
        return risk


def train(device: str) -> Iterator[None]:
    model = Tower().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda")
    fields, default = torch.randn(400_000, 24, 32, device=device), torch.rand(400_000, 1, device=device).round()
    while True:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.binary_cross_entropy_with_logits(model(fields), default)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        yield

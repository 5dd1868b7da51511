"""A detector chooses its positive boxes with boolean masks and nonzero in every level, each of which waits for the device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "sync"
DEVICE = "cuda"
ALSO = ("launch",)


def level_loss(scores: Tensor, boxes: Tensor, target: Tensor) -> Tensor:
    """The loss over the positive boxes of every picture of one level."""
    losses = []
    for score, box, wanted in zip(scores, boxes, target, strict=True):
        positive = wanted[:, 0] > 0.5
        index = positive.nonzero().squeeze(1)
        if len(index) == 0:
            continue
        losses.append(nn.functional.smooth_l1_loss(box[positive], wanted[index]))
        losses.append(nn.functional.softplus(-score[positive]).mean())
    return torch.stack(losses).mean()


def train(device: str) -> Iterator[None]:
    """Train a detection head on two levels."""
    body = nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU()).to(device)
    down = nn.Conv2d(128, 128, 3, 2, 1).to(device)
    head = nn.Conv2d(128, 5, 1).to(device)
    optimizer = torch.optim.AdamW([*body.parameters(), *down.parameters(), *head.parameters()], lr=1e-3, fused=True)
    pictures = torch.randn(16, 3, 256, 256, device=device)
    targets = [torch.rand(16, cells, 4, device=device) for cells in (64 * 64, 32 * 32)]
    while True:
        fine = body(pictures)
        total = torch.zeros((), device=device)
        for features, target in zip((fine, down(fine)), targets, strict=True):
            out = head(features).flatten(2).transpose(1, 2)
            total = total + level_loss(out[..., 0], out[..., 1:], target)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        yield

"""One rank has longer sequences than the other, which waits for it in each step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CAUSE = "straggler"
DEVICE = "cuda"
RANKS = 2
STEPS = 2
FORMS = ("plain",)
ALSO = ("communication", "precision")


def train(device: str) -> Iterator[None]:
    """Train an encoder on batches of unequal length."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = DistributedDataParallel(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(32, 768 if dist.get_rank() == 1 else 256, 512, device=device)
    while True:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield

"""Art styles: a vision transformer trains in TF32, where autocast to bfloat16 would roughly halve the step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "precision"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("Encoder", "-i", "64,3,224,224")
DEVICE = "cuda"


class Encoder(nn.Module):
    def __init__(self, width: int = 1024, heads: int = 16, depth: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.style = nn.Linear(width, 27)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.style(x.mean(1))
        return logits


def train(device: str) -> Iterator[None]:
    torch.set_float32_matmul_precision("high")
    model = Encoder().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    images, styles = torch.rand(64, 3, 224, 224, device=device), torch.randint(0, 27, (64,), device=device)
    while True:
        loss = nn.functional.cross_entropy(model(images), styles)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield

"""Ads: dense gradients of tables with 12 million rows are zeroed, filled and applied for 4,096 lookups."""

import torch
from torch import Tensor, nn


class AdModel(nn.Module):
    def __init__(self, rows: int = 6_000_000, width: int = 64) -> None:
        super().__init__()
        with torch.device("cuda"):
            self.users = nn.Embedding(rows, width)
            self.ads = nn.Embedding(rows, width)
            self.tower = nn.Sequential(nn.Linear(2 * width, 256), nn.ReLU(), nn.Linear(256, 1))
        self.rows = rows

    def forward(self, user: Tensor, ad: Tensor) -> Tensor:
        score: Tensor = self.tower(torch.cat([self.users(user), self.ads(ad)], 1))
        return score[:, 0]


def main(prof):
    model = AdModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        user, ad = torch.randint(0, model.rows, (2, 4096), device="cuda")
        clicked = torch.rand(4096, device="cuda").round()
        loss = nn.functional.binary_cross_entropy_with_logits(model(user, ad), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()

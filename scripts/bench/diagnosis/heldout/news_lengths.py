"""News topics: each batch has another length, and `dynamic=False` compiles the model again for each length."""

import torch
from torch import Tensor, nn


class Topics(nn.Module):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.words = nn.Embedding(20_000, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 256, 0.0, batch_first=True) for _ in range(3))
        self.topics = nn.Linear(width, 20)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.topics(x.mean(1))
        return logits


def main(prof):
    model = Topics().cuda()
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(7):
        words = torch.randint(0, 20_000, (32, 24 + 8 * step), device="cuda")
        topics = torch.randint(0, 20, (32,), device="cuda")
        loss = nn.functional.cross_entropy(compiled(words), topics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()

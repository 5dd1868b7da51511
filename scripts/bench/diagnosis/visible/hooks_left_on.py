"""Forward hooks of a debugging session collect the norm of every output as a number."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "sync"
DEVICE = "cuda"
ALSO = ("launch", "python")


def train(device: str) -> Iterator[None]:
    """Train an encoder whose layers all have a hook."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to(device)
    norms: dict[str, float] = {}

    def hook_of(name: str) -> object:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if isinstance(output, Tensor):
                norms[name] = float(output.norm())

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(hook_of(name))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(32, 128, 256, device=device)
    while True:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield

"""One 3x3 convolution at a fixed shape: a typical experiment with `torch.backends.cudnn.benchmark`."""

import torch
from torch import Tensor, nn

model = nn.Conv2d(3, 64, 3, padding=1, bias=False)


def example_inputs() -> Tensor:
    return torch.randn(64, 3, 256, 256)


def loss_fn(output: Tensor, x: Tensor) -> Tensor:
    return output.square().mean()


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3)

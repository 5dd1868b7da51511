"""A reproduction of an old paper: the script disables cuDNN, and nobody remembers why."""

import torch
from torch import nn

torch.backends.cudnn.enabled = False


def stage(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True), nn.MaxPool2d(2)]


def main(prof):
    model = nn.Sequential(
        *stage(3, 64), *stage(64, 128), *stage(128, 256), *stage(256, 256), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    images, labels = torch.rand(32, 3, 128, 128, device="cuda"), torch.randint(0, 100, (32,), device="cuda")
    for _ in range(8):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()

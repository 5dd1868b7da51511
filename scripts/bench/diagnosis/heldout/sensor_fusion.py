"""Sensor fusion: the script asks for 48 threads on a machine with far fewer cores."""

import torch
from torch import nn

torch.set_num_threads(48)


def main(prof):
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(10):
        readings, positions = torch.randn(512, 256), torch.randn(512, 64)
        loss = nn.functional.smooth_l1_loss(model(readings), positions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()

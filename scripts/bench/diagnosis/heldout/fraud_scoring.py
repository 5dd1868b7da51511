"""Batch scoring on a CPU: large matrix products in inference mode, well used."""

import torch
from torch import nn


@torch.inference_mode()
def main(prof):
    model = nn.Sequential(
        nn.Linear(1024, 1280), nn.ReLU(inplace=True), nn.Linear(1280, 1280), nn.ReLU(inplace=True), nn.Linear(1280, 1280),
        nn.ReLU(inplace=True), nn.Linear(1280, 1024), nn.ReLU(inplace=True), nn.Linear(1024, 1),
    ).eval()  # fmt: skip
    transactions = torch.randn(2048, 1024)
    for _ in range(8):
        torch.sigmoid(model(transactions))
        prof.step()

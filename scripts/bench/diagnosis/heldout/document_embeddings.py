"""Offline embeddings of documents in bfloat16: large matrix products back to back; nothing is wrong."""

import torch
from torch import nn


@torch.inference_mode()
def main(prof):
    model = nn.Sequential(
        nn.Linear(4096, 16_384, bias=False), nn.ReLU(inplace=True), nn.Linear(16_384, 4096, bias=False), nn.ReLU(inplace=True),
        nn.Linear(4096, 16_384, bias=False), nn.ReLU(inplace=True), nn.Linear(16_384, 4096, bias=False),
    ).to("cuda", torch.bfloat16).eval()  # fmt: skip
    documents = torch.randn(16_384, 4096, device="cuda", dtype=torch.bfloat16)
    for _ in range(10):
        model(documents)
        prof.step()

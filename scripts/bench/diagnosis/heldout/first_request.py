"""A service that answers its first requests: context, cuBLAS and cuDNN are set up inside the profiled steps."""

import torch
from torch import nn


@torch.inference_mode()
def main(prof):
    model = nn.Sequential(
        nn.Conv2d(3, 32, 7, stride=4), nn.ReLU(), nn.Conv2d(32, 96, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(1536, 256), nn.ReLU(), nn.Linear(256, 20),
    ).eval()  # fmt: skip
    model.to("cuda")
    for _ in range(4):
        picture = torch.rand(1, 3, 320, 320)
        model(picture.to("cuda")).softmax(1).cpu()
        prof.step()

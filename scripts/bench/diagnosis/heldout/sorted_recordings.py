"""Recordings sorted by length, with little memory to spare: the allocator frees its cache and asks the driver again."""

import torch
from torch import Tensor, nn

GIB = 1024**3


class Filters(nn.Module):
    def __init__(self, bands: int = 256, depth: int = 5) -> None:
        super().__init__()
        self.gain = nn.ParameterList(torch.ones(bands) for _ in range(depth))
        self.offset = nn.ParameterList(torch.zeros(bands) for _ in range(depth))
        self.speaker = nn.Linear(bands, 40)

    def forward(self, recording: Tensor) -> Tensor:
        x = recording
        for gain, offset in zip(self.gain, self.offset, strict=True):
            x = torch.relu(x * gain + offset)
        logits: Tensor = self.speaker(x.mean(1))
        return logits


def main(prof):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(3.5 * GIB / total)  # another job shares this GPU
    model = Filters().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    speakers = torch.randint(0, 40, (64,), device="cuda")
    for step in range(10):
        recordings = torch.randn(64, 3000 + 80 * step, 256, device="cuda")
        loss = nn.functional.cross_entropy(model(recordings), speakers)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        prof.step()

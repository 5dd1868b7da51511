"""Detection at many resolutions: `cudnn.benchmark` searches again for every image size."""

import torch
from torch import Tensor, nn

torch.backends.cudnn.benchmark = True


class Backbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = [3, 32, 64, 64, 128, 128]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, 1 + number % 2, 1) for number, (a, b) in enumerate(zip(widths, widths[1:], strict=False)))
        self.boxes = nn.Conv2d(128, 5, 1)

    def forward(self, image: Tensor) -> Tensor:
        for layer in self.convs:
            image = torch.relu(layer(image))
        boxes: Tensor = self.boxes(image)
        return boxes


def main(prof):
    model = Backbone().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step in range(8):
        size = 192 + 32 * step
        images = torch.rand(4, 3, size, size + 64, device="cuda")
        loss = model(images).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()

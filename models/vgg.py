"""VGG-16 for 1000 classes (Simonyan and Zisserman, "Very Deep Convolutional Networks", 2014, configuration D)."""

import torch
from torch import Tensor, nn

WIDTHS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for stage in WIDTHS:
            for width in stage:
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(),
            nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(),
            nn.Linear(4096, classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return scores


def example_inputs() -> Tensor:
    return torch.randn(32, 3, 224, 224)


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)

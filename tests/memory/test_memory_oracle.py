"""The simulation against the CPU allocator's own log of a real step: the same bytes.

What kernels take for themselves is in the log too, so these models have none that take much at the peak.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from profiler_kit.devices.cards.cpu import CPU
from profiler_kit.loading import from_model
from profiler_kit.loading.training_step.optimizers import OPTIMIZERS
from profiler_kit.memory import simulate

B, D, CLASSES = 128, 32, 10


class Residual(nn.Module):
    """Gradients meet at every block's input: the engine adds them in place where it may."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(D, D) for _ in range(4))
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + F.gelu(block(x)) * torch.sigmoid(x)
        return self.head(x)


class Views(nn.Module):
    """Chunks, strided slices, a stack and an expand."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.head = nn.Linear(D, 4 * D), nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c, d = self.wide(x).chunk(4, -1)
        mixed = torch.stack([torch.sigmoid(a) * torch.tanh(b), c.expand(B, D)], 1).permute(0, 2, 1)
        return self.head(mixed.flatten(1)[:, ::2] + d.relu())


class Shared(nn.Module):
    """One layer used several times, one weight in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(D, D), nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = F.linear(F.gelu(self.inner(x)), self.inner.weight)
        return self.head(x)


class Recomputed(nn.Module):
    """Blocks whose insides are computed again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D)) for _ in range(3)
        )
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)  # which is a tensor of the CPU
        return self.head(x)


class InPlace(nn.Module):
    """Activations that overwrite their input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(D, D), nn.ReLU(inplace=True), nn.Linear(D, D))
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(x)
        y = x * x
        y += 1.0
        return self.head(y)


class Encoder(nn.Module):
    """Attention, dropout and norms as torch's own encoder has them."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(D, 4, 2 * D, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x.view(B, 4, D // 4).repeat(1, 1, 4)).mean(1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(
        nn.Linear(D, 64), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(64), nn.Linear(64, CLASSES)
    ),
    "residual": Residual,
    "views": Views,
    "shared": Shared,
    "recomputed": Recomputed,
    "in place": InPlace,
    "encoder": Encoder,
}


def logged_peak_bytes(model: nn.Module, x: Tensor, labels: Tensor, optimizer: str) -> int:
    """The most bytes that the second step of a plain loop holds, above what it begins with."""
    opt = OPTIMIZERS[optimizer](list(model.parameters()))

    def step() -> None:
        output = model(x)
        loss = F.cross_entropy(output, labels)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)

    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    found: Any = profiler.profiler
    events = [event for event in found.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    assert held == 0  # a step leaves nothing behind
    return peak


@pytest.mark.parametrize("optimizer", ["sgd", "sgd_momentum", "adam"])
@pytest.mark.parametrize("name", MODELS)
def test_the_peak_is_that_of_the_allocators_log(name: str, optimizer: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    x, labels = torch.randn(B, D), torch.randint(0, CLASSES, (B,))
    logged = logged_peak_bytes(model, x, labels, optimizer)
    target = from_model(model, (x,), labels=labels, loss="cross_entropy", optimizer=optimizer, device="meta")
    memory = simulate(target, CPU)
    assert memory.timeline[0].at == "before forward"
    assert memory.peak_bytes - memory.timeline[0].bytes == logged

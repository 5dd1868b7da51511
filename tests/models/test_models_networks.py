"""Tests of the example networks: sizes in closed form, shapes on meta, a training step, and properties of single networks."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MODELS = Path(__file__).resolve().parents[2] / "models"


@cache
def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"models_{name}", MODELS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def conv(inputs: int, outputs: int, kernel: int, bias: bool = True) -> int:
    return inputs * outputs * kernel * kernel + (outputs if bias else 0)


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def unet_params(inputs: int = 3, classes: int = 2, width: int = 32, depth: int = 4) -> int:
    """Two 3x3 convolutions and two batch norms per level and side, one 2x2 transposed convolution per way up."""

    def block(a: int, b: int) -> int:
        return conv(a, b, 3, bias=False) + 2 * b + conv(b, b, 3, bias=False) + 2 * b

    widths = [width * 2**level for level in range(depth + 1)]
    down = sum(block(a, b) for a, b in zip([inputs, *widths], widths, strict=False))
    up = sum(conv(b, a, 2) + block(b, a) for a, b in itertools.pairwise(widths))
    return down + up + conv(width, classes, 1)


def gpt_params(vocabulary: int = 8192, context: int = 256, width: int = 384, depth: int = 6) -> int:
    """12 d^2 + 13 d per block, two embeddings, a last norm; the output layer is the token embedding."""
    return (vocabulary + context) * width + depth * (12 * width**2 + 13 * width) + 2 * width


MNIST_PARAMS = conv(1, 10, 5) + conv(10, 20, 5) + linear(320, 10)


@dataclass(frozen=True)
class Case:
    file: str
    build: Callable[[ModuleType], nn.Module]
    params: int
    example: tuple[int, ...]
    output: tuple[int, ...]
    small: tuple[int, ...]  # an input small enough for a fast training step on a CPU


CASES = {
    "v0": Case("convnet_v0", lambda m: m.ConvNetV0(), 389_702, (8, 3, 256, 256), (8, 2, 64, 64), (1, 3, 32, 32)),
    "v1": Case("convnet_v1", lambda m: m.ConvNetV1(), 476_137, (8, 3, 256, 256), (8, 2, 64, 64), (1, 3, 32, 32)),
    "single": Case(
        "single_conv", lambda m: copy.deepcopy(m.model), 1728, (64, 3, 256, 256), (64, 64, 256, 256), (1, 3, 8, 8)
    ),
    "mnist": Case("mnist_cnn", lambda m: m.MnistCnn(), MNIST_PARAMS, (100, 1, 28, 28), (100, 10), (2, 1, 28, 28)),
    "resnet18": Case("resnet", lambda m: m.resnet18(), 11_689_512, (32, 3, 224, 224), (32, 1000), (2, 3, 32, 32)),
    "resnet50": Case("resnet", lambda m: m.resnet50(), 25_557_032, (32, 3, 224, 224), (32, 1000), (2, 3, 32, 32)),
    "vgg16": Case("vgg", lambda m: m.VGG16(), 138_357_544, (32, 3, 224, 224), (32, 1000), (1, 3, 32, 32)),
    "gpt": Case("transformer", lambda m: m.GPT(), gpt_params(), (8, 256), (8, 256, 8192), (2, 16)),
    "unet": Case("unet", lambda m: m.UNet(), unet_params(), (8, 3, 256, 256), (8, 2, 256, 256), (1, 3, 32, 32)),
}


def inputs_of(case: Case, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if case.file == "transformer":
        return torch.randint(0, 8192, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def loss_of(module: ModuleType, output: Tensor, x: Tensor) -> Tensor:
    """The file's own loss, or cross-entropy against class 0 at every place."""
    labels = torch.zeros(output.shape[0], *output.shape[2:], dtype=torch.int64)
    own = getattr(module, "loss_fn", F.cross_entropy)
    takes_labels = own is F.cross_entropy or hasattr(module, "train_loader")
    loss: Tensor = own(output, labels if takes_labels else x)
    return loss


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_parameters_equal_the_closed_form(case: Case) -> None:
    module = load(case.file)
    with torch.device("meta"):
        model = case.build(module)
    assert sum(p.numel() for p in model.parameters()) == case.params
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_output_shape_of_the_example_on_meta(case: Case) -> None:
    module = load(case.file)
    with torch.device("meta"):
        x = module.example_inputs()
        model = case.build(module).to("meta")
        assert x.shape == case.example
        assert model(x).shape == case.output


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_training_step_on_cpu(case: Case) -> None:
    """Every parameter gets a finite gradient, and the step changes it (or its gradient is zero)."""
    module = load(case.file)
    torch.manual_seed(0)
    model = case.build(module)
    optimizer = module.configure_optimizer(model)
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == {id(p) for p in model.parameters()}
    x = inputs_of(case, case.small)
    before = [p.detach().clone() for p in model.parameters()]
    loss = loss_of(module, model(x), x)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert loss.ndim == 0
    assert torch.isfinite(loss)
    moved = 0
    for old, parameter in zip(before, model.parameters(), strict=True):
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()
        if parameter.grad.any():
            moved += int(not torch.equal(old, parameter))
    assert moved > 0.9 * len(before)


def macs(model: nn.Module, x: Tensor) -> int:
    """Multiply-accumulates of all convolutions and linear layers, from weights and output shapes alone."""
    total = 0

    def count(module: nn.Module, _: Any, output: Tensor) -> None:
        nonlocal total
        weight = module.weight
        assert isinstance(weight, Tensor)
        total += output.numel() * weight[0].numel()

    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    model(x)
    for hook in hooks:
        hook.remove()
    return total


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v0", 25_327_125_920),
        ("v1", 7_619_297_280),
        ("resnet18", 1_814_073_344),
        ("resnet50", 4_089_184_256),
        ("vgg16", 15_470_264_320),
    ],
)
def test_macs_of_one_image_equal_the_published(name: str, expected: int) -> None:
    case = CASES[name]
    module = load(case.file)
    with torch.device("meta"):
        model = case.build(module)
        assert macs(model, torch.empty(1, *case.example[1:])) == expected


def test_gpt_is_causal() -> None:
    torch.manual_seed(0)
    model = load("transformer").GPT(vocabulary=50, context=16, width=16, depth=2, heads=2).eval()
    tokens = torch.randint(0, 50, (1, 12), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[0, 7] = (changed[0, 7] + 1) % 50
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    assert torch.allclose(before[:, :7], after[:, :7], atol=1e-6)
    assert not torch.allclose(before[:, 7:], after[:, 7:], atol=1e-3)


def test_gpt_ties_its_output_to_its_embedding() -> None:
    model = load("transformer").GPT(vocabulary=50, context=16, width=16, depth=1, heads=2)
    assert model.head.weight is model.tokens.weight


def test_digits_are_reproducible_and_distinct() -> None:
    mnist = load("mnist_cnn")
    images, labels = mnist.draw_digits.__wrapped__(400, seed=3)
    again, same_labels = mnist.draw_digits.__wrapped__(400, seed=3)
    other, _ = mnist.draw_digits.__wrapped__(400, seed=4)
    assert torch.equal(images, again)
    assert torch.equal(labels, same_labels)
    assert not torch.equal(images, other)
    assert images.dtype == torch.uint8
    assert images.shape == (400, 28, 28)
    assert labels.unique().tolist() == list(range(10))
    means = torch.stack([images[labels == digit].float().mean(0) for digit in range(10)])
    assert torch.cdist(means.flatten(1), means.flatten(1)).fill_diagonal_(torch.inf).min() > 500


def test_no_digit_is_cut_off_at_the_border() -> None:
    """Strokes stay inside the image: the border holds noise only."""
    images, _ = load("mnist_cnn").draw_digits()
    border = torch.cat([images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]], 1)
    assert border.float().max() < 128


def test_loader_gives_normalized_batches_in_a_fixed_order() -> None:
    mnist = load("mnist_cnn")
    first, again = next(iter(mnist.train_loader())), next(iter(mnist.train_loader()))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert first[0].shape == (100, 1, 28, 28)
    assert first[0].dtype == torch.float32
    assert abs(float(first[0].mean())) < 0.2
    assert abs(float(first[0].std()) - 1) < 0.2


def test_digits_can_be_learned() -> None:
    """Two passes over the loader bring the loss well below that of guessing (ln 10 = 2.30)."""
    mnist = load("mnist_cnn")
    torch.manual_seed(0)
    model = mnist.MnistCnn()
    optimizer = mnist.configure_optimizer(model)
    losses = []
    for images, labels in itertools.chain(mnist.train_loader(), mnist.train_loader()):
        loss = mnist.loss_fn(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[0] > 2.0
    assert sum(losses[-3:]) / 3 < 0.7


def test_importing_all_models_takes_less_than_a_second_of_cpu_time_after_torch() -> None:
    """In a fresh process, so that nothing is cached; no thread is started and no tensor of any size is made."""
    code = (
        "import sys, time, torch, torch.utils.data\n"
        f"sys.path.insert(0, {str(MODELS)!r})\n"
        "start = time.process_time()\n"
        f"for name in {sorted(p.stem for p in MODELS.glob('*.py'))!r}: __import__(name)\n"
        "print(time.process_time() - start)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(out.stdout) < 1.0


def test_every_file_is_a_target() -> None:
    """Each brings example inputs and an optimizer, and none imports another or the tool."""
    files = sorted(MODELS.glob("*.py"))
    assert {case.file for case in CASES.values()} == {path.stem for path in files}
    for path in files:
        module = load(path.stem)
        assert isinstance(module.example_inputs(), Tensor)
        assert "profiler_kit" not in path.read_text()

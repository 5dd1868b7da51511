"""The networks whose training memory was measured on an H100. The results are in docs/measured/memory_h100.json.

A case is named ``network|b<batch>|<optimizer>|<dtype>``. Some networks need torchvision or transformers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from profiler_kit.loading import Target, from_model, load
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code.environment import define_missing_ops
from scripts.bench.networks.layers import Plan, stack

FOLDER: Final = Path(__file__).resolve().parents[3] / "models"
OPTIMIZERS: Final = {"sgd": "sgd_momentum", "adam": "adam"}
AUTOCAST: Final = {"fp32": None, "bf16": "bfloat16"}

Inputs = Callable[[int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Measured:
    """A network with its batch (for a batch size) and its loss. `needs` names the package that defines it."""

    build: Callable[[], nn.Module]
    batch: Inputs
    loss: Callable[[Any, Any], Tensor]
    needs: str = "torch"


def tokens_of(out: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy over classes in the last dimension."""
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), labels.reshape(-1))


def double_conv(i: int, o: int) -> nn.Sequential:
    """Two convolutions, each with a norm and an activation in place."""
    return stack("; ".join(f"Conv2d {c} {o} 3 padding=1 bias=False; BatchNorm2d {o}; ReLU True" for c in (i, o)))


class UNet(nn.Module):
    """A U-Net of four levels that frees every skip tensor after its use."""

    def __init__(self) -> None:
        super().__init__()
        widths = [32 * 2**level for level in range(5)]
        self.down = nn.ModuleList(double_conv(i, o) for i, o in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(w, w // 2, 2, stride=2) for w in reversed(widths[1:]))
        self.back = nn.ModuleList(double_conv(w, w // 2) for w in reversed(widths[1:]))
        self.head = nn.Conv2d(32, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of two classes at every position."""
        skips = []
        for level, block in enumerate(self.down):
            x = block(x)
            if level < 4:
                skips.append(x)
                x = F.max_pool2d(x, 2)
        for up, block in zip(self.up, self.back, strict=True):
            x = block(torch.cat([up(x), skips.pop()], 1))
        scores: Tensor = self.head(x)
        return scores


class Block(nn.Module):
    """A pre-norm decoder block with one dropout for both branches."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.p = heads, dropout
        self.norm1, self.qkv, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.wide, self.narrow = (
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width),
        )  # fmt: skip
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Attention and a perceptron, each with a residual connection."""
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0, is_causal=True)
        x = x + self.drop(self.proj(a.transpose(1, 2).reshape(b, t, d)))
        out: Tensor = x + self.drop(self.narrow(F.gelu(self.wide(self.norm2(x)))))
        return out


class Decoder(nn.Module):
    """A small GPT with a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places, self.drop = nn.Embedding(50257, 512), nn.Embedding(512, 512), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block(512, 8, 0.1) for _ in range(8))
        self.norm, self.head = nn.LayerNorm(512), nn.Linear(512, 50257, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the vocabulary at every position."""
        x = self.drop(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device)))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores


def recurrent(*, bidirectional: bool = False) -> nn.Module:
    """A language model on two LSTM layers."""
    layers = nn.LSTM(512, 512, 2, dropout=0.2, batch_first=True, bidirectional=bidirectional)
    out = nn.Linear(1024 if bidirectional else 512, 10000)
    return Plan(lambda m, tokens: m.o(m.r(m.e(tokens))[0]), e=nn.Embedding(10000, 512), r=layers, o=out)


def encoder() -> nn.Module:
    """Torch's own encoder, its outputs averaged."""
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, 0.1, batch_first=True), 6)
    return Plan(lambda m, x: m.head(m.encoder(x).mean(1)), encoder=layers, head=nn.Linear(512, 1000))


def perceptron() -> nn.Module:
    """Six wide layers."""

    def run(m: Any, x: Tensor) -> Any:
        for layer in m.layers:
            x = F.gelu(layer(x))
        return m.head(x)

    return Plan(run, layers=stack("6 * Linear 4096 4096"), head=nn.Linear(4096, 1000))


def activations(*, inplace: bool) -> nn.Module:
    """Convolutions whose activations overwrite their input, or don't."""

    def run(m: Any, x: Tensor) -> Any:
        x = m.body(x) * 2
        x += 1.0
        return m.head(x.mean((2, 3)))

    rows = (f"Conv2d {64 if i else 3} 64 3 padding=1; BatchNorm2d 64; ReLU {inplace}" for i in range(6))
    return Plan(run, body=nn.Sequential(*map(stack, rows)), head=nn.Linear(64, 10))


class Views(nn.Module):
    """Chunks, strided slices, stacks."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(1024, 4096), nn.Linear(1024, 1024), nn.Linear(2048, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of ten classes."""
        y = self.a(x)
        p, q, r, t = y.chunk(4, -1)
        u = torch.sigmoid(p) * torch.tanh(q)
        w = self.b(r)[:, ::2].relu()
        z = torch.stack([u[:, ::2], w], 1).permute(0, 2, 1, 3).flatten(2)
        scores: Tensor = self.c(z.mean(1) + t[:, 0].repeat(1, 2))
        return scores


def shared() -> nn.Module:
    """One layer six times, and the embedding as the head."""

    def run(m: Any, tokens: Tensor) -> Tensor:
        x = m.e(tokens)
        for _ in range(6):
            x = x + F.gelu(m.l(x))
        return F.linear(x, m.e.weight)

    return Plan(run, e=nn.Embedding(8000, 768), l=nn.Linear(768, 768))


def blocks(*, recompute: bool) -> nn.Module:
    """Eight decoder blocks, checkpointed or not."""

    def run(m: Any, x: Tensor) -> Any:
        for block in m.blocks:
            x = checkpoint(block, x, use_reentrant=False) if recompute else block(x)
        return m.head(x.mean(1))

    return Plan(run, blocks=stack("8 * block 512 8 0.1", block=Block), head=nn.Linear(512, 100))


def case_study(name: str) -> Callable[[], nn.Module]:
    """One of the case study's two networks."""
    return lambda: load(TargetSpec(spec=str(FOLDER / f"convnet_{name}.py"))).model


def of_torchvision(name: str) -> Callable[[], nn.Module]:
    """A classifier of torchvision without weights."""

    def build() -> nn.Module:
        define_missing_ops()
        model: nn.Module = getattr(importlib.import_module("torchvision.models"), name)(weights=None)
        return model

    return build


def of_transformers(model: str, config: str, **sizes: int) -> Callable[[], nn.Module]:
    """A small language model of transformers."""

    def build() -> nn.Module:
        define_missing_ops()
        transformers = importlib.import_module("transformers")
        built: nn.Module = getattr(transformers, model)(getattr(transformers, config)(use_cache=False, **sizes))
        return built

    return build


def of_logits(output: Any, labels: Tensor) -> Tensor:
    """Cross entropy of the logits of a transformers model."""
    return tokens_of(output.logits, labels)


def vectors(*shape: int, classes: int) -> Inputs:
    """Numbers of `shape`, and a class for each sample."""
    return lambda n: (torch.randn(n, *shape), torch.randint(0, classes, (n,)))


def maps(side: int, out: int) -> Inputs:
    """Images, and one of two classes at every position of the result."""
    return lambda n: (torch.randn(n, 3, side, side), torch.randint(0, 2, (n, out, out)))


def sentences(length: int, vocabulary: int) -> Inputs:
    """Tokens, and the next tokens as labels."""
    return lambda n: (torch.randint(0, vocabulary, (n, length)), torch.randint(0, vocabulary, (n, length)))


IMAGES: Final = vectors(3, 224, 224, classes=1000)
GPT2: Final = of_transformers(
    "GPT2LMHeadModel", "GPT2Config", n_layer=6, n_embd=512, n_head=8, vocab_size=32000, n_positions=512, bos_token_id=0,
    eos_token_id=0,
)  # fmt: skip
# Two query heads per key head.
LLAMA: Final = of_transformers(
    "LlamaForCausalLM", "LlamaConfig", hidden_size=512, intermediate_size=1376, num_hidden_layers=6, num_attention_heads=8,
    num_key_value_heads=4, vocab_size=32000, max_position_embeddings=512,
)  # fmt: skip
IN_TORCHVISION: Final = (
    "resnet18", "resnet50", "vgg16", "mobilenet_v2", "densenet121", "efficientnet_b0", "convnext_tiny", "vit_b_16", "swin_t",
)  # fmt: skip

NETWORKS: Final[dict[str, Measured]] = {
    "v0": Measured(case_study("v0"), maps(256, 64), F.cross_entropy),
    "v1": Measured(case_study("v1"), maps(256, 64), F.cross_entropy),
    **{name: Measured(of_torchvision(name), IMAGES, F.cross_entropy, "torchvision") for name in IN_TORCHVISION},
    "unet": Measured(UNet, maps(256, 256), F.cross_entropy),
    "gpt": Measured(Decoder, sentences(512, 50257), tokens_of),
    "hf_gpt2": Measured(GPT2, sentences(512, 32000), of_logits, "transformers"),
    "hf_llama": Measured(LLAMA, sentences(512, 32000), of_logits, "transformers"),
    "lstm": Measured(recurrent, sentences(128, 10000), tokens_of),
    "bilstm": Measured(lambda: recurrent(bidirectional=True), sentences(128, 10000), tokens_of),
    "encoder": Measured(encoder, vectors(256, 512, classes=1000), F.cross_entropy),
    "mlp": Measured(perceptron, vectors(4096, classes=1000), F.cross_entropy),
    "in_place": Measured(lambda: activations(inplace=True), vectors(3, 128, 128, classes=10), F.cross_entropy),
    "out_of_place": Measured(lambda: activations(inplace=False), vectors(3, 128, 128, classes=10), F.cross_entropy),
    "views": Measured(Views, vectors(64, 1024, classes=10), F.cross_entropy),
    "shared": Measured(shared, sentences(128, 8000), tokens_of),
    "checkpointed": Measured(lambda: blocks(recompute=True), vectors(256, 512, classes=100), F.cross_entropy),
    "not_checkpointed": Measured(lambda: blocks(recompute=False), vectors(256, 512, classes=100), F.cross_entropy),
}


def target_of(case: str) -> Target:
    """Return the target of a case on meta tensors."""
    name, batch, optimizer, dtype, *_ = case.split("|")
    network = NETWORKS[name]
    with torch.device("meta"):
        model = network.build()
        inputs, labels = network.batch(int(batch[1:]))
    options: dict[str, Any] = {"amp": AUTOCAST[dtype], "optimizer": OPTIMIZERS[optimizer]}
    return from_model(model, (inputs,), loss_fn=network.loss, labels=labels, device="meta", **options)

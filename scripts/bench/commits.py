"""Explain real commits that changed an architecture, and check that the first edits are those that a reviewer would name.

Each case is a commit of a public repository, a few lines that build the model, and the words that its diff demands. They were
written from the diffs. After the first run, four builds and readings of a diff were corrected and several words made stricter.
Both sides are counted in fresh processes, as `check` does.

    python -m scripts.bench.commits CLONES               CLONES/OWNER+NAME/repo are clones with history
    python -m scripts.bench.commits CLONES --write       also writes docs/measured/commits.md
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler_kit.comparison.compare import compare
from profiler_kit.records.comparison import Comparison
from profiler_kit.records.serde import read_report

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "measured" / "commits.md"
NAMED_EDITS: Final = 4  # edits that the first sentence names


@dataclass(frozen=True)
class Case:
    """One commit. `diff`: what a reviewer reads in the diff. `expected`: words that the titles of the first edits contain."""

    repository: str
    commit: str
    build: str
    diff: str
    expected: tuple[str, ...]


IMAGES: Final = "import torch\nexample_inputs = torch.randn(8, 3, 32, 32)\n"
LARGE: Final = "import torch\nexample_inputs = torch.randn(2, 3, 224, 224)\n"
TOKENS: Final = "import torch\nids = torch.randint(0, 1000, (2, 64))\nexample_inputs = (ids, ids)\n"
GPT: Final = f"{TOKENS}from model import GPT, GPTConfig\n"
CIFAR: Final = "kuangliu/pytorch-cifar"
VIT: Final = "lucidrains/vit-pytorch"
NANO: Final = "karpathy/nanoGPT"
MODEL: Final = "image_size=224, num_classes=10, dim=64, depth=2"
VIT_BUILD: Final = (
    f"{LARGE}from vit_pytorch.vit import ViT\nmodel = ViT({MODEL}, patch_size=16, heads=4, mlp_dim=128)\n"
)
T2T_BUILD: Final = f"{LARGE}from vit_pytorch.t2t import T2TViT\nmodel = T2TViT({MODEL}, heads=4, mlp_dim=128)\n"
SIMPLE_BUILD: Final = (
    f"{LARGE}from vit_pytorch.simple_vit import SimpleViT\n"
    f"model = SimpleViT({MODEL}, patch_size=16, heads=4, mlp_dim=128)\n"
)
MAX_VIT_BUILD: Final = (
    f"{LARGE}from vit_pytorch.max_vit import MaxViT\n"
    "model = MaxViT(num_classes=10, dim_conv_stem=16, dim=32, dim_head=16, depth=(2, 1), window_size=7)\n"
)
CASES: Final = (
    Case(CIFAR, "5e3f990", f"{IMAGES}from models.dla import DLA\nmodel = DLA()\n",
         "a block prev_root in trees above level 1, and a wider root", ("prev_root added",)),
    Case(CIFAR, "a65774c", f"{IMAGES}from models.regnet import RegNetX_200MF\nmodel = RegNetX_200MF()\n",
         "BlockX becomes Block; squeeze-and-excitation is off in this variant", ("BlockX -> Block",)),
    Case(CIFAR, "81db756", f"{IMAGES}from models.efficientnet import EfficientNetB0\nmodel = EfficientNetB0()\n",
         "stochastic depth grows with depth; dropout before the classifier", ("drop_rate", "dropout")),
    Case(CIFAR, "12420c5", f"{IMAGES}from models.efficientnet import EfficientNetB0\nmodel = EfficientNetB0()\n",
         "squeeze-and-excitation se1, se2; swish instead of ReLU; other strides and kernels",
         ("se* added", "instead of relu", "stride 2 -> 1")),
    Case(CIFAR, "8080550", f"{IMAGES}from models.efficientnet import EfficientNetB0\nmodel = EfficientNetB0()\n",
         "no convolution in shortcuts", ("shortcut removed",)),
    Case(CIFAR, "f132be7", f"{IMAGES}from models.efficientnet import EfficientNetB0\nmodel = EfficientNetB0()\n",
         "squeeze-and-excitation becomes a module of its own, and narrower", ("se added", "x SE")),
    Case(CIFAR, "9c40489", f"{IMAGES}from models.resnet import ResNet18\nmodel = ResNet18()\n",
         "no ReLU after bn2 in basic blocks", ("relu",)),
    Case(CIFAR, "b9eff4f", f"{IMAGES}from models.resnet import ResNet, PreActBlock\nmodel = ResNet(PreActBlock, [2, 2, 2, 2])\n",
         "the shortcut normalizes before its convolution", ("shortcut", "BatchNorm2d")),
    Case(NANO, "77e7e04c", f"{GPT}model = GPT(GPTConfig(block_size=64, n_layer=2, n_head=4, n_embd=128))\n",
         "the vocabulary grows from 50257 to 50304", ("vocab_size 50257 -> 50304",)),
    Case(NANO, "cc5444e1", f"{GPT}model = GPT(GPTConfig(block_size=64, n_layer=2, n_head=4, n_embd=128))\n",
         "linear layers and norms get biases by a new option", ("config.bias",)),
    Case(NANO, "2bf07a3f", f"{GPT}model = GPT(GPTConfig(block_size=64, n_layer=2, n_head=4, n_embd=128))\n",
         "the class LayerNormNoBias becomes LayerNorm", ("LayerNormNoBias -> LayerNorm",)),
    Case(NANO, "ae06d0b1", f"{GPT}model = GPT(GPTConfig(block_size=64, n_layer=2, n_head=4, n_embd=128, dropout=0.0))\n",
         "attention is one fused call", ("scaled_dot_product",)),
    Case(NANO, "594068e7", f"{GPT}model = GPT(GPTConfig(block_size=64, n_layer=2, n_head=4, n_embd=128))\n",
         "GELU as a module instead of a function", ("gelu",)),
    Case(VIT, "bdaf2d1", VIT_BUILD, "a LayerNorm before and one after the patch embedding", ("to_patch_embedding", "LayerNorm")),
    Case(VIT, "3f75495", T2T_BUILD, "no transformer after the last token-to-token layer", ("Transformer",)),
    Case(VIT, "2c6dd70", MAX_VIT_BUILD, "MBConv expands to a hidden dimension; GELU instead of SiLU", ("out_channels", "GELU")),
    Case(VIT, "9f87d1c", MAX_VIT_BUILD, "the depthwise convolution has one group per channel, then BatchNorm and GELU",
         ("groups", "BatchNorm2d")),
    Case(VIT, "81661e3", MAX_VIT_BUILD, "the residual connection of MBConv", ("also calls add",)),
    Case(VIT, "e3256d7", T2T_BUILD, "the head has no second LayerNorm", ("mlp_head", "LayerNorm")),
    Case(VIT, "950c901", SIMPLE_BUILD, "the head is a Linear instead of a LayerNorm", ("LayerNorm -> Linear",)),
)  # fmt: skip


def side(case: Case, clones: Path, revision: str, folder: Path) -> Path:
    """Check out `revision` into `folder`, count the model there, and return the report."""
    folder.mkdir(parents=True)
    repository = clones / case.repository.replace("/", "+") / "repo"
    archive = subprocess.run(
        ["git", "-C", str(repository), "archive", revision, ":(glob)**/*.py"], capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    (folder / "built_model.py").write_text(case.build, encoding="utf-8")
    report = folder / "report.json"
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join((str(folder), package, os.environ.get("PYTHONPATH", "")))
    command = [sys.executable, "-m", "profiler_kit", "count", "built_model.py:model", "-o", str(report)]
    result = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise RuntimeError(result.stderr.strip()[-600:])
    return report


def explain(case: Case, clones: Path) -> Comparison:
    """The comparison of the commit with its parent."""
    with tempfile.TemporaryDirectory() as temporary:
        sides = [
            side(case, clones, revision, Path(temporary) / name)
            for name, revision in (("base", f"{case.commit}~1"), ("head", case.commit))
        ]
        return compare(read_report(sides[0]), read_report(sides[1]), labels=("the base", "this change"))


def is_named(case: Case, compared: Comparison) -> bool:
    """Whether the titles of the first edits contain all expected words."""
    titles = " ".join(edit.title for edit in compared.edits[:NAMED_EDITS])
    return all(words in titles for words in case.expected)


def main() -> int:
    """Explain the commits; return 1 if the edits of one are not named."""
    parser = argparse.ArgumentParser(description="Explain real commits.")
    parser.add_argument("clones", type=Path, help="folder of clones: OWNER+NAME/repo")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--only", default="", help="run the commits that start with this")
    options = parser.parse_args()
    rows, named, total = [], 0, 0
    for case in CASES:
        if not case.commit.startswith(options.only):
            continue
        total += 1
        try:
            compared = explain(case, options.clones)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"{case.repository} {case.commit}: could not run: {error}")
            continue
        is_right = is_named(case, compared)
        named += is_right
        print(f"{'yes' if is_right else 'NO '} {case.repository} {case.commit}: {case.diff}")
        for line in compared.sentences:
            print(f"      {line}")
        titles = "; ".join(edit.title.replace("|", "\\|") for edit in compared.edits[:NAMED_EDITS])
        rows.append(
            f"| {case.repository} `{case.commit}` | {case.diff} | {titles or 'none'} | {'yes' if is_right else 'no'} |"
        )
    print(f"{named} of {total}: the first {NAMED_EDITS} edits name what the diff demands")
    if options.write:
        head = (
            "# Real commits\n\n"
            "The edits that `check` names for commits of public repositories, next to what the diffs show. The words that\n"
            "the edits must contain were written from the diffs. After the first run, four builds and readings of a diff were\n"
            "corrected and several words made stricter. Made by `python -m scripts.bench.commits` on meta tensors.\n\n"
            f"{named} of {total} commits: the first {NAMED_EDITS} edits name what the diff shows.\n\n"
            "| commit | the diff | the first edits | named |\n|---|---|---|---|\n"
        )
        PAGE.write_text(head + "\n".join(rows) + "\n", encoding="utf-8")
    return 0 if named == total else 1


if __name__ == "__main__":
    sys.exit(main())

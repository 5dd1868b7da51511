"""Measure the time of `profiler_kit.count` with memory, relative to a bare training step on meta tensors.

A bare step is forward, loss, backward, optimizer (AdamW) and `zero_grad`, in the same process. Counts and bare steps alternate,
and medians of their CPU time are compared, so that the ratios hold on a busy machine. Networks of transformers are skipped if
the package is missing. Their weights are on the meta device and need no memory::

    python -m scripts.bench.memory_cost [--repeats 5] [--networks resnet50 mixtral_8x7b]

The optimizer's kernels are named in the columns: *foreach* updates all parameters at once, as CUDA does by default; the loop
over single parameters is the default on meta tensors.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import logging
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import torch
from tabulate import tabulate
from torch import Tensor, nn

import profiler_kit
from profiler_kit.counting import count_target
from profiler_kit.devices.registry import DEFAULT_DEVICE
from profiler_kit.loading import from_model
from profiler_kit.memory import simulate
from scripts.bench.networks.counted import MODELS

Inputs = tuple[Tensor, ...]
Options = dict[str, Tensor]
TOKENS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A function that returns a model on meta, its inputs and its keyword inputs, and the package that it needs."""

    build: Callable[[], tuple[nn.Module, Inputs, Options]]
    needs: str = "torch"


def main() -> None:
    """Print a table with one row per network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="rounds; the table shows medians (default: 5)")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=[*NETWORKS], metavar="NAME")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows = []
    for name in options.networks:
        if importlib.util.find_spec(NETWORKS[name].needs) is None:
            print(f"{name}: skipped, {NETWORKS[name].needs} is not installed")
            continue
        rows.append([name, *measure(NETWORKS[name], options.repeats)])
        print(f"{name}: {rows[-1][-2]:.2f}", file=sys.stderr, flush=True)
    heads = [
        "network",
        "bare ms (foreach)",
        "bare ms (loop)",
        "count ms",
        "memory ms",
        "count() ms",
        "/ foreach",
        "/ loop",
    ]
    print(f"torch {torch.__version__}, one thread, medians of CPU time over {options.repeats} rounds")
    print(tabulate(rows, heads, floatfmt=("", ".0f", ".0f", ".0f", ".0f", ".0f", ".2f", ".2f")))


def measure(network: Network, repeats: int) -> list[float]:
    """CPU times in ms: two bare steps, the parts of a count, the whole count, and its ratios to the bare steps."""
    model, inputs, keywords = network.build()
    target = from_model(model, inputs, keywords, device="meta", command=("count", ""))
    steps: dict[str, Callable[[], object]] = {
        "foreach": make_bare_step(model, inputs, keywords, foreach=True),
        "loop": make_bare_step(model, inputs, keywords, foreach=False),
        "count": lambda: count_target(target, device=DEFAULT_DEVICE),
        "memory": lambda: simulate(target),
        "whole": lambda: profiler_kit.count(model, *inputs, kwargs=keywords),
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(repeats + 1):  # the first round fills caches
        for name, step in steps.items():
            gc.collect()
            start = time.process_time()
            step()
            if number:
                times[name].append(1e3 * (time.process_time() - start))
    medians = {name: median(values) for name, values in times.items()}
    return [*medians.values(), medians["whole"] / medians["foreach"], medians["whole"] / medians["loop"]]


def make_bare_step(model: nn.Module, inputs: Inputs, keywords: Options, *, foreach: bool) -> Callable[[], None]:
    """A training step without the kit. The loss is that of a count without a loss: the sum of the output."""
    optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)

    def step() -> None:
        output = model(*inputs, **keywords)
        loss = (output if isinstance(output, Tensor) else output.logits).sum()
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def many_modules() -> tuple[nn.Module, Inputs, Options]:
    """1,000 small modules, 500 linear layers and 500 activations."""
    with torch.device("meta"):
        layers = [layer for _ in range(500) for layer in (nn.Linear(64, 64), nn.ReLU())]
        return nn.Sequential(*layers), (torch.zeros(8, 64),), {}


def bert_base() -> tuple[nn.Module, Inputs, Options]:
    """BERT base with a head for masked tokens."""
    return _from_transformers("BertForMaskedLM", "BertConfig")


def mixtral_8x7b() -> tuple[nn.Module, Inputs, Options]:
    """Mixtral-8x7B: 32 layers, 8 experts. The defaults of its configuration."""
    return _from_transformers("MixtralForCausalLM", "MixtralConfig")


def qwen3_30b_a3b() -> tuple[nn.Module, Inputs, Options]:
    """Qwen3-30B-A3B: 48 layers, 128 experts of width 768."""
    sizes = {"num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4}
    experts = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
    options = {**sizes, **experts, "head_dim": 128, "vocab_size": 151936}
    return _from_transformers("Qwen3MoeForCausalLM", "Qwen3MoeConfig", **options)


def _from_transformers(kind: str, configuration_kind: str, **options: int) -> tuple[nn.Module, Inputs, Options]:
    """A model in bfloat16 with tokens, and a mask, since without one transformers reads the values of positions."""
    package: Any = importlib.import_module("transformers")
    configuration = getattr(package, configuration_kind)(**options)
    configuration.use_cache = False
    with torch.device("meta"):
        mask = torch.zeros(1, 1, TOKENS, TOKENS, dtype=torch.bfloat16)
        model = getattr(package, kind)(configuration).bfloat16()
        return model, (torch.zeros(1, TOKENS, dtype=torch.long),), {"attention_mask": mask}


def _counted(name: str) -> Callable[[], tuple[nn.Module, Inputs, Options]]:
    return lambda: (*MODELS[name](), {})


NETWORKS: Final[dict[str, Network]] = {
    "resnet50": Network(build=_counted("resnet50")),
    "vit_b_16": Network(build=_counted("vit_b_16")),
    "bert_base": Network(build=bert_base, needs="transformers"),
    "gpt2": Network(build=_counted("gpt2_small")),
    "mixtral_8x7b": Network(build=mixtral_8x7b, needs="transformers"),
    "qwen3_30b_a3b": Network(build=qwen3_30b_a3b, needs="transformers"),
    "many_modules": Network(build=many_modules),
}


if __name__ == "__main__":
    main()

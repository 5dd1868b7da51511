"""Settings of a training step timed by hand, with torch alone: ``python tune_by_hand.py FILE:CLASS --batch N --device cuda``.

Prints a JSON line for each set of settings: its time per step as a ratio to the step without any, in turns of one process. The
names of settings are those of `tune`. `scripts.bench.tune` compares `tune` with it. It imports nothing of the package, so that an
error of the package cannot be in both.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib.util
import inspect
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import torch

GRAPH: Final = "cuda_graph=step"
EAGER: Final = "no_item,fused_optimizer,benchmark,channels_last"
WHOLE: Final = f"{GRAPH},fused_optimizer"
SETS: Final = (  # the likely best ones first
    f"{GRAPH},{EAGER}", f"amp_bf16,{GRAPH},{EAGER}", WHOLE, f"amp_bf16,{WHOLE}", EAGER, f"amp_bf16,{EAGER}", f"{WHOLE},benchmark",
    f"amp_bf16,{WHOLE},benchmark", "fused_optimizer", "amp_bf16", f"matmul_tf32,{GRAPH},{EAGER}", "benchmark", GRAPH, "no_item",
)  # fmt: skip
IMAGES_ONLY: Final = frozenset({"benchmark", "channels_last"})
CUDA_ONLY: Final = frozenset({GRAPH, "no_item", "benchmark", "matmul_tf32"})
DTYPES: Final = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}
KNOWN: Final = {*IMAGES_ONLY, *CUDA_ONLY, *DTYPES, "fused_optimizer", "benchmark_limit=0"}
TURN_S: Final = 0.05
ROUNDS: Final = range(4, 12)  # at least and at most
BUILD_SHARE: Final = 0.7  # of the time, after which no further set of settings starts

Settings = frozenset[str]
T = TypeVar("T")


def sets_to_try(is_image: bool, is_cuda: bool, also: Sequence[str]) -> list[Settings]:
    """The sets of settings without duplicates, those of `also` first."""
    texts = [*also, *SETS]
    unused = (frozenset() if is_image else IMAGES_ONLY) | (frozenset() if is_cuda else CUDA_ONLY)
    sets = [frozenset(filter(None, text.split(","))) for text in texts]
    kept = [words if text in also else words - unused for words, text in zip(sets, texts, strict=True)]
    return [words for words in dict.fromkeys(kept) if words and words <= KNOWN]


class Network:
    """A network of a file, with inputs of `batch` examples on `device`."""

    def __init__(self, target: str, batch: int, device: str) -> None:
        file, _, name = target.partition(":")
        spec = importlib.util.spec_from_file_location("network", file)
        assert spec is not None
        assert spec.loader is not None
        self.file = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.file)
        torch.manual_seed(0)
        self.device, self.model = device, getattr(self.file, name)().to(device)
        inputs = self.file.example_inputs()
        tensors = inputs if isinstance(inputs, tuple) else (inputs,)
        self.inputs = tuple(tensor[torch.arange(batch) % len(tensor)].to(device) for tensor in tensors)

    @property
    def is_image(self) -> bool:
        """Whether an input has a memory layout to choose."""
        return any(tensor.dim() == 4 for tensor in self.inputs)

    def loss(self, output: torch.Tensor, inputs: Sequence[torch.Tensor], labels: list[torch.Tensor]) -> torch.Tensor:
        """The file's loss, else cross entropy with labels that are drawn once."""
        if hasattr(self.file, "loss_fn"):
            loss: torch.Tensor = self.file.loss_fn(output, *inputs)
            return loss
        if not labels:
            shape = (output.shape[0], *output.shape[2:])
            labels.append(torch.randint(output.shape[1], shape, device=output.device))
        return torch.nn.functional.cross_entropy(output, labels[0])


def optimizer_of(network: Network, model: torch.nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """The file's optimizer, in the form that `settings` need."""
    optimizer: torch.optim.Optimizer = network.file.configure_optimizer(model)
    kind: Any = type(optimizer)
    forms = {"fused": "fused_optimizer" in settings, "capturable": GRAPH in settings}
    known = inspect.signature(kind).parameters
    wanted = {name: True for name, is_wanted in forms.items() if is_wanted and name in known}
    defaults = {name: value for name, value in optimizer.defaults.items() if name in known}
    changed: torch.optim.Optimizer = kind(model.parameters(), **{**defaults, **wanted})
    return changed


def step_of(network: Network, settings: Settings) -> Callable[[], None]:
    """A training step with `settings`, ready to be timed."""
    # `to` lets recurrent layers pack their copied weights again
    model, inputs = copy.deepcopy(network.model).to(network.device), network.inputs
    if "channels_last" in settings:
        model = model.to(memory_format=torch.channels_last)
        inputs = tuple(x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs)
    optimizer = optimizer_of(network, model, settings)
    dtype = next((DTYPES[word] for word in sorted(settings) if word in DTYPES), None)
    reads, labels = "no_item" not in settings and GRAPH not in settings, list[torch.Tensor]()
    kind = torch.device(network.device).type

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(kind, dtype, enabled=dtype is not None, cache_enabled=GRAPH not in settings):
            loss = network.loss(model(*inputs), inputs, labels)
            if reads:
                loss.item()
        loss.backward()
        optimizer.step()
        return loss.detach()

    if GRAPH not in settings:
        for _ in range(3):
            step()
        return lambda: [step()].clear()
    return captured(step, reads="no_item" not in settings)


def captured(step: Callable[[], torch.Tensor], *, reads: bool) -> Callable[[], None]:
    """`step` as a CUDA graph; `reads`: the loss is read after each replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay(kept: object = step) -> None:  # whose model and inputs the graph reads
        graph.replay()
        if reads:
            loss.item()

    return replay


@contextlib.contextmanager
def applied(settings: Settings) -> Iterator[None]:
    """The flags of the process."""
    torch.backends.cudnn.benchmark = bool(settings & {"benchmark", "benchmark_limit=0"})
    torch.backends.cudnn.benchmark_limit = 0 if "benchmark_limit=0" in settings else 10
    torch.backends.cuda.matmul.allow_tf32 = "matmul_tf32" in settings
    yield
    torch.backends.cudnn.benchmark = torch.backends.cuda.matmul.allow_tf32 = False


class Side:
    """A set of settings and its step.

    cuDNN keeps the algorithms of a thread, so sets with benchmark run in a thread for its settings, with backward. Others run as
    programs do, with backward in a thread of autograd.
    """

    threads: Final[dict[Settings, ThreadPoolExecutor]] = {}

    def __init__(self, network: Network, settings: Settings) -> None:
        self.settings, self.device = settings, network.device
        flags = settings & {"benchmark", "benchmark_limit=0"}
        if flags not in self.threads:
            self.threads[flags] = ThreadPoolExecutor(
                1, initializer=torch.autograd.set_multithreading_enabled, initargs=(not flags,)
            )
        self.thread = self.threads[flags]
        self.step = self._call(lambda: step_of(network, settings))
        self.turns_s = [self._call(lambda: self._turn(3))]

    def _call(self, work: Callable[[], T]) -> T:
        def inside() -> T:
            with applied(self.settings):
                return work()

        return self.thread.submit(inside).result()

    def _turn(self, count: int) -> float:
        """The mean time of a step of `count`, after one that is not timed."""
        self.step()
        synchronize(self.device)
        start_s = time.perf_counter()
        for _ in range(count):
            self.step()
        synchronize(self.device)
        return (time.perf_counter() - start_s) / count

    def turn(self) -> None:
        """Time another turn."""
        count = max(1, min(50, int(TURN_S / self.turns_s[0])))
        self.turns_s.append(self._call(lambda: self._turn(count)))


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device != "cpu":
        torch.cuda.synchronize()


def ratio_of(side: Side, base: Side) -> float:
    """The median of the ratios of neighboring turns."""
    return statistics.median(a / b for a, b in zip(side.turns_s[1:], base.turns_s[1:], strict=True))


def main() -> None:
    """Print a line for each set of settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--also", nargs="*", default=[], help="further sets of settings, as A,B")
    options = parser.parse_args()
    start_s = time.perf_counter()
    network = Network(options.target, options.batch, options.device)
    base = Side(network, frozenset())
    sides: list[Side] = []
    for settings in sets_to_try(network.is_image, options.device != "cpu", options.also):
        if time.perf_counter() - start_s > BUILD_SHARE * options.seconds:
            break
        try:
            sides.append(Side(network, settings))
        except Exception as error:  # noqa: BLE001 a set that fails is a line, and the others are still timed
            print(json.dumps({"settings": sorted(settings), "error": str(error).strip()[:200]}), flush=True)
    for number in range(ROUNDS[-1]):
        if number >= ROUNDS[0] and time.perf_counter() - start_s > options.seconds:
            break
        for side in [base, *sides][:: -1 if number % 2 else 1]:
            side.turn()
    print(json.dumps({"settings": [], "ms": 1e3 * statistics.median(base.turns_s[1:]), "ratio": 1.0}))
    for side in sides:
        step_ms = 1e3 * statistics.median(side.turns_s[1:])
        print(json.dumps({"settings": sorted(side.settings), "ms": step_ms, "ratio": ratio_of(side, base)}))


if __name__ == "__main__":
    main()

"""Training programs of several kinds: ``python training_programs.py NAME STEPS`` trains and prints a digest of all its bits.

With the variable PROGRAMS_SESSION, a session that is placed by hand records the loop and writes its report into that folder.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import l1_loss
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

SESSION = "PROGRAMS_SESSION"
COUNTS = {"warmup": 4, "steps": 6, "traced": 2}  # recorded steps of both ways
BATCH = 8
LATE = {"cpu": (900, 900), "cuda": (8192, 8192)}  # the matrix that a late rank multiplies

Train = Callable[[int, "Trace"], nn.Module]
PROGRAMS: dict[str, Train] = {}


def program(train: Train) -> Train:
    PROGRAMS[train.__name__.replace("_", "-")] = train
    return train


class Net(nn.Module):
    """Two layers with dropout, whose random numbers are part of the digest."""

    def __init__(self, inputs: int = 16, outputs: int = 4) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(inputs, 32), nn.Dropout(0.2), nn.Linear(32, outputs)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.drop(self.hidden(x)))
        return result

    def hidden(self, x: Tensor) -> Tensor:
        return self.first(x).relu()


class Checkpointed(Net):
    """A network that computes its hidden layer again in the backward pass."""

    def hidden(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(super().hidden, x, use_reentrant=False)
        return result


class Examples(Dataset[tuple[Tensor, int]]):
    """Examples with random noise of the worker that loads them."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.randn(16) + index % 4, index % 4


class Trace:
    """What a program did, as a digest; and the session that was placed by hand, if there is one."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._session: Any = None

    @contextlib.contextmanager
    def watching(self, model: nn.Module, folder: str | None) -> Iterator[None]:
        """Inside a session of `model`, where a folder for it is named."""
        if folder is None:
            yield
            return
        import profiler_kit

        with profiler_kit.session(model, folder, quiet=True, **COUNTS) as self._session:
            yield
        self._session = None

    def step(self, loss: Tensor) -> None:
        """A step is over."""
        self.add(loss)
        if self._session is not None:
            self._session.step()

    def add(self, value: object) -> None:
        content = value.detach().cpu().numpy().tobytes() if isinstance(value, Tensor) else repr(value).encode()
        self._digest.update(content)

    def end(self, model: nn.Module) -> str:
        """The digest of all losses, parameters, gradients and random states."""
        for name, parameter in [*model.named_parameters(), *model.named_buffers()]:
            self.add(name)
            self.add(parameter)
            self.add(parameter.grad if parameter.grad is not None else "none")
        self.add(torch.get_rng_state())
        self.add(random.getstate())
        return self._digest.hexdigest()


def batches(steps: int, **options: Any) -> Iterable[tuple[Tensor, Tensor]]:
    return DataLoader(Examples(steps * BATCH), batch_size=BATCH, shuffle=True, **options)


def fit(
    model: nn.Module,
    steps: int,
    trace: Trace,
    *,
    module: nn.Module | None = None,
    data: Iterable[tuple[Tensor, Tensor]] | None = None,
    autocast: bool = False,
    after_step: Callable[[], object] = lambda: None,
) -> nn.Module:
    """A usual loop. `model` is called; its parameters are those of `module`."""
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    with trace.watching(model, os.environ.get(SESSION)):
        for x, y in data if data is not None else batches(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            after_step()
            trace.step(loss)
    return module if module is not None else model


@program
def plain(steps: int, trace: Trace) -> nn.Module:
    return fit(Net(), steps, trace)


@program
def autocast_bfloat16(steps: int, trace: Trace) -> nn.Module:
    return fit(Net(), steps, trace, autocast=True)


@program
def compiled(steps: int, trace: Trace) -> nn.Module:
    module = Net()
    return fit(torch.compile(module, backend="aot_eager"), steps, trace, module=module)


@program
def checkpointed(steps: int, trace: Trace) -> nn.Module:
    return fit(Checkpointed(), steps, trace)


@program
def workers_fork(steps: int, trace: Trace) -> nn.Module:
    return fit(Net(), steps, trace, data=batches(steps, num_workers=2, multiprocessing_context="fork"))


@program
def workers_spawn(steps: int, trace: Trace) -> nn.Module:
    return fit(Net(), steps, trace, data=batches(steps, num_workers=1, multiprocessing_context="spawn"))


@program
def accumulation(steps: int, trace: Trace) -> nn.Module:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    with trace.watching(model, os.environ.get(SESSION)):
        for number, (x, y) in enumerate(batches(4 * steps), 1):
            loss = functional.cross_entropy(model(x), y) / 4
            loss.backward()
            if number % 4 == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                trace.step(loss)
    return model


@program
def adversarial(steps: int, trace: Trace) -> nn.Module:
    maker, judge = Net(4, 16), Net(16, 1)
    both = nn.ModuleList([maker, judge])
    optimizers = [torch.optim.Adam(m.parameters(), 0.001) for m in (judge, maker)]
    with trace.watching(both, os.environ.get(SESSION)):
        for x, _ in batches(steps):
            optimizers[0].zero_grad()
            (judge(maker(torch.randn(BATCH, 4)).detach()).mean() - judge(x).mean()).backward()
            optimizers[0].step()
            optimizers[1].zero_grad()
            loss = -judge(maker(torch.randn(BATCH, 4))).mean()
            loss.backward()
            optimizers[1].step()
            trace.step(loss)
    return both


@program
def adversarial_blocks(steps: int, trace: Trace) -> nn.Module:
    """Ten steps of one optimizer, then ten of the other one."""
    maker, judge = Net(4, 16), Net(16, 1)
    both = nn.ModuleList([maker, judge])
    optimizers = [torch.optim.SGD(m.parameters(), 0.001) for m in (judge, maker)]
    with trace.watching(both, os.environ.get(SESSION)):
        for _ in range(steps):
            for number in range(20):
                optimizer = optimizers[number // 10]
                optimizer.zero_grad()
                loss = judge(maker(torch.randn(BATCH, 4))).mean() * (1 - 2 * (number // 10))
                loss.backward()
                optimizer.step()
            trace.step(loss)
    return both


@program
def policy_gradient(steps: int, trace: Trace) -> nn.Module:
    """Calls with gradients, between which an environment makes steps."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with trace.watching(model, os.environ.get(SESSION)):
        for _ in range(steps):
            logs = []
            for _ in range(3):
                actions = torch.distributions.Categorical(logits=model(torch.randn(BATCH, 16)))
                logs.append(actions.log_prob(actions.sample()))
                time.sleep(0.001)
            optimizer.zero_grad()
            loss = -torch.stack(logs).mean()
            loss.backward()
            optimizer.step()
            trace.step(loss)
    return model


@program
def inner_loop(steps: int, trace: Trace) -> nn.Module:
    """Gradients of a loss are part of another loss, as in meta learning."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with trace.watching(model, os.environ.get(SESSION)):
        for x, y in batches(steps):
            x.requires_grad_()
            inner = functional.cross_entropy(model(x), y)
            (gradient,) = torch.autograd.grad(inner, x, create_graph=True)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x + gradient), y)
            loss.backward()
            optimizer.step()
            trace.step(loss)
    return model


@program
def gradients_by_hand(steps: int, trace: Trace) -> nn.Module:
    """Gradients of ``torch.autograd.grad`` of a loss that the program holds since its import."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    parameters = tuple(model.parameters())
    with trace.watching(model, os.environ.get(SESSION)):
        for x, _ in batches(steps):
            loss = l1_loss(model(x), torch.ones(BATCH, 4))
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.grad = gradient
            optimizer.step()
            trace.step(loss)
    return model


@program
def penalty(steps: int, trace: Trace) -> nn.Module:
    """The norm of a gradient of the output is a term of the loss."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with trace.watching(model, os.environ.get(SESSION)):
        for x, y in batches(steps):
            x.requires_grad_()
            output = model(x)
            (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
            optimizer.zero_grad()
            loss = functional.cross_entropy(output, y) + gradient.norm()
            loss.backward()
            optimizer.step()
            trace.step(loss)
    return model


@program
def evaluated_copies(steps: int, trace: Trace) -> nn.Module:
    """A copy of the model, of which the last one is kept, is evaluated with gradients after the first step and every 100th."""
    model, kept, numbers = Net(), list[nn.Module](), itertools.count()

    def evaluate() -> None:
        if next(numbers) % 100 == 0:
            kept[:] = [copy.deepcopy(model), copy.deepcopy(model)]
            for best in kept:
                best(torch.ones(1, 16))

    return fit(model, steps, trace, after_step=evaluate)


@program
def averaged_weights(steps: int, trace: Trace) -> nn.Module:
    model = Net()
    average = copy.deepcopy(model).requires_grad_(requires_grad=False)

    def update() -> None:
        for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(parameter.detach(), 0.1)

    fit(model, steps, trace, after_step=update)
    return nn.ModuleList([model, average])


@program
def drawn_first(steps: int, trace: Trace) -> nn.Module:
    """The model is called before its optimizer exists, as a summary or a drawing does."""
    model = Net()
    for _ in range(5):
        model(torch.ones(1, 16))
    return fit(model, steps, trace)


@program
def copies(steps: int, trace: Trace) -> nn.Module:
    """For each task, steps of a new optimizer train a copy of the model, whose gradients train the model."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(2):
            task = copy.deepcopy(model)
            inner = torch.optim.SGD(task.parameters(), 0.1)
            x, y = torch.randn(BATCH, 16), torch.randint(0, 4, (BATCH,))
            for _ in range(2):
                inner.zero_grad()
                loss = functional.cross_entropy(task(x), y)
                loss.backward()
                inner.step()
            for mine, its in zip(model.parameters(), task.parameters(), strict=True):
                mine.grad = its.grad if mine.grad is None else mine.grad + its.grad
        optimizer.step()
        trace.step(loss)
    return model


@program
def folds(steps: int, trace: Trace) -> nn.Module:
    """A new model and a new optimizer for every ten steps."""
    for _ in range(steps // 10):
        fit(model := Net(), 10, trace)
        model.eval()
        with torch.no_grad():
            model(torch.ones(BATCH, 16))
    return model


@program
def trained_before(steps: int, trace: Trace) -> nn.Module:
    """A loop of a few steps trains a teacher, before the loop that trains with it."""
    fit(teacher := Net(), 8, Trace())
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, _ in batches(steps):
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), teacher(x).detach())
        loss.backward()
        optimizer.step()
        trace.step(loss)
    return model


@program
def functional_ensemble(steps: int, trace: Trace) -> nn.Module:
    """Stacked parameters of several models, which a model without data is called with."""
    models = [Net() for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)  # type: ignore[arg-type]
    base = copy.deepcopy(models[0]).to("meta")
    optimizer = torch.optim.SGD(parameters.values(), 0.1)

    def output(own: dict[str, Tensor], own_buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(base, (own, own_buffers), (x,))
        return result

    call = torch.func.vmap(output, in_dims=(0, 0, None), randomness="different")
    for x, y in batches(steps):
        optimizer.zero_grad()
        loss = sum((functional.cross_entropy(out, y) for out in call(parameters, buffers, x)), torch.zeros(()))
        loss.backward()
        optimizer.step()
        trace.step(loss)
    return models[0]


@program
def closure(steps: int, trace: Trace) -> nn.Module:
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=2)
    with trace.watching(model, os.environ.get(SESSION)):
        for x, y in batches(steps):

            def losses(x: Tensor = x, y: Tensor = y) -> Tensor:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(x), y)
                loss.backward()
                return loss

            loss: Any = optimizer.step(losses)
            trace.step(loss)
    return model


@program
def threads(steps: int, trace: Trace, before_s: float = 0.0) -> nn.Module:
    """Another thread evaluates a copy of the model, without random numbers, `before_s` before and while the loop trains."""
    model, other, is_over = Net(), Net().eval(), threading.Event()

    def evaluate() -> None:
        while not is_over.wait(0.001):
            other(torch.ones(BATCH, 16))

    thread = threading.Thread(target=evaluate)
    thread.start()
    time.sleep(before_s)
    try:
        return fit(model, steps, trace)
    finally:
        is_over.set()
        thread.join()


@program
def evaluation_first(steps: int, trace: Trace) -> nn.Module:
    """As `threads`; the loop of the other thread is recorded and counted while this one trains, which draws random numbers."""
    return threads(steps, trace, before_s=0.3)


@program
def signals(steps: int, trace: Trace) -> nn.Module:
    """A timer of the program interrupts the loop; its handler runs as often as it is asked to."""
    handled = []
    signal.signal(signal.SIGUSR1, lambda number, _: handled.append(number))
    fit(model := Net(), steps, trace, after_step=lambda: os.kill(os.getpid(), signal.SIGUSR1))
    trace.add(len(handled))
    return model


@program
def two_ranks(steps: int, trace: Trace) -> nn.Module:
    return ranks(steps, trace, "gloo", torch.device("cpu"))


def two_gpus(steps: int, trace: Trace) -> nn.Module:
    """As `two_ranks`, on a GPU for each rank. It is no row of the table, as few machines can run it."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return ranks(steps, trace, "nccl", device)


def ranks(steps: int, trace: Trace, backend: str, device: torch.device) -> nn.Module:
    """Several ranks, of which the second one computes more in each step."""
    torch.distributed.init_process_group(backend)
    module = Net().to(device)
    late = torch.randn(*LATE[device.type], device=device)
    is_late = torch.distributed.get_rank() == 1
    return fit(
        nn.parallel.DistributedDataParallel(module),
        steps,
        trace,
        module=module,
        data=((x.to(device), y.to(device)) for x, y in batches(steps)),
        after_step=lambda: late @ late if is_late else None,
    )


def main() -> None:
    name, steps = sys.argv[1:]
    torch.set_num_threads(1)
    random.seed(0)
    torch.manual_seed(0)
    trace = Trace()
    digest = trace.end({**PROGRAMS, "two-gpus": two_gpus}[name](int(steps), trace))
    print(os.environ.get("RANK", "0"), digest, flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

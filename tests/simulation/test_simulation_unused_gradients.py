"""Which backward work has gradients that no optimizer step uses, in traces of small programs on the CPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from profiler_kit.attribution.engine import attribute
from profiler_kit.simulation.unused_gradients import unused_gradients
from profiler_kit.traces.names import NODE_PREFIX
from profiler_kit.traces.reader import read

STEPS = 3


def counted(step: Callable[[], None], path: Path) -> tuple[int, int]:
    """The unused and all evaluations of autograd nodes per step."""
    plan = schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, schedule=plan) as recorded:
        for _ in range(1 + STEPS):
            step()
            recorded.step()
    recorded.export_chrome_trace(str(path / "trace.json"))
    attribution = attribute(read(path / "trace.json"))
    table, rows = attribution.table, attribution.host.rows
    names = [table.names[i] for i in table.name[rows].tolist()]
    unused = unused_gradients(attribution).tolist()
    nodes = [at for at, name in enumerate(names) if name.startswith(NODE_PREFIX)]
    return sum(unused[at] for at in nodes) // STEPS, len(nodes) // STEPS


def network(*sizes: int) -> nn.Sequential:
    layers = [(nn.Linear(a, b), nn.Tanh()) for a, b in itertools.pairwise(sizes)]
    return nn.Sequential(*(layer for pair in layers for layer in pair))


def optimizer_of(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam([p for module in modules for p in module.parameters()], foreach=False)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_teacher_with_gradients_that_its_student_does_not_need(is_frozen: bool, tmp_path: Path) -> None:
    teacher, student, x = network(8, 16, 16, 4), network(8, 4), torch.randn(2, 8)
    teacher.requires_grad_(not is_frozen)
    optimizer = optimizer_of(student)

    def step() -> None:
        target = teacher(x)
        (student(x) - target).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    unused, nodes = counted(step, tmp_path)
    # of each of its three layers: tanh, product, transposed weight, two gradients; the loss and the student's layer are used
    assert (unused, nodes) == ((0, 8) if is_frozen else (15, 23))


@pytest.mark.parametrize("is_detached", [False, True])
def test_a_generator_that_the_critic_does_not_train(is_detached: bool, tmp_path: Path) -> None:
    generator, critic, z = network(4, 32, 8), network(8, 6, 1), torch.randn(2, 4)
    of_generator, of_critic = optimizer_of(generator), optimizer_of(critic)

    def step() -> None:
        made = generator(z).detach() if is_detached else generator(z)
        critic(made).mean().backward()
        of_critic.step()
        of_critic.zero_grad()
        of_generator.zero_grad()
        critic.requires_grad_(False)
        (-critic(generator(z)).mean()).backward()
        critic.requires_grad_(True)
        of_generator.step()
        of_generator.zero_grad()

    unused, _ = counted(step, tmp_path)
    assert unused == (0 if is_detached else 2 * 5)  # of each layer: tanh, product, transposed weight, two gradients


def test_gradients_of_a_critic_on_the_way_to_its_generator(tmp_path: Path) -> None:
    """Only their accumulation is unused: the generator's gradients come through the critic."""
    generator, critic, z = network(4, 32, 8), network(8, 6, 1), torch.randn(2, 4)
    of_generator, of_critic = optimizer_of(generator), optimizer_of(critic)

    def step() -> None:
        of_critic.zero_grad()
        critic(generator(z).detach()).mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        (-critic(generator(z)).mean()).backward()
        of_generator.step()

    assert counted(step, tmp_path)[0] == len(list(critic.parameters()))


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("rounds", [1, 3])
def test_gradients_of_several_passes_that_one_optimizer_uses(set_to_none: bool, rounds: int, tmp_path: Path) -> None:
    trunk, head, other, x = network(8, 16), network(16, 2), network(16, 3), torch.randn(2, 8)
    optimizer = optimizer_of(trunk, head, other)

    def step() -> None:
        for _ in range(rounds):
            shared = trunk(x)
            head(shared).mean().backward(retain_graph=True)
            other(shared).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)

    assert counted(step, tmp_path)[0] == 0


def test_a_gradient_of_gradients_is_used(tmp_path: Path) -> None:
    net, x = network(3, 8, 1), torch.randn(4, 3, requires_grad=True)
    optimizer = optimizer_of(net)

    def step() -> None:
        (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        (slope.square().mean() + net(x).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        x.grad = None

    assert counted(step, tmp_path)[0] == 0


def test_steps_without_an_optimizer_accumulate_gradients(tmp_path: Path) -> None:
    net, x = network(8, 4), torch.randn(2, 8)

    def step() -> None:
        with record_function("micro batch"):
            net(x).mean().backward()

    assert counted(step, tmp_path)[0] == 0

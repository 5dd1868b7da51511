"""Which backward work has gradients that no optimizer step uses, in traces of small programs on the CPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from inspection_traces import ENGINE, kernel, launch, mark, node, op, table
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from profiler_kit.attribution.engine import attribute
from profiler_kit.simulation.parameter_gradients import ParameterGradients
from profiler_kit.simulation.unused_gradients import unused_gradients
from profiler_kit.traces.names import NODE_PREFIX
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import NONE

STEPS = 3


def counted(step: Callable[[], None], path: Path) -> tuple[int, int]:
    """The unused and all evaluations of autograd nodes per step."""
    unused, names = unused_names(step, path)
    nodes = [name.startswith(NODE_PREFIX) for name in names]
    return sum(node and is_unused for node, is_unused in zip(nodes, unused, strict=True)) // STEPS, sum(nodes) // STEPS


def unused_names(step: Callable[[], None], path: Path) -> tuple[list[bool], list[str]]:
    """Which host events of `STEPS` steps are unused backward work, and the names of all."""
    plan = schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, schedule=plan) as recorded:
        for _ in range(1 + STEPS):
            step()
            recorded.step()
    recorded.export_chrome_trace(str(path / "trace.json"))
    attribution = attribute(read(path / "trace.json"))
    table, rows = attribution.table, attribution.host.rows
    names = [table.names[i] for i in table.name[rows].tolist()]
    return unused_gradients(attribution).tolist(), names


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
    """The generator's gradients come through the critic: of each of its layers, a product and the sum of the bias are unused."""
    generator, critic, z = network(4, 32, 8), network(8, 6, 1), torch.randn(2, 4)
    of_generator, of_critic = optimizer_of(generator), optimizer_of(critic)

    def step() -> None:
        of_critic.zero_grad()
        critic(generator(z).detach()).mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        (-critic(generator(z)).mean()).backward()
        of_generator.step()

    unused, names = unused_names(step, tmp_path)
    of_step = [name for name, is_unused in zip(names, unused, strict=True) if is_unused]
    assert sum(name.startswith(NODE_PREFIX) for name in of_step) == STEPS * len(list(critic.parameters()))
    assert (of_step.count("aten::mm"), of_step.count("aten::sum")) == (STEPS * 2, STEPS * 2)
    assert names.count("aten::mm") == STEPS * (3 + 4 + 3), (
        "the first layer of each network needs no gradient of its input"
    )


def test_a_convolution_launches_the_gradients_of_input_and_weight_in_one_operator(tmp_path: Path) -> None:
    events = [
        mark("ProfilerStep#1", 0, 100),
        node("ConvolutionBackward0", 10, 60, 1),
        op("aten::convolution_backward", 12, 50, thread=ENGINE),
        launch(1, 20, 21, thread=ENGINE),
        kernel("cudnn::detail::dgrad_engine<float>", 22, 30, 1),
        launch(2, 30, 31, thread=ENGINE),
        kernel("cudnn::detail::wgrad_alg0_engine<float>", 32, 40, 2),
        op("aten::sum", 56, 59, thread=ENGINE),
    ]
    attribution = attribute(table(tmp_path, events))
    host = attribution.host
    names = [attribution.table.names[i] for i in attribution.table.name[host.rows].tolist()]
    (outer,) = [i for i, name in enumerate(names) if name.endswith("ConvolutionBackward0")]
    of_node = np.where(host.thread == host.thread[outer], outer, NONE).astype(np.int32)
    gradients = ParameterGradients.of(attribution, of_node)
    assert gradients.computes(outer)
    assert [(names[i], int(host.start_ns[i] - host.start_ns[outer]) // 1000) for i in gradients.work(outer)] == [
        ("cudaLaunchKernel", 20), ("aten::sum", 46),
    ]  # fmt: skip


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

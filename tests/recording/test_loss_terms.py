"""The terms of losses that a loop computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy, mse_loss, nll_loss

from profiler_kit.loading.training_step.losses import LOSSES
from profiler_kit.recording.guard import Guard, raise_error
from profiler_kit.recording.loss_terms import OUTPUT, LossWatch, Terms, loss_functions

EARLY = functional.l1_loss  # the program holds it from before the watch
CLASSES, LABELS = torch.tensor([0, 1, 2, 0]), torch.rand(4, 3)


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions are watched only where nothing was compiled, as another test of this process may have done."""
    monkeypatch.setattr("profiler_kit.recording.loss_terms.has_compiled", lambda: False)


class Model(nn.Module):
    """A model that can compute its loss, as those of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.loss = Body(), nn.CrossEntropyLoss()

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        output: Tensor = self.body(x)
        return output if y is None else self.loss(output, y)


class Body(nn.Linear):
    def __init__(self) -> None:
        super().__init__(5, 3)


class Dice(nn.Module):
    def forward(self, output: Tensor, label: Tensor) -> Tensor:
        return 1 - (output.sigmoid() * label).sum() / (functional.mse_loss(output, label) + 1)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, output: Tensor) -> Tensor:
        return output.sum()

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient.expand(4, 3)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, output: Tensor) -> Tensor:
        return output * 2

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient * 2


class Around(nn.Module):
    """A model that contains another one."""

    def __init__(self, model: nn.Module, function: Any = None) -> None:
        super().__init__()
        self.model, self.function = model, function


class Segments(Around):
    """Computes its loss as a weighted sum over parts of the input."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        parts = [functional.cross_entropy(self.model(x[i::2]), y[i::2], reduction="none") for i in (0, 1)]
        return sum((part.mean() * 0.5 for part in parts), torch.zeros(()))


class Penalized(Around):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        output = self.model(x)
        return functional.mse_loss(output, y) + 0.1 * output.abs().mean()


class Through(Around):
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.function.apply(self.model(x))
        return result


class Flow(Around):
    """Returns two scalars, of which the first one may be a loss."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output = self.model(x)
        return output.exp().sum(), output.sin().sum()


def watched(model: nn.Module, *losses: Callable[[], Tensor]) -> Sequence[Terms]:
    watch = LossWatch([model], Guard(raise_error))
    watch.start()
    try:
        for loss in losses:
            loss().backward()
    finally:
        watch.stop()
    return watch.losses


@pytest.mark.parametrize(
    ("terms", "loss"),
    [
        (("l1_loss",), lambda model, x: nn.L1Loss()(model(x), LABELS)),
        (("cross_entropy",), lambda model, x: functional.cross_entropy(model(x), CLASSES, label_smoothing=0.1)),
        (("cross_entropy",), lambda model, x: cross_entropy(model(x), CLASSES)),  # imported by its name
        (("nll_loss",), lambda model, x: nll_loss(model(x).log_softmax(1).clamp(-9), CLASSES)),
        (("cross_entropy",), lambda model, x: model(x, CLASSES) / 4),
        (("kl_div",), lambda model, x: nn.KLDivLoss(reduction="batchmean")(model(x).log_softmax(1), LABELS)),
        (
            ("triplet_margin_loss", "huber_loss"),
            lambda model, x: (
                nn.TripletMarginLoss()(model(x), LABELS, model(2 * x)) + 0.5 * functional.huber_loss(model(x), LABELS)
            ),
        ),
        (("Dice", "mse_loss"), lambda model, x: Dice()(model(x), LABELS) + mse_loss(model(x), LABELS)),
        (("mse_loss", None), lambda model, x: functional.mse_loss(model(x), LABELS) + model(x).exp().mean()),
        ((None,), lambda model, x: -model(x).mean()),
        ((None,), lambda model, x: -torch.distributions.Categorical(logits=model(x)).log_prob(CLASSES).mean()),
        (("Scaled",), lambda model, x: Scaled.apply(model(x))),
        (("cross_entropy",), lambda model, x: Segments(model)(x, CLASSES)),
        (("mse_loss", None), lambda model, x: Penalized(model)(x, LABELS)),
        (("Scaled",), lambda model, x: Through(model, Scaled)(x)),
        ((None,), lambda model, x: Through(model, Doubled)(x).mean()),
        ((OUTPUT,), lambda model, x: Flow(model)(x)[0] / 4),
        ((None,), lambda model, x: -(Flow(model)(x)[0] + Flow(model)(x)[1])),
    ],
)
def test_terms(terms: Terms, loss: Callable[[nn.Module, Tensor], Tensor]) -> None:
    model = Model()
    assert watched(model, lambda: loss(model, torch.rand(4, 5))) == [terms]


@pytest.mark.parametrize("name", LOSSES)
def test_a_named_loss_is_recognized_by_its_function(name: str) -> None:
    output = nn.Parameter(torch.rand(4, 3))
    label = CLASSES if LOSSES[name].labels == "classes" else LABELS
    assert LOSSES[name].function in loss_functions()
    assert watched(Model(), lambda: LOSSES[name].value(output, label, False)) == [(LOSSES[name].function,)]


def test_backward_passes_that_differ() -> None:
    model, x = Model(), torch.rand(4, 5)
    judge = lambda: functional.mse_loss(model(x), LABELS)  # noqa: E731
    assert watched(model, judge, judge, lambda: model(x).mean()) == [("mse_loss",), (None,)]


def test_gradients_by_hand_are_those_of_a_loss_and_of_an_output_a_part() -> None:
    model, x = Model(), torch.rand(4, 5, requires_grad=True)
    by_hand = lambda loss: torch.autograd.grad(loss, x, create_graph=True)[0]  # noqa: E731
    assert grads(model, lambda: by_hand(EARLY(model(x), LABELS))) == [("l1_loss",)]
    assert grads(model, lambda: by_hand(model(x).sum())) == [(None,)]
    with_penalty = lambda: functional.mse_loss(model(x), LABELS) + by_hand(model(x).sum()).norm()  # noqa: E731
    assert grads(model, lambda: with_penalty().backward()) == [("mse_loss", None)]


def grads(model: nn.Module, run: Callable[[], object]) -> Sequence[Terms]:
    watch = LossWatch([model], Guard(raise_error))
    watch.start()
    try:
        run()
    finally:
        watch.stop()
    return watch.losses


def test_everything_is_as_before() -> None:
    before = [getattr(functional, name).__code__ for name in loss_functions()]
    call, backward = nn.Module.__call__, torch.autograd.backward
    watched(Model())
    assert [getattr(functional, name).__code__ for name in loss_functions()] == before
    assert (nn.Module.__call__, torch.autograd.backward) == (call, backward)


def test_an_error_inside_a_loss_is_that_of_the_program() -> None:
    model = Model()
    with pytest.raises(RuntimeError):
        watched(model, lambda: functional.mse_loss(model(torch.rand(4, 6)), LABELS))

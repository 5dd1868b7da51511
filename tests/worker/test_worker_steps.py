"""What a step is, phase by phase, and how steps are timed."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from measure_models import job, net
from simulated_clock import READING_NS, SimulatedClock

torch = pytest.importorskip("torch")

from profiler_kit.errors import TargetError  # noqa: E402
from profiler_kit.loading import load  # noqa: E402
from profiler_kit.records.counts import Phase  # noqa: E402
from profiler_kit.worker.steps import Runner, synced_step_ns, timed_steps  # noqa: E402

LOADER = (
    "train_loader = [(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long)), (torch.ones(2, 4), torch.ones(2).long())]\n"
)


def runner(folder: Path, text: str, **words: object) -> Runner:
    return Runner(load(job(folder, text, **words).spec, device="cpu"))  # type: ignore[arg-type]


def marks(of: Runner) -> list[Phase]:
    seen: list[Phase] = []
    of.step(seen.append)
    return seen


def test_a_training_step_s_phases(tmp_path: Path) -> None:
    assert marks(runner(tmp_path, net())) == ["forward", "loss", "backward", "optimizer", "other"]


def test_an_inference_step_s_phases(tmp_path: Path) -> None:
    assert marks(runner(tmp_path, net(), mode="infer")) == ["forward", "other"]


def test_a_loader_s_batches_come_first_and_begin_anew(tmp_path: Path) -> None:
    of = runner(tmp_path, net(after=LOADER))
    assert marks(of)[:3] == ["data", "transfer", "forward"]
    sums = [float(of.fetch().args[0].sum()) for _ in range(4)]
    assert sums == [8.0, 0.0, 8.0, 0.0]  # the step above took the first batch


def test_an_empty_loader_is_an_error(tmp_path: Path) -> None:
    once = "class Once:\n    def __init__(self):\n        self.left = [torch.zeros(2, 4)] * 2\n"
    once += (
        "    def __iter__(self):\n        while self.left:\n            yield self.left.pop()\ntrain_loader = Once()\n"
    )
    of = runner(tmp_path, net(after=once))
    of.step()  # the first batch showed the shapes, this is the second
    with pytest.raises(TargetError, match="the loader yields no batch"):
        of.step()


def test_a_step_trains_and_leaves_no_gradients(tmp_path: Path) -> None:
    of = runner(tmp_path, net(), optimizer="sgd")
    before = [parameter.detach().clone() for parameter in of.target.model.parameters()]
    of.step()
    after = list(of.target.model.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(parameter.grad is None for parameter in after)


def test_inference_changes_nothing_and_keeps_no_graph(tmp_path: Path) -> None:
    of = runner(tmp_path, net("assert not torch.is_grad_enabled()"), mode="infer")
    before = [parameter.detach().clone() for parameter in of.target.model.parameters()]
    of.step()
    assert all(torch.equal(a, b) for a, b in zip(before, of.target.model.parameters(), strict=True))
    assert not of.target.model.training


def test_labels_are_made_up_once(tmp_path: Path) -> None:
    of = runner(tmp_path, net())
    output = of.target.model(*of.target.batch.args)
    first = of.labels(output, of.target.batch)
    assert of.labels(output * 2, of.target.batch) is first


@pytest.mark.parametrize("words", [{}, {"mode": "infer"}], ids=["train", "infer"])
def test_timed_steps_are_as_many_as_asked_and_their_phases_fill_them(
    tmp_path: Path, words: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    SimulatedClock().install(monkeypatch)
    timed = timed_steps(runner(tmp_path, net("time.sleep(0.002)"), **words), 5)
    assert len(timed.steps_ns) == 5
    assert {len(samples) for samples in timed.stopwatch_ns.values()} == {5}
    assert timed.event_ns == {}
    for i, step_ns in enumerate(timed.steps_ns):
        inside = sum(samples[i] for samples in timed.stopwatch_ns.values())
        assert 0 <= step_ns - inside <= 10 * READING_NS
    assert timed.stopwatch_ns["forward"] == [pytest.approx(2_000_000, abs=10 * READING_NS)] * 5


def test_the_clock_stops_timed_steps_but_not_before_the_fewest(tmp_path: Path) -> None:
    of = runner(tmp_path, net())
    assert len(timed_steps(of, 50, fewest=4, until_ns=0).steps_ns) == 4
    assert len(timed_steps(of, 2, fewest=4, until_ns=time.perf_counter_ns() + 10**12).steps_ns) == 2


def test_the_first_step_after_an_idle_device_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step reads the loss, which waits for the step before. Its backward takes longer on the device than on the host."""
    SimulatedClock().install(monkeypatch)
    of, free_at = runner(tmp_path, net()), [0.0]
    of.cuda = True
    monkeypatch.setattr(
        torch.cuda, "Event", lambda **_: SimpleNamespace(record=lambda *_: None, elapsed_time=lambda _: 0.0)
    )
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)

    def step(mark: object) -> None:
        time.sleep(max(0.0, free_at[0] - time.perf_counter()))  # of the simulated clock
        free_at[0] = time.perf_counter() + 0.02

    monkeypatch.setattr(of, "step", step)
    monkeypatch.setattr(of, "synchronize", lambda: None)
    assert timed_steps(of, 1).steps_ns[0] > 15_000_000
    assert len(timed_steps(of, 3).steps_ns) == 3


def test_a_watched_step_takes_as_long_as_the_host_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SimulatedClock().install(monkeypatch)
    taken = synced_step_ns(runner(tmp_path, net("time.sleep(0.01)")))
    assert taken == pytest.approx(10_000_000, abs=10 * READING_NS)


CACHE = """
import torch
from torch import nn

class Cache:
    def __init__(self):
        self.keys = []

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, cache, past):
        cache.keys.append(self.layer(x))
        past.append(cache.keys[-1])
        return torch.cat(cache.keys).sum(1) + past[0].sum()

def build():
    return Net(), (torch.zeros(2, 4), Cache(), [])
"""


def test_each_step_gets_the_cache_that_is_an_input_as_it_was(tmp_path: Path) -> None:
    of = runner(tmp_path, CACHE)
    for _ in range(3):
        of.step()  # would go back through the graph of the step before
    x, cache, past = of.target.batch.args
    assert (cache.keys, past) == ([], [])
    assert of.fetch().args[0] is x  # at the same address, as a CUDA graph needs

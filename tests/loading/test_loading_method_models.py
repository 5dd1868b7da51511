"""Models without a forward, whose methods call their layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_kit.errors import TargetError
from profiler_kit.loading import Target, load
from profiler_kit.records.target import TargetSpec

ACTOR_CRITIC = """
import torch
from torch import nn
import torch.nn.functional as F

class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 256)
        self.policy = nn.Linear(256, 2)
        self.value = nn.Linear(256, 1)
        self.optimizer = torch.optim.Adam(self.parameters())

    def pi(self, x, softmax_dim=1):
        return F.softmax(self.policy(F.relu(self.shared(x))), dim=softmax_dim)
{more}
    def train_net(self, batch):
        loss = self.policy(self.shared(batch)).sum()
        loss.backward()
        self.optimizer.step()
"""
VALUE = """
    def v(self, x):
        return self.value(F.relu(self.shared(x)))
"""


def loaded(tmp_path: Path, text: str) -> Target:
    (tmp_path / "agent.py").write_text(text)
    return load(TargetSpec(spec=str(tmp_path / "agent.py"), command=("count", "")))


def test_the_methods_of_an_actor_critic_run_one_after_the_other(tmp_path: Path) -> None:
    target = loaded(tmp_path, ACTOR_CRITIC.replace("{more}", VALUE))
    assert "ActorCritic defines no forward: pi(x) and v(x) run one after the other" in map(str, target.info.notes)
    batch = target.batch
    assert [tuple(tensor.shape) for tensor in batch.args] == [(1, 4)]
    policy, value = target.model(*batch.args)
    assert (policy.shape, value.shape) == ((1, 2), (1, 1))


UNIMPLEMENTED = """
    def forward(self):
        raise NotImplementedError

"""


@pytest.mark.parametrize("more", ["", UNIMPLEMENTED])
def test_a_single_method_is_the_forward(tmp_path: Path, more: str) -> None:
    target = loaded(tmp_path, ACTOR_CRITIC.replace("{more}", more))
    assert "ActorCritic defines no forward: pi(x) runs" in map(str, target.info.notes)


def test_a_model_whose_methods_call_no_layer_is_refused(tmp_path: Path) -> None:
    text = "from torch import nn\nclass Bare(nn.Module):\n    def size(self, x):\n        return x\n"
    with pytest.raises(TargetError, match="Bare defines no forward"):
        loaded(tmp_path, text)

"""Optional labels that make forward store its loss in an attribute, or that only the training loop names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from profiler_kit.counting import count_target
from profiler_kit.loading import Target, load
from profiler_kit.records.target import TargetSpec

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
NET = """
class LM(nn.Module):
    def __init__(self, vocab=50, dim=8, max_seq_len=16):
        super().__init__()
        self.max_seq_len = max_seq_len
        self.emb, self.out = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)
        self.head = nn.Identity()
    def forward(self, tokens, {label}=None):
        h = self.emb(tokens)
        {first}
        if {label} is None:
            return self.out(h[:, [-1], :])
        logits = self.out(h)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), {label}.view(-1))
        {last}
"""
LOOP = """
model = LM()
for X, Y in open("never"):
    logits = {call}
    model.{attribute}.backward()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(text: str, device: str = "meta") -> Target:
    Path("lm.py").write_text(HEAD + text)
    return load(TargetSpec(spec="lm.py:LM"), device=device)


@pytest.mark.parametrize(
    ("label", "first", "last", "loop", "loss"),
    [
        ("targets", "self.last_loss = None", "self.last_loss = loss; return logits", "", "last_loss"),
        ("labels", "", "self.ce = loss; return logits", "", "ce"),
        ("targets", "", "self.head.loss = loss; return logits", "", "loss"),
        ("targets", "self.aux = h.mean()", "self.loss = loss; return logits", "", "loss"),
        ("following", "", "self.loss = loss; return logits", LOOP.format(call="model(X, Y)", attribute="loss"), "loss"),
        (
            "following",
            "",
            "self.loss = loss; return logits",
            LOOP.format(call="model(X, following=Y)", attribute="loss"),
            "loss",
        ),
        ("following", "", "return logits, loss", LOOP.format(call="model(X, Y)", attribute="x"), "output[1]"),
    ],
)
def test_the_label_that_turns_the_loss_on_is_passed(label: str, first: str, last: str, loop: str, loss: str) -> None:
    target = loaded(NET.format(label=label, first=first or "pass", last=last) + loop)
    static = count_target(target)
    assert [tuple(item.shape) for item in target.info.inputs] == [(1, 16), (1, 16)]
    assert (target.info.loss, static.forward.macs) == (loss, 16 * 8 * 50)


def test_a_stored_loss_trains_the_model_that_runs() -> None:
    target = loaded(NET.format(label="targets", first="pass", last="self.last_loss = loss; return logits"), "cpu")
    for _ in range(2):
        output = target.model(*target.batch.args, **target.batch.kwargs)
        loss = target.loss(output, target.batch, target.labels_for(output))
        loss.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(loss)
    assert all(p.grad is not None for p in target.model.parameters())


def test_a_scalar_that_is_stored_in_any_case_is_no_loss() -> None:
    text = NET.format(label="targets", first="self.aux = h.mean()", last="return logits")
    target = loaded(text)
    count_target(target)
    assert target.info.loss == "sum"
    assert len(target.info.inputs) == 1

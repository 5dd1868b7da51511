"""Edits before consequences, on counted networks; and the laws of comparisons on random pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from edited_networks import GeluBlock, Net, ResBlock, compared, counted
from examples import count as example_count
from random_pairs import Module, check_laws, random_reports, report_of
from torch import nn

from profiler_kit.comparison.compare import compare
from profiler_kit.errors import NotComparableError
from profiler_kit.records.comparison import Comparison
from profiler_kit.records.edits import FigureChanges
from profiler_kit.records.report import Report


@pytest.fixture(scope="module")
def base() -> Report:
    return counted(Net())


def explain(base: Report, **edits: Any) -> Comparison:
    comparison = compared(base, counted(Net(**edits)))
    parts = sum((edit.figures for edit in comparison.edits), FigureChanges())
    parts = sum((each.figures for each in comparison.consequences), parts)
    row = next(row for row in comparison.metrics if row.metric == "flops")
    assert parts.flops == row.change
    assert sum((group.figures for group in comparison.groups), FigureChanges()) == parts
    return comparison


def sentence(comparison: Comparison, metric: str) -> str:
    reason = comparison.reason(metric)
    assert reason is not None
    assert sum(part.change for part in reason.parts) == reason.change
    return reason.sentence


def test_a_changed_stem_is_the_first_row_and_names_its_consequence(base: Report) -> None:
    comparison = explain(base, stride=1)
    assert [edit.title for edit in comparison.edits] == ["stem.0 stride 2 -> 1"]
    assert (comparison.layers[0].path, comparison.layers[0].role) == ("stem.0", "edited")
    assert {layer.role for layer in comparison.layers[1:]} == {"affected", "same"}
    (consequence,) = comparison.consequences
    assert consequence.edits == (0,)
    assert consequence.change == "maps twice as large per side"
    affected = sum(layer.role == "affected" and bool(layer.figures) for layer in comparison.layers)
    assert consequence.layers == affected > 30
    words = sentence(comparison, "flops")
    assert words.index("stem.0 stride 2 -> 1") < words.index("maps twice as large per side")
    assert f"in {affected} layers below" in words
    assert comparison.groups[0].subject == "stem.0"


def test_every_metric_that_differs_has_a_reason(base: Report) -> None:
    comparison = explain(base, stride=1, classes=100)
    differing = [row.metric for row in comparison.metrics if row.change]
    assert {"flops", "forward_flops", "backward_flops", "macs", "params", "trainable_params", "saved", "peak"} <= set(
        differing
    )
    assert [reason.metric for reason in comparison.reasons] == differing


@pytest.mark.parametrize(
    ("edits", "title"),
    [
        ({"depth": (1, 2, 4)}, "layer3 2 -> 4: +2 x Block"),
        ({"depth": (1, 1, 2)}, "layer2 2 -> 1: -1 x Block"),
        ({"last": "stage3"}, "layer3 -> stage3, 15 modules"),
        ({"block": ResBlock}, "layer*.* Block -> ResBlock in 5 modules"),
        ({"block": GeluBlock}, "layer*.* also calls gelu in 5 modules"),
        ({"classes": 7}, "fc out_features 10 -> 7"),
        ({"act": nn.GELU}, "stem.2 ReLU -> GELU"),
        ({"act": nn.Identity}, "stem.2 ReLU -> Identity"),
        ({"dropout": 0.5}, "dropout p 0 -> 0.5"),
        ({"width": 16}, "model out_channels x 2 in 13 layers"),
    ],
)
def test_one_edit_is_one_title(base: Report, edits: dict[str, Any], title: str) -> None:
    assert [edit.title for edit in explain(base, **edits).edits] == [title]


def test_wider_layers_are_edits_and_their_norms_adapt(base: Report) -> None:
    comparison = explain(base, width=16)
    roles = {layer.path: layer.role for layer in comparison.layers}
    assert (roles["stem.0"], roles["stem.1"], roles["fc"]) == ("edited", "affected", "affected")
    assert "2x the channels" in sentence(comparison, "saved")


def test_two_edits_on_one_path_are_named_together(base: Report) -> None:
    """Twice the maps and twice the channels: how much of the work behind both is whose cannot be separated."""
    wide = Net(stride=1)
    wide.layer1[0].conv1 = nn.Conv2d(8, 12, 3, 1, 1, bias=False)
    wide.layer1[0].bn1 = nn.BatchNorm2d(12)
    wide.layer1[0].conv2 = nn.Conv2d(12, 8, 3, 1, 1, bias=False)
    comparison = compared(base, counted(wide))
    titles = [edit.title for edit in comparison.edits]
    assert titles == ["stem.0 stride 2 -> 1", "layer1.0.conv1 out_channels 8 -> 12"]
    causes = {layer.path: layer.edits for layer in comparison.layers if layer.role == "affected"}
    assert causes["stem.1"] == (0,)
    assert causes["layer1.0.bn1"] == (0, 1)
    assert causes["layer1.0.bn2"] == causes["layer3.1.bn2"] == (0,)
    reason = comparison.reason("flops")
    assert reason is not None
    assert [part.role for part in reason.parts if part.edits == (0, 1)] == ["consequence"]


def test_an_insertion_does_not_rename_what_follows(base: Report) -> None:
    model = Net()
    model.stem = nn.Sequential(model.stem[0], nn.Conv2d(8, 8, 1), *model.stem[1:])
    comparison = compared(base, counted(model))
    assert [edit.title for edit in comparison.edits] == ["stem 4 -> 5: +1 x Conv2d"]
    moved = [layer for layer in comparison.layers if layer.kind == "renamed"]
    assert [(layer.a_path, layer.b_path, layer.role) for layer in moved] == [
        ("stem.1", "stem.2", "affected"),
        ("stem.2", "stem.3", "affected"),
        ("stem.3", "stem.4", "affected"),
    ]


def test_a_moved_block_is_one_edit(base: Report) -> None:
    class Moved(Net):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.ModuleDict({"tail": self.layer3})
            del self.layer3

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.body["tail"](self.layer2(self.layer1(self.stem(x))))
            return self.fc(self.dropout(x.mean((2, 3))))

    titles = [edit.title for edit in compared(base, counted(Moved())).edits]
    assert "layer3 -> body.tail, 15 modules" in titles
    assert not any("layer3.0" in title for title in titles)


def test_frozen_layers_are_an_edit(base: Report) -> None:
    model = Net()
    model.stem.requires_grad_(False)
    model.layer1.requires_grad_(False)
    comparison = compared(base, counted(model))
    (edit,) = comparison.edits
    assert edit.title == "model parameters trainable -> frozen in 6 modules"
    assert "frozen" in sentence(comparison, "trainable_params")
    assert comparison.reason("params") is None


def test_small_layers_are_explained_as_a_group() -> None:
    """A thousand layers that each change the total by less than 0.1 %."""

    def chain(channels: int) -> Report:
        layers = {
            str(i): Module("Conv2d", {"out_channels": channels}, (channels, channels, channels, 4), (1, channels, 2, 2))
            for i in range(1001)
        }
        return report_of(Module("Sequential", {}, (0, 0, 0, 0), (1, channels, 2, 2), layers), "Net")

    comparison = compared(chain(2), chain(3))
    assert comparison.edits[0].title == "* out_channels 2 -> 3 in 1001 x Conv2d"
    assert "out_channels 2 -> 3 in 1001 x Conv2d" in sentence(comparison, "flops")
    assert len(comparison.groups) < 5


def test_an_optimizer_explains_a_broken_peak() -> None:
    reports = []
    for optimizer in (torch.optim.SGD, torch.optim.AdamW):
        model = Net()
        reports.append(counted(model))
        name = optimizer.__name__
        static = reports[-1].static
        assert static is not None
        assert static.memory is not None
        state = 8 * static.params if name == "AdamW" else 0
        categories = replace(static.memory.categories, optimizer_state=state)
        change = state - (static.memory.categories.optimizer_state or 0)
        memory = replace(static.memory, peak_bytes=static.memory.peak_bytes + change, categories=categories)
        reports[-1] = replace(
            reports[-1],
            target=replace(reports[-1].target, optimizer=name),
            static=replace(static, memory=memory),
        )
    comparison = compared(*reports)
    assert [edit.title for edit in comparison.edits] == ["optimizer SGD -> AdamW"]
    assert [reason.metric for reason in comparison.reasons] == ["peak"]
    assert "optimizer SGD -> AdamW: optimizer state +" in sentence(comparison, "peak")


@pytest.mark.parametrize(
    ("change", "subject", "refused", "kept"),
    [
        ({"mode": "infer"}, "mode", {"flops", "saved", "peak"}, {"params"}),
        ({"dtype": "bfloat16"}, "dtype", {"saved", "peak"}, {"params", "flops"}),
        ({"amp": "bfloat16"}, "autocast", {"saved", "peak"}, {"params", "flops"}),
    ],
)
def test_incomparable_metrics_are_refused_in_tables_and_sentences(
    base: Report, change: dict[str, str], subject: str, refused: set[str], kept: set[str]
) -> None:
    head = counted(Net(stride=1))
    comparison = compared(base, replace(head, target=replace(head.target, **change)))
    assert subject in [edit.subject for edit in comparison.edits]
    rows = {row.metric: row for row in comparison.metrics}
    for metric in refused:
        assert rows[metric].verdict == "not_comparable"
        assert comparison.refusal(metric) == rows[metric].reason != ""
        assert comparison.reason(metric) is None
        assert any(rows[metric].title in note and rows[metric].reason in note for note in comparison.notes)
        assert not any(line.startswith(rows[metric].title) for line in comparison.sentences)
    for metric in kept:
        assert comparison.refusal(metric) == ""
    assert not any(split.config is None for split in comparison.memory) or "peak" not in refused


def test_other_inputs_are_an_edit_and_refused(base: Report) -> None:
    comparison = compared(base, counted(Net(), 4, 3, 32, 32))
    assert comparison.edits[0].title == "inputs 2x3x32x32 float32 -> 4x3x32x32 float32"
    assert {each.change for each in comparison.consequences} == {"2x the batch"}
    assert "different inputs" in comparison.refusal("flops")
    assert not comparison.reasons
    assert not any("the work of" in line for line in comparison.sentences)


def test_the_report_of_another_model_is_refused_in_a_review(base: Report) -> None:
    class Other(nn.Sequential):
        pass

    other = counted(Other(nn.Flatten(), nn.Linear(3072, 10)))
    other = replace(other, target=replace(other.target, spec="other.py", name="Other"))
    assert compare(base, other).refusal("params") == ""
    with pytest.raises(NotComparableError, match="different models"):
        compare(base, other, one_model=True)
    renamed = replace(base, target=replace(base.target, spec="moved/net.py"))
    assert compare(base, renamed, one_model=True).refusal("params") == ""


def test_the_same_model_has_no_edits(base: Report) -> None:
    comparison = explain(base)
    assert comparison.edits == comparison.consequences == comparison.groups == comparison.reasons == ()
    assert {layer.role for layer in comparison.layers} == {"same"}


def test_attributes_that_forward_stores_are_no_settings() -> None:
    class Stores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)
            self.scale = 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen = x.shape[0]
            return self.fc(x) * self.scale

    static = counted(Stores(), 4, 8).static
    assert static is not None
    assert static.modules[0].settings == ("scale=2",)
    assert static.modules[0].forward_ops == ("aten.mul x1",)
    assert static.modules[1].state == ("weight 8x8", "bias 8")


@pytest.mark.parametrize("seed", range(example_count(120)))
def test_random_pairs_obey_the_laws(seed: int) -> None:
    check_laws(*random_reports(seed))


def test_the_laws_notice_a_lost_layer() -> None:
    a, b = random_reports(0)
    assert b.static is not None
    static = b.static
    heavier = replace(static, forward=static.forward + static.forward)
    with pytest.raises(AssertionError, match="sum"):
        check_laws(a, replace(b, static=heavier))

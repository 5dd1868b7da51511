from __future__ import annotations

from dataclasses import replace

from gate_reports import node, report, run, static
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.comparison.alignment import align
from profiler_kit.comparison.layers import model_changes
from profiler_kit.comparison.module_changes import config_difference
from profiler_kit.records.comparison import LayerChange
from profiler_kit.records.counts import ModuleNode, StaticCount
from profiler_kit.records.runs import ConfigRun

CONV = "3, 32, kernel_size=(3, 3), stride=(1, 1)"


def layer_changes(
    a: StaticCount, b: StaticCount, a_run: ConfigRun | None = None, b_run: ConfigRun | None = None
) -> tuple[LayerChange, ...]:
    return model_changes(report(count=a), report(count=b), a_run, b_run).layers


def changes(a: list[ModuleNode], b: list[ModuleNode]) -> dict[str, LayerChange]:
    return {one.path: one for one in layer_changes(static(a), static(b))}


def test_the_same_path_and_type_is_the_same_layer() -> None:
    found = changes([node("conv1", config=CONV, macs=10)], [node("conv1", config=CONV.replace("32", "64"), macs=20)])
    assert found["conv1"].kind == "changed"
    assert found["conv1"].change == "32 => 64"
    assert (found["conv1"].a.flops, found["conv1"].b.flops) == (60, 120)


def test_another_type_at_a_path_is_another_layer() -> None:
    found = layer_changes(static([node("act", "ReLU")]), static([node("act", "GELU")]))
    assert sorted((one.kind, one.class_name) for one in found) == [("added", "GELU"), ("removed", "ReLU")]


def test_the_roots_are_partners_whatever_their_types() -> None:
    found = changes([node("", "NetA", macs=1), node("fc", macs=1)], [node("", "NetB", macs=3), node("fc", macs=1)])
    assert (found[""].kind, found[""].change) == ("changed", "NetA => NetB")
    assert found["fc"].kind == "same"


def test_the_same_layer_under_another_name_is_renamed() -> None:
    found = changes([node("head", "Linear", "10, 2", macs=5)], [node("classifier", "Linear", "10, 2", macs=5)])
    assert found["classifier"].kind == "renamed"
    assert found["classifier"].a_path == "head"
    assert found["classifier"].change == "was head"
    assert found["classifier"].contribution == 0


def test_an_insertion_moves_the_rest_of_a_sequence_and_adds_one() -> None:
    configs = ["3, 8", "8, 16", "16, 32"]
    sequence = ModuleNode(path="net", class_name="Sequential")
    before = [sequence, *(node(f"net.{i}", config=config, macs=10) for i, config in enumerate(configs))]
    configs = ["3, 8", "8, 8", "8, 16", "16, 32"]
    after = [sequence, *(node(f"net.{i}", config=config, macs=10) for i, config in enumerate(configs))]
    found = changes(before, after)
    assert {path: one.kind for path, one in found.items()} == {
        "net.0": "same",
        "net.1": "added",
        "net.2": "renamed",
        "net.3": "renamed",
    }


def test_identical_blocks_stay_where_they_are() -> None:
    def blocks(count: int) -> list[ModuleNode]:
        return [node(f"blocks.{i}.mlp", "Linear", "8, 8", macs=1) for i in range(count)]

    found = changes(blocks(3), blocks(5))
    assert [found[f"blocks.{i}.mlp"].kind for i in range(5)] == ["same", "same", "same", "added", "added"]


def test_a_larger_input_changes_a_layer_that_is_the_same() -> None:
    small, large = (node("pool", "MaxPool2d", "2", macs=size, output_shape=(8, size)) for size in (4, 8))
    assert changes([small], [large])["pool"].change == "same layer, output 8x4 => 8x8"


def test_containers_without_figures_are_no_layers_but_their_own_ops_are() -> None:
    nodes = [node("", "Net"), node("block", "Block", macs=3), node("block.conv", macs=5), node("act", "Identity")]
    bare = replace(nodes[0], forward=nodes[3].forward)
    silent = replace(bare, forward=replace(bare.forward, read_bytes=0, write_bytes=0))
    assert set(changes([silent, *nodes[1:]], [silent, *nodes[1:]])) == {"block", "block.conv", "act"}


def test_device_times_count_where_both_sides_have_them() -> None:
    nodes = [node("a", macs=1), node("b", macs=1)]
    before = run(layers=[("a", 1.0), ("b", 1.0), ("(optimizer)", 0.5)])
    after = run(layers=[("a", 1.0), ("b", 3.0), ("(optimizer)", 0.5)])
    found = layer_changes(static(nodes), static(nodes), before, after)
    assert found[0].path == "b"
    assert found[0].device_ns_change == 2_000_000
    assert (found[0].kind, found[0].change) == ("changed", "same work, different time")
    assert sum(one.a.device_ns or 0 for one in found) == 2_500_000
    assert {one.path for one in found} == {"a", "b", "(optimizer)"}
    untimed = layer_changes(static(nodes), static(nodes), before, None)
    assert all(one.a.device_ns is None and one.device_ns_change is None for one in untimed)


def test_a_trifle_of_time_is_no_change() -> None:
    nodes = [node("a", macs=1), node("(loss)", "", macs=0)]
    before, after = run(layers=[("a", 100.0), ("(loss)", 0.1)]), run(layers=[("a", 101.0), ("(loss)", 0.2)])
    assert {one.kind for one in layer_changes(static(nodes), static(nodes), before, after)} == {"same"}


def test_the_largest_share_of_a_total_comes_first() -> None:
    before = [node("tiny", macs=1, params=10), node("big", macs=1000), node("saver", macs=10, saved_bytes=100)]
    after = [node("tiny", macs=2, params=10), node("big", macs=1400), node("saver", macs=10, saved_bytes=1000)]
    found = layer_changes(static(before), static(after))
    assert [one.path for one in found] == ["saver", "big", "tiny"]
    assert found[0].contribution == 0.9


def test_config_differences_name_what_changed() -> None:
    assert config_difference("3, 8, kernel_size=(3, 3)", "3, 8, kernel_size=(5, 5)") == "kernel_size (3, 3) => (5, 5)"
    assert config_difference("3, 8", "3, 8, bias=False") == "bias default => False"
    assert config_difference("50->40, k15, p7", "50->60, k15, p7") == "50->40 => 50->60"
    assert config_difference("", "8") == "nothing => 8"
    assert config_difference("p=0.5, inplace=True", "p=0.1") == "p 0.5 => 0.1; inplace True => default"
    assert config_difference("a", "a ") == "different spelling"


NODES = st.lists(
    st.builds(
        node,
        st.sampled_from([f"{parent}{i}" for parent in ("", "block.", "block.0.") for i in range(3)] + [""]),
        st.sampled_from(["Conv2d", "Linear"]),
        st.sampled_from(["", "3, 8", "8, 8"]),
        st.integers(0, 5),
        params=st.integers(0, 3),
        saved_bytes=st.integers(0, 3),
    ),
    unique_by=lambda one: one.path,
)


@given(NODES, NODES)
def test_every_layer_stands_exactly_once_and_nothing_is_lost(a: list[ModuleNode], b: list[ModuleNode]) -> None:
    pairs = align(a, b)
    assert sorted(one.path for one, _ in pairs if one) == sorted(one.path for one in a)
    assert sorted(one.path for _, one in pairs if one) == sorted(one.path for one in b)
    assert all(one.class_name == other.class_name for one, other in pairs if one and other and one.path)
    before, after = static(a), static(b)
    found = layer_changes(before, after)
    assert sum(one.a.flops for one in found) == before.step.flops
    assert sum(one.b.flops for one in found) == after.step.flops
    assert sum(one.b.params - one.a.params for one in found) == after.params - before.params
    assert sum(one.b.saved_bytes - one.a.saved_bytes for one in found) == after.saved_bytes - before.saved_bytes
    ranks = [(["edited", "affected", "same"].index(one.role or ""), -one.contribution) for one in found]
    assert ranks == sorted(ranks)

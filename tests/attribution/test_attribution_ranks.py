"""Comparison of ranks: hand-made files, two published ranks, and ranks with extra work."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_traces import PUBLISHED, published
from rank_files import collective_kernels, extract, load, save, stretched, with_work

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.rank_extract import Activity, RankExtract
from profiler_kit.attribution.rank_extract import extract_rank as extract_of
from profiler_kit.attribution.ranks import compare_ranks, timelines_on_one_clock
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.ranks import Ranks
from profiler_kit.traces.intervals import Intervals
from profiler_kit.traces.reader import read

DDP = PUBLISHED / "h200_ddp"
FIXTURES = Path(__file__).parents[1] / "fixtures" / "traces"
RECORDED, ON_GPUS, ON_GPUS_SMALL = FIXTURES / "ranks", FIXTURES / "ranks_cuda", FIXTURES / "ranks_cuda_small"


def of_file(path: Path) -> RankExtract:
    return extract_of(attribute(read(path)))


def of_files(*paths: Path) -> Ranks:
    return compare_ranks([of_file(path) for path in paths])


def assert_sums_hold(ranks: Ranks) -> None:
    for row in ranks.ranks:
        assert row.compute_ns + row.exposed_ns + row.idle_ns == row.step_ns
        assert 0 <= row.exposed_ns <= row.communication_ns
        assert 0 <= row.wait_ns <= row.communication_ns
        assert row.idle_ns >= 0
        assert row.steps == max(ranks.common_steps, 1)


def test_who_is_in_a_collective_for_the_shortest_came_last() -> None:
    early = extract(0, {1: [(100_000, 400_000)], 2: [(100_000, 400_000)]}, world_size=2)
    late = extract(1, {1: [(300_000, 400_000)], 2: [(300_000, 400_000)]}, world_size=2)
    ranks = compare_ranks([early, late])
    assert [row.wait_ns for row in ranks.ranks] == [200_000, 0]
    (straggler,) = ranks.stragglers
    assert (straggler.rank, straggler.last, straggler.collectives) == (1, 2, 2)
    assert straggler.late_ns == straggler.cost_ns == 200_000
    assert ranks.notes == ()
    assert_sums_hold(ranks)


def test_one_of_eight_is_named_and_the_seven_who_wait_are_not() -> None:
    files = [
        extract(rank, {1: [(500_000 if rank == 5 else 100_000 + rank, 600_000)]}, world_size=8) for rank in range(8)
    ]
    ranks = compare_ranks(files)
    assert [straggler.rank for straggler in ranks.stragglers] == [5]
    assert ranks.stragglers[0].late_ns == 500_000 - 100_003


def test_late_is_how_much_later_it_comes_and_the_cost_is_what_nothing_covers() -> None:
    """The others have work beside most of their waiting, and catch up on the late one at further collectives."""
    others = [(100_000, 500_000), (500_000, 550_000), (600_000, 640_000)]
    late = [(450_000, 500_000), (520_000, 550_000), (620_000, 640_000)]
    files = [extract(0, {1: others}), extract(1, {1: late}), extract(2, {1: others})]
    files = [replace(file, exposed=Intervals(np.array([420_000]), np.array([500_000]))) for file in files]
    (straggler,) = compare_ranks(files).stragglers
    assert (straggler.rank, straggler.late_ns, straggler.cost_ns) == (1, 350_000, 30_000)


def test_a_rank_late_at_two_places_is_late_by_both() -> None:
    on_time = extract(0, {1: [(100_000, 300_000), (400_000, 600_000)]})
    late = extract(1, {1: [(280_000, 300_000), (590_000, 600_000)]})
    (straggler,) = compare_ranks([on_time, late]).stragglers
    assert straggler.late_ns == straggler.cost_ns == 180_000 + 190_000


@given(st.lists(st.lists(st.integers(0, 90_000), min_size=3, max_size=3), min_size=2, max_size=6))
def test_late_is_against_the_median_of_the_others(starts: list[list[int]]) -> None:
    ends = [100_000 * (i + 1) + 95_000 for i in range(3)]
    files = [
        extract(r, {1: [(100_000 * (i + 1) + at[i], end) for i, end in enumerate(ends)]}) for r, at in enumerate(starts)
    ]
    for straggler in compare_ranks(files).stragglers:
        others = [at for rank, at in enumerate(starts) if rank != straggler.rank]
        # times are whole: a median of two may be half a ns less
        largest = max(at - median(other[i] for other in others) for i, at in enumerate(starts[straggler.rank]))
        assert straggler.late_ns == pytest.approx(max(largest, straggler.cost_ns), abs=1)


def test_equal_ranks_have_no_straggler() -> None:
    assert compare_ranks([extract(rank, {1: [(10, 90)], 2: [(10, 90)]}) for rank in range(3)]).stragglers == ()


@given(
    st.lists(st.lists(st.integers(0, 90_000), min_size=4, max_size=4), min_size=2, max_size=5),
    st.lists(st.integers(-(10**15), 10**15), min_size=5, max_size=5),
)
def test_clocks_of_machines_do_not_matter(starts: list[list[int]], clocks: list[int]) -> None:
    """Each rank comes to four collectives when it comes; they end when the last one has come. Its clock is its own."""
    ends = [100_000 * (i + 1) + max(rank[i] for rank in starts) + 1_000 for i in range(4)]
    files = [
        extract(r, {1: [(100_000 * (i + 1) + rank[i], end) for i, end in enumerate(ends)]}, clock_ns=clock)
        for r, (rank, clock) in enumerate(zip(starts, clocks, strict=False))
    ]
    ranks = compare_ranks(files)
    expected = [sum(max(other[i] for other in starts) - rank[i] for i in range(4)) for rank in starts]
    assert [row.wait_ns for row in ranks.ranks] == expected
    assert ranks.notes == ()


def test_collectives_put_timelines_on_one_clock() -> None:
    times = {0: [(100, 500)], 1: [(100, 500), (600, 900)]}
    timeline = StepTimeline(step=1, start_ns=0, end_ns=1000, host_end_ns=1000, spans=())
    files = [replace(extract(rank, times, clock_ns=clock), timeline=timeline) for rank, clock in enumerate((70, 5070))]
    first, second = timelines_on_one_clock(files)
    assert first is not None
    assert second is not None
    assert (first.clock_ns, second.clock_ns) == (0, 5000)
    assert [start - first.clock_ns for start in first.collectives] == [start - 5000 for start in second.collectives]
    assert first.collectives == (1_000_170, 1_000_670), "of the step that is shown"
    assert timelines_on_one_clock([replace(files[0], timeline=None), files[1]]) == [None, second]
    apart = [replace(extract(rank, {1: []}), timeline=timeline) for rank in (0, 1)]
    assert [one.clock_ns for one in timelines_on_one_clock(apart) if one is not None] == [None, None]


def test_what_a_late_rank_did_is_the_phase_and_in_it_the_operator_that_grew() -> None:
    usual = {
        Activity("phase", "forward", ""): 100,
        Activity("phase", "backward", ""): 900,
        Activity("idle", "", "python"): 50,
    }
    more = {
        Activity("phase", "forward", ""): 300_100,
        Activity("operator", "forward", "aten::mm"): 290_000,
        Activity("operator", "forward", "aten::add"): 10_000,
        Activity("phase", "backward", ""): 950,
    }
    files = [extract(r, {1: [(100_000, 500_000)]}, activity_ns=usual) for r in range(3)]
    files.append(extract(3, {1: [(400_000, 500_000)]}, activity_ns=more))
    (straggler,) = compare_ranks(files).stragglers
    assert (straggler.doing, straggler.doing_excess_ns) == ("forward (aten::mm)", 290_000)
    in_module = {**more, Activity("module", "forward", "Net_0.Extra_0"): 299_000}
    files[3] = extract(3, {1: [(400_000, 500_000)]}, activity_ns=in_module)
    assert compare_ranks(files).stragglers[0].doing == "forward (Net_0.Extra_0)"
    files[3] = extract(3, {1: [(400_000, 500_000)]}, activity_ns={Activity("idle", "", "waiting for data"): 300_000})
    assert compare_ranks(files).stragglers[0].doing == "waiting for data (idle)"


def test_missing_ranks_are_said() -> None:
    files = [extract(rank, {1: [(0, 10)]}, world_size=4) for rank in (0, 2)]
    assert any("2 of the job's 4 ranks" in note and "(missing: 1, 3)" in note for note in compare_ranks(files).notes)


def test_a_rank_that_is_there_twice_counts_once_with_the_steps_that_the_others_have() -> None:
    others = [extract(rank, {5: [(0, 10)], 6: [(0, 10)]}) for rank in (0, 1)]
    again = extract(1, {1: [(0, 10)], 2: [(0, 10)]}, file="rank1.earlier.json.gz")
    ranks = compare_ranks([others[0], again, others[1]])
    assert [row.file for row in ranks.ranks] == ["rank0.json.gz", "rank1.json.gz"]
    assert any("Rank 1 has 2 files: rank1.earlier.json.gz" in note for note in ranks.notes)


@pytest.mark.parametrize(
    "other",
    [extract(1, {1: [(0, 10)]}, world_size=3), extract(1, {1: [(0, 10)]}, world_size=2, backend="gloo")],
    ids=["world size", "backend"],
)
def test_traces_of_other_jobs_are_not_held_against_each_other(other: RankExtract) -> None:
    ranks = compare_ranks([extract(0, {1: [(0, 10)]}, world_size=2), other])
    assert ranks.ranks == ()
    (note,) = ranks.notes
    assert note.startswith("The traces are not of one job")


def test_traces_that_are_no_ranks_are_left_in_peace() -> None:
    alone = [extract(None, {1: []}, file=name, backend="") for name in ("before.json", "after.json")]
    assert compare_ranks(alone) == Ranks(ranks=(), common_steps=0, step_ns=None, imbalance=0.0)
    assert compare_ranks([]) == compare_ranks(alone[:1]) == compare_ranks(alone)


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (("rank-7of128.json.gz", "rank-9of128.json.gz"), [7, 9]),
        (("job_rank_3.1700000000.pt.trace.json", "job_rank_11.1700000001.pt.trace.json"), [3, 11]),
        (("trace_1.json.gz", "trace_0.json.gz"), [0, 1]),
        (("worker4.1623143089861.pt.trace.json.gz", "worker2.1623143089999.pt.trace.json.gz"), [2, 4]),
        (("a.json", "b.json"), [0, 1]),
    ],
)
def test_a_rank_that_the_trace_does_not_say_is_taken_from_its_name(names: Sequence[str], ranks: list[int]) -> None:
    result = compare_ranks([extract(None, {1: [(0, 10)]}, file=name) for name in names])
    assert [row.rank for row in result.ranks] == ranks
    assert any("do not state their rank" in note for note in result.notes)


def test_only_the_steps_that_all_have_are_compared() -> None:
    files = [extract(0, {2: [(0, 10)], 3: [(0, 10)]}), extract(1, {n: [(0, 10)] for n in (1, 2, 3, 4)})]
    ranks = compare_ranks(files)
    assert ranks.common_steps == 2
    assert any("steps 2, 3" in note and "Rank 1 has more" in note for note in ranks.notes)
    ranks = compare_ranks([*files, extract(2, {9: [(0, 10)]})])
    assert [row.rank for row in ranks.ranks] == [0, 1]
    assert any("Rank 2 is not compared" in note for note in ranks.notes)
    assert compare_ranks([extract(0, {1: [(0, 9)]}), extract(1, {2: [(0, 9)]})]).ranks == ()


def test_a_last_step_counts_only_where_there_is_no_other() -> None:
    files = [extract(rank, {1: [(0, 10)], 2: [(0, 10)]}, complete=[1]) for rank in (0, 1)]
    assert compare_ranks(files).common_steps == 1
    only = [extract(rank, {1: [(0, 10)]}, complete=[]) for rank in (0, 1)]
    assert compare_ranks(only).common_steps == 1


def test_collectives_of_another_size_are_not_taken_for_each_other() -> None:
    straggler = extract(0, {1: [(0, 100_000), (200_000, 300_000)]}, sizes=(8, 16))
    other = extract(1, {1: [(50_000, 100_000), (250_000, 300_000)]}, sizes=(8, 32))
    ranks = compare_ranks([straggler, other])
    assert [row.wait_ns for row in ranks.ranks] == [50_000, 0]
    assert any(note.startswith("2 collectives") and "one rank only" in note for note in ranks.notes)


def test_an_order_that_the_ends_contradict_is_not_believed() -> None:
    """One file holds the first nine of twelve, the other the last: what ends together is the same, whatever its place."""
    ends = [10_000_000 * n**2 for n in range(1, 13)]
    kept = (ends[:9], ends[3:])
    files = [
        extract(rank, {1: [(end - 9_000_000 - rank * 500_000, end) for end in held]}) for rank, held in enumerate(kept)
    ]
    ranks = compare_ranks(files)
    assert any("6 were matched by their ends" in note for note in ranks.notes)
    assert [row.wait_ns for row in ranks.ranks] == [0, 6 * 500_000]


@pytest.mark.parametrize(("backend", "waits"), [("gloo", [6_000_000, 0]), ("nccl", [0, 0])])
def test_on_a_host_one_collective_may_end_milliseconds_apart(backend: str, waits: list[int]) -> None:
    """The thread of a rank may wait for a core after its last message; a device does not."""
    delays = (2_500_000, -2_500_000, 0, 2_500_000)  # of the second rank's end
    files = [
        extract(
            0, {n: [(1_000_000, 8_000_000)] for n in range(4)}, backend=backend, step_ns=12_000_000, complete=(0, 1, 2)
        ),
        extract(
            1,
            {n: [(7_000_000 + delays[n], 8_000_000 + delays[n])] for n in range(4)},
            backend=backend,
            step_ns=12_000_000,
            complete=(0, 1, 2),
        ),
    ]
    ranks = compare_ranks(files)
    assert [row.wait_ns for row in ranks.ranks] == waits
    assert bool(ranks.stragglers) == bool(waits[0])


def test_groups_are_matched_on_their_own() -> None:
    """Two pairs of ranks, each pair with collectives of its own, at other times."""
    pairs = [("[0, 1]", (0, 1), 0), ("[2, 3]", (2, 3), 10**12)]
    files = [
        extract(rank, {1: [(100_000 + 1_000 * (rank % 2) * 100, 300_000)]}, group=group, clock_ns=clock, world_size=4)
        for group, members, clock in pairs
        for rank in members
    ]
    assert [row.wait_ns for row in compare_ranks(files).ranks] == [100_000, 0, 100_000, 0]


def test_without_collectives_times_stand_beside_each_other_all_the_same() -> None:
    ranks = compare_ranks([extract(rank, {1: []}, world_size=2, step_ns=1000 + rank) for rank in (0, 1)])
    assert [row.step_ns for row in ranks.ranks] == [1000, 1001]
    assert any("hold no collectives" in note for note in ranks.notes)


spans = st.lists(
    st.tuples(st.integers(0, 900_000), st.integers(0, 10**6)).map(lambda one: (one[0], one[0] + one[1])), max_size=5
)
steps_of_a_file = st.dictionaries(st.integers(-1, 3), spans, max_size=4)


@given(st.lists(steps_of_a_file, min_size=2, max_size=5), st.booleans(), st.sampled_from([(8,), (8, 16)]))
def test_whatever_files_hold_is_told_or_said_why_not(
    files: list[dict[int, list[tuple[int, int]]]], same_rank: bool, sizes: tuple[int, ...]
) -> None:
    world = len(files)
    given = [
        extract(0 if same_rank and rank == 1 else rank, held, world_size=world, step_ns=10**7, sizes=sizes)
        for rank, held in enumerate(files)
    ]
    ranks = compare_ranks(given)
    assert ranks.ranks or ranks.notes
    assert len({row.rank for row in ranks.ranks}) == len(ranks.ranks)
    for row in ranks.ranks:
        assert row.compute_ns + row.exposed_ns + row.idle_ns == row.step_ns
        assert row.wait_ns >= 0
    for straggler in ranks.stragglers:
        assert 0 < straggler.last <= straggler.collectives
        assert 0 < straggler.cost_ns <= straggler.late_ns


def test_imbalance_is_the_longest_computing_over_the_mean() -> None:
    files = [extract(rank, {1: [(0, length)]}, step_ns=1000) for rank, length in enumerate((100, 300))]
    assert compare_ranks(files).imbalance == pytest.approx(900 / 800 - 1)


def test_what_a_file_contributes_can_be_sent_to_another_process() -> None:
    file = of_file(RECORDED / "rank0.json.gz")
    assert compare_ranks([pickle.loads(pickle.dumps(file)), of_file(RECORDED / "rank1.json.gz")]).common_steps == 2


def test_recorded_ranks_name_the_one_with_extra_work_and_how_much_it_was() -> None:
    truth = json.loads((RECORDED / "truth.json").read_text())["ranks"]
    ranks = of_files(RECORDED / "rank0.json.gz", RECORDED / "rank1.json.gz")
    assert_sums_hold(ranks)
    assert ranks.common_steps == 2  # of three: the last one has no next
    (straggler,) = ranks.stragglers
    assert truth[straggler.rank]["straggler"]
    extra_ns = 1e6 * sum(truth[straggler.rank]["extra_ms"][:2]) / 2
    assert straggler.late_ns == pytest.approx(extra_ns, rel=0.05)
    assert straggler.doing == "forward (aten::mm)"
    assert straggler.doing_excess_ns == pytest.approx(extra_ns, rel=0.05)
    for row, expected in zip(ranks.ranks, truth, strict=True):
        assert row.step_ns == pytest.approx(1e6 * sum(expected["traced_step_ms"][:2]) / 2, rel=0.02)


def test_on_two_gpus_the_extra_work_is_what_the_rank_is_late_by_however_little_of_it_the_other_stands_still() -> None:
    """The other rank computes on beside the collective that waits, slowed by it: a third of the delay is bare waiting."""
    truth = json.loads((ON_GPUS / "truth.json").read_text())["ranks"]
    ranks = of_files(ON_GPUS / "rank0.json.gz", ON_GPUS / "rank1.json.gz")
    assert_sums_hold(ranks)
    assert ranks.common_steps == 3
    (straggler,) = ranks.stragglers
    extra_ns = 1e6 * sum(truth[1]["extra_ms"][:3]) / 3
    assert (straggler.rank, straggler.last, straggler.collectives) == (1, 42, 42)
    assert straggler.late_ns == pytest.approx(extra_ns, rel=0.03)
    assert straggler.doing == "forward (aten::mm)"
    assert straggler.doing_excess_ns == pytest.approx(extra_ns, rel=0.03)
    assert straggler.cost_ns == pytest.approx(0.32 * extra_ns, rel=0.05)
    assert abs(straggler.idle_excess_ns) < 0.05 * extra_ns


def test_on_two_gpus_a_rank_that_launches_too_slowly_as_well_is_late_by_more_than_its_extra_work() -> None:
    truth = json.loads((ON_GPUS_SMALL / "truth.json").read_text())["ranks"]
    ranks = of_files(ON_GPUS_SMALL / "rank0.json.gz", ON_GPUS_SMALL / "rank1.json.gz")
    assert_sums_hold(ranks)
    (straggler,) = ranks.stragglers
    extra_ns = 1e6 * sum(truth[0]["extra_ms"][:3]) / 3
    assert (straggler.rank, straggler.doing) == (0, "forward (aten::mm)")
    assert straggler.doing_excess_ns == pytest.approx(extra_ns, rel=0.05)
    assert straggler.idle_excess_ns > 1_000_000
    # the extra work and the idleness between its kernels and others are all that it is late by
    assert straggler.late_ns == pytest.approx(straggler.doing_excess_ns + straggler.idle_excess_ns, rel=0.05)


@published
def test_two_published_ranks_are_aligned_by_step() -> None:
    ranks = of_files(DDP / "ddp_plain_rank0.json.gz", DDP / "ddp_plain_rank1.json.gz")
    assert_sums_hold(ranks)
    assert [row.rank for row in ranks.ranks] == [0, 1]
    assert ranks.common_steps == 2
    first, second = ranks.ranks
    assert first.step_ns == pytest.approx(second.step_ns, rel=0.02)
    (straggler,) = ranks.stragglers  # rank 0 can't launch fast enough; rank 1, whose queue is full, waits in NCCL
    assert (straggler.rank, straggler.last, straggler.collectives) == (0, 14, 14)
    assert second.wait_ns > 0.8 * second.communication_ns
    assert straggler.doing == "op dispatch (idle)"
    assert ranks.notes == ()


@published
@pytest.mark.parametrize("slow", [0, 1])
def test_work_put_into_one_of_two_equal_ranks_is_its_excess_to_the_nanosecond(tmp_path: Path, slow: int) -> None:
    """Both ranks are the published rank 0; into each step of one of them go 3 ms of work, before its fourth collective."""
    written = load(DDP / "ddp_plain_rank0.json.gz")
    given_work, waiting = written, written
    for step in range(3):  # seven collectives each: two broadcasts, five all-reduces
        number = 7 * step + 3
        given_work = with_work(given_work, collective_kernels(given_work)[number]["ts"], 3000.0, step)
        kernel = collective_kernels(waiting)[number]
        waiting = stretched(waiting, kernel["ts"] + kernel["dur"] / 2, 3000.0)
    files = [_as_rank(waiting, 1 - slow, tmp_path), _as_rank(given_work, slow, tmp_path)]
    ranks = of_files(*files)
    assert_sums_hold(ranks)
    (straggler,) = ranks.stragglers
    assert (straggler.rank, straggler.last, straggler.collectives) == (slow, 2, 14)
    assert (straggler.late_ns, straggler.cost_ns) == (3_000_000, 3_000_000)
    assert straggler.doing == "backward (aten::extra_work)"
    assert straggler.doing_excess_ns == 3_000_000 - 2_000  # its launch took 2 us


def _as_rank(written: dict[str, Any], rank: int, folder: Path) -> Path:
    said = {**written, "distributedInfo": {**written["distributedInfo"], "rank": rank}}
    return save(said, folder / f"trace{rank}.json.gz")


@published
def test_a_rank_cut_off_in_its_last_step_is_compared_over_the_others(tmp_path: Path) -> None:
    written = load(DDP / "ddp_plain_rank1.json.gz")
    last = max(e["ts"] for e in written["traceEvents"] if str(e.get("name", "")).startswith("ProfilerStep#4"))
    early = [e for e in written["traceEvents"] if e.get("ts", 0) < last - 60_000]
    cut = save({**written, "traceEvents": early}, tmp_path / "rank1.json.gz")
    ranks = of_files(DDP / "ddp_plain_rank0.json.gz", cut)
    assert ranks.common_steps == 1
    assert any("Rank 0 has more steps" in note for note in ranks.notes)


@published
def test_ranks_of_a_larger_job_of_which_each_trace_holds_a_part() -> None:
    ranks = of_files(*sorted((PUBLISHED / "hta").glob("sampled_rank-*of128.json.gz")))
    assert_sums_hold(ranks)
    assert any("2 of the job's 128 ranks" in note for note in ranks.notes)
    assert any("matched by their ends" in note or "end together" in note for note in ranks.notes)
    assert replace(ranks, notes=()).ranks


def test_each_collective_of_a_step_has_its_times_on_the_median_rank_and_step() -> None:
    early = extract(0, {1: [(100_000, 400_000), (500_000, 600_000)], 2: [(120_000, 400_000), (500_000, 600_000)]})
    late = extract(1, {1: [(300_000, 400_000), (500_000, 600_000)], 2: [(300_000, 400_000), (500_000, 600_000)]})
    first, second = compare_ranks([early, late]).collectives
    assert (first.number, first.kind, first.bytes, second.number) == (1, "all_reduce", 8, 2)
    # ranks: 300 and 100 us in step 1, 280 and 100 us in step 2
    assert (first.duration_ns, first.wait_ns, first.start_ns) == (195_000, 95_000, 205_000)
    assert first.exposed_ns == first.duration_ns, "nothing covers them"
    assert (second.duration_ns, second.wait_ns, second.start_ns) == (100_000, 0, 500_000)


def test_a_collective_of_few_steps_is_none_of_the_step() -> None:
    usual, checkpoint = (100_000, 200_000), (300_000, 400_000)
    steps = {number: [usual] for number in range(4)} | {4: [usual, checkpoint]}
    ranks = compare_ranks([extract(0, steps), extract(1, steps)])
    assert [row.start_ns for row in ranks.collectives] == [100_000]


def test_steps_with_very_many_collectives_list_none() -> None:
    steps = {1: [(1_000 * i, 1_000 * i + 500) for i in range(600)]}
    assert compare_ranks([extract(0, steps), extract(1, steps)]).collectives == ()


@published
def test_collectives_that_only_ends_match_are_no_whole_step() -> None:
    ranks = of_files(*sorted((PUBLISHED / "hta").glob("sampled_rank-*of128.json.gz")))
    assert len(ranks.ranks) == 2
    assert ranks.collectives == ()


def test_recorded_collectives_are_the_buckets_of_the_model() -> None:
    ranks = of_files(*sorted(ON_GPUS.glob("rank*.json.gz")))
    kinds = [row.kind for row in ranks.collectives]
    assert kinds == ["broadcast"] + ["all_reduce"] * 13
    assert len(kinds) * ranks.common_steps == ranks.stragglers[0].collectives
    for row in ranks.collectives:
        assert 0 <= row.exposed_ns <= row.duration_ns
        assert 0 <= row.wait_ns <= row.duration_ns
        assert row.bytes
    starts = [row.start_ns for row in ranks.collectives]
    assert starts == sorted(starts)

"""Each convolution's parts in a report: their rows, shares of the roof, what configurations change, and whole tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sample_reports import EVIL, hostile, roofed, v0_cuda

from profiler_kit.records.counts import Cost
from profiler_kit.records.document import Section, Table, Value
from profiler_kit.records.experiments import CONVOLUTION_PARTS, ConvolutionPart, ConvolutionTiming, KernelCounters
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import dumps, loads_report
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.render._fit import display_width
from profiler_kit.report import dataframe, report_document
from profiler_kit.report.convolution_rows import (
    MIN_TIME_DIFFERENCE,
    MIN_TOTAL_SHARE,
    ChangeRow,
    change_rows,
    convolution_rows,
    fastest_changes,
)
from profiler_kit.report.convolutions import SUMMARY_CHANGES, SUMMARY_PARTS

XMMA, CUTLASS, DIRECT = "conv:xmma_igemm", "conv:cutlass_igemm", "conv:legacy_direct"
LARGE = 9_100_000


CHANGES = "Convolution changes between configurations"


def part(
    path: str = "conv2", of: ConvolutionPart = "fprop", ns: int = LARGE, family: str = XMMA, math: str | None = "tf32",
    kernel: str = "", **words: object,
) -> ConvolutionTiming:  # fmt: skip
    sample = ConvolutionTiming(
        path=path, part=of, calls=1, kernel_ns=ns, layout_ns=ns // 50, family=family, kernel=kernel or family, math=math,
        workspace_bytes=1 << 20,
    )  # fmt: skip
    return replace(sample, **words)  # type: ignore[arg-type]


def with_parts(report: Report, **by_config: tuple[ConvolutionTiming, ...]) -> Report:
    def filled(run: ConfigRun) -> ConfigRun:
        return replace(run, convolutions=by_config.get(run.config.name.replace("-", "_"), ()))

    return replace(report, runs=tuple(filled(run) for run in report.runs))


def v0() -> Report:
    """V0, all parts in three configurations: benchmark takes another family, without TF32 another arithmetic."""

    def parts(scale: float, family: str, math: str) -> tuple[ConvolutionTiming, ...]:
        return tuple(
            part(path, of, round(scale * ns), family, math, macs=macs)
            for path, ns, macs in (("conv1", 200_000, 10**9), ("conv2", LARGE, 2 * 10**11), ("conv3", 90_000, None))
            for of in CONVOLUTION_PARTS
            if (path, of) != ("conv1", "dgrad")
        )

    return with_parts(
        roofed(),
        default=parts(1, XMMA, "tf32"),
        benchmark=parts(0.5, CUTLASS, "tf32"),
        no_tf32=parts(2, XMMA, "fp32"),
    )


def run(report: Report, name: str = "default") -> ConfigRun:
    result = report.run(name)
    assert result is not None
    return result


def section(report: Report, title: str, **words: object) -> Section:
    return next(s for s in report_document(report, **words).sections if s.title == title)  # type: ignore[arg-type]


def table(of: Section, name: str) -> Table:
    return next(block for block in of.blocks if isinstance(block, Table) and block.name == name)


def cells(of: Table, key: str) -> list[Value]:
    at = [head.key for head in of.heads].index(key)
    return [row[at] for row in of.rows]


def test_a_report_without_parts_says_nothing_of_them() -> None:
    titles = {s.title for s in report_document(v0_cuda()).sections}
    assert not titles & {"Convolutions", "All convolutions", CHANGES}


def test_the_longest_parts_come_first_and_all_rows_add_up() -> None:
    visible = table(section(v0(), "Convolutions"), "convolutions")
    assert cells(visible, "layer")[:3] == ["conv2"] * 3
    assert cells(visible, "layer")[-1] == "(5 more)"
    assert len(visible.rows) == SUMMARY_PARTS + 1
    for key in ("kernel_ns", "layout_ns"):
        at = [head.key for head in visible.heads].index(key)
        total = visible.totals[0][at]
        assert sum(row[at] for row in visible.rows) == total  # type: ignore[misc]
    assert sum(timing.kernel_ns for timing in run(v0()).convolutions) == sum(cells(visible, "kernel_ns"))  # type: ignore[arg-type]
    detailed = section(v0(), "All convolutions")
    assert detailed.detail
    assert len(table(detailed, "all_convolutions").rows) == len(run(v0()).convolutions)


def test_few_parts_are_all_shown_and_need_no_second_table() -> None:
    few = with_parts(v0_cuda(), default=tuple(part(of=of) for of in CONVOLUTION_PARTS))
    assert len(table(section(few, "Convolutions"), "convolutions").rows) == len(CONVOLUTION_PARTS)
    assert "All convolutions" not in {s.title for s in report_document(few).sections}


def test_a_large_network_s_details_are_limited_and_top_none_shows_all() -> None:
    many = with_parts(v0_cuda(), default=tuple(part(f"layer.{i}", ns=1000 + i) for i in range(100)))
    limited = table(section(many, "All convolutions"), "all_convolutions")
    assert cells(limited, "layer")[-1] == "(40 more)"
    assert sum(cells(limited, "kernel_ns")) == sum(1000 + i for i in range(100))  # type: ignore[arg-type]
    assert len(table(section(many, "All convolutions", top=None), "all_convolutions").rows) == 100


def test_words_for_people_and_keys_for_programs() -> None:
    visible = table(section(v0(), "Convolutions"), "convolutions")
    assert cells(visible, "algorithm")[0] == "implicit GEMM (xmma)"
    assert cells(visible, "arithmetic")[0] == "TF32"
    assert "family" not in {head.key for head in visible.heads}


def test_shares_are_of_the_peak_in_the_part_s_own_arithmetic() -> None:
    report = v0()
    line = report.roofline_of(run(report))
    assert line is not None
    for name, math in (("default", "tf32"), ("no-tf32", "fp32")):
        row = convolution_rows(report, run(report, name))[0]
        assert row.timing is not None
        assert row.timing.flops_per_s is not None
        assert row.peak_flops_per_s == line.roof.peak(math)
        column = cells(table(section(report, "Convolutions", run=name), "convolutions"), "peak_percent")[0]
        assert column == pytest.approx(100 * row.timing.flops_per_s / line.roof.peak(math))  # type: ignore[operator]


def test_the_floor_is_the_longer_of_arithmetic_and_operands() -> None:
    report = v0()
    static, line = report.static, report.roofline_of(run(report))
    assert static is not None
    assert line is not None
    peak = line.roof.peak("tf32")
    assert peak is not None
    row = convolution_rows(report, run(report))[0]
    assert row.floor_ns == pytest.approx(1e9 * 2 * 2 * 10**11 / peak)  # far above the ridge
    moved = 10**12
    nodes = tuple(
        replace(node, forward=Cost(macs=2 * 10**11, flops=4 * 10**11, read_bytes=moved))
        if node.path == "conv2"
        else node
        for node in static.modules
    )
    slow = replace(report, static=replace(static, modules=nodes))
    row = convolution_rows(slow, run(slow))[0]
    assert row.floor_ns == pytest.approx(1e9 * moved / line.roof.bandwidth_bytes_per_s)


def test_what_is_not_known_has_no_share() -> None:
    unknown = with_parts(roofed(), default=(part(math=None, macs=10**9), part("conv3", macs=None)))
    for row in convolution_rows(unknown, run(unknown)):
        assert row.floor_ns is None
    visible = table(section(unknown, "Convolutions"), "convolutions")
    assert not {"peak_percent", "attained_percent", "executed_ratio"} & {head.key for head in visible.heads}


def test_counters_tell_how_much_was_executed() -> None:
    counters = KernelCounters(flops=3 * 10**9, dram_read_bytes=700, dram_write_bytes=300, kernels=4)
    counted = with_parts(v0_cuda(), default=(part(macs=10**9, counters=counters), part("conv3", counters=counters)))
    visible = table(section(counted, "Convolutions"), "convolutions")
    assert cells(visible, "executed_ratio") == [1.5, None]
    assert cells(visible, "dram_bytes") == [1000, 1000]


# ---- what changes


def changed(before: ConvolutionTiming, after: ConvolutionTiming) -> ChangeRow | None:
    others = part("rest", ns=1_000_000)
    rows = change_rows(with_parts(v0_cuda(), default=(before, others), benchmark=(after, others)))
    assert {row.before.path for row in rows} <= {before.path}
    return rows[0] if rows else None


@pytest.mark.parametrize(
    ("after", "differs"),
    [
        (part(), None),
        (part(family=CUTLASS), "algorithm"),
        (part(family=CUTLASS, math="fp32", ns=2 * LARGE), "algorithm"),
        (part(math="fp32"), "arithmetic"),
        (part(kernel="another tile"), None),  # as fast: nobody asks
        (part(kernel="another tile", ns=2 * LARGE), "kernel"),
        (part(ns=2 * LARGE), "time"),
        (part(ns=LARGE // 2), "time"),
        (part(ns=round(LARGE * (1 + MIN_TIME_DIFFERENCE) - 2)), None),
        (part(ns=round(LARGE * (1 + MIN_TIME_DIFFERENCE) + 2)), "time"),
        (part(of="dgrad", ns=2 * LARGE), None),  # the baseline has no such part
    ],
)
def test_the_first_that_differs_is_told(after: ConvolutionTiming, differs: str | None) -> None:
    row = changed(part(), after)
    assert (row.differs if row else None) == differs


def test_a_part_of_no_weight_may_take_another_time() -> None:
    small = round(MIN_TOTAL_SHARE * 1_000_000 / 2)
    assert changed(part(ns=small), part(ns=small * 2 - 100)) is None
    assert changed(part(ns=small), part(ns=small, family=CUTLASS)) is not None


def test_every_configuration_is_held_against_the_baseline_largest_difference_first() -> None:
    rows = change_rows(v0())
    assert {row.config for row in rows} == {"benchmark", "no-tf32"}
    assert {row.baseline for row in rows} == {"default"}
    apart = [abs(row.after.kernel_ns - row.before.kernel_ns) for row in rows]
    assert apart == sorted(apart, reverse=True)
    assert {row.differs for row in rows if row.config == "no-tf32"} == {"arithmetic"}


def test_a_repetition_is_no_other_configuration() -> None:
    report = v0_cuda()
    again = next(r for r in report.runs if r.config.repeat_of is not None)
    runs = tuple(
        replace(r, convolutions=(part(ns=LARGE * (2 if r is again else 1)),)) if r.config.name != "benchmark" else r
        for r in report.runs
    )
    assert again.config.name not in {row.config for row in change_rows(replace(report, runs=runs))}


def test_changes_are_told_in_words() -> None:
    changes_table = table(section(v0(), CHANGES), "all_changes")
    assert len(changes_table.rows) == len(change_rows(v0()))
    at = cells(changes_table, "to").index("benchmark")
    assert cells(changes_table, "before")[at] == "implicit GEMM (xmma), TF32"
    assert cells(changes_table, "after")[at] == "implicit GEMM (CUTLASS), TF32"
    assert cells(changes_table, "ratio")[at] == 0.5
    assert "implicit GEMM (xmma), fp32 SIMT" in cells(changes_table, "after")


def test_a_screen_shows_what_is_done_faster_elsewhere() -> None:
    visible = table(section(v0(), "Convolutions"), "convolution_changes")
    assert len(visible.rows) == SUMMARY_CHANGES
    assert set(cells(visible, "to")) == {"benchmark"}
    slower = with_parts(v0_cuda(), default=(part(),), benchmark=(part(ns=2 * LARGE),))
    assert [block.name for block in section(slower, "Convolutions").blocks if isinstance(block, Table)] == [
        "convolutions"
    ]
    assert len(table(section(slower, CHANGES), "all_changes").rows) == 1


@pytest.mark.parametrize(("deterministic_ns", "expected"), [(4_100_000, "benchmark"), (3_000_000, "deterministic")])
def test_of_two_about_as_fast_the_first_is_told(deterministic_ns: int, expected: str) -> None:
    report = with_parts(
        v0_cuda(),
        default=(part(),),
        benchmark=(part(ns=4_200_000),),
        deterministic=(part(ns=deterministic_ns),),
        no_tf32=(part(ns=2 * LARGE),),
    )
    assert [row.config for row in fastest_changes(report)] == [expected]


# ---- programs, and every format


def test_programs_get_all_parts_of_all_runs() -> None:
    pytest.importorskip("pandas")
    report = v0()
    frame = dataframe(report, "convolutions")
    assert len(frame) == sum(len(r.convolutions) for r in report.runs)
    assert set(frame["config"]) == {"default", "benchmark", "no-tf32"}
    assert frame["kernel_ns"].sum() == sum(timing.kernel_ns for r in report.runs for timing in r.convolutions)
    assert len(dataframe(report, "convolution_changes")) == len(change_rows(report))
    assert len(dataframe(v0_cuda(), "convolutions")) == 0


def test_a_saved_report_keeps_them() -> None:
    assert loads_report(dumps(v0()), "here") == v0()


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("detail", [False, True])
def test_they_fit_a_terminal(width: int, detail: bool) -> None:
    text = renderer_by_name("terminal").render(
        report_document(v0(), top=None), RenderOptions(width=width, detail=detail)
    )
    assert [line for line in text.splitlines() if display_width(line) > width] == []
    assert "conv2" in text


@pytest.mark.parametrize("format_name", ["terminal", "markdown"])
def test_names_cannot_break_out(format_name: str) -> None:
    evil = with_parts(hostile(), default=(part(EVIL, family=EVIL, kernel=EVIL, math=EVIL),))
    text = renderer_by_name(format_name).render(report_document(evil), RenderOptions(detail=True))
    assert "\x1b" not in text
    assert "\u202e" not in text

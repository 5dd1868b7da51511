"""The pages that the browser tests open, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sample_reports import counted, failed, v0_cuda, v0_h100, v0_target, v1_h100
from trace_reports import ms, trace, traces
from traced_runs import with_traced

from profiler_kit.comparison.compare import compare
from profiler_kit.diagnosis import diagnose_traces
from profiler_kit.pipeline.inspect import inspect
from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.counts import Cost, ModuleNode
from profiler_kit.records.document import Chart, Document
from profiler_kit.records.ranks import Ranks, RankTime, Straggler
from profiler_kit.records.report import Report
from profiler_kit.records.samples import Difference, Interval
from profiler_kit.records.serde import read_saved
from profiler_kit.records.tuning import Attempt, CodeBlock, Tuning, TuningOptions, TuningSide
from profiler_kit.report import report_document, traces_document
from profiler_kit.report.comparison import comparison_document
from profiler_kit.report.results import result_document
from scripts.bench.synthetic_reports import transformer_report

TRACES = Path(__file__).parent.parent / "fixtures" / "traces"
MEASURED = Path(__file__).parents[2] / "docs" / "measured"
RANKS = 64
STRAGGLER = 41
HOSTILE = (
    "</script><script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "layer 🚀 ünïcode",
    "abc\u202efdp.exe",
    "x" * 10_000,
)


def _v0() -> Document:
    return report_document(with_verdict(v0_h100()), top=None)


def resnet50() -> Report:
    """The counts of ResNet-50 at batch size 1 in closed form."""
    target = replace(v0_target(), name="ResNet-50")
    return replace(v0_cuda(), target=target, static=counted(tuple(_resnet_nodes())), runs=(), findings=())


def _resnet_nodes() -> Iterator[ModuleNode]:
    def convolution(path: str, cin: int, cout: int, kernel: int, size: int) -> ModuleNode:
        macs = cin * cout * kernel**2 * size**2
        forward = Cost(macs=macs, flops=2 * macs, read_bytes=4 * cin * size**2, write_bytes=4 * cout * size**2)
        params = cin * cout * kernel**2
        return ModuleNode(
            path=path, class_name="Conv2d", config=f"{cin}->{cout}, k{kernel}", calls=1, params=params, trainable_params=params,
            param_bytes=4 * params, forward=forward, backward=forward + forward, saved_bytes=4 * cin * size**2,
        )  # fmt: skip

    def norm(path: str, channels: int, size: int) -> ModuleNode:
        cost = Cost(flops=4 * channels * size**2, read_bytes=4 * channels * size**2, write_bytes=4 * channels * size**2)
        return ModuleNode(
            path=path, class_name="BatchNorm2d", calls=1, params=2 * channels, forward=cost, backward=cost
        )

    yield ModuleNode(path="", class_name="ResNet", calls=1)
    yield convolution("conv1", 3, 64, 7, 112)
    yield norm("bn1", 64, 112)
    channels = 64
    for stage, (blocks, width, size) in enumerate(((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)), start=1):
        yield ModuleNode(path=f"layer{stage}", class_name="Sequential")
        for block in range(blocks):
            path = f"layer{stage}.{block}"
            before = size if block or stage == 1 else 2 * size
            yield ModuleNode(path=path, class_name="Bottleneck", calls=1)
            yield convolution(f"{path}.conv1", channels, width, 1, before)
            yield norm(f"{path}.bn1", width, before)
            yield convolution(f"{path}.conv2", width, width, 3, size)
            yield norm(f"{path}.bn2", width, size)
            yield convolution(f"{path}.conv3", width, 4 * width, 1, size)
            yield norm(f"{path}.bn3", 4 * width, size)
            if block == 0:
                yield ModuleNode(path=f"{path}.downsample", class_name="Sequential")
                yield convolution(f"{path}.downsample.0", channels, 4 * width, 1, size)
            channels = 4 * width
    macs = 2048 * 1000
    forward = Cost(macs=macs, flops=2 * macs, read_bytes=4 * macs, write_bytes=4000)
    yield ModuleNode(
        path="fc", class_name="Linear", calls=1, params=macs + 1000, forward=forward, backward=forward + forward
    )


def _failed_run() -> Document:
    return report_document(with_verdict(replace(v0_cuda(), runs=(*v0_cuda().runs[:2], *failed().runs))), top=None)


def _empty() -> Document:
    return report_document(replace(v0_cuda(), static=None, runs=(), findings=(), verdict=None, notes=()))


def _ranks() -> Document:
    summaries = [replace(trace(f"job/rank{rank}.json.gz"), rank=rank, world_size=RANKS) for rank in range(RANKS)]
    late = {rank: ms(12.0) if rank == STRAGGLER else 0 for rank in range(RANKS)}
    rows = tuple(
        RankTime(
            rank=rank, file=summaries[rank].file, steps=10, step_ns=ms(40.0), compute_ns=ms(20.0) + late[rank],
            communication_ns=ms(15.0) - late[rank], exposed_ns=ms(14.0) - late[rank], wait_ns=ms(12.5) - late[rank],
            idle_ns=ms(6.0),
        )
        for rank in range(RANKS)
    )  # fmt: skip
    straggler = Straggler(
        rank=STRAGGLER,
        last=90,
        collectives=100,
        late_ns=ms(12.0),
        cost_ns=ms(11.5),
        doing="backward",
        doing_excess_ns=ms(12.0),
    )
    ranks = Ranks(ranks=rows, common_steps=10, step_ns=ms(40.0), imbalance=0.6, stragglers=(straggler,))
    report = traces(*summaries, ranks=ranks)
    return traces_document(with_verdict(replace(report, findings=diagnose_traces(report))))


def _inspected(*names: str) -> Document:
    inspection = inspect([TRACES / name for name in names or ("strangers/eager.cuda.json.gz",)], timelines=True)
    return traces_document(inspection.report, timelines=inspection.timelines)


def _compared() -> Document:
    return comparison_document(compare(v0_h100(), v1_h100()))


def _hostile() -> Document:
    """V0 with hostile names in place of those of its layers, its configurations and itself."""
    report = with_verdict(v0_cuda())
    static = report.static
    assert static is not None
    names = dict(
        zip((node.path for node in static.modules if node.path and "(" not in node.path), HOSTILE, strict=False)
    )
    modules = (replace(node, path=names.get(node.path, node.path)) for node in static.modules)
    static = replace(static, modules=tuple(replace(node, class_name=HOSTILE[1], config=HOSTILE[3]) for node in modules))
    runs = tuple(
        with_traced(run, modules=tuple(replace(layer, path=names.get(layer.path, layer.path)) for layer in run.modules))
        for run in report.runs
    )
    findings = tuple(
        replace(finding, title=f"{HOSTILE[i % 5]} {finding.title}", paths=tuple(names.values()))
        for i, finding in enumerate(report.findings)
    )
    target = replace(report.target, name=HOSTILE[0], spec=HOSTILE[4])
    return report_document(replace(report, target=target, static=static, runs=runs, findings=findings), top=None)


def _tuned() -> Document:
    """Two changes that were tried, of which one was accepted and measured again."""
    report = v0_h100()
    gain = Difference(ratio=0.62, low=0.6, high=0.64, smallest_visible=0.01, outcome="better")
    config = report.runs[0].config
    step, faster = (Interval(median=ns, low=ns - 10**5, high=ns + 10**5) for ns in (27 * 10**6, 17 * 10**6))
    attempts = (
        Attempt(round=1, change="benchmark", base="default", config="benchmark", outcome="accepted", gain=gain),
        Attempt(
            round=1, change="channels_last", base="default", config="channels_last", outcome="worse",
            reason="it is slower", gain=replace(gain, ratio=1.2, low=1.1, high=1.3, outcome="worse"),
        ),
    )  # fmt: skip
    tuning = Tuning(
        tool=report.tool, created=report.created, target=report.target, options=TuningOptions(), outcome="better",
        environment=report.runs[0].environment, attempts=attempts, gain=replace(gain, ratio=0.63), changes=("benchmark",),
        baseline=TuningSide(config=config, step_ns=step), chosen=TuningSide(config=config, step_ns=faster),
        code=(CodeBlock(place="start", changes=("benchmark",), code="torch.backends.cudnn.benchmark = True"),),
    )  # fmt: skip
    return result_document(tuning, complete=True)


PAGES: dict[str, Callable[[], Document]] = {
    "v0": _v0,
    "resnet50": lambda: report_document(resnet50(), top=None),
    "transformer": lambda: report_document(transformer_report(1000), top=None),
    "failed run": _failed_run,
    "empty": _empty,
    "ranks": _ranks,
    "inspected": _inspected,
    "overlapping steps": lambda: _inspected("ranks_cuda/rank0.json.gz"),
    "ranks on one clock": lambda: _inspected("ranks_cuda/rank0.json.gz", "ranks_cuda/rank1.json.gz"),
    "compared": _compared,
    "hostile": _hostile,
    "tuned": _tuned,
    "checked": lambda: result_document(read_saved(TRACES.parent / "frozen" / "check.json"), complete=True),
    "swept": lambda: result_document(read_saved(MEASURED / "sweep_timm_cpu.json"), complete=True),
}


def timeline_of(name: str) -> Mapping[str, Any]:
    """The data of the first timeline of a page."""
    blocks = [block for section in PAGES[name]().sections for block in section.blocks]
    return next(block.data for block in blocks if isinstance(block, Chart) and block.kind == "timeline")

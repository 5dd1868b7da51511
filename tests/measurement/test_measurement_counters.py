"""Hardware counters: Nsight Compute's table, every failure, and the counted step.

The table is a recording of the case study's V1 on an H100 (forward, TF32, batch 8), cut to the columns that are read and a few
more; the ranges of its rows were set to the convolutions that launched them. The list of metrics is made up in ncu's form.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import AMPLE_S

torch = pytest.importorskip("torch")

from profiler_kit.loading import load  # noqa: E402
from profiler_kit.measurement import counter_metrics, counters  # noqa: E402
from profiler_kit.measurement.counter_metrics import FP32, Metrics, UnreadableError  # noqa: E402
from profiler_kit.measurement.counters import Counters  # noqa: E402
from profiler_kit.records import marks  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.experiments import ConvolutionTiming, KernelCounters  # noqa: E402
from profiler_kit.records.jobs import CountersEnd, CountersJob  # noqa: E402
from profiler_kit.records.serde import dumps, from_json  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402
from profiler_kit.worker.counters_run import run_in_parts, run_job  # noqa: E402
from profiler_kit.worker.steps import Runner  # noqa: E402

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "counters"
RECORDED = (FIXTURES / "v1_forward_h100.csv").read_text(encoding="utf-8")
QUERY = (FIXTURES / "query_metrics.txt").read_text(encoding="utf-8")
TF32 = "sm__ops_path_tensor_src_tf32_dst_fp32"
METRICS = Metrics(thread=FP32, tensor=(TF32,), tensor_instructions=None)
CONFIG = RunConfig(name="default")
SPEC = TargetSpec(spec="net.py")
BATCH = 8
# in, out, kernel, output size: MACs per image are their product
V1 = {
    "conv0": (3, 50, 4, 128),
    "conv_r1": (50, 40, 15, 128),
    "conv_r2": (40, 25, 3, 128),
    "conv_r3": (25, 25, 2, 64),
    "conv_b1": (50, 15, 4, 64),
    "conv1": (40, 2, 1, 64),
}


def macs(path: str) -> int:
    cin, cout, kernel, size = V1[path]
    return BATCH * cin * cout * kernel**2 * size**2


# --- reading the table


def test_the_recorded_kernels_execute_padded_tiles() -> None:
    rows = counter_metrics.parse_table(RECORDED, METRICS)
    assert len(rows) == 25
    whole = sum(row.counters.flops for row in rows)
    assert whole / (2 * sum(macs(path) for path in V1)) == pytest.approx(2.11, abs=0.005)
    assert sum(row.counters.dram_bytes for row in rows) == pytest.approx(0.43e9, rel=0.01)
    by_path = {path: sum(r.counters.flops for r in rows if r.path == path) for path in V1}
    # 50 and 40 channels, each in tiles made for 64
    assert by_path["conv_r1"] / (2 * macs("conv_r1")) == pytest.approx(64 * 64 / (50 * 40), rel=0.001)
    assert {row.part for row in rows if row.path is not None} == {"fprop"}


def test_tensor_operations_are_two_to_a_multiply_add() -> None:
    """The kernel's instructions are counted as well, and each is 16 x 8 x 8 multiply-adds."""
    instructions = replace(METRICS, tensor=(), tensor_instructions="sm__inst_executed_pipe_tensor")
    heads = next(line for line in RECORDED.splitlines() if line.startswith('"ID"')).split('","')
    column = heads.index("sm__inst_executed_pipe_tensor.sum")
    (line,) = (line for line in RECORDED.splitlines() if "s1688fprop" in line)
    executed = int(line.split('","')[column].replace(",", ""))
    (row,) = (row for row in counter_metrics.parse_table(RECORDED, METRICS) if "s1688fprop" in row.kernel)
    (without,) = (row for row in counter_metrics.parse_table(RECORDED, instructions) if "s1688fprop" in row.kernel)
    assert row.counters.flops - without.counters.flops == executed * 2 * 16 * 8 * 8
    assert (row.counters.complete, without.counters.complete) == (True, False)


def test_operations_per_instruction() -> None:
    thread = dict.fromkeys(counter_metrics.THREAD_FLOPS, 1)
    assert sum(counter_metrics.THREAD_FLOPS[name] for name in thread) == (2 + 1 + 1) + (2 + 1 + 1) + (4 + 2 + 2)


@pytest.mark.parametrize("path", ["", "features.0", "a|b", 'with "quotes", commas: and ünïcode', "100%|fprop"])
def test_any_path_survives_the_range(path: str) -> None:
    name = marks.counted_range(path, "wgrad")
    renamed = RECORDED.replace("pk:part:conv_r1|fprop", name)
    found = {(row.path, row.part) for row in counter_metrics.parse_table(renamed, METRICS)}
    assert (path, "wgrad") in found


def test_a_users_own_range_around_ours_changes_nothing() -> None:
    around = RECORDED.replace('""<default domain>:pk:part', '""mine:step:none:none"" ""<default domain>:pk:part')
    assert around != RECORDED
    assert counter_metrics.parse_table(around, METRICS) == counter_metrics.parse_table(RECORDED, METRICS)


def test_no_table_is_no_kernel() -> None:
    assert counter_metrics.parse_table("==PROF== Connected\n==WARNING== No kernels were profiled.\n", METRICS) == ()


MALFORMED: dict[str, tuple[Callable[[str], str], str]] = {
    "cut in a line": (lambda text: text[:-300], "cells in a line|unexpected end"),
    "cut after the heads": (lambda text: "\n".join(text.splitlines()[:3]), "after the header"),
    "a column missing": (lambda text: text.replace("dram__bytes_read.sum", "dram__bytes_seen.sum"), "no column dram"),
    "no ranges": (lambda text: text.replace("Push/Pop_Range", "Ranges"), "no column Push/Pop_Range"),
    "other units": (lambda text: text.replace('"byte"', '"Mbyte"'), "figures in 'Mbyte'"),
    "not available": (lambda text: text.replace('"241,591,910,400"', '"n/a"'), "'n/a' as the value of sm__ops_path"),
    "points between thousands": (lambda text: text.replace("241,591,910,400", "241.591.910.400"), "as the value of"),
    "no table": (lambda text: 'Segmentation fault\n"' + text, "no column|cells in a line|not CSV"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_table_is_refused(name: str) -> None:
    spoil, said = MALFORMED[name]
    with pytest.raises(UnreadableError, match=said):
        counter_metrics.parse_table(spoil(RECORDED), METRICS)


# --- which metrics


def test_overlapping_metrics_are_not_added_up() -> None:
    chosen = counter_metrics.select_metrics(counter_metrics.metric_names(QUERY))
    assert chosen is not None
    assert set(chosen.thread) == set(counter_metrics.THREAD_FLOPS)
    assert {name.removeprefix("sm__ops_path_tensor_src_") for name in chosen.tensor} == {
        "bf16_dst_fp32", "fp16", "fp64", "fp8", "tf32_dst_fp32",
    }  # fmt: skip
    assert chosen.tensor_instructions is None


def test_without_a_total_metric_its_parts_are_added() -> None:
    there = counter_metrics.metric_names(QUERY) - {"sm__ops_path_tensor_src_fp16"}
    chosen = counter_metrics.select_metrics(there)
    assert chosen is not None
    assert {name for name in chosen.tensor if "fp16" in name} == {
        "sm__ops_path_tensor_src_fp16_dst_fp16",
        "sm__ops_path_tensor_src_fp16_dst_fp32",
    }


def test_an_older_chip_says_only_that_tensor_cores_worked() -> None:
    there = {name for name in counter_metrics.metric_names(QUERY) if "ops_path_tensor" not in name}
    chosen = counter_metrics.select_metrics(there)
    assert chosen is not None
    assert chosen.tensor == ()
    assert chosen.names[-1] == "sm__inst_executed_pipe_tensor.sum"


@pytest.mark.parametrize("missing", [counter_metrics.READ, FP32[0]])
def test_without_bytes_or_fp32_operations_there_is_nothing_to_count(missing: str) -> None:
    assert counter_metrics.select_metrics(counter_metrics.metric_names(QUERY) - {missing}) is None


# --- running ncu


def fake_ncu(folder: Path, does: str, *, query: str | None = None) -> Path:
    """An ncu whose run does `does`: with `table` the file it is to write, `job` what the child is told, `child` its command."""
    listing = folder / "query.txt"
    there = [line for line in QUERY.splitlines() if f'"{line.split(" ")[0]}.sum"' in RECORDED]
    listing.write_text("\n".join(there) if query is None else query)
    program = folder / "ncu"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, pathlib, subprocess, sys, time\n"
        f"if '--query-metrics' in sys.argv:\n    print(pathlib.Path({str(listing)!r}).read_text())\n    sys.exit(0)\n"
        "table = pathlib.Path(sys.argv[sys.argv.index('--log-file') + 1])\n"
        "child = sys.argv[sys.argv.index('--metrics') + 2:]\n"
        "job = json.loads(pathlib.Path(child[-1]).read_text())\n"
        f"recorded = pathlib.Path({str(FIXTURES / 'v1_forward_h100.csv')!r}).read_text()\n"
        f"def end(text={dumps(CountersEnd())!r}):\n    pathlib.Path(child[-1]).with_name('result.json').write_text(text)\n"
        f"{does}\n"
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No ncu is found but the one in `tmp_path`, once it is there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(counters, "PLACES", ())


def counted(**rest: object) -> tuple[Counters | None, str]:
    """The counters, and the one note there may be."""
    found, notes = counters.count(SPEC, CONFIG, device="cuda", **rest)  # type: ignore[arg-type]
    assert len(notes) <= 1
    note = notes[0] if notes else ""
    assert "\n" not in note
    assert "Traceback" not in note
    return found, note


@pytest.mark.usefixtures("nowhere")
def test_a_step_is_counted_by_convolution_part_and_kernel(tmp_path: Path) -> None:
    said: list[str] = []
    fake_ncu(tmp_path, "print('pk:progress:one step')\ntable.write_text(recorded)\nend()")
    found, note = counted(on_progress=said.append)
    assert note == ""
    assert said == ["one step"]
    assert found is not None
    assert [(part.path, part.part) for part in found.parts] == [
        *((path, "fprop") for path in V1),
        (counters.OTHER_KERNELS, None),
    ]
    for part in found.parts:
        assert sum((k.counters.flops for k in part.kernels), 0) == part.counters.flops
        assert sum((k.counters.dram_bytes for k in part.kernels), 0) == part.counters.dram_bytes
        assert sum((k.counters.kernels for k in part.kernels), 0) == part.counters.kernels
    rows = counter_metrics.parse_table(RECORDED, METRICS)
    assert sum(part.counters.kernels for part in found.parts) == len(rows)
    conv_r1 = found.parts[1]
    assert "s1688fprop" in conv_r1.kernels[0].name
    assert conv_r1.counters.kernels == 5


@pytest.mark.usefixtures("nowhere")
def test_the_child_is_asked_for_exactly_this_configuration(tmp_path: Path) -> None:
    fake_ncu(tmp_path, f"pathlib.Path({str(tmp_path / 'asked.json')!r}).write_text(json.dumps([sys.argv, job]))\nend()")
    counted()
    argv, job = json.loads((tmp_path / "asked.json").read_text())
    assert "profiler_kit.worker.counters_run" in argv
    assert argv[argv.index("--profile-from-start") + 1] == "off"
    assert set(argv[argv.index("--metrics") + 1].split(",")) == set(METRICS.names)
    told = from_json(CountersJob, job)
    assert (told.spec, told.config, told.device) == (SPEC, CONFIG, "cuda")


PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target "
    "device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
BUSY = (
    "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) is "
    "concurrently collecting profiling data."
)
FAILURES = {
    "permission": (f"table.write_text({PERMISSION!r})\nend()\nsys.exit(1)", "NVreg_RestrictProfilingToAdminUsers=0"),
    "held by another": (f"table.write_text({BUSY!r})\nend()", "dcgmi profile --pause"),
    "half of the kernels": (
        "table.write_text(recorded + '\\n==ERROR== Failed to profile x\\n')\nend()",
        "to profile x",
    ),
    "ends badly": ("print('no such library', file=sys.stderr)\nsys.exit(9)", "exit status 9 (no such library)"),
    "says nothing": ("sys.exit(3)", "exit status 3 (no message)"),
    "is killed": ("os.kill(os.getpid(), 9)", "SIGKILL"),
    "ends badly after the step": ("end()\nprint('lost', file=sys.stderr)\nsys.exit(2)", "exit status 2 (lost)"),
    "no kernel": ("table.write_text('==WARNING== No kernels were profiled.')\nend()", "recorded no kernel"),
    "malformed": ("table.write_text(recorded[:-300])\nend()", "cannot be parsed"),
    "the model failed": (
        f"end({dumps(CountersEnd(failure='net.py:3: ValueError: no.'))!r})",
        "net.py:3: ValueError: no.",
    ),
    "too slow": ("time.sleep(300)", "2 s"),
}


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_to_read_counters_is_one_note(name: str, tmp_path: Path) -> None:
    does, said = FAILURES[name]
    fake_ncu(tmp_path, does)
    found, note = counted(timeout_s=2.0 if name == "too slow" else AMPLE_S)
    assert found is None
    assert note.startswith("Hardware counters were not read: ")
    assert said in note
    assert note.endswith(".")
    assert not note.endswith("..")


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("done", [True, False])
def test_a_crash_after_the_counted_step_is_ignored(done: bool, tmp_path: Path) -> None:
    words = "'\\n==ERROR== The application returned an error code (11).\\n'"
    fake_ncu(tmp_path, f"table.write_text(recorded + {words})\n{'end()' if done else ''}\nsys.exit(11)")
    found, note = counted()
    assert (found is not None) is done
    assert ("error code (11)" in note) is not done


@pytest.mark.usefixtures("nowhere")
def test_a_missing_ncu_is_a_note() -> None:
    assert counters.find_ncu() is None
    found, note = counted()
    assert found is None
    assert "PATH" in note


@pytest.mark.usefixtures("nowhere")
def test_a_file_that_cannot_be_run_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "ncu").write_text("#!/nowhere/interpreter\n")
    (tmp_path / "ncu").chmod(0o755)
    found, note = counted()
    assert found is None
    assert "cannot be started" in note


@pytest.mark.usefixtures("nowhere")
def test_a_device_without_these_metrics_is_a_note(tmp_path: Path) -> None:
    fake_ncu(tmp_path, "end()", query="sm__cycles_active  Counter  cycle  # of cycles\n")
    found, note = counted()
    assert found is None
    assert "DRAM bytes" in note


def test_only_cuda_has_counters() -> None:
    found, notes = counters.count(SPEC, CONFIG, device="cpu")
    assert found is None
    assert len(notes) == 1


@pytest.mark.usefixtures("nowhere")
def test_operations_without_a_counter_are_a_note(tmp_path: Path) -> None:
    older = "\n".join(line for line in QUERY.splitlines() if line.split(" ")[0] in {*FP32, *counter_metrics.NEEDED})
    fake_ncu(tmp_path, "table.write_text(recorded)\nend()", query=f"{older}\nsm__inst_executed_pipe_tensor  Counter\n")
    found, note = counted()
    assert found is not None
    assert "tensor cores" in note
    assert not next(part for part in found.parts if part.path == "conv_r1").counters.complete


def test_the_newest_of_several_versions_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("2024.3.2", "2025.10.0", "2025.9.1"):
        program = tmp_path / version / "ncu"
        program.parent.mkdir()
        program.touch(0o755)
    (tmp_path / "2026.1.0").mkdir()
    (tmp_path / "2026.1.0" / "ncu").touch(0o644)  # not to be run
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(counters, "PLACES", (f"{tmp_path}/*/ncu",))
    assert counters.find_ncu() == tmp_path / "2025.10.0" / "ncu"


# --- joining


def timing(path: str, kernel: str) -> ConvolutionTiming:
    return ConvolutionTiming(
        path=path, part="fprop", calls=1, kernel_ns=1000, layout_ns=0, family="conv:cutlass_igemm", kernel=kernel
    )


@pytest.fixture
def recorded(tmp_path: Path, nowhere: None) -> Counters:
    fake_ncu(tmp_path, "table.write_text(recorded)\nend()")
    found, _ = counted()
    assert found is not None
    return found


TIMED = (
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_256x64_16x4_nhwc_align4>"
    "(cutlass_tensorop_s1688fprop_optimized_tf32_256x64_16x4_nhwc_align4::Params)"
)


def test_counters_join_the_part_whose_kernel_was_timed(recorded: Counters) -> None:
    convolutions = (timing("conv_r1", TIMED), timing("elsewhere", TIMED))
    joined, other = counters.with_counters(convolutions, recorded)
    assert joined.counters is not None
    assert joined.counters.flops / (2 * macs("conv_r1")) == pytest.approx(2.05, abs=0.005)
    assert sum(kernel.counters.kernels for kernel in joined.counted_kernels) == joined.counters.kernels
    assert replace(joined, counters=None, counted_kernels=()) == convolutions[0]
    assert other == convolutions[1]
    assert counters.kernel_mismatches(convolutions, recorded) == ()


def test_counters_of_another_algorithm_are_not_joined_but_noted(recorded: Counters) -> None:
    """Algorithm search may choose differently in the counting process."""
    convolutions = (timing("conv_r1", "void fft2d_r2c_32x32<float, false, 0u, false>(float2*, float const*, int)"),)
    assert counters.with_counters(convolutions, recorded) == convolutions
    (note,) = counters.kernel_mismatches(convolutions, recorded)
    assert "conv_r1 (fprop)" in note


@pytest.mark.parametrize(
    ("timed", "as_counted", "same"),
    [
        ("void k<float, 5, false>(float const*, int)", "void k<float, (int)5, (bool)0>(T1 *, int)", True),
        (
            "void at::native::(anonymous namespace)::dw<3, float>(at::X<4ul>)",
            "void at::<unnamed>::dw<3, float>(at::X)",
            True,
        ),
        ("sm90_xmma_a_tilesize64", "sm90_xmma_a_tilesize128", False),
        ("void cutlass::Kernel<one>(one::Params)", "void cutlass::Kernel<two>(T1::Params)", False),
        ("void k<float>(int)", "void k<__half>(int)", False),
    ],
)
def test_kernels_are_matched_by_name(timed: str, as_counted: str, same: bool, recorded: Counters) -> None:
    conv_r1 = recorded.parts[1]
    kernels = (replace(conv_r1.kernels[0], name=as_counted),)
    one = replace(recorded, parts=(replace(conv_r1, kernels=kernels),))
    (joined,) = counters.with_counters((timing("conv_r1", timed),), one)
    assert (joined.counters is not None) is same


def test_counters_add() -> None:
    one = KernelCounters(flops=1, dram_read_bytes=2, dram_write_bytes=3, kernels=1)
    assert one + replace(one, complete=False) == KernelCounters(
        flops=2, dram_read_bytes=4, dram_write_bytes=6, kernels=2, complete=False
    )


# --- the child

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 2, 1, bias=False)

    def forward(self, x):
        return self.second(self.first(x).relu()).mean((2, 3))

example_inputs = torch.ones(2, 2, 6, 6)
"""


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_every_part_of_every_convolution_is_marked_once_and_no_gradient_is_left(mode: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    runner = Runner(load(TargetSpec(spec=str(tmp_path / "net.py"), mode=mode), device="cpu"))  # type: ignore[arg-type]
    weights = [parameter.detach().clone() for parameter in runner.target.model.parameters()]
    open_now: list[str] = []
    seen: list[tuple[str, str]] = []

    class Watched:
        def __init__(self, path: str, part: str) -> None:
            self.mark = (path, part)

        def __enter__(self) -> None:
            assert open_now == []
            open_now.append(self.mark[0])
            seen.append(self.mark)

        def __exit__(self, *_: object) -> None:
            open_now.pop()

    run_in_parts(runner, Watched)
    forward = [("first", "fprop"), ("second", "fprop")]
    backward = [("second", "dgrad"), ("second", "wgrad"), ("first", "wgrad")]  # none for the input of the step
    assert seen == (forward + backward if mode == "train" else forward)
    for parameter, before in zip(runner.target.model.parameters(), weights, strict=True):
        assert parameter.grad is None
        assert torch.equal(parameter, before)


def test_a_model_that_fails_is_the_reason(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET.replace("x).relu()", "x).no_such()"))
    job = CountersJob(spec=TargetSpec(spec=str(tmp_path / "net.py")), config=CONFIG, device="cpu")
    end = run_job(job, lambda _: None)
    assert end.failure is not None
    assert "no_such" in end.failure
    assert "\n" not in end.failure


def test_a_target_that_does_not_exist_is_the_reason() -> None:
    end = run_job(CountersJob(spec=TargetSpec(spec="nowhere.py"), config=CONFIG, device="cpu"), lambda _: None)
    assert end.failure is not None
    assert "nowhere.py" in end.failure


@pytest.mark.usefixtures("nowhere")
def test_the_worker_reports_progress_and_the_reason_of_its_failure(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "bad.py").write_text(NET.replace("x).relu()", "x).no_such()"))
    fake_ncu(tmp_path, "sys.exit(subprocess.run(child).returncode)")
    spec = TargetSpec(spec=str(tmp_path / "bad.py"))
    found, notes = counters.count(spec, CONFIG, device="cuda", timeout_s=AMPLE_S, on_progress=said.append)
    assert found is None
    assert said[0].startswith("loading ")
    (note,) = notes
    assert note.startswith("Hardware counters were not read: ")
    if not torch.cuda.is_available():
        assert "cuda" in note.lower()

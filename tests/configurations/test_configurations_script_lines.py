"""The lines that `tune` prints run in a script, in their order, and apply what they name."""

from __future__ import annotations

import ast
import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.configurations.naming import FLAG_CHANGES, all_axes, change_of, parse_config  # noqa: E402
from profiler_kit.configurations.script_lines import code_blocks  # noqa: E402
from profiler_kit.measurement.tuning_candidates import configuration_name, first_changes  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.target import InputInfo, TargetInfo  # noqa: E402
from profiler_kit.records.tuning import CodeBlock, Place  # noqa: E402

PLAIN = RunConfig(name="default", enabled=True, benchmark=False, deterministic=False, allow_tf32=True)
IMAGE = InputInfo(name="x", shape=(4, 3, 8, 8), dtype="float32")
ORDER: list[Place] = ["start", "model", "optimizer", "data", "loop"]


def info(*inputs: InputInfo, mode: Any = "train", optimizer: str = "AdamW") -> TargetInfo:
    return TargetInfo(
        spec="net.py",
        name="Net",
        inputs=inputs or (IMAGE,),
        mode=mode,
        loss="cross_entropy" if mode == "train" else None,
        optimizer=optimizer if mode == "train" else None,
    )


def blocks(
    *changes: str, target: TargetInfo | None = None, device: str = "cpu", rows: int = 4
) -> tuple[CodeBlock, ...]:
    config = parse_config(configuration_name(changes), PLAIN)
    return code_blocks(changes, config, target or info(), device=device, rows=rows)


def network() -> Any:
    return torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    )


def run_script(written: tuple[CodeBlock, ...], train: bool = True) -> dict[str, Any]:
    """A user's script with the lines pasted at their places; the names that it ends with."""
    model = network()
    dataset = torch.utils.data.TensorDataset(torch.randn(8, 3, 8, 8), torch.randint(5, (8,)))
    names: dict[str, Any] = {
        "torch": torch,
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=0.1) if train else None,
        "loss_fn": torch.nn.functional.cross_entropy,
        "dataset": dataset,
        "inputs": dataset.tensors[0][:4],
        "labels": dataset.tensors[1][:4],
    }
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    for block in written:
        exec(block.code, names)
    if any(block.place == "loop" for block in written):
        assert names["output"].shape == (4, 5)
        assert bool(torch.isfinite(names["output"].float()).all())
        after = [parameter.to(torch.float32) for parameter in model.parameters()]
        assert train is any(not torch.allclose(a, b, rtol=0.01) for a, b in zip(weights, after, strict=True))
    return names


@pytest.fixture(autouse=True)
def flags_restored() -> Any:
    threads, onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    cudnn = torch.backends.cudnn
    saved = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, cudnn.enabled, cudnn.benchmark_limit
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_num_threads(threads)
    torch.backends.mkldnn.enabled = onednn
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, cudnn.enabled, cudnn.benchmark_limit = saved
    torch.set_float32_matmul_precision(precision)  # allow_tf32 alone would leave a mixture that torch refuses to read
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "changes",
    [
        pair
        for pair in itertools.combinations(
            ["amp_bf16", "channels_last", "no_onednn", "fused_optimizer", "no_item", "checkpoint=0", "batch=2x"], 2
        )
        if pair != ("amp_bf16", "no_onednn")  # torch has no such kernels on every CPU
    ],
)
def test_the_lines_run_and_train(changes: tuple[str, ...]) -> None:
    written = blocks(*changes)
    assert [block.place for block in written] == [p for p in ORDER if p in {block.place for block in written}]
    assert {change for block in written for change in block.changes} == set(changes)
    run_script(written)


@pytest.mark.parametrize("changes", [("dtype=bfloat16",), ("amp_bf16", "channels_last"), ("channels_last",)])
def test_the_lines_of_inference_run(changes: tuple[str, ...]) -> None:
    names = run_script(blocks(*changes, target=info(mode="infer")), train=False)
    assert not names["output"].requires_grad
    assert "loss" not in names


def test_flags_are_set() -> None:
    changes = ("benchmark", "benchmark_limit=0", "matmul_tf32", "deterministic", "no-tf32", "threads=1", "no_onednn")
    written = blocks(*changes, "deterministic_algorithms")
    run_script(written)
    cudnn = torch.backends.cudnn
    assert (cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32) == (True, True, False)
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.get_num_threads() == 1
    assert not torch.backends.mkldnn.enabled
    assert torch.are_deterministic_algorithms_enabled()


def test_effects_of_the_lines() -> None:
    names = run_script(
        blocks("amp_bf16", "channels_last", "fused_optimizer", "checkpoint=0", "no_item", "batch=2x", rows=8)
    )
    assert names["output"].dtype == torch.bfloat16
    assert names["inputs"].is_contiguous(memory_format=torch.channels_last)
    assert names["optimizer"].defaults["fused"]
    assert names["loader"].batch_size == 8
    assert names["total_loss"] > 0


@pytest.mark.parametrize(
    ("optimizer", "kind"),
    [
        ("adamw", "AdamW"),
        ("SGD", "SGD"),
        ("Adam", "Adam"),
        ("configure_optimizer", "AdamW"),
        ("__import__('os')", "AdamW"),
    ],
)
def test_the_fused_optimizer_keeps_its_class(optimizer: str, kind: str) -> None:
    names = run_script(blocks("fused_optimizer", target=info(optimizer=optimizer)))  # the script's optimizer is AdamW
    assert type(names["optimizer"]).__name__ == kind
    assert names["optimizer"].defaults["fused"]


def test_recomputation_gives_the_same_gradients_and_saves_less() -> None:
    saved: list[int] = []

    def gradients(model: Any) -> Any:
        torch.manual_seed(0)
        bytes_saved = 0

        def pack(tensor: Any) -> Any:
            nonlocal bytes_saved
            bytes_saved += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = model(torch.ones(4, 3, 8, 8)).square().sum()
        loss.backward()
        saved.append(bytes_saved)
        return [parameter.grad for parameter in model.parameters()]

    model = network()
    before = gradients(model)
    model.zero_grad(set_to_none=True)
    names: dict[str, Any] = {"torch": torch, "model": model}
    exec(blocks("checkpoint=0")[0].code, names)
    after = gradients(model)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert saved[1] < saved[0]


def test_float16_training_scales_its_gradients() -> None:
    written = blocks("amp_fp16", device="cuda")
    assert [block.place for block in written] == ["optimizer", "loop"]
    assert written[0].code == 'scaler = torch.amp.GradScaler("cuda")'
    loop = written[1].code
    assert (
        loop.index("scaler.scale(loss).backward()")
        < loop.index("scaler.step(optimizer)")
        < loop.index("scaler.update()")
    )
    assert "optimizer.step()" not in loop
    cpu = "\n".join(block.code for block in written).replace('"cuda"', '"cpu"').replace("float16", "bfloat16")
    run_script((CodeBlock(place="loop", changes=("amp_fp16",), code=cpu),))
    assert "GradScaler" not in str(blocks("amp_fp16", device="cuda", target=info(mode="infer")))


def test_every_change_of_cuda_has_valid_lines() -> None:
    for mode in ("train", "infer"):
        for goal in ("time", "memory", "throughput"):
            for change in first_changes("cudnn", goal, mode, ("0",)):  # type: ignore[arg-type]
                if mode == "infer" and change in ("fused_optimizer", "no_item"):
                    continue
                written = blocks(change, device="cuda", target=info(mode=mode))
                assert [c for block in written for c in block.changes][:1] == [change], change
                for block in written:
                    ast.parse(block.code)


def test_a_graph_is_captured_under_autocast_without_its_cache() -> None:
    code = blocks("cuda_graph", "amp_bf16", "channels_last", device="cuda")[0].code
    ast.parse(code)
    assert 'with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):' in code
    assert code.index("channels_last") < code.index("make_graphed_callables(model, (inputs,))")


def test_several_inputs_keep_their_names() -> None:
    ids = InputInfo(name="ids", shape=(4, 8), dtype="int64")
    mask = InputInfo(name="mask", shape=(4, 8), dtype="float32")
    target = info(ids, mask)
    assert "output = model(ids=ids, mask=mask)" in blocks("amp_bf16", target=target)[0].code
    assert "make_graphed_callables(model, (ids, mask,))" in blocks("cuda_graph", target=target, device="cuda")[0].code
    cast = blocks("dtype=bfloat16", target=replace_mode(target))[1].code
    assert "mask = mask.to(torch.bfloat16)" in cast
    assert "ids = ids.to" not in cast
    hostile = info(InputInfo(name="a b", shape=(4,), dtype="float32"), mask)
    ast.parse(blocks("amp_bf16", target=hostile)[0].code)


def replace_mode(target: TargetInfo) -> TargetInfo:
    return TargetInfo(spec=target.spec, name=target.name, inputs=target.inputs, mode="infer", loss=None, optimizer=None)


def test_volumes_use_their_own_layout() -> None:
    code = blocks("channels_last", target=info(InputInfo(name="x", shape=(2, 3, 4, 8, 8), dtype="float32")))[0].code
    assert code == "model = model.to(memory_format=torch.channels_last_3d)"


@pytest.mark.parametrize("word", ["benchmark", "no-tf32", "matmul_tf32", "dtype=float16", "threads=3", "compile"])
def test_the_line_of_a_setting_is_that_of_its_axis(word: str) -> None:
    change = change_of(word)
    assert change is not None
    assert blocks(word)[0].code == change.line


@pytest.mark.parametrize(
    "word",
    [*FLAG_CHANGES, "dtype=float16", *(f"{axis.name}={axis.bare or 4}" for axis in all_axes() if axis.name != "dtype")],
)
def test_every_line_to_paste_is_python(word: str) -> None:
    change = change_of(word)
    if change is None:
        assert word.partition("=")[0] in {"memory_limit", "loader_workers", "pin_memory", "bucket_mb", "find_unused"}
        return
    line = change.filled(device="cuda", optimizer="AdamW").line
    assert ast.parse(f"{line} pass" if line.endswith(":") else line)
    assert "{" not in line

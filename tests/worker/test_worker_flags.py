"""Flags that a model changes while it runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.records.configs import NamedValue  # noqa: E402
from profiler_kit.worker import environment  # noqa: E402


@pytest.fixture(autouse=True)
def _flags_put_back() -> Iterator[None]:
    cudnn = torch.backends.cudnn
    kept = (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, torch.get_float32_matmul_precision())
    yield
    cudnn.enabled, cudnn.benchmark, cudnn.deterministic = kept[:3]
    torch.set_float32_matmul_precision(kept[3])
    torch.use_deterministic_algorithms(False)


def test_nothing_changed_is_nothing() -> None:
    assert environment.flags_changed(environment.flags_snapshot(), environment.flags_snapshot()) == ()


def test_a_changed_flag_is_listed_with_both_values() -> None:
    before = environment.flags_snapshot()
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    changed = environment.flags_changed(before, environment.flags_snapshot())
    now = torch.backends.cudnn.benchmark
    assert changed == (f"cudnn.benchmark: {not now} -> {now}", "deterministic_algorithms: False -> True")


def test_the_snapshot_has_no_flag_that_this_torch_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [flag.name for flag in environment.flags_snapshot()]
    assert {"cudnn.enabled", "cudnn.allow_tf32", "deterministic_algorithms"} <= set(names)
    monkeypatch.setattr(environment, "_FLAGS", (("cudnn.imagined", lambda: torch.backends.cudnn.imagined),))
    assert environment.flags_snapshot() == ()


def test_a_flag_that_raises_is_unreadable_in_one_word() -> None:
    def flag(value: str) -> NamedValue:
        return NamedValue(name="cudnn.allow_tf32", value=value)

    before, after = (flag("True"),), (flag(f"{environment.UNREADABLE}: a mix of the legacy and new APIs"),)
    assert environment.flags_changed(before, after) == ("cudnn.allow_tf32: True -> unreadable",)
    assert environment.flags_changed(after, (flag("unreadable: in other words"),)) == ()


def test_a_mix_of_apis_is_read_without_an_error() -> None:
    """torch 2.13 raises where one is read after the other was set; in a process of its own nothing else would notice."""
    conv = getattr(torch.backends.cudnn, "conv", None)
    if conv is None:
        pytest.skip("this torch has one API only")
    before = environment.flags_snapshot()
    kept = conv.fp32_precision
    try:
        conv.fp32_precision = "ieee"
        changed = environment.flags_changed(before, environment.flags_snapshot())
    finally:
        conv.fp32_precision = kept
    assert any(line.startswith("cudnn.conv.fp32_precision: ") for line in changed)

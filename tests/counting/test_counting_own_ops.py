"""Formulas that users bring: registered in Python, as a decorator, by an installed package."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from counting_ops import counted, t
from torch import Tensor, nn

import profiler_kit
from profiler_kit.counting import count_target, custom_ops, formulas
from profiler_kit.counting.arithmetic import contraction
from profiler_kit.counting.custom_ops import FormulaWarning, load_entry_points, register_formula
from profiler_kit.errors import KitError, UsageError
from profiler_kit.loading import from_model
from profiler_kit.records.counts import Cost, TensorSpec


@pytest.fixture(autouse=True)
def _no_offers_left() -> Iterator[None]:
    before = dict(formulas._USER)
    yield
    formulas._USER.clear()
    formulas._USER.update(before)


@torch.library.custom_op("own_ops::blend", mutates_args=())
def blend(a: Tensor, b: Tensor) -> Tensor:
    return torch.outer(a, b)


@blend.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[0])


def outer(a: TensorSpec, b: TensorSpec, *, out: TensorSpec) -> Cost:
    return contraction(a.shape[0] * b.shape[0], a)


class Blending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) @ torch.ops.own_ops.blend(x[0], x[0])  # type: ignore[no-any-return]


def infer() -> Any:
    return count_target(from_model(Blending(), (torch.zeros(2, 4),), mode="infer"))


@pytest.mark.parametrize("name", ["own_ops::blend", "own_ops.blend", "own_ops.blend.default", torch.ops.own_ops.blend])
def test_registered_from_python(name: Any) -> None:
    before = infer()
    assert [(op.op, op.calls, op.paths) for op in before.uncounted] == [("own_ops.blend", 1, ("",))]
    calls = sum(op.calls for op in before.ops)
    assert before.coverage_percent == pytest.approx(100 * (calls - 1) / calls)

    assert profiler_kit.register_formula(name, outer) is outer
    after = infer()
    assert after.uncounted == ()
    assert after.coverage_percent == 100
    assert after.forward.macs == before.forward.macs + 16


def test_as_a_decorator_and_on_every_device() -> None:
    @profiler_kit.register_formula("own_ops::blend")  # type: ignore[untyped-decorator,unused-ignore]
    def cost(a: TensorSpec, b: TensorSpec, *, out: TensorSpec) -> int:
        return 7

    for device in ("meta", "cpu"):
        assert counted(blend, t(3, device=device), t(5, device=device)).forward == Cost(
            flops=7, read_bytes=32, write_bytes=60
        )


def test_registered_again_replaces() -> None:
    register_formula("own_ops::blend", lambda *args, out: 1)
    register_formula("own_ops::blend", lambda *args, out: 2)
    assert counted(blend, t(3), t(5)).forward.flops == 2


@pytest.mark.parametrize("name", ["aten::mm", "aten.mm.default", "aten.max.dim"])
def test_the_kits_own_formulas_are_replaced_only_on_request(name: str) -> None:
    with pytest.raises(UsageError, match=re.escape(name.replace("::", "."))):
        register_formula(name, lambda *args, out: 1)
    register_formula("aten::mm", lambda *args, out: 1, replace=True)
    assert counted(torch.mm, t(3, 4), t(4, 5)).forward.flops == 1


@pytest.mark.parametrize("name", ["blend", "", "a.b.c.d", "own ops::blend", 7])
def test_a_name_that_names_no_op(name: Any) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(name))):
        register_formula(name, outer)


def test_what_is_no_function_or_no_way_to_find_bytes() -> None:
    with pytest.raises(UsageError, match="int"):
        register_formula("own_ops::blend", 3)  # type: ignore[type-var]
    with pytest.raises(UsageError, match="sideways"):
        register_formula("own_ops::blend", outer, moves="sideways")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a, *, out: 1, "raised TypeError"),
        (lambda a, b, *, out: a.width, "raised AttributeError"),
        (lambda a, b, *, out: None, "returned None"),
        (lambda a, b, *, out: -1, "returned -1"),
        (lambda a, b, *, out: 1.5, "returned 1.5"),
    ],
)
def test_an_error_of_the_formula_is_told_as_such(function: Any, message: str) -> None:
    register_formula("own_ops::blend", function)
    with pytest.raises(KitError, match=f"the formula of own_ops.blend {message}") as caught:
        infer()
    assert caught.value.where is not None
    assert Path(__file__).name in caught.value.where


def test_formulas_of_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages, one of which is broken: the other's formulas count nevertheless."""
    (tmp_path / "good_formulas.py").write_text(
        "import profiler_kit\n"
        "LOADED = []\n"
        "def setup():\n"
        "    LOADED.append(1)\n"
        "    profiler_kit.register_formula('own_ops::blend', lambda a, b, *, out: 11)\n"
    )
    (tmp_path / "bad_formulas.py").write_text("import no_such_module_anywhere\n")
    for package, target in (("good", "good_formulas:setup"), ("bad", "bad_formulas")):
        info = tmp_path / f"{package}_formulas-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}-formulas\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{custom_ops.ENTRY_POINTS}]\n{package} = {target}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    load_entry_points.cache_clear()
    try:
        with pytest.warns(FormulaWarning, match="bad-formulas.*bad_formulas.*no_such_module_anywhere") as told:
            static = infer()
        assert len(told) == 1
        assert static.uncounted == ()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            infer()  # loaded once, told once
        import good_formulas  # type: ignore[import-not-found]

        assert good_formulas.LOADED == [1]
    finally:
        load_entry_points.cache_clear()

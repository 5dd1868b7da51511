"""Formulas that users bring for their own ops: registered from Python, or offered by an installed package's entry point."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, wraps
from importlib import metadata
from typing import Any, Final, TypeVar, overload

from profiler_kit.counting.formulas import Formula, Moves, builtin, offer
from profiler_kit.errors import KitError, UsageError
from profiler_kit.records.counts import Cost

ENTRY_POINTS: Final = "profiler_kit.formulas"

F = TypeVar("F", bound=Callable[..., Any])


class FormulaWarning(UserWarning):
    """An installed package offers formulas that could not be loaded; its ops are listed as uncounted."""


@overload
def register_formula(name: Any, function: F, *, moves: Moves = "operands", replace: bool = False) -> F: ...
@overload
def register_formula(
    name: Any, function: None = None, *, moves: Moves = "operands", replace: bool = False
) -> Callable[[F], F]: ...
def register_formula(
    name: Any, function: F | None = None, *, moves: Moves = "operands", replace: bool = False
) -> F | Callable[[F], F]:
    """Makes `function` the formula of the op `name`; without `function`, returns the decorator that does.

    `name` is ``"mylib::blend"``, ``"mylib.blend"``, either with ``.overload`` behind it, or the op itself
    (``torch.ops.mylib.blend``). `function` is called with the op's own arguments, each tensor replaced by its shape, dtype and
    bytes (`TensorSpec`), and with ``out=``, the same of what the op returned. It returns a `Cost`, or a number of FLOPs.
    `moves` says how the bytes are found: see ``docs/counting.md``. A formula registered again takes the place of the former.

    Raises: UsageError where the kit has a formula for the op and `replace` is not set, or where arguments make no sense.
    """
    canonical = op_name(name)
    if moves not in ("operands", "overwrite", "nothing", "own"):
        raise UsageError(f"moves={moves!r} is unknown", hint="take operands, overwrite, nothing or own")
    if not replace and builtin(canonical):
        raise UsageError(f"{canonical} has a formula already", hint="to put yours in its place, give replace=True")

    def register(given: F) -> F:
        if not callable(given):
            raise UsageError(f"the formula of {canonical} is a {type(given).__name__}", hint="give a function")
        offer(canonical, Formula(function=checked(canonical, given), moves=moves))
        return given

    return register if function is None else register(function)


def op_name(name: Any) -> str:
    """`name` as formulas are looked up: ``namespace.packet`` or ``namespace.packet.overload``. Raises UsageError."""
    text = str(name).replace("::", ".")
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(part.isidentifier() for part in parts):
        raise UsageError(f"{name!r} names no op", hint='an op is called like "mylib::blend" or torch.ops.mylib.blend')
    return text


def checked(name: str, function: Callable[..., Any]) -> Callable[..., Cost]:
    """`function` with its result checked, and its errors told as errors of the formula, not of the model."""
    code = getattr(function, "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else name

    @wraps(function)
    def formula(*args: Any, **kwargs: Any) -> Cost:
        try:
            cost = function(*args, **kwargs)
        except KitError:
            raise
        except Exception as error:
            raise KitError(
                f"the formula of {name} raised {type(error).__name__}: {error}",
                where=where,
                hint="it is called with the op's arguments, tensors as TensorSpec(shape, dtype, nbytes), and out=",
            ) from error
        if isinstance(cost, Cost):
            return cost
        if isinstance(cost, int) and not isinstance(cost, bool) and cost >= 0:
            return Cost(flops=cost)
        raise KitError(
            f"the formula of {name} returned {cost!r}",
            where=where,
            hint="return a profiler_kit.records.counts.Cost, or a number of FLOPs",
        )

    return formula


@cache
def load_entry_points() -> None:
    """Loads what installed packages offer in the group ``profiler_kit.formulas``, once.

    An entry point names a module, which registers when it is imported, or a function without arguments, which is called. One
    that fails is told in a `FormulaWarning`, and the others are loaded nevertheless.
    """
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        package = entry.dist.name if entry.dist is not None else "a package"
        try:
            loaded = entry.load()
            if callable(loaded):
                loaded()
        except Exception as error:  # noqa: BLE001 the package's code may raise anything; the count stands without it
            told = error.message if isinstance(error, KitError) else f"{type(error).__name__}: {error}"
            warnings.warn(
                f"{package}: its formulas ({entry.name} = {entry.value}) could not be loaded: {told}",
                FormulaWarning,
                stacklevel=2,
            )

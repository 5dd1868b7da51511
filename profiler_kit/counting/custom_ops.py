"""Users' formulas for custom ops: registered from Python or by an installed package's entry point."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, wraps
from importlib import metadata
from types import CodeType
from typing import Any, Final, TypeVar, overload

from profiler_kit.counting.formulas import Formula, Moves, add_user_formula, has_builtin_formula
from profiler_kit.errors import KitError, UsageError
from profiler_kit.foreign import attribute_of
from profiler_kit.records.counts import Cost

ENTRY_POINTS: Final = "profiler_kit.formulas"

F = TypeVar("F", bound=Callable[..., Any])


class FormulaWarning(UserWarning):
    """The formulas of an installed package could not be loaded. Its ops are listed as uncounted."""


@overload
def register_formula(name: Any, function: F, *, moves: Moves = "operands", replace: bool = False) -> F: ...
@overload
def register_formula(
    name: Any, function: None = None, *, moves: Moves = "operands", replace: bool = False
) -> Callable[[F], F]: ...
def register_formula(
    name: Any, function: F | None = None, *, moves: Moves = "operands", replace: bool = False
) -> F | Callable[[F], F]:
    """Register `function` as the formula of the op `name`; without `function`, return a decorator.

    `name` is ``"mylib::blend"``, ``"mylib.blend"``, either with an ``.overload`` suffix, or the op itself
    (``torch.ops.mylib.blend``). `function` receives the op's arguments with a `TensorSpec` (shape, dtype, bytes) in place of
    every tensor, and ``out=``, the op's result in the same form. It returns a `Cost` or a number of FLOPs. `moves` defines
    how bytes are counted: see ``docs/counting.md``. A second registration replaces the first.

    Raises: UsageError if the kit has a formula for the op and `replace` is false, or if an argument is invalid.
    """
    canonical = op_name(name)
    if moves not in ("operands", "overwrite", "nothing", "own"):
        raise UsageError(f"moves={moves!r} is unknown", hint="use operands, overwrite, nothing or own")
    if not replace and has_builtin_formula(canonical):
        raise UsageError(f"{canonical} already has a formula in the kit", hint="pass replace=True to use yours")

    def register(formula: F) -> F:
        if not callable(formula):
            raise UsageError(f"the formula of {canonical} is of type {type(formula).__name__}", hint="pass a function")
        add_user_formula(canonical, Formula(function=checked(canonical, formula), moves=moves))
        return formula

    return register if function is None else register(function)


def op_name(name: Any) -> str:
    """The canonical form of `name`: ``namespace.packet`` or ``namespace.packet.overload``. Raises UsageError."""
    text = str(name).replace("::", ".")
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(part.isidentifier() for part in parts):
        raise UsageError(f"{name!r} is not the name of an op", hint='write "mylib::blend" or torch.ops.mylib.blend')
    return text


def checked(name: str, function: Callable[..., Any]) -> Callable[..., Cost]:
    """Wrap `function`: check its result, and report its exceptions as errors of the formula, not of the model."""
    code = attribute_of(function, "__code__", CodeType)
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
                hint="it receives the op's arguments with TensorSpec(shape, dtype, nbytes) for tensors, and out=",
            ) from error
        if isinstance(cost, Cost):
            return cost
        if isinstance(cost, int) and not isinstance(cost, bool) and cost >= 0:
            return Cost(flops=cost)
        raise KitError(
            f"the formula of {name} returned {cost!r}",
            where=where,
            hint="return a profiler_kit.records.counts.Cost or a number of FLOPs",
        )

    return formula


@cache
def load_entry_points() -> None:
    """Load the entry points of the group ``profiler_kit.formulas`` once.

    An entry point names a module, which registers formulas when it is imported, or a function without arguments, which is
    called. If one fails, a `FormulaWarning` names it and the others are still loaded.
    """
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        package = attribute_of(entry.dist, "name", str, "a package")
        try:
            loaded = entry.load()
            if callable(loaded):
                loaded()
        except Exception as error:  # noqa: BLE001 the package's code may raise anything; the count works without it
            reason = error.message if isinstance(error, KitError) else f"{type(error).__name__}: {error}"
            warnings.warn(
                f"{package}: its formulas ({entry.name} = {entry.value}) could not be loaded: {reason}",
                FormulaWarning,
                stacklevel=2,
            )

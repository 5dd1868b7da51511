"""What an op costs, as functions of shapes. A drop-in folder: one function in one file adds an op, no other file changes.

A formula is called with the op's own arguments, every tensor replaced by its `TensorSpec`, and with `out`, the specs of
what came back. It returns the op's `Cost`; the bytes are filled in from the operands unless `moves` says otherwise::

    @formula("aten.mm")
    def mm(a: TensorSpec, b: TensorSpec, *, out: TensorSpec) -> Cost:
        return contraction(a.shape[0] * a.shape[1] * b.shape[1], a)

Formulas that many ops share are in `counting.arithmetic`: so many FLOPs per element of an argument or of the result, or none::

    formula("aten.mse_loss_backward")(per_argument(1, 2))  # subtract, scale by the gradient

Trailing arguments that have their default value do not reach the formula, so parameters need the same defaults.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeVar

from profiler_kit import _family
from profiler_kit.records.counts import Cost

Moves = Literal["operands", "overwrite", "nothing", "own"]
FormulaFunction = Callable[..., Cost]
F = TypeVar("F", bound=FormulaFunction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A cost function and how the op's bytes are found.

    `moves`: ``operands`` reads every input and writes every output once; ``overwrite`` does so too, but its first operand
    is only written; ``nothing`` touches no data; ``own`` means the function's Cost already has the bytes.
    """

    function: FormulaFunction
    moves: Moves
    file: str = ""  # that registers it


_REGISTERED: Final[dict[str, Formula]] = {}
_OFFERED: Final[dict[str, Formula]] = {}  # by users, for ops of their own; they go before the kit's


def formula(*names: str, moves: Moves = "operands") -> Callable[[F], F]:
    """A decorator that makes its function the formula of the ops called `names`.

    A name is an op's packet (``aten.mm``, for all overloads) or one overload (``aten.max.dim``). The in-place variant
    (``aten.mm_``) falls back to its functional one. Raises ValueError where another file has the name already.
    """

    file = sys._getframe(1).f_code.co_filename

    def register(function: F) -> F:
        for name in names:
            taken = _REGISTERED.get(name)
            if taken is not None and taken.file != file:
                raise ValueError(f"{name} has a formula in {taken.file} already")
            _REGISTERED[name] = Formula(function=function, moves=moves, file=file)
        return function

    return register


@cache
def import_all() -> None:
    """Imports every formula file of this folder, once."""
    _family.members(sys.modules[__name__])


def offer(name: str, given: Formula) -> None:
    """Takes a user's formula for the op `name`; it goes before the kit's own."""
    _OFFERED[name] = given


def builtin(name: str) -> bool:
    """Whether the kit itself has a formula for the op called `name`, or for its packet."""
    import_all()
    return any(each in _REGISTERED for each in (name, *packets(name)))


def packets(name: str) -> tuple[str, ...]:
    """``namespace.packet`` where `name` is ``namespace.packet.overload``."""
    return (name.rpartition(".")[0],) if name.count(".") > 1 else ()


def find(overload: str) -> Formula | None:
    """The formula of the op ``namespace.packet.overload``, None where there is none.

    The most exact name wins: the overload, its packet, then for in-place ops their functional variants. Higher-order ops have
    a bare name and are looked up as ``higher_order.<name>``.
    """
    import_all()
    if "." not in overload:
        candidates = [f"higher_order.{overload}"]
    else:
        packet, _, variant = overload.rpartition(".")
        candidates = [overload, packet]
        if packet.endswith("_"):
            functional = packet.rstrip("_")
            candidates += [f"{functional}.{variant}", functional]
    return next((table[name] for name in candidates for table in (_OFFERED, _REGISTERED) if name in table), None)


def names() -> tuple[str, ...]:
    """All names for which the kit has a formula, sorted."""
    import_all()
    return tuple(sorted(_REGISTERED))

"""Cost formulas of ops, as functions of shapes. A drop-in folder: one function in one file adds an op.

A formula receives the op's arguments with a `TensorSpec` in place of every tensor, and `out`, the op's result in the same
form. It returns the op's `Cost`. Bytes are added from the operands, depending on `moves`::

    @formula("aten.mm")
    def mm(a: TensorSpec, b: TensorSpec, *, out: TensorSpec) -> Cost:
        return contraction(a.shape[0] * a.shape[1] * b.shape[1], a)

`counting.arithmetic` has shared formulas: a number of FLOPs per element of an argument or of the result, or zero::

    formula("aten.mse_loss_backward")(per_argument(1, 2))  # subtract, scale by the gradient

Trailing arguments with their default value are not passed, so the formula's parameters need the same defaults.

A formula of ops whose arguments have the same names at different places gets them by the names of the schema, where `x` stands
for `input`, `self` and `data`. The op's result is `out`, also where an argument has that name::

    @named_formula("aten._cudnn_rnn", "aten.miopen_rnn")
    def rnn(*, x: TensorSpec, weight: Sequence[TensorSpec], hidden_size: int, out: Any, **_: Any) -> Cost: ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, TypeVar

from profiler_kit import _family
from profiler_kit.records.counts import Cost

Moves = Literal["operands", "overwrite", "nothing", "own"]
FormulaFunction = Callable[..., Cost]
F = TypeVar("F", bound=FormulaFunction)


@dataclass(frozen=True, slots=True)
class Formula:
    """A cost function and the rule for the op's bytes.

    `moves`: ``operands`` reads every input and writes every output once; ``overwrite`` is the same, but the first operand is
    not read; ``nothing`` moves no bytes; ``own`` means that the function's `Cost` contains the bytes.
    `reads`: the arguments whose values the function reads (`TensorSpec.values`). Unknown values give an upper bound.
    `by_name`: the function gets all arguments by name.
    """

    function: FormulaFunction
    moves: Moves
    file: str = ""  # the file that registers it
    reads: tuple[str, ...] = ()
    by_name: bool = False

    def cost(self, args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str], out: Any) -> Cost:
        """The cost of a call. `names`: those of the positional parameters in the op's schema."""
        if not self.by_name:
            return self.function(*args, **kwargs, out=out)
        named = {_FIRST.get(name, name): value for name, value in zip(names, args, strict=False) if name != "out"}
        return self.function(**named, **kwargs, out=out)


_FIRST: Final = {"input": "x", "self": "x", "data": "x"}
_REGISTERED: Final[dict[str, Formula]] = {}
_USER: Final[dict[str, Formula]] = {}  # users' formulas take precedence over the kit's


def formula(
    *names: str, moves: Moves = "operands", reads: tuple[str, ...] = (), by_name: bool = False
) -> Callable[[F], F]:
    """A decorator that registers its function as the formula of the ops `names`.

    A name is an op's packet (``aten.mm``, all overloads) or one overload (``aten.max.dim``). An in-place variant
    (``aten.mm_``) falls back to the functional op. `reads` names arguments of the op's schema, see `Formula`. Raises ValueError
    if another file has registered the name.
    """

    file = sys._getframe(2 if by_name else 1).f_code.co_filename  # `named_formula` is in between

    def register(function: F) -> F:
        for name in names:
            registered = _REGISTERED.get(name)
            if registered is not None and registered.file != file:
                raise ValueError(f"{name} has a formula in {registered.file} already")
            _REGISTERED[name] = Formula(function, moves, file, reads, by_name)
        return function

    return register


def named_formula(*names: str, reads: tuple[str, ...] = ()) -> Callable[[F], F]:
    """As `formula`, for a function that gets all arguments by name."""
    return formula(*names, reads=reads, by_name=True)


@cache
def import_all() -> None:
    """Import every formula file of this folder once."""
    _family.members(sys.modules[__name__])


def add_user_formula(name: str, user_formula: Formula) -> None:
    """Register a user's formula for the op `name`. It takes precedence over the kit's."""
    _USER[name] = user_formula


def has_builtin_formula(name: str) -> bool:
    """Whether the kit has a formula for the op `name` or for its packet."""
    import_all()
    packet = name.rpartition(".")[0] if name.count(".") > 1 else name
    return name in _REGISTERED or packet in _REGISTERED


def find_formula(overload: str) -> Formula | None:
    """The formula of the op ``namespace.packet.overload``; None without one.

    The most specific name wins: the overload, its packet, then the functional variants of an in-place op. A higher-order op
    has a name without a dot and is looked up as ``higher_order.<name>``.
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
    return next((table[name] for name in candidates for table in (_USER, _REGISTERED) if name in table), None)


def names() -> tuple[str, ...]:
    """The names of all ops with a formula in the kit, sorted."""
    import_all()
    return tuple(sorted(_REGISTERED))

"""Control flow operators of torch (``cond``, ``while_loop``, ``scan``, ``map``) as the Python code that they are equivalent to.

torch runs these operators as one op with functions as arguments: it traces each function on fake tensors, also for backward.
Here the selected branch, or every iteration, runs as ordinary ops, so each of them is attributed, saved and differentiated as
anywhere else. A decision follows the values where they are known. Where they are not, the branch with more work runs, or one
iteration, and the count is noted as a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.flop_counter import FlopCounterMode

from profiler_kit.meta.bounds import note_bound
from profiler_kit.meta.values import known_values

Function = Callable[..., Any]


def decision(predicate: Any) -> bool | None:
    """The truth of `predicate`; None if it is a tensor with unknown values. Raises ValuesNeededError, as `known_values`."""
    if not isinstance(predicate, Tensor):
        return bool(predicate)
    value = known_values(predicate)
    with _disable_current_modes():
        return None if value is None else bool(value)


def run_cond(predicate: Any, true_fn: Function, false_fn: Function, operands: Sequence[Any] = ()) -> Any:
    """The result of the branch that `predicate` selects; with unknown values, of the branch with more MACs."""
    selected = decision(predicate)
    if selected is None:
        note_bound("higher_order.cond", "upper", "the predicate is unknown, so the branch with more MACs counts")
        selected = macs_of(true_fn, operands) >= macs_of(false_fn, operands)
    return (true_fn if selected else false_fn)(*operands)


def run_while_loop(
    cond_fn: Function, body_fn: Function, carried: Sequence[Any], additional: Sequence[Any] = (), **options: Any
) -> tuple[Any, ...]:
    """The carried values after the last iteration; with an unknown condition, after one more iteration."""
    state = tuple(carried)
    while True:
        goes_on = decision(cond_fn(*state, *additional))
        if goes_on is None:
            note_bound("higher_order.while_loop", "lower", "the condition is unknown, so one more iteration counts")
        elif not goes_on:
            return state
        following = body_fn(*state, *additional)
        state = tuple(following) if isinstance(following, (tuple, list)) else (following,)
        if goes_on is None:
            return state


def run_scan(combine_fn: Function, init: Sequence[Any], xs: Sequence[Tensor], *options: Any) -> tuple[Any, ...]:
    """The last carry and the stacked outputs of every step. Up to torch 2.6, `options` begins with dimension and direction."""
    dim, is_reversed = _scan_order(options)
    additional = options[-1] if options else ()
    carry, outputs = tuple(init), []
    steps = range(xs[0].shape[dim] if xs else 0)
    for step in reversed(steps) if is_reversed else steps:
        results = tuple(combine_fn(*carry, *(x.select(dim, step) for x in xs), *additional))
        carry, output = results[: len(carry)], results[len(carry) :]
        outputs.append(output)
    ordered = outputs[::-1] if is_reversed else outputs
    return (*carry, *(_stacked(values) for values in zip(*ordered, strict=True)))


def _scan_order(options: Sequence[Any]) -> tuple[int, bool]:
    dim = next((value for value in options[:-1] if type(value) is int), 0)
    return dim, any(value is True for value in options[:-1])


def run_associative_scan(combine_fn: Function, xs: Sequence[Tensor], *options: Any) -> list[Any]:
    """The scan in torch's own generic form: a logarithmic number of calls on ever fewer elements."""
    from torch._higher_order_ops.associative_scan import generic_associative_scan

    dim, _ = _scan_order((*options, ()))
    additional = options[-1] if options and isinstance(options[-1], (tuple, list)) else ()

    def combine(*arguments: Any) -> Any:
        return combine_fn(*arguments, *additional)

    return list(generic_associative_scan(combine, list(xs), dim))


def run_map(function: Function, xs: Sequence[Tensor], arguments: Sequence[Any] = ()) -> Any:
    """The stacked results of `function` on every slice of the first dimension."""
    results = [function(*(x.select(0, step) for x in xs), *arguments) for step in range(xs[0].shape[0])]
    leaves = [pytree.tree_leaves(result) for result in results]
    _, structure = pytree.tree_flatten(results[0])
    return pytree.tree_unflatten([_stacked(values) for values in zip(*leaves, strict=True)], structure)


def _stacked(values: Sequence[Any]) -> Any:
    return torch.stack(list(values)) if isinstance(values[0], Tensor) else values[0]


def macs_of(function: Function, operands: Sequence[Any]) -> int:
    """The MACs of ``function(*operands)`` by torch's counter. No mode and no watcher of modules sees the call."""
    watched = nn.Module.__call__
    nn.Module.__call__ = nn.Module._wrapped_call_impl  # type: ignore[method-assign]
    try:
        counter = FlopCounterMode(display=False)
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad(), counter:
            function(*operands)
    finally:
        nn.Module.__call__ = watched  # type: ignore[method-assign]
    return int(counter.get_total_flops()) // 2


_IN_PYTHON: Final[Mapping[str, Function]] = {
    "cond": run_cond,
    "while_loop": run_while_loop,
    "scan": run_scan,
    "associative_scan": run_associative_scan,
    "map_impl": run_map,
}


@contextmanager
def control_flow_in_python() -> Iterator[None]:
    """Run control flow operators as Python code inside the block, and TorchScript without optimization.

    Optimization of a TorchScript graph reads the values of its constants.
    """
    original: Any = HigherOrderOperator.__call__
    jit: Any = torch.jit  # does not export the name

    def call(operator: HigherOrderOperator, /, *args: Any, **kwargs: Any) -> Any:
        function = _IN_PYTHON.get(operator.name())
        return original(operator, *args, **kwargs) if function is None else function(*args, **kwargs)

    HigherOrderOperator.__call__ = call  # type: ignore[method-assign]
    try:
        with jit.optimized_execution(False):
            yield
    finally:
        HigherOrderOperator.__call__ = original  # type: ignore[method-assign]

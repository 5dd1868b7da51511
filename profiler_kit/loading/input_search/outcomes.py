"""What one forward pass gave, and which inputs its tensors come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tensor, nn

from profiler_kit.meta.batch import tensors_in

_NEEDS_VALUES: Final = re.compile(
    r"meta tensors?\b|\dD meta\b|meta device|data-independent|data-dependent|SparseMeta|SparseCsrMeta|fake impl|NestedTensorImpl"
)

_WRONG_CALL: Final = re.compile(r"\(\) (takes|missing|got) .*(positional|keyword|multiple values)")


class LayerInputError(Exception):
    """A layer got a tensor that it accepts, but that its author would not pass to it: one without a batch, for example."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a forward pass failed, and where.

    `module` is the innermost running module. `function` is the failing call of torch with its `arguments`; None if the
    exception comes from other code. `names` are the local variables of the user's line `source`.
    """

    error: Exception
    module: nn.Module | None
    module_arguments: tuple[Any, ...]
    function: Callable[..., Any] | None
    arguments: tuple[Any, ...]
    source: str
    names: Mapping[str, Any]
    line: tuple[str, int] | None
    progress: tuple[int, int]

    @property
    def position(self) -> tuple[object, ...]:
        """Identifies the failing operation, so that two failures can be compared."""
        return (id(self.module), getattr(self.function, "__name__", None), self.line, type(self.error).__name__)

    @property
    def signature(self) -> tuple[object, ...]:
        """The same for failures that differ in nothing, of different inputs."""
        return (self.position, str(self.error))

    @property
    def needs_values(self) -> bool:
        """Whether the code reads values, which meta tensors do not have: the shapes may be right."""
        return isinstance(self.error, NotImplementedError | RuntimeError) and bool(
            _NEEDS_VALUES.search(str(self.error))
        )


@dataclass(kw_only=True)
class Outcome:
    """The result of one forward pass: an output, or a failure.

    `rows` has the smallest number of rows of the embeddings that each input indexes. `consumers` has the name of the first
    function that received each input.
    """

    output: Any = None
    failure: Failure | None = None
    rows: dict[str, int] = field(default_factory=dict)
    consumers: dict[str, str] = field(default_factory=dict)


def is_wrong_call(error: BaseException) -> bool:
    """Whether a function was called with too many, too few or unknown arguments, whatever their values."""
    return isinstance(error, TypeError) and _WRONG_CALL.search(str(error)) is not None


def origins(value: object) -> frozenset[str]:
    """The names of the inputs from which the tensors of `value` were computed."""
    return frozenset().union(*(getattr(tensor, "_input_names", frozenset()) for tensor in tensors_in(value)))


def mark(tensor: Tensor, name: str) -> Tensor:
    """Mark `tensor` as the input `name`."""
    tensor._input_names = frozenset((name,))  # type: ignore[attr-defined]
    tensor._is_input = name  # type: ignore[attr-defined]
    return tensor


def input_name(tensor: object) -> str | None:
    """The name of the input that `tensor` is; None for a computed tensor."""
    return getattr(tensor, "_is_input", None)
